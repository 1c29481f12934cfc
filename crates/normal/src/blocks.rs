//! Steps 2 and 6: the blocks of cells from one node to another.

use deepxtrace_counters::Topology;

use crate::class::{self, Class, INTER, INTRA};
use crate::family::{FLOOR, MEDIAN_ERROR};
use crate::outlier::Place;
use crate::parallel;
use crate::policy::MIN_SCORE;
use crate::select::{self, LeaveOneOut, Many, Pool};

/// Fewest valid cells of a block that is its own reference, and that is judged.
const MIN_CELLS: u32 = 9;

/// The blocks `[source node, destination node]`.
#[derive(Debug, Clone)]
pub(crate) struct Blocks {
    topology: Topology,
    blocks: Vec<Block>,
}

/// Median and number of the valid cells of one block.
#[derive(Debug, Clone, Copy)]
struct Block {
    /// NaN without cells.
    median: f64,
    cells: u32,
}

impl Block {
    const EMPTY: Self = Self { median: f64::NAN, cells: 0 };
}

impl Blocks {
    pub(crate) fn new(topology: Topology) -> Self {
        Self { topology, blocks: vec![Block::EMPTY; topology.nodes() * topology.nodes()] }
    }

    /// Begins anew: no block has cells.
    pub(crate) fn clear(&mut self) {
        self.blocks.fill(Block::EMPTY);
    }

    /// Replaces every cost by the logarithm of its ratio to its reference: the median of its block,
    /// or of its class where the block is too small.
    pub(crate) fn reference(&mut self, classes: &mut [Class; 2], pool: &mut Pool) {
        self.clear();
        for (index, class) in classes.iter_mut().enumerate().filter(|(_, class)| class.width > 0) {
            self.medians(index, class, pool);
            let small = self.of_class(index).any(|block| (1..MIN_CELLS).contains(&block.cells));
            let all = Many::new([&class.values, &[]], class.cells, |value| value);
            let middle = if small { all.middle(pool) } else { None };
            let stand_in = class::cost(middle, class.logarithms).unwrap_or(f64::NAN);
            self.divide(index, class, stand_in);
        }
    }

    /// Takes the medians of the blocks of one class, the blocks of a source node together.
    fn medians(&mut self, index: usize, class: &mut Class, pool: &mut Pool) {
        let (topology, logarithms, width) = (self.topology, class.logarithms, class.width);
        let node_size = topology.ranks_per_node().min(topology.ep_size());
        let (values, rows) = class.split();
        let slots = (&mut self.blocks[..], topology.nodes());
        let scratch = (pool, || Pool::new(node_size * node_size));
        parallel::pieces(values, node_size * width, slots, scratch, |src, band, blocks, pool| {
            for (dst, block) in blocks.iter_mut().enumerate() {
                if class_of(src, dst) != index {
                    continue;
                }
                pool.clear();
                let columns = class::columns(topology, index, dst);
                for (row, known) in band.chunks_exact(width).zip(&rows[src * node_size..]) {
                    known.gather(row, columns.clone(), pool);
                }
                block.cells = u32::try_from(pool.len()).unwrap_or(u32::MAX);
                let middle = select::middle(pool.values());
                block.median = class::cost(middle, logarithms).unwrap_or(f64::NAN);
            }
        });
    }

    /// Takes the logarithms of the ratios of one class to the references.
    fn divide(&self, index: usize, class: &mut Class, stand_in: f64) {
        let (topology, blocks) = (self.topology, &self.blocks);
        let (logarithms, width) = (class.logarithms, class.width);
        parallel::each(&mut class.values, width, |rank, row| {
            let src = topology.node(rank);
            for dst in (0..topology.nodes()).filter(|&dst| class_of(src, dst) == index) {
                let Block { median, cells } = blocks[src * topology.nodes() + dst];
                let reference = if cells < MIN_CELLS { stand_in } else { median };
                let part = &mut row[class::columns(topology, index, dst)];
                if logarithms {
                    let reference = reference.ln();
                    part.iter_mut().for_each(|value| *value -= reference);
                } else {
                    part.iter_mut().for_each(|value| *value = (*value / reference).ln());
                }
            }
        });
    }

    fn of_class(&self, index: usize) -> impl Iterator<Item = &Block> {
        let nodes = self.topology.nodes();
        let blocks = self.blocks.iter().enumerate();
        blocks.filter(move |(at, _)| class_of(at / nodes, at % nodes) == index).map(|(_, b)| b)
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
        let others = [INTRA, INTER].map(|index| {
            pool.clear();
            for block in self.of_class(index).filter(|block| block.cells >= MIN_CELLS) {
                pool.push(block.median);
            }
            LeaveOneOut::new(pool.values())
        });
        for (at, &Block { median, cells }) in self.blocks.iter().enumerate() {
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
        for &Block { median, cells } in &self.blocks {
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
