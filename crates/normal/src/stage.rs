//! How long a stage took each rank, from its raw costs: what makes a rank late at the next Notify.

use deepxtrace_counters::{CompletionDelta, Topology};

use crate::class::{INTER, INTRA};
use crate::select::LeaveOneOut;

/// By rank and path class, what a sample cost on average: from the ranks of the own node, and from
/// the slowest other node. Samples of one launch are waited for at the same time, so that is about
/// how long the stage takes, and load belongs to it: a rank with more tokens is done later.
#[derive(Debug, Clone)]
pub(crate) struct StageTimes {
    topology: Topology,
    /// Sums of cost and samples by destination, of one source node.
    sums: Vec<(f64, f64)>,
    /// Cycles by class and destination, NaN where there are none.
    cycles: [Vec<f64>; 2],
    others: [Option<LeaveOneOut>; 2],
    buffer: Vec<f64>,
}

impl StageTimes {
    pub(crate) fn new(topology: Topology) -> Self {
        let n = topology.ep_size();
        Self {
            topology,
            sums: vec![(0.0, 0.0); n],
            cycles: [vec![f64::NAN; n], vec![f64::NAN; n]],
            others: [None, None],
            buffer: Vec::with_capacity(n),
        }
    }

    /// Measures a window of one dense probe. Its matrices fit the group.
    pub(crate) fn measure(&mut self, delta: &CompletionDelta, valid: &[bool]) {
        self.cycles.iter_mut().for_each(|cycles| cycles.fill(f64::NAN));
        for node in 0..self.topology.nodes() {
            self.add_up(delta, valid, node);
            for (rank, &(cost, samples)) in self.sums.iter().enumerate() {
                let class = if self.topology.node(rank) == node { INTRA } else { INTER };
                // No samples, no mean: NaN. `max` keeps the other one.
                let mean = cost / samples;
                self.cycles[class][rank] = self.cycles[class][rank].max(mean);
            }
        }
        for (cycles, others) in self.cycles.iter().zip(&mut self.others) {
            self.buffer.clear();
            self.buffer.extend(cycles.iter().filter(|mean| !mean.is_nan()));
            *others = LeaveOneOut::new(&mut self.buffer);
        }
    }

    /// The sums over the valid cells from one node.
    fn add_up(&mut self, delta: &CompletionDelta, valid: &[bool], node: usize) {
        self.sums.fill((0.0, 0.0));
        for source in self.topology.ranks_of(node).filter(|&source| valid[source]) {
            let cells = delta.cost.row(source).into_iter().zip(delta.samples.row(source));
            for (rank, (sum, (&cost, &samples))) in self.sums.iter_mut().zip(cells).enumerate() {
                if cost > 0 && samples > 0 && rank != source && valid[rank] {
                    sum.0 += cost as f64;
                    sum.1 += samples as f64;
                }
            }
        }
    }

    /// Cycles that the stage took `rank` longer than the median of the others, in the path class
    /// where that is most; `None` where no class has this rank and another one.
    pub(crate) fn excess(&self, rank: usize) -> Option<f64> {
        let classes = self.cycles.iter().zip(&self.others);
        let excess = classes.filter_map(|(cycles, others)| {
            let own = *cycles.get(rank).filter(|own| !own.is_nan())?;
            Some(own - others.as_ref()?.without(own))
        });
        excess.reduce(f64::max)
    }
}

#[cfg(test)]
mod tests {
    use deepxtrace_counters::{CompletionProbe, Window};

    use super::*;

    /// Cost of a sample in each cell, two samples each; 0 for none.
    fn measured<const N: usize>(
        ranks_per_node: usize,
        costs: [[i64; N]; N],
        valid: [bool; N],
    ) -> StageTimes {
        let topology = Topology::new(N, ranks_per_node).unwrap();
        let mut window = Window::empty(topology);
        window.edit_completion(CompletionProbe::DispatchFinal, |delta| {
            for ((source, destination), cost) in delta.cost.indexed_iter_mut() {
                *cost = 2 * costs[source][destination];
                delta.samples[[source, destination]] = 2 * i64::from(*cost > 0);
            }
        });
        let mut times = StageTimes::new(topology);
        times.measure(window.completion(CompletionProbe::DispatchFinal), &valid);
        times
    }

    #[test]
    fn the_class_that_is_most_above_the_others_counts() {
        // Two nodes of two. In a node ranks 0 to 3 take 10, 12, 10, 30; across 100, 100, 104, 110:
        // the means of 90, 110; 95, 105; 100, 108; 108, 112.
        let times = measured(
            2,
            [[7, 12, 100, 108], [10, 7, 108, 112], [90, 95, 7, 30], [110, 105, 10, 7]],
            [true; 4],
        );
        // The others of rank 3: 10, 10, 12 and 100, 100, 104.
        assert_eq!(times.excess(3), Some(20.0));
        // 10 against 10, 12, 30; 104 against 100, 100, 110.
        assert_eq!(times.excess(2), Some(4.0));
        // 10 against 10, 12, 30; 100 against 100, 104, 110.
        assert_eq!(times.excess(0), Some(-2.0));
    }

    #[test]
    fn the_slowest_other_node_counts_and_samples_weigh() {
        let topology = Topology::new(3, 1).unwrap();
        let mut window = Window::empty(topology);
        window.edit_completion(CompletionProbe::DispatchFinal, |delta| {
            // From ranks 1 and 2 to 0: 50 and 80 a sample.
            (delta.cost[[1, 0]], delta.samples[[1, 0]]) = (500, 10);
            (delta.cost[[2, 0]], delta.samples[[2, 0]]) = (80, 1);
            (delta.cost[[0, 1]], delta.samples[[0, 1]]) = (600, 10);
            (delta.cost[[0, 2]], delta.samples[[0, 2]]) = (500, 10);
            (delta.cost[[1, 2]], delta.samples[[1, 2]]) = (0, 10);
        });
        let mut times = StageTimes::new(topology);
        times.measure(window.completion(CompletionProbe::DispatchFinal), &[true; 3]);
        // 80 against 60 and 50.
        assert_eq!(times.excess(0), Some(25.0));

        // The same on two nodes of two and one: ranks 0 and 1 send 10 and 1 samples to rank 2.
        let topology = Topology::new(3, 2).unwrap();
        let mut window = Window::empty(topology);
        window.edit_completion(CompletionProbe::DispatchFinal, |delta| {
            (delta.cost[[0, 2]], delta.samples[[0, 2]]) = (1_000, 10);
            (delta.cost[[1, 2]], delta.samples[[1, 2]]) = (980, 1);
            (delta.cost[[2, 0]], delta.samples[[2, 0]]) = (100, 1);
            (delta.cost[[2, 1]], delta.samples[[2, 1]]) = (100, 1);
        });
        let mut times = StageTimes::new(topology);
        times.measure(window.completion(CompletionProbe::DispatchFinal), &[true; 3]);
        // 1,980 / 11 = 180 against 100 and 100; the mean of the means would be 540.
        assert_eq!(times.excess(2), Some(80.0));
    }

    #[test]
    fn what_is_not_valid_is_not_asked() {
        let costs = [[9, 10, 10, 10], [50, 9, 10, 10], [50, 10, 9, 10], [9_000, 10, 10, 9]];
        let times = measured(4, costs, [true; 4]);
        assert_eq!(times.excess(0), Some(9_100.0 / 3.0 - 10.0));
        let times = measured(4, costs, [true, true, true, false]);
        assert_eq!(times.excess(0), Some(40.0));
        assert_eq!(times.excess(3), None);
        // Nobody else: nothing to compare with.
        assert_eq!(measured(4, [[0, 10], [10, 0]], [true; 2]).excess(1), Some(0.0));
        assert_eq!(measured(4, [[0, 10], [0, 0]], [true; 2]).excess(1), None);
        assert_eq!(measured(1, [[5]], [true]).excess(0), None);
    }
}
