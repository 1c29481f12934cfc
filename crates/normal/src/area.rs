//! The cells of a place in a matrix.

use std::ops::Range;

use deepxtrace_counters::Topology;

use crate::finding::PathScope;
use crate::outlier::{Place, RailSide};

/// The rectangle of a [`Place`], the diagonal included, and which path class of it counts.
#[derive(Debug, Clone)]
pub(crate) struct Area {
    pub(crate) sources: Range<usize>,
    pub(crate) destinations: Range<usize>,
    path: PathScope,
}

impl Area {
    pub(crate) fn all(topology: Topology) -> Self {
        let all = 0..topology.ep_size();
        Self { sources: all.clone(), destinations: all, path: PathScope::All }
    }

    /// The area of `place`; what a rail is depends on `side`.
    pub(crate) fn of(topology: Topology, place: Place, side: RailSide) -> Self {
        let all = 0..topology.ep_size();
        let one = |rank| rank..rank + 1;
        let (sources, destinations, path) = match place {
            Place::Row { rank, path } => (one(rank), all, path),
            Place::Column { rank, path } => (all, one(rank), path),
            Place::Point { src, dst } => (one(src), one(dst), PathScope::All),
            Place::Block { src_node, dst_node } => {
                (topology.ranks_of(src_node), topology.ranks_of(dst_node), PathScope::All)
            }
            Place::Rail { local_index, src_node, dst_node } => {
                let (src, dst) = (topology.ranks_of(src_node), topology.ranks_of(dst_node));
                match side {
                    RailSide::Source => (one(src.start + local_index), dst, PathScope::All),
                    RailSide::Destination => (src, one(dst.start + local_index), PathScope::All),
                }
            }
        };
        Self { sources, destinations, path }
    }

    /// Whether cells of a path class belong to it.
    pub(crate) fn holds(&self, intra: bool) -> bool {
        match self.path {
            PathScope::All => true,
            PathScope::IntraNode => intra,
            PathScope::InterNode => !intra,
        }
    }
}
