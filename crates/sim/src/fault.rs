//! What can be wrong with a job.

use deepxtrace_counters::Topology;
use thiserror::Error;

/// The stage whose matrix a fault is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Tokens to experts: source is the token owner, destination the expert's rank.
    Dispatch,
    /// Results back: source is the expert's rank, destination the token owner.
    Combine,
}

/// The cells that a row or column fault is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PathClass {
    /// All.
    All,
    /// Those between ranks of one node.
    IntraNode,
    /// Those between nodes.
    InterNode,
}

/// How many times the usual cost inter-node traffic has, in each of the three matrices.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Slowdown {
    /// In `dispatch_final`.
    pub dispatch: f64,
    /// In `dispatch_rdma_recv`.
    pub gateway: f64,
    /// In `combine_logical_recv`.
    pub combine: f64,
}

impl Slowdown {
    /// The same factor in all three.
    #[must_use]
    pub fn all(factor: f64) -> Self {
        Self { dispatch: factor, gateway: factor, combine: factor }
    }
}

/// Something that is wrong in every round of a window. Factors multiply when faults meet.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Fault {
    /// A rank computes longer before every dispatch.
    LateBeforeDispatch {
        /// The rank.
        rank: usize,
        /// How much longer, ns.
        ns: u32,
    },
    /// A rank computes longer before every combine.
    LateBeforeCombine {
        /// The rank.
        rank: usize,
        /// How much longer, ns.
        ns: u32,
    },
    /// All network adapters are under pressure: all inter-node traffic is slow.
    Pressure(Slowdown),
    /// One network adapter a node is under pressure: the inter-node traffic of the ranks that use
    /// it is slow, their tokens on the way out in dispatch and on the way back in combine.
    HcaPressure {
        /// The token owners that use it.
        owners: Vec<usize>,
        /// How slow.
        slowdown: Slowdown,
    },
    /// One direction of one rail is slow: the tokens of one local index on the way out in dispatch
    /// and those on the way back to this local index in combine.
    Rail {
        /// The local index.
        local_index: usize,
        /// The node that sends.
        src_node: usize,
        /// The node that receives.
        dst_node: usize,
        /// How slow.
        slowdown: Slowdown,
    },
    /// Everything that comes from one rank is slow.
    SourceRow {
        /// The matrix.
        stage: Stage,
        /// The source rank.
        rank: usize,
        /// Which of its cells.
        path: PathClass,
        /// How many times the usual cost.
        factor: f64,
    },
    /// Everything that arrives at one rank is slow.
    DestinationColumn {
        /// The matrix.
        stage: Stage,
        /// The destination rank.
        rank: usize,
        /// Which of its cells.
        path: PathClass,
        /// How many times the usual cost.
        factor: f64,
    },
    /// One path is slow.
    Point {
        /// The matrix.
        stage: Stage,
        /// The source rank.
        src: usize,
        /// The destination rank.
        dst: usize,
        /// How many times the usual cost.
        factor: f64,
    },
    /// Everything from one node to another (or within one) is slow.
    NodeBlock {
        /// The matrix.
        stage: Stage,
        /// The source node.
        src_node: usize,
        /// The destination node.
        dst_node: usize,
        /// How many times the usual cost.
        factor: f64,
    },
    /// A rank is restarted in the middle of the window: its counters begin at 0 again.
    Restart {
        /// The rank.
        rank: usize,
    },
    /// A rank sends no tokens and gets none; it still takes part in Notify.
    NoTokens {
        /// The rank.
        rank: usize,
    },
    /// Nothing runs.
    Idle,
    /// The snapshot of a rank at the end of the window does not arrive.
    MissingSnapshot {
        /// The rank.
        rank: usize,
    },
}

/// A fault that the group or physics has no room for.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
#[non_exhaustive]
pub enum FaultError {
    /// A rank, node or local index that does not exist.
    #[error("{what} {value} does not exist, there are {count}")]
    Place {
        /// What it is.
        what: &'static str,
        /// Its number.
        value: usize,
        /// How many there are.
        count: usize,
    },
    /// A factor that is not a finite number above 0.
    #[error("factor {0} is not a finite number above 0")]
    Factor(f64),
    /// A rail that stays within a node.
    #[error("a rail connects two nodes, both are {0}")]
    OneNode(usize),
}

impl Fault {
    pub(crate) fn validate(&self, topology: Topology) -> Result<(), FaultError> {
        let place = |what, value: usize, count: usize| {
            if value < count { Ok(()) } else { Err(FaultError::Place { what, value, count }) }
        };
        let rank = |value| place("rank", value, topology.ep_size());
        let node = |value| place("node", value, topology.nodes());
        let factor = |value: f64| {
            if value.is_finite() && value > 0.0 { Ok(()) } else { Err(FaultError::Factor(value)) }
        };
        let slow =
            |s: &Slowdown| [s.dispatch, s.gateway, s.combine].into_iter().try_for_each(factor);
        match self {
            Self::LateBeforeDispatch { rank: r, .. }
            | Self::LateBeforeCombine { rank: r, .. }
            | Self::Restart { rank: r }
            | Self::NoTokens { rank: r }
            | Self::MissingSnapshot { rank: r } => rank(*r),
            Self::Pressure(slowdown) => slow(slowdown),
            Self::HcaPressure { owners, slowdown } => {
                owners.iter().try_for_each(|&r| rank(r)).and_then(|()| slow(slowdown))
            }
            Self::Rail { local_index, src_node, dst_node, slowdown } => {
                node(*src_node)?;
                node(*dst_node)?;
                if src_node == dst_node {
                    return Err(FaultError::OneNode(*src_node));
                }
                let shorter = |n| topology.ranks_of(n).len();
                let count = shorter(*src_node).min(shorter(*dst_node));
                place("local index", *local_index, count)?;
                slow(slowdown)
            }
            Self::SourceRow { rank: r, factor: f, .. }
            | Self::DestinationColumn { rank: r, factor: f, .. } => {
                rank(*r).and_then(|()| factor(*f))
            }
            Self::Point { src, dst, factor: f, .. } => {
                rank(*src).and_then(|()| rank(*dst)).and_then(|()| factor(*f))
            }
            Self::NodeBlock { src_node, dst_node, factor: f, .. } => {
                node(*src_node).and_then(|()| node(*dst_node)).and_then(|()| factor(*f))
            }
            Self::Idle => Ok(()),
        }
    }
}
