//! The topology-aware rule: every wait against its peers on the same kind of path.

use std::fmt;

use deepxtrace_normal::PathScope;
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
    /// Columns, rows, points and node blocks, the largest ratio of each kind first.
    pub findings: Vec<LlFinding>,
}
