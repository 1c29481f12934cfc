//! The picture of panels of bars.

use super::axes::{RankAxis, draw_boundaries};
use super::frame::{self, Footer, LISTED};
use super::matrix::{check_figsize, natural_side};
use super::{FAINT, INK, LABEL, MARK, PAD, PIXELS_PER_INCH, RULE, Room, TICK};
use crate::error::PictureError;
use crate::model::{BarPlot, Panel};
use crate::picture::Picture;
use crate::scale::Scale;
use crate::style::Style;
use crate::svg::{Font, N, Rect, Svg};
use crate::text;

const LEAST_WIDTH: f64 = 740.0;
const LEAST_PLOT: f64 = 260.0;
const PANEL: f64 = 150.0;
const LEAST_PANEL: f64 = 60.0;
/// Title above a panel, with the room for numbers.
const ABOVE: f64 = 42.0;
/// Between a panel and the title of the next.
const BELOW: f64 = 26.0;
const LEFT: f64 = PAD + 66.0;
const RIGHT: f64 = PAD + 8.0;
const BAR: &str = "#31688e";
const HEADING: Font = Font::new(12.5, INK).bold();

/// Draws panels of bars.
pub(crate) fn draw_bars(plot: &BarPlot, style: &Style) -> Result<Picture, PictureError> {
    let ep_size = plot.topology.ep_size();
    if let Some(panel) = plot.panels.iter().find(|panel| panel.values.len() != ep_size) {
        let (panel, length) = (panel.title.clone(), panel.values.len());
        return Err(PictureError::Panel { panel, length, ep_size });
    }
    check_figsize(style)?;
    Drawing { plot, ranks: plot.topology.ep_size() as f64 }.draw(style)
}

struct Drawing<'a> {
    plot: &'a BarPlot,
    ranks: f64,
}

impl Drawing<'_> {
    fn footer(&self) -> Footer<'_> {
        let panels = &self.plot.panels;
        let empty = panels.iter().any(|panel| panel.values.iter().any(Option::is_none));
        let legend = if empty { vec![(true, "no launch in this window")] } else { Vec::new() };
        let marks = panels.iter().flat_map(|panel| &panel.marks);
        let findings = marks.map(|(_, text)| text.as_str()).collect();
        Footer { legend, findings, notes: &self.plot.caption.notes }
    }

    /// Height of everything but the panels themselves.
    fn fixed_height(&self, axis: RankAxis, width: f64) -> f64 {
        let mut scratch = Svg::new("");
        let top = frame::draw_header(&mut scratch, &self.plot.caption, None, width);
        let between = self.plot.panels.len() as f64 * (ABOVE + BELOW) - BELOW;
        self.footer().draw(None, top + between + axis.height_below(), width)
    }

    fn draw(&self, style: &Style) -> Result<Picture, PictureError> {
        let room = Room { least_width: LEAST_WIDTH, left: LEFT, right: RIGHT };
        let mut plot_width = natural_side(self.plot.topology.ep_size()).max(650.0);
        let (mut width, mut panel) = (room.total(plot_width), PANEL);
        let axis =
            |plot_width| RankAxis { topology: self.plot.topology, pitch: plot_width / self.ranks };
        if let Some((w, h)) = style.figsize {
            width = w * PIXELS_PER_INCH;
            plot_width = width - LEFT - RIGHT;
            let fixed = self.fixed_height(axis(plot_width.max(LEAST_PLOT)), width);
            let panels = self.plot.panels.len().max(1) as f64;
            panel = (h * PIXELS_PER_INCH - fixed) / panels;
            if plot_width < LEAST_PLOT || panel < LEAST_PANEL {
                return Err(PictureError::TooSmall {
                    width: w,
                    height: h,
                    least_width: (LEAST_PLOT + LEFT + RIGHT) / PIXELS_PER_INCH,
                    least_height: (fixed + panels * LEAST_PANEL) / PIXELS_PER_INCH,
                });
            }
        }
        let axis = axis(plot_width);
        let mut svg = Svg::new(&style.id_prefix);
        frame::define_hatch(&mut svg);
        let title = style.title.as_deref();
        let mut y = frame::draw_header(&mut svg, &self.plot.caption, title, width);
        let (mut place, mut number) = (Rect { x: LEFT, y, w: plot_width, h: 0.0 }, 1);
        for one in &self.plot.panels {
            place = Rect { x: LEFT, y: y + ABOVE, w: plot_width, h: panel };
            draw_panel(&mut svg, place, one, axis, number);
            number += one.marks.len();
            y = place.bottom() + BELOW;
        }
        axis.draw_below(&mut svg, place, "rank");
        let top = place.bottom() + axis.height_below();
        let height = self.footer().draw(Some(&mut svg), top, width);
        let height = style.figsize.map_or(height, |(_, inches)| inches * PIXELS_PER_INCH);
        Ok(Picture::new(svg.finish(width, height), width, height))
    }
}

/// The unit in which nanoseconds up to `largest` are read best: name and length.
fn unit(largest: f64) -> (&'static str, f64) {
    let units = [("s", 1e9), ("ms", 1e6), ("µs", 1e3)];
    units.into_iter().find(|(_, length)| largest >= *length).unwrap_or(("ns", 1.0))
}

fn draw_panel(svg: &mut Svg, place: Rect, panel: &Panel, axis: RankAxis, first_number: usize) {
    let largest = panel.values.iter().flatten().copied().fold(0.0, f64::max);
    let (unit, length) = unit(largest);
    let scale = Scale::from_zero(largest / length);
    draw_title(svg, place, panel);
    let empty = panel.values.iter().all(Option::is_none);
    if !empty {
        draw_value_axis(svg, place, scale, unit);
    }
    draw_columns(svg, place, panel, axis);
    let mut path = String::new();
    for (rank, value) in panel.values.iter().enumerate() {
        let Some(value) = value else { continue };
        let bar = (axis.pitch * 0.78).max(axis.pitch.min(0.8));
        let height =
            (scale.place(value / length) * place.h).max(if *value > 0.0 { 1.0 } else { 0.0 });
        let x = place.x + axis.middle(rank) - bar / 2.0;
        path += &format!("M{} {}h{}v-{}h-{}z", N(x), N(place.bottom()), N(bar), N(height), N(bar));
    }
    svg.raw(format_args!("<path d=\"{path}\" fill=\"{BAR}\"/>"));
    if let Some((limit, label)) = &panel.limit {
        let y = place.bottom() - scale.place(limit / length) * place.h;
        draw_limit(svg, place, y, label);
    }
    draw_boundaries(svg, place, axis, None);
    let frame = format!("fill=\"none\" stroke=\"{RULE}\" stroke-width=\"1\"");
    svg.rect(place, format_args!("{frame}"));
    draw_numbers(svg, place, panel, axis, first_number);
    if empty {
        let font = Font::new(13.0, INK).bold().middle();
        let (x, y) = (place.x + place.w / 2.0, place.y + place.h / 2.0);
        let w = text::width("no launches in this window", font.size, true) + 24.0;
        let back = Rect { x: x - w / 2.0, y: y - 15.0, w, h: 30.0 };
        svg.rect(back, format_args!("rx=\"4\" fill=\"#fff\" stroke=\"{RULE}\""));
        svg.text((x, y + 4.5), font, "no launches in this window");
    }
}

fn draw_title(svg: &mut Svg, place: Rect, panel: &Panel) {
    let y = place.y - 24.0;
    let title = text::fit(&panel.title, HEADING.size, true, place.w * 0.7);
    svg.text((place.x, y), HEADING, &title);
    if let Some((tone, outcome)) = &panel.outcome {
        let x = place.x + text::width(&title, HEADING.size, true) + 10.0;
        frame::draw_badge(svg, (x, y - 13.5), *tone, outcome, place.right() - x);
    }
}

fn draw_value_axis(svg: &mut Svg, place: Rect, scale: Scale, unit: &str) {
    let ticks = scale.ticks(((place.h / 30.0) as usize).clamp(2, 6));
    for (&tick, name) in ticks.iter().zip(text::ticks(&ticks)) {
        let y = place.bottom() - scale.place(tick) * place.h;
        svg.line((place.x, y), (place.right(), y), "#e2e2e6", 0.8);
        svg.text((place.x - 6.0, y + 3.5), TICK.end(), &name);
    }
    let font = Font { color: FAINT, ..LABEL };
    svg.text_upwards((PAD + 14.0, place.y + place.h / 2.0), font, &format!("average, {unit}"));
}

/// Draws what fills the whole height at a rank: hatch without data, a light band where something
/// was found.
fn draw_columns(svg: &mut Svg, place: Rect, panel: &Panel, axis: RankAxis) {
    let column =
        |rank: usize| Rect { x: place.x + rank as f64 * axis.pitch, w: axis.pitch, ..place };
    let hatch = frame::hatch_fill(svg);
    for (rank, _) in panel.values.iter().enumerate().filter(|(_, value)| value.is_none()) {
        svg.rect(column(rank), format_args!("fill=\"{hatch}\""));
    }
    for (rank, _) in &panel.marks {
        let mut band = column(*rank);
        if band.w < 3.0 {
            band = Rect { x: band.x + band.w / 2.0 - 1.5, w: 3.0, ..band };
        }
        svg.rect(band, format_args!("fill=\"{MARK}\" fill-opacity=\"0.22\""));
        svg.rect(band, format_args!("fill=\"none\" stroke=\"{MARK}\" stroke-width=\"1\""));
    }
}

fn draw_limit(svg: &mut Svg, place: Rect, y: f64, label: &str) {
    let dash = "stroke-dasharray=\"5 3\" fill=\"none\"";
    svg.raw(format_args!(
        "<path d=\"M{} {}H{}\" stroke=\"#fff\" stroke-width=\"2.6\" {dash}/>\
         <path d=\"M{} {}H{}\" stroke=\"#000\" stroke-width=\"1.1\" {dash}/>",
        N(place.x),
        N(y),
        N(place.right()),
        N(place.x),
        N(y),
        N(place.right())
    ));
    let font = Font::new(10.0, INK).end();
    svg.text((place.right(), place.y - 24.0), font, label);
}

fn draw_numbers(svg: &mut Svg, place: Rect, panel: &Panel, axis: RankAxis, first: usize) {
    let mut numbers: Vec<(usize, f64)> = panel
        .marks
        .iter()
        .enumerate()
        .map(|(i, (rank, _))| (first + i, place.x + axis.middle(*rank)))
        .filter(|(number, _)| *number <= LISTED)
        .collect();
    numbers.sort_by(|a, b| a.1.total_cmp(&b.1));
    let wishes: Vec<f64> = numbers.iter().map(|&(_, x)| x).collect();
    let gap = frame::tag_width(LISTED) + 1.5;
    let places = super::marks::spread(&wishes, gap, place.x, place.right());
    for ((number, wish), x) in numbers.iter().zip(places) {
        svg.line((*wish, place.y), (x, place.y - 4.0), FAINT, 0.8);
        frame::draw_tag(svg, (x, place.y - 10.0), *number);
    }
}
