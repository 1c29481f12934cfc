//! The topology-aware rule: every wait against its peers on the same kind of path.

use std::fmt;

use deepxtrace_counters::Topology;
use deepxtrace_normal::robust::{DenseSolver, Outlier, Place, Thresholds};
use deepxtrace_normal::{PathScope, Policy};
use ndarray::ArrayView2;
use serde::{Deserialize, Serialize};

/// Why everyone waits for a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrival {
    /// The rank itself waits for nobody: it comes late, look at its computation.
    Late,
    /// Nothing says that it comes late: look at its link.
    Unknown,
}

impl fmt::Display for Arrival {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Late => "late",
            Self::Unknown => "unknown",
        })
    }
}

/// One finding of the topology-aware rule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum LlFinding {
    /// Everyone waits for this rank.
    Column {
        /// The awaited rank.
        rank: usize,
        /// Which of its cells.
        path: PathScope,
        /// Wait ratio.
        ratio: f64,
        /// Robust score.
        score: f64,
        /// Whether the rank arrives late.
        arrival: Arrival,
    },
    /// This rank waits for everyone.
    Row {
        /// The waiter.
        rank: usize,
        /// Which of its cells.
        path: PathScope,
        /// Wait ratio.
        ratio: f64,
        /// Robust score.
        score: f64,
    },
    /// One rank waits for one other: the path awaited -> waiter is slow.
    Point {
        /// The waiter.
        waiter: usize,
        /// The awaited.
        awaited: usize,
        /// Wait ratio.
        ratio: f64,
        /// Robust score.
        score: f64,
    },
    /// One node waits for another.
    NodeBlock {
        /// Node of the waiters.
        waiter_node: usize,
        /// Node of the awaited.
        awaited_node: usize,
        /// Wait ratio.
        ratio: f64,
        /// Robust score.
        score: f64,
    },
}

impl fmt::Display for LlFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Column { rank, path, ratio, score, arrival } => write!(
                f,
                "all wait for rank {rank}, {path}: {ratio:.2}x, score {score:.1}, arrival {arrival}"
            ),
            Self::Row { rank, path, ratio, score } => {
                write!(f, "rank {rank} waits for all, {path}: {ratio:.2}x, score {score:.1}")
            }
            Self::Point { waiter, awaited, ratio, score } => {
                write!(f, "rank {waiter} waits for {awaited}: {ratio:.2}x, score {score:.1}")
            }
            Self::NodeBlock { waiter_node, awaited_node, ratio, score } => write!(
                f,
                "node {waiter_node} waits for node {awaited_node}: {ratio:.2}x, score {score:.1}"
            ),
        }
    }
}

/// What the topology-aware rule found.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TopologyReport {
    /// What was found, what costs most waiting time first; ties in the order rows, columns, points,
    /// node blocks, then by place.
    pub findings: Vec<LlFinding>,
}

/// A rank is late when it waits at most this share of what the others wait.
const LATE_SHARE: f64 = 0.25;

/// The topology-aware rule, with memory that is kept between matrices.
#[derive(Debug, Clone)]
pub(crate) struct TopologyRule {
    solver: DenseSolver,
    /// Mean wait of each rank for the others, NaN when it has not waited.
    row_means: Vec<f64>,
    buffer: Vec<f64>,
}

impl TopologyRule {
    pub(crate) fn new(topology: Topology) -> Self {
        let ranks = topology.ep_size();
        Self {
            solver: DenseSolver::new(topology),
            row_means: vec![f64::NAN; ranks],
            buffer: Vec::with_capacity(ranks),
        }
    }

    /// Fills `report` from `matrix` `[waiter, awaited]`, which is `[N, N]`.
    pub(crate) fn diagnose(
        &mut self,
        matrix: ArrayView2<'_, i64>,
        policy: &Policy,
        report: &mut TopologyReport,
    ) {
        report.findings.clear();
        let wait = |waiter: usize, awaited: usize| matrix[[waiter, awaited]];
        self.solver.fill(|waiter, awaited| {
            let wait = wait(waiter, awaited);
            (if wait > 0 { wait as f64 } else { f64::NAN }, f64::NAN)
        });
        let Policy { axis_ratio, point_ratio, .. } = *policy;
        if self.solver.solve(Thresholds { axis_ratio, point_ratio }, None).is_empty() {
            return;
        }
        self.average_rows(matrix);
        let cost = |outlier: &Outlier| {
            let weight = |i, j| wait(i, j) as f64 * (1.0 - 1.0 / outlier.ratio);
            self.solver.sum_over(outlier.place, weight)
        };
        let outliers = self.solver.outliers().iter();
        let mut costs: Vec<_> = outliers.map(|outlier| (cost(outlier), outlier)).collect();
        costs.sort_by(|a, b| b.0.total_cmp(&a.0));
        for (_, outlier) in costs {
            report
                .findings
                .extend(finding(outlier, |rank| arrival(&self.row_means, rank, &mut self.buffer)));
        }
    }

    fn average_rows(&mut self, matrix: ArrayView2<'_, i64>) {
        for (rank, (mean, row)) in self.row_means.iter_mut().zip(matrix.rows()).enumerate() {
            let waits = row.iter().enumerate().filter(|&(j, &wait)| j != rank && wait > 0);
            let (sum, cells) = waits
                .fold((0.0, 0_usize), |(sum, cells), (_, &wait)| (sum + wait as f64, cells + 1));
            *mean = if cells == 0 { f64::NAN } else { sum / cells as f64 };
        }
    }
}

/// Whether `rank` waits for nobody, judged by the mean waits of all ranks.
fn arrival(means: &[f64], rank: usize, buffer: &mut Vec<f64>) -> Arrival {
    buffer.clear();
    let others = means.iter().enumerate().filter(|&(other, mean)| other != rank && !mean.is_nan());
    buffer.extend(others.map(|(_, mean)| mean));
    match deepxtrace_normal::robust::median(buffer) {
        // A rank without waits of its own has a NaN mean, which compares false.
        Some(median) if means[rank] <= LATE_SHARE * median => Arrival::Late,
        _ => Arrival::Unknown,
    }
}

fn finding(outlier: &Outlier, arrival: impl FnOnce(usize) -> Arrival) -> Option<LlFinding> {
    let &Outlier { place, ratio, score } = outlier;
    Some(match place {
        Place::Row { rank, path } => LlFinding::Row { rank, path, ratio, score },
        Place::Column { rank, path } => {
            LlFinding::Column { rank, path, ratio, score, arrival: arrival(rank) }
        }
        Place::Point { src, dst } => LlFinding::Point { waiter: src, awaited: dst, ratio, score },
        Place::Block { src_node, dst_node } => {
            LlFinding::NodeBlock { waiter_node: src_node, awaited_node: dst_node, ratio, score }
        }
        // Asked for without rails.
        Place::Rail { .. } => return None,
    })
}
