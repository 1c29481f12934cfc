//! Steps 1 to 5 and the scalar on the sparse matrix of gateway edges, which are of one class.

use deepxtrace_counters::Topology;

use crate::class;
use crate::dense;
use crate::family::{Family, MAD_TO_SIGMA};
use crate::finding::PathScope;
use crate::load;
use crate::outlier::{Outlier, Place, Thresholds};
use crate::residual::Residuals;
use crate::select::{self, Many, Pool};

/// Finds what stands out among gateway edges `[source proxy, destination]`.
#[derive(Debug, Clone)]
pub(crate) struct GatewaySolver {
    ranks: usize,
    /// The edges in order of source, then destination.
    edges: Vec<(u32, u32)>,
    values: Vec<f64>,
    loads: Vec<f64>,
    /// Edge numbers by destination.
    by_destination: Vec<u32>,
    starts: Vec<usize>,
    rows: Family,
    columns: Family,
    pool: Pool,
    /// Whether the values are logarithms of costs.
    logarithms: bool,
    scalar: Option<f64>,
    outliers: Vec<Outlier>,
}

impl GatewaySolver {
    pub(crate) fn new(topology: Topology) -> Self {
        let ranks = topology.ep_size();
        let edges = ranks * (topology.nodes() - 1);
        Self {
            ranks,
            edges: Vec::with_capacity(edges),
            values: Vec::with_capacity(edges),
            loads: Vec::with_capacity(edges),
            by_destination: Vec::with_capacity(edges),
            starts: vec![0; ranks + 2],
            rows: Family::new(ranks),
            columns: Family::new(ranks),
            pool: Pool::new(edges),
            logarithms: false,
            scalar: None,
            outliers: Vec::new(),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.edges.clear();
        self.values.clear();
        self.loads.clear();
        self.logarithms = false;
    }

    /// Adds an edge; edges come in order of source, then destination. Both ranks are below the EP
    /// size. A load that is not known is NaN.
    pub(crate) fn push(&mut self, source: usize, destination: usize, value: f64, load: f64) {
        self.edges.push((source as u32, destination as u32));
        self.values.push(value);
        self.loads.push(load);
    }

    /// Step 1; returns the median of `ln` load, where none was given.
    pub(crate) fn adjust_load(&mut self, x0: Option<f64>) -> Option<f64> {
        let adjusted = load::adjust(&mut self.values, &self.loads, x0, &mut self.pool);
        self.logarithms = adjusted.logarithms;
        adjusted.median
    }

    /// Steps 2 to 5 and the scalar.
    pub(crate) fn solve(&mut self, thresholds: Thresholds) -> &[Outlier] {
        self.outliers.clear();
        self.scalar = None;
        if self.edges.len() < dense::MIN_CELLS {
            return &self.outliers;
        }
        let edges = Many::new([&self.values, &[]], self.edges.len(), |value| value);
        let middle = edges.middle(&mut self.pool);
        let Some(reference) = class::cost(middle, self.logarithms) else { return &self.outliers };
        self.scalar = Some(reference);
        if self.logarithms {
            self.values.iter_mut().for_each(|value| *value -= reference.ln());
        } else {
            self.values.iter_mut().for_each(|value| *value = (*value / reference).ln());
        }
        let (centre, mad) = self.spread();
        self.values.iter_mut().for_each(|value| *value -= centre);
        let sigma = MAD_TO_SIGMA * mad;
        self.rows();
        self.columns();
        let outliers = &mut self.outliers;
        self.rows.judge(sigma, thresholds.axis_ratio, |rank, ratio, score| {
            let place = Place::Row { rank, path: PathScope::All };
            outliers.push(Outlier { place, ratio, score });
        });
        self.columns.judge(sigma, thresholds.axis_ratio, |rank, ratio, score| {
            let place = Place::Column { rank, path: PathScope::All };
            outliers.push(Outlier { place, ratio, score });
        });
        self.points(sigma, thresholds);
        &self.outliers
    }

    /// The outliers of the last [`solve`](Self::solve).
    pub(crate) fn outliers(&self) -> &[Outlier] {
        &self.outliers
    }

    /// The median edge after step 1.
    pub(crate) fn scalar(&self) -> Option<f64> {
        self.scalar
    }

    /// Adds up `weight` over the edges of a place; after [`solve`](Self::solve).
    pub(crate) fn sum_over(&self, place: Place, weight: impl Fn(usize, usize) -> f64) -> f64 {
        let one =
            |&(source, destination): &(u32, u32)| weight(source as usize, destination as usize);
        match place {
            Place::Row { rank, .. } => {
                let start = self.edges.partition_point(|edge| (edge.0 as usize) < rank);
                let row = self.edges[start..].iter().take_while(|edge| edge.0 as usize == rank);
                row.map(one).sum()
            }
            Place::Column { rank, .. } => {
                self.column(rank).iter().map(|&edge| one(&self.edges[edge as usize])).sum()
            }
            Place::Point { src, dst } => weight(src, dst),
            Place::Rail { .. } | Place::Block { .. } => 0.0,
        }
    }

    /// Adds up `weight` over all edges.
    pub(crate) fn sum_over_all(&self, weight: impl Fn(usize, usize) -> f64) -> f64 {
        self.edges.iter().map(|&(source, dst)| weight(source as usize, dst as usize)).sum()
    }

    /// The edges that arrive at `destination`, in order of source.
    fn column(&self, destination: usize) -> &[u32] {
        &self.by_destination[self.starts[destination]..self.starts[destination + 1]]
    }

    /// Median and median absolute deviation of all values.
    fn spread(&mut self) -> (f64, f64) {
        let (parts, edges) = ([&self.values[..], &[]], self.edges.len());
        let middle = Many::new(parts, edges, |value| value).middle(&mut self.pool);
        let centre = middle.map_or(0.0, select::mean);
        let distances = Many::new(parts, edges, |value| (value - centre).abs());
        (centre, distances.middle(&mut self.pool).map_or(0.0, select::mean))
    }

    fn rows(&mut self) {
        self.rows.clear();
        let mut start = 0;
        while let Some(&(source, _)) = self.edges.get(start) {
            let len = self.edges[start..].iter().take_while(|edge| edge.0 == source).count();
            let row = &mut self.values[start..start + len];
            self.pool.clear();
            self.pool.add_all(row);
            if let Some(effect) = self.rows.groups()[source as usize].take(self.pool.values()) {
                row.iter_mut().for_each(|value| *value -= effect);
            }
            start += len;
        }
    }

    fn columns(&mut self) {
        self.columns.clear();
        self.order_by_destination();
        for destination in 0..self.ranks {
            let column = self.starts[destination]..self.starts[destination + 1];
            let column = &self.by_destination[column];
            self.pool.clear();
            self.pool.add_some(column, |&edge| (self.values[edge as usize], true));
            let group = &mut self.columns.groups()[destination];
            let Some(effect) = group.take(self.pool.values()) else { continue };
            column.iter().for_each(|&edge| self.values[edge as usize] -= effect);
        }
    }

    /// Lists the edges by destination: those of `d` from `starts[d]` to `starts[d + 1]`.
    fn order_by_destination(&mut self) {
        // While counting and filling, the place of a destination is one further on, so that at the
        // end each has moved from its own start to the next one's.
        self.starts.fill(0);
        for &(_, destination) in &self.edges {
            self.starts[destination as usize + 2] += 1;
        }
        for destination in 2..self.starts.len() {
            self.starts[destination] += self.starts[destination - 1];
        }
        self.by_destination.resize(self.edges.len(), 0);
        for (edge, &(_, destination)) in self.edges.iter().enumerate() {
            let at = &mut self.starts[destination as usize + 1];
            self.by_destination[*at] = edge as u32;
            *at += 1;
        }
    }

    fn points(&mut self, sigma: f64, thresholds: Thresholds) {
        let (centre, mad) = self.spread();
        let residuals = Residuals::new(centre, mad, sigma);
        // An edge that nothing was taken from needs less: what its row and column would have had
        // is still in it.
        let alone = (thresholds.axis_ratio * thresholds.point_ratio).sqrt();
        for (&(source, destination), &value) in self.edges.iter().zip(&self.values) {
            let (src, dst) = (source as usize, destination as usize);
            let bare = self.rows.effect(src).is_none() && self.columns.effect(dst).is_none();
            let min_ratio = if bare { alone } else { thresholds.point_ratio };
            if let Some((ratio, score)) = residuals.judge(value, min_ratio) {
                self.outliers.push(Outlier { place: Place::Point { src, dst }, ratio, score });
            }
        }
    }
}
