//! Steps 1 to 6 on a matrix with two path classes, intra-node and inter-node cells.

use std::ops::Range;

use deepxtrace_counters::Topology;

use crate::area::Area;
use crate::blocks::Blocks;
use crate::class::{Class, INTER, INTRA};
use crate::columns::{COLUMNS, Columns};
use crate::family::{self, Family, MAD_TO_SIGMA};
use crate::load;
use crate::outlier::{Axes, Outlier, Place, RailSide, Thresholds};
use crate::parallel;
use crate::residual::Residuals;
use crate::select::{self, Many, Pool};

/// Fewest valid cells of a matrix that is diagnosed.
pub(crate) const MIN_CELLS: usize = 3;

/// Finds what stands out in a matrix `[source, destination]` of positive costs, by the robust
/// steps of the Normal-mode specification.
///
/// Fill it with [`fill`](Self::fill), then ask [`solve`](Self::solve). Nothing is allocated after
/// the construction but for outliers.
#[derive(Debug, Clone)]
pub struct DenseSolver {
    topology: Topology,
    /// Ranks of a full node, the group's at most.
    node_size: usize,
    classes: [Class; 2],
    blocks: Blocks,
    /// Effects of rows or columns of one class.
    axis: Family,
    rails: Family,
    rail_side: RailSide,
    axes: Axes,
    columns: Columns,
    /// What is taken away from each column.
    effects: Vec<f64>,
    pool: Pool,
    sigma: f64,
    outliers: Vec<Outlier>,
}

impl DenseSolver {
    /// A solver for the matrices of one group.
    #[must_use]
    pub fn new(topology: Topology) -> Self {
        let n = topology.ep_size();
        let node_size = topology.ranks_per_node().min(n);
        let rails = if node_size < family::MIN_CELLS { 0 } else { n * topology.nodes() };
        Self {
            topology,
            node_size,
            classes: [Class::intra(topology), Class::inter(topology)],
            blocks: Blocks::new(topology),
            axis: Family::new(n),
            rails: Family::new(rails),
            rail_side: RailSide::Source,
            axes: Axes::new(n),
            columns: Columns::new(n),
            effects: Vec::with_capacity(n),
            pool: Pool::new(n * (n + node_size)),
            sigma: 0.0,
            outliers: Vec::new(),
        }
    }

    /// Fills the matrix. `cell(source, destination)` gives the cost of a sample, positive, and its
    /// load (tokens a sample), positive; NaN for a cost that is not there or a load that is not
    /// known. It is not asked for the diagonal. Returns the number of valid cells.
    #[inline]
    pub fn fill(&mut self, mut cell: impl FnMut(usize, usize) -> (f64, f64)) -> usize {
        let [intra, inter] = &mut self.classes;
        for class in [&mut *intra, &mut *inter] {
            (class.cells, class.logarithms) = (0, false);
        }
        for source in 0..self.topology.ep_size() {
            let own = self.topology.ranks_of(self.topology.node(source));
            intra.fill(source, own.start, |destination| cell(source, destination));
            inter.fill(source, 0, |destination| cell(source, destination));
        }
        intra.cells + inter.cells
    }

    /// Step 1: brings every cell to the load `x0` of its class (intra-node first), or to the
    /// class median where there is none. Returns the class medians of `ln` load, of those classes
    /// that had none given.
    pub fn adjust_load(&mut self, x0: [Option<f64>; 2]) -> [Option<f64>; 2] {
        let mut medians = [None; 2];
        for ((class, x0), median) in self.classes.iter_mut().zip(x0).zip(&mut medians) {
            let adjusted = load::adjust(&mut class.values, &class.loads, x0, &mut self.pool);
            (*median, class.logarithms) = (adjusted.median, adjusted.logarithms);
        }
        medians
    }

    /// Steps 2 to 6, with rails where `rails` names a side and there are three nodes or more.
    ///
    /// Returns what stands out, by kind and place: nothing for fewer than three valid cells. The
    /// filled values are used up.
    pub fn solve(&mut self, thresholds: Thresholds, rails: Option<RailSide>) -> &[Outlier] {
        self.outliers.clear();
        if self.classes.iter().map(|class| class.cells).sum::<usize>() < MIN_CELLS {
            self.blocks.clear();
            return &self.outliers;
        }
        self.blocks.reference(&mut self.classes, &mut self.pool);
        let centre = self.noise();
        self.rows(thresholds.axis_ratio, centre);
        self.columns(thresholds.axis_ratio);
        if let Some(side) = rails.filter(|_| self.topology.nodes() > 2) {
            self.rail_side = side;
            self.rails(thresholds.axis_ratio);
        }
        self.points(thresholds.point_ratio);
        let (sigma, outliers) = (self.sigma, &mut self.outliers);
        self.blocks.judge(sigma, thresholds.axis_ratio, &mut self.pool, |place, ratio, score| {
            outliers.push(Outlier { place, ratio, score });
        });
        &self.outliers
    }

    /// The outliers of the last [`solve`](Self::solve).
    #[must_use]
    pub fn outliers(&self) -> &[Outlier] {
        &self.outliers
    }

    /// The mean of the blocks' medians, weighted by valid cells; after [`solve`](Self::solve).
    #[must_use]
    pub fn scalar(&self) -> Option<f64> {
        self.blocks.scalar()
    }

    /// Adds up `weight(source, destination)` over the valid cells of a place, row by row; after
    /// [`solve`](Self::solve).
    #[must_use]
    pub fn sum_over(&self, place: Place, weight: impl FnMut(usize, usize) -> f64) -> f64 {
        self.sum(&Area::of(self.topology, place, self.rail_side), weight)
    }

    /// Adds up `weight(source, destination)` over all valid cells, row by row.
    #[must_use]
    pub fn sum_over_all(&self, weight: impl FnMut(usize, usize) -> f64) -> f64 {
        self.sum(&Area::all(self.topology), weight)
    }

    fn sum(&self, area: &Area, mut weight: impl FnMut(usize, usize) -> f64) -> f64 {
        let mut sum = 0.0;
        for source in area.sources.clone() {
            for destination in area.destinations.clone() {
                let intra = self.topology.same_node(source, destination);
                if area.holds(intra) && self.is_valid(source, destination) {
                    sum += weight(source, destination);
                }
            }
        }
        sum
    }

    /// Whether the cell is valid: counted, and not on the diagonal.
    fn is_valid(&self, source: usize, destination: usize) -> bool {
        let (class, column) = if self.topology.same_node(source, destination) {
            (&self.classes[INTRA], self.topology.local_index(destination))
        } else {
            (&self.classes[INTER], destination)
        };
        !class.values[source * class.width + column].is_nan()
    }

    /// Step 3, but for the subtraction: the median of all cells, and the noise of one cell.
    fn noise(&mut self) -> f64 {
        let (centre, mad) = self.spread();
        self.sigma = MAD_TO_SIGMA * mad;
        centre
    }

    /// Median and median absolute deviation of all cells.
    fn spread(&mut self) -> (f64, f64) {
        let [intra, inter] = &self.classes;
        let (parts, cells) = ([&intra.values[..], &inter.values[..]], intra.cells + inter.cells);
        let middle = Many::new(parts, cells, |value| value).middle(&mut self.pool);
        let centre = middle.map_or(0.0, select::mean);
        let distances = Many::new(parts, cells, |value| (value - centre).abs());
        (centre, distances.middle(&mut self.pool).map_or(0.0, select::mean))
    }

    fn present(&self) -> [bool; 2] {
        [self.classes[INTRA].cells > 0, self.classes[INTER].cells > 0]
    }

    /// Rows of each class, after the subtraction of step 3.
    fn rows(&mut self, min_ratio: f64, centre: f64) {
        self.axes.clear();
        for (index, class) in self.classes.iter_mut().enumerate() {
            self.axis.clear();
            if class.width == 0 {
                continue;
            }
            let width = class.width;
            let (values, rows) = class.split();
            let slots = (self.axis.groups(), 1);
            let scratch = (&mut self.pool, || Pool::new(width));
            parallel::pieces(values, width, slots, scratch, |rank, row, group, pool| {
                row.iter_mut().for_each(|value| *value -= centre);
                pool.clear();
                rows[rank].gather(row, 0..width, pool);
                if let Some(effect) = group[0].take(pool.values()) {
                    row.iter_mut().for_each(|value| *value -= effect);
                }
            });
            self.axis.judge(self.sigma, min_ratio, |rank, ratio, score| {
                self.axes.add(rank, index, ratio, score);
            });
        }
        let outliers = self.axes.outliers(self.present());
        self.outliers.extend(outliers.map(|(rank, path, ratio, score)| Outlier {
            place: Place::Row { rank, path },
            ratio,
            score,
        }));
    }

    fn columns(&mut self, min_ratio: f64) {
        self.axes.clear();
        for index in [INTRA, INTER] {
            self.axis.clear();
            if index == INTRA {
                for node in 0..self.topology.nodes() {
                    self.class_columns(index, self.topology.ranks_of(node));
                }
            } else if self.classes[index].width > 0 {
                self.class_columns(index, 0..self.topology.ep_size());
            }
            self.axis.judge(self.sigma, min_ratio, |rank, ratio, score| {
                self.axes.add(rank, index, ratio, score);
            });
        }
        let outliers = self.axes.outliers(self.present());
        self.outliers.extend(outliers.map(|(rank, path, ratio, score)| Outlier {
            place: Place::Column { rank, path },
            ratio,
            score,
        }));
    }

    /// Takes the column effects of a class away: of the whole class, or of one node's square.
    fn class_columns(&mut self, index: usize, ranks: Range<usize>) {
        let (class, height) = (&mut self.classes[index], ranks.len());
        let width = class.width;
        let rows = &mut class.values[ranks.start * width..ranks.end * width];
        let groups = &mut self.axis.groups()[ranks];
        let scratch = (&mut self.columns, || Columns::new(height));
        parallel::slots(rows.len(), (groups, COLUMNS), scratch, |i, groups, columns| {
            let first = i * COLUMNS;
            columns.gather(rows, width, first..first + groups.len());
            for (lane, group) in groups.iter_mut().enumerate() {
                group.take(columns.line(lane));
            }
        });
        self.effects.clear();
        self.effects.extend(groups.iter().map(|group| group.effect().unwrap_or(0.0)));
        let effects = &self.effects;
        parallel::each(rows, width, |_, row| {
            row.iter_mut().zip(effects).for_each(|(value, effect)| *value -= effect);
        });
    }

    fn rails(&mut self, min_ratio: f64) {
        let side = self.rail_side;
        if self.node_size < family::MIN_CELLS {
            return;
        }
        self.rails.clear();
        match side {
            RailSide::Source => self.source_rails(),
            RailSide::Destination => self.destination_rails(),
        }
        let first = self.outliers.len();
        let (topology, outliers) = (self.topology, &mut self.outliers);
        let nodes = topology.nodes();
        self.rails.judge(self.sigma, min_ratio, |group, ratio, score| {
            let (rank, src_node, dst_node) = match side {
                RailSide::Source => {
                    let source = group / nodes;
                    (source, topology.node(source), group % nodes)
                }
                RailSide::Destination => {
                    let destination = group % topology.ep_size();
                    (destination, group / topology.ep_size(), topology.node(destination))
                }
            };
            let local_index = topology.local_index(rank);
            let place = Place::Rail { local_index, src_node, dst_node };
            outliers.push(Outlier { place, ratio, score });
        });
        self.outliers[first..].sort_unstable_by_key(|outlier| outlier.place);
    }

    /// Rails of dispatch: parts of rows. Group by source rank, then destination node.
    fn source_rails(&mut self) {
        let (topology, class) = (self.topology, &mut self.classes[INTER]);
        let (width, nodes, node_size) = (class.width, topology.nodes(), self.node_size);
        let (values, rows) = class.split();
        let slots = (self.rails.groups(), nodes);
        let scratch = (&mut self.pool, || Pool::new(node_size));
        parallel::pieces(values, width, slots, scratch, |source, row, groups, pool| {
            for (node, group) in groups.iter_mut().enumerate() {
                if node == topology.node(source) {
                    continue;
                }
                let columns = topology.ranks_of(node);
                pool.clear();
                rows[source].gather(row, columns.clone(), pool);
                if let Some(effect) = group.take(pool.values()) {
                    row[columns].iter_mut().for_each(|value| *value -= effect);
                }
            }
        });
    }

    /// Rails of combine: parts of columns. Group by source node, then destination rank.
    fn destination_rails(&mut self) {
        let (topology, class) = (self.topology, &mut self.classes[INTER]);
        let (width, node_size) = (class.width, self.node_size);
        let slots = (self.rails.groups(), topology.ep_size());
        let scratch = (&mut self.pool, || Pool::new(node_size));
        let band = node_size * width;
        parallel::pieces(&mut class.values, band, slots, scratch, |node, rows, groups, pool| {
            for (destination, group) in groups.iter_mut().enumerate() {
                if node == topology.node(destination) {
                    continue;
                }
                pool.clear();
                for row in rows.chunks_exact(width) {
                    pool.add(&row[destination..=destination]);
                }
                if let Some(effect) = group.take(pool.values()) {
                    rows.chunks_exact_mut(width).for_each(|row| row[destination] -= effect);
                }
            }
        });
    }

    fn points(&mut self, min_ratio: f64) {
        let (centre, mad) = self.spread();
        let residuals = Residuals::new(centre, mad, self.sigma);
        let first = self.outliers.len();
        for (index, class) in self.classes.iter().enumerate().filter(|(_, class)| class.width > 0) {
            for (src, row) in class.values.chunks_exact(class.width).enumerate() {
                if !residuals.any(row, min_ratio) {
                    continue;
                }
                for (column, &value) in row.iter().enumerate() {
                    let Some((ratio, score)) = residuals.judge(value, min_ratio) else { continue };
                    let own = self.topology.ranks_of(self.topology.node(src));
                    let dst = if index == INTRA { own.start + column } else { column };
                    self.outliers.push(Outlier { place: Place::Point { src, dst }, ratio, score });
                }
            }
        }
        self.outliers[first..].sort_unstable_by_key(|outlier| outlier.place);
    }
}
