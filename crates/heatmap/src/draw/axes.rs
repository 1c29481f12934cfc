//! Rank axes: which ranks get a number, where nodes begin, and the lines between them.

use deepxtrace_counters::Topology;

use super::{FAINT, INK, RULE, TICK};
use crate::svg::{Font, N, Rect, Svg};
use crate::text;

/// Height of the band with node names.
pub(super) const NODE_BAND: f64 = 15.0;
const NODE: Font = Font::new(10.0, INK);

/// Ranks along one side of a plot.
#[derive(Debug, Clone, Copy)]
pub(super) struct RankAxis {
    pub topology: Topology,
    /// Pixels a rank.
    pub pitch: f64,
}

impl RankAxis {
    /// Distance between numbered ranks, such that numbers of `room` pixels stay apart. Steps are
    /// powers of two within a node, then whole nodes.
    pub(super) fn step(self, room: f64) -> usize {
        let node = self.topology.ranks_per_node().min(self.topology.ep_size());
        let mut step = 1;
        while step as f64 * self.pitch < room && step < self.topology.ep_size() {
            step = if step < node && step * 2 > node { node } else { step * 2 };
        }
        step
    }

    /// The ranks that get a number.
    pub(super) fn numbered(self, room: f64) -> impl Iterator<Item = usize> {
        (0..self.topology.ep_size()).step_by(self.step(room))
    }

    /// Middle of a rank, pixels from the start.
    pub(super) fn middle(self, rank: usize) -> f64 {
        (rank as f64 + 0.5) * self.pitch
    }

    /// Width of the widest rank number.
    pub(super) fn widest(self) -> f64 {
        text::width(&(self.topology.ep_size() - 1).to_string(), TICK.size, false)
    }

    /// Inner boundaries between nodes, pixels from the start; none where they would stand closer
    /// than 5 pixels.
    pub(super) fn boundaries(self) -> impl Iterator<Item = f64> {
        let wide = self.topology.ranks_per_node() as f64 * self.pitch >= 5.0;
        (1..if wide { self.topology.nodes() } else { 0 })
            .map(move |node| self.topology.ranks_of(node).start as f64 * self.pitch)
    }

    /// The names of nodes that fit: name and middle, pixels from the start. None for one node.
    pub(super) fn node_names(self) -> Vec<(String, f64)> {
        let nodes = self.topology.nodes();
        let span = self.topology.ranks_per_node() as f64 * self.pitch;
        if nodes < 2 {
            return Vec::new();
        }
        let fits = |prefix: &str| {
            text::width(&format!("{prefix}{}", nodes - 1), NODE.size, false) + 4.0 <= span
        };
        let Some(prefix) = ["node ", "n"].into_iter().find(|prefix| fits(prefix)) else {
            return Vec::new();
        };
        let named = (0..nodes).map(|node| {
            let ranks = self.topology.ranks_of(node);
            let middle = (ranks.start + ranks.end) as f64 / 2.0 * self.pitch;
            (format!("{prefix}{node}"), middle, ranks.len() as f64 * self.pitch)
        });
        named
            .filter(|(name, _, own)| text::width(name, NODE.size, false) <= *own)
            .map(|(name, middle, _)| (name, middle))
            .collect()
    }

    /// Draws ticks, node names and the label below `plot`.
    pub(super) fn draw_below(self, svg: &mut Svg, plot: Rect, label: &str) {
        for rank in self.numbered(self.widest() + 6.0) {
            let x = plot.x + self.middle(rank);
            svg.line((x, plot.bottom()), (x, plot.bottom() + 4.0), RULE, 0.8);
            svg.text((x, plot.bottom() + 14.0), TICK.middle(), &rank.to_string());
        }
        let mut y = plot.bottom() + 14.0;
        let names = self.node_names();
        if !names.is_empty() {
            y += NODE_BAND;
        }
        for (name, middle) in names {
            svg.text((plot.x + middle, y), NODE.middle(), &name);
        }
        let font = Font { color: FAINT, ..super::LABEL };
        svg.text((plot.x + plot.w / 2.0, y + 17.0), font.middle(), label);
    }

    /// Height of what [`draw_below`](Self::draw_below) draws.
    pub(super) fn height_below(self) -> f64 {
        36.0 + if self.node_names().is_empty() { 0.0 } else { NODE_BAND }
    }

    /// Draws ticks, node names and the label left of `plot`.
    pub(super) fn draw_left(self, svg: &mut Svg, plot: Rect, label: &str) {
        for rank in self.numbered(TICK.size + 3.0) {
            let y = plot.y + self.middle(rank);
            svg.line((plot.x - 4.0, y), (plot.x, y), RULE, 0.8);
            svg.text((plot.x - 6.0, y + 3.5), TICK.end(), &rank.to_string());
        }
        let mut x = plot.x - 6.0 - self.widest() - 5.0;
        let names = self.node_names();
        if !names.is_empty() {
            for (name, middle) in names {
                svg.text_upwards((x, plot.y + middle), NODE, &name);
            }
            x -= NODE_BAND;
        }
        let font = Font { color: FAINT, ..super::LABEL };
        svg.text_upwards((x - 2.0, plot.y + plot.h / 2.0), font, label);
    }

    /// Width of what [`draw_left`](Self::draw_left) draws.
    pub(super) fn width_left(self) -> f64 {
        25.0 + self.widest() + if self.node_names().is_empty() { 0.0 } else { NODE_BAND }
    }
}

/// Draws the boundaries between nodes into `plot`, dark on a light border, so that they can be
/// seen on every colour.
pub(super) fn draw_boundaries(
    svg: &mut Svg,
    plot: Rect,
    columns: RankAxis,
    rows: Option<RankAxis>,
) {
    let mut path = String::new();
    for x in columns.boundaries() {
        path += &format!("M{} {}v{}", N(plot.x + x), N(plot.y), N(plot.h));
    }
    for y in rows.into_iter().flat_map(RankAxis::boundaries) {
        path += &format!("M{} {}h{}", N(plot.x), N(plot.y + y), N(plot.w));
    }
    if path.is_empty() {
        return;
    }
    let wide = (columns.pitch * 0.16).clamp(0.9, 2.6);
    svg.raw(format_args!(
        "<g fill=\"none\"><path d=\"{path}\" stroke=\"#fff\" stroke-width=\"{}\"/>\
         <path d=\"{path}\" stroke=\"#000\" stroke-width=\"{}\"/></g>",
        N(wide),
        N(wide * 0.4)
    ));
}
