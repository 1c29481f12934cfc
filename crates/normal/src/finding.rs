//! What a probe found in one window.

use std::fmt;

use deepxtrace_counters::CompletionProbe;
use serde::{Deserialize, Serialize};

/// The cells that a row or column finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PathScope {
    /// Every path class that has valid cells in the matrix found it.
    All,
    /// Only cells between ranks of one node.
    IntraNode,
    /// Only cells between nodes.
    InterNode,
}

impl fmt::Display for PathScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::All => "all paths",
            Self::IntraNode => "intra-node paths",
            Self::InterNode => "inter-node paths",
        })
    }
}

/// What a global slowdown is measured against.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Against {
    /// The median of the last healthy windows.
    Recent,
    /// The lowest level since the history began.
    Best,
}

impl fmt::Display for Against {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Recent => "recent",
            Self::Best => "best",
        })
    }
}

/// One finding of one probe.
///
/// `ratio` is how many times the cost of its peers the place has (below 1 for a late rank), `score`
/// how many robust standard deviations it stands out. `excess_cycles` is the sum of
/// `cost * (1 - 1 / ratio)` over its valid cells: what it cost in the window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Finding {
    /// A rank that waits little in a Notify kernel because it enters it last.
    LateRank {
        /// The rank.
        rank: usize,
        /// Its average over the median of the others' averages.
        ratio: f64,
        /// The time each peer lost in the window, ns.
        excess_ns: f64,
        /// The probe of the stage before, when that stage took this rank so much longer than the
        /// others that it is late because of it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        explained_by: Option<CompletionProbe>,
    },
    /// Everything that comes from one rank is slow.
    SourceRow {
        /// The source rank.
        rank: usize,
        /// Which of its cells.
        path: PathScope,
        /// Cost ratio.
        ratio: f64,
        /// Robust score.
        score: f64,
        /// Cost in the window, cycles.
        excess_cycles: f64,
    },
    /// Everything that arrives at one rank is slow.
    DestinationColumn {
        /// The destination rank.
        rank: usize,
        /// Which of its cells.
        path: PathScope,
        /// Cost ratio.
        ratio: f64,
        /// Robust score.
        score: f64,
        /// Cost in the window, cycles.
        excess_cycles: f64,
    },
    /// Everything that comes from one gateway proxy is slow.
    SourceGateway {
        /// The proxy rank on the source side.
        rank: usize,
        /// Always [`PathScope::All`]: gateway edges are of one class.
        path: PathScope,
        /// Cost ratio.
        ratio: f64,
        /// Robust score.
        score: f64,
        /// Cost in the window, cycles.
        excess_cycles: f64,
    },
    /// Everything that arrives at one rank from gateways is slow.
    DestinationGateway {
        /// The receiving rank.
        rank: usize,
        /// Always [`PathScope::All`]: gateway edges are of one class.
        path: PathScope,
        /// Cost ratio.
        ratio: f64,
        /// Robust score.
        score: f64,
        /// Cost in the window, cycles.
        excess_cycles: f64,
    },
    /// One local index is slow in one direction between two nodes.
    Rail {
        /// The local index.
        local_index: usize,
        /// The node that sends.
        src_node: usize,
        /// The node that receives.
        dst_node: usize,
        /// Cost ratio.
        ratio: f64,
        /// Robust score.
        score: f64,
        /// Cost in the window, cycles.
        excess_cycles: f64,
    },
    /// One cell is slow by itself.
    Point {
        /// Source rank.
        src: usize,
        /// Destination rank.
        dst: usize,
        /// Cost ratio.
        ratio: f64,
        /// Robust score.
        score: f64,
        /// Cost in the window, cycles.
        excess_cycles: f64,
    },
    /// One edge between gateways is slow by itself.
    GatewayEdge {
        /// Source proxy rank.
        src: usize,
        /// Receiving rank.
        dst: usize,
        /// Cost ratio.
        ratio: f64,
        /// Robust score.
        score: f64,
        /// Cost in the window, cycles.
        excess_cycles: f64,
    },
    /// Everything from one node to another (or within one) is slow.
    NodeBlock {
        /// The source node.
        src_node: usize,
        /// The destination node.
        dst_node: usize,
        /// Cost ratio.
        ratio: f64,
        /// Robust score.
        score: f64,
        /// Cost in the window, cycles.
        excess_cycles: f64,
    },
    /// The whole matrix is slow against its own history.
    Global {
        /// The larger of the two ratios, against the lowest level.
        ratio: f64,
        /// [`Against::Recent`] where the recent windows alone suffice.
        against: Against,
        /// Cost in the window, cycles.
        excess_cycles: f64,
    },
}

impl Finding {
    /// What the finding costs in the window: ns for a late rank, cycles otherwise.
    #[must_use]
    pub fn excess(&self) -> f64 {
        match *self {
            Self::LateRank { excess_ns, .. } => excess_ns,
            Self::SourceRow { excess_cycles, .. }
            | Self::DestinationColumn { excess_cycles, .. }
            | Self::SourceGateway { excess_cycles, .. }
            | Self::DestinationGateway { excess_cycles, .. }
            | Self::Rail { excess_cycles, .. }
            | Self::Point { excess_cycles, .. }
            | Self::GatewayEdge { excess_cycles, .. }
            | Self::NodeBlock { excess_cycles, .. }
            | Self::Global { excess_cycles, .. } => excess_cycles,
        }
    }

    /// The ratio that made it a finding.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        match *self {
            Self::LateRank { ratio, .. }
            | Self::SourceRow { ratio, .. }
            | Self::DestinationColumn { ratio, .. }
            | Self::SourceGateway { ratio, .. }
            | Self::DestinationGateway { ratio, .. }
            | Self::Rail { ratio, .. }
            | Self::Point { ratio, .. }
            | Self::GatewayEdge { ratio, .. }
            | Self::NodeBlock { ratio, .. }
            | Self::Global { ratio, .. } => ratio,
        }
    }

    /// Whether the finding names a place in the matrix, as opposed to all of it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        !matches!(self, Self::LateRank { .. } | Self::Global { .. })
    }
}

/// Puts the findings of a probe, which stand by kind and place, in their final order: what costs most
/// first. Costs that are the same to the nanosecond or cycle count as equal, so that rounding does
/// not decide.
pub(crate) fn sort(findings: &mut [Finding]) {
    findings.sort_by(|a, b| b.excess().round().total_cmp(&a.excess().round()));
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LateRank { rank, ratio, excess_ns, explained_by } => {
                write!(
                    f,
                    "rank {rank} arrives late: {ratio:.3}x the others' wait, costs each peer \
                     {:.3} ms",
                    excess_ns / 1e6
                )?;
                match explained_by {
                    Some(probe) => write!(f, " (because of {probe})"),
                    None => Ok(()),
                }
            }
            Self::SourceRow { rank, path, ratio, score, .. } => {
                write!(f, "source rank {rank}, {path}: {ratio:.2}x, score {score:.1}")
            }
            Self::DestinationColumn { rank, path, ratio, score, .. } => {
                write!(f, "destination rank {rank}, {path}: {ratio:.2}x, score {score:.1}")
            }
            Self::SourceGateway { rank, ratio, score, .. } => {
                write!(f, "source gateway proxy {rank}: {ratio:.2}x, score {score:.1}")
            }
            Self::DestinationGateway { rank, ratio, score, .. } => {
                write!(f, "destination gateway proxy {rank}: {ratio:.2}x, score {score:.1}")
            }
            Self::Rail { local_index, src_node, dst_node, ratio, score, .. } => write!(
                f,
                "rail of local index {local_index}, node {src_node} -> {dst_node}: {ratio:.2}x, \
                 score {score:.1}"
            ),
            Self::Point { src, dst, ratio, score, .. } => {
                write!(f, "path {src} -> {dst}: {ratio:.2}x, score {score:.1}")
            }
            Self::GatewayEdge { src, dst, ratio, score, .. } => {
                write!(f, "gateway edge {src} -> {dst}: {ratio:.2}x, score {score:.1}")
            }
            Self::NodeBlock { src_node, dst_node, ratio, score, .. } => {
                write!(f, "node {src_node} -> {dst_node}: {ratio:.2}x, score {score:.1}")
            }
            Self::Global { ratio, against, .. } => {
                write!(f, "all paths: {ratio:.2}x the {against} level")
            }
        }
    }
}
