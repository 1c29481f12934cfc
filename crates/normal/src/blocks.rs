//! Steps 2 and 6: the blocks of cells from one node to another.

use deepxtrace_counters::Topology;

use crate::class::{Class, INTER, INTRA};
use crate::family::{FLOOR, MEDIAN_ERROR};
use crate::outlier::Place;
use crate::policy::MIN_SCORE;
use crate::select::{self, LeaveOneOut, Many, Pool};

/// Fewest valid cells of a block that is its own reference, and that is judged.
const MIN_CELLS: u32 = 9;

/// Median and number of the valid cells of each block, `[source node, destination node]`.
#[derive(Debug, Clone)]
pub(crate) struct Blocks {
    topology: Topology,
    medians: Vec<f64>,
    cells: Vec<u32>,
}

impl Blocks {
    pub(crate) fn new(topology: Topology) -> Self {
        let blocks = topology.nodes() * topology.nodes();
        Self { topology, medians: vec![f64::NAN; blocks], cells: vec![0; blocks] }
    }

    /// Replaces every cost by the logarithm of its ratio to its reference: the median of its block,
    /// or of its class where the block is too small.
    pub(crate) fn reference(&mut self, classes: &mut [Class; 2], pool: &mut Pool) {
        let topology = self.topology;
        let nodes = topology.nodes();
        let mut small = [false; 2];
        for (at, (median, cells)) in self.medians.iter_mut().zip(&mut self.cells).enumerate() {
            let (src, dst) = (at / nodes, at % nodes);
            let class = &classes[class_of(src, dst)];
            pool.clear();
            for rank in topology.ranks_of(src) {
                class.gather(rank, class.columns(topology, dst), pool);
            }
            *cells = u32::try_from(pool.len()).unwrap_or(u32::MAX);
            *median = class.cost(select::middle(pool.values())).unwrap_or(f64::NAN);
            small[class_of(src, dst)] |= (1..MIN_CELLS).contains(cells);
        }
        let mut stand_in = [f64::NAN; 2];
        for (class, stand_in) in classes
            .iter()
            .zip(&mut stand_in)
            .zip(small)
            .filter_map(|((class, stand_in), small)| small.then_some((class, stand_in)))
        {
            let all = Many::new([&class.values, &[]], class.cells, |value| value);
            *stand_in = class.cost(all.middle(pool)).unwrap_or(f64::NAN);
        }
        for (at, (&median, &cells)) in self.medians.iter().zip(&self.cells).enumerate() {
            let (src, dst) = (at / nodes, at % nodes);
            let class = &mut classes[class_of(src, dst)];
            let reference = if cells < MIN_CELLS { stand_in[class_of(src, dst)] } else { median };
            let columns = class.columns(topology, dst);
            for rank in topology.ranks_of(src) {
                let row = &mut class.values[rank * class.width..][columns.clone()];
                if class.logarithms {
                    let reference = reference.ln();
                    row.iter_mut().for_each(|value| *value -= reference);
                } else {
                    row.iter_mut().for_each(|value| *value = (*value / reference).ln());
                }
            }
        }
    }

    /// Calls `found` with place, ratio and score of every block that stands out among the other
    /// blocks of its class, by place.
    pub(crate) fn judge(
        &self,
        sigma: f64,
        min_ratio: f64,
        pool: &mut Pool,
        mut found: impl FnMut(Place, f64, f64),
    ) {
        let nodes = self.topology.nodes();
        let others = [INTRA, INTER].map(|class| {
            pool.clear();
            for (at, (&median, &cells)) in self.medians.iter().zip(&self.cells).enumerate() {
                if class_of(at / nodes, at % nodes) == class && cells >= MIN_CELLS {
                    pool.push(median);
                }
            }
            LeaveOneOut::new(pool.values())
        });
        for (at, (&median, &cells)) in self.medians.iter().zip(&self.cells).enumerate() {
            let (src_node, dst_node) = (at / nodes, at % nodes);
            let Some(others) = others[class_of(src_node, dst_node)] else { continue };
            if cells < MIN_CELLS {
                continue;
            }
            let ratio = median / others.without(median);
            if ratio >= min_ratio {
                let error = MEDIAN_ERROR * sigma / f64::from(cells).sqrt();
                let score = ratio.ln() / error.max(FLOOR);
                if score >= MIN_SCORE {
                    found(Place::Block { src_node, dst_node }, ratio, score);
                }
            }
        }
    }

    /// The mean of the blocks' medians, weighted by cells; `None` without cells.
    pub(crate) fn scalar(&self) -> Option<f64> {
        let (mut sum, mut total) = (0.0, 0.0);
        for (&median, &cells) in self.medians.iter().zip(&self.cells) {
            if cells > 0 {
                sum += median * f64::from(cells);
                total += f64::from(cells);
            }
        }
        (total > 0.0).then(|| sum / total)
    }
}

fn class_of(src_node: usize, dst_node: usize) -> usize {
    if src_node == dst_node { INTRA } else { INTER }
}
