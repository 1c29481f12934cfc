//! The cells of one path class of a matrix.

use std::ops::Range;

use deepxtrace_counters::Topology;

use crate::select::{self, Pool};

/// The index of a path class: intra-node first.
pub(crate) const INTRA: usize = 0;
/// The index of the inter-node class.
pub(crate) const INTER: usize = 1;

/// The cells of one path class, a row each source rank; NaN where there is no valid cell.
///
/// Inter-node rows are as wide as the group. Intra-node rows are as wide as a node and begin at
/// the first rank of it.
#[derive(Debug, Clone)]
pub(crate) struct Class {
    pub(crate) width: usize,
    pub(crate) values: Vec<f64>,
    pub(crate) loads: Vec<f64>,
    /// Valid cells.
    pub(crate) cells: usize,
    /// Whether the values are logarithms of costs.
    pub(crate) logarithms: bool,
    rows: Vec<Row>,
}

/// What is known of a row of a class.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    /// The two parts of it that hold every cell of the class.
    parts: [Range<usize>; 2],
    /// Whether all of these are valid.
    full: bool,
}

impl Row {
    /// Adds the valid cells in some columns of the row to the pool.
    #[inline]
    pub(crate) fn gather(&self, row: &[f64], columns: Range<usize>, pool: &mut Pool) {
        if self.full {
            // What lies between the parts, or behind them on a short last node, is not there.
            for part in &self.parts {
                let start = columns.start.clamp(part.start, part.end);
                pool.add_all(&row[start..columns.end.clamp(start, part.end)]);
            }
        } else {
            pool.add(&row[columns]);
        }
    }
}

impl Class {
    pub(crate) fn intra(topology: Topology) -> Self {
        let width = topology.ranks_per_node().min(topology.ep_size());
        Self::new(topology, width, |rank| {
            let own = topology.ranks_of(topology.node(rank));
            let diagonal = rank - own.start;
            [0..diagonal, diagonal + 1..own.len()]
        })
    }

    /// Has no cells, and no width, on one node.
    pub(crate) fn inter(topology: Topology) -> Self {
        let width = if topology.nodes() > 1 { topology.ep_size() } else { 0 };
        Self::new(topology, width, |rank| {
            let own = topology.ranks_of(topology.node(rank));
            if width == 0 { [0..0, 0..0] } else { [0..own.start, own.end..width] }
        })
    }

    fn new(topology: Topology, width: usize, parts: impl Fn(usize) -> [Range<usize>; 2]) -> Self {
        let ranks = topology.ep_size();
        let nothing = vec![f64::NAN; ranks * width];
        Self {
            width,
            values: nothing.clone(),
            loads: nothing,
            cells: 0,
            logarithms: false,
            rows: (0..ranks).map(|rank| Row { parts: parts(rank), full: false }).collect(),
        }
    }

    /// Asks `cell(destination)` for cost and load of all cells of the row of `rank`; `first` is the
    /// destination in the first column.
    #[inline]
    pub(crate) fn fill(
        &mut self,
        rank: usize,
        first: usize,
        mut cell: impl FnMut(usize) -> (f64, f64),
    ) {
        let row = rank * self.width..(rank + 1) * self.width;
        let (values, loads) = (&mut self.values[row.clone()], &mut self.loads[row]);
        let Row { parts, full } = &mut self.rows[rank];
        let (mut valid, mut all) = (0, 0);
        for columns in parts {
            all += columns.len();
            let destinations = first + columns.start..;
            let cells = values[columns.clone()].iter_mut().zip(&mut loads[columns.clone()]);
            for ((value, load), destination) in cells.zip(destinations) {
                (*value, *load) = cell(destination);
                valid += usize::from(!value.is_nan());
            }
        }
        *full = valid == all;
        self.cells += valid;
    }

    /// The values, and what is known of their rows.
    pub(crate) fn split(&mut self) -> (&mut [f64], &[Row]) {
        (&mut self.values, &self.rows)
    }
}

/// The columns of the destinations on `node`, in a row of the class `index` that has cells there.
pub(crate) fn columns(topology: Topology, index: usize, node: usize) -> Range<usize> {
    let ranks = topology.ranks_of(node);
    if index == INTRA { 0..ranks.len() } else { ranks }
}

/// The mean of two middle costs, which may be given as logarithms.
pub(crate) fn cost(middle: Option<(f64, f64)>, logarithms: bool) -> Option<f64> {
    let (lower, upper) = middle?;
    Some(if logarithms {
        select::mean((lower.exp(), upper.exp()))
    } else {
        select::mean((lower, upper))
    })
}
