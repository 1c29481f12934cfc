//! Where a finding is, so that dispatch and combine can be compared: by cells and by rails.

use std::ops::Range;

use deepxtrace_counters::Topology;

use crate::finding::{Finding, PathScope};

/// Which way tokens travel in a matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the token's owner to the expert.
    Dispatch,
    /// From the expert back to the owner.
    Combine,
}

/// A set of cells `(token owner, expert rank)`, geometric: whether or not a cell has samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Zone {
    Owner(usize, PathScope),
    Expert(usize, PathScope),
    /// Owner node, expert node.
    Block(usize, usize),
    /// One owner and the experts of one node: a rail.
    Segment(usize, usize),
    /// Owner, expert.
    Cell(usize, usize),
}

impl Zone {
    /// The cells of a local finding of a dense probe; `None` for other findings.
    pub(crate) fn of(topology: Topology, finding: &Finding, direction: Direction) -> Option<Self> {
        use Direction::{Combine, Dispatch};

        let rank = |node: usize, local: usize| topology.ranks_of(node).start + local;
        Some(match (finding, direction) {
            (&Finding::SourceRow { rank, path, .. }, Dispatch)
            | (&Finding::DestinationColumn { rank, path, .. }, Combine) => Self::Owner(rank, path),
            (&Finding::DestinationColumn { rank, path, .. }, Dispatch)
            | (&Finding::SourceRow { rank, path, .. }, Combine) => Self::Expert(rank, path),
            (&Finding::NodeBlock { src_node, dst_node, .. }, Dispatch) => {
                Self::Block(src_node, dst_node)
            }
            (&Finding::NodeBlock { src_node, dst_node, .. }, Combine) => {
                Self::Block(dst_node, src_node)
            }
            (&Finding::Rail { local_index, src_node, dst_node, .. }, Dispatch) => {
                Self::Segment(rank(src_node, local_index), dst_node)
            }
            (&Finding::Rail { local_index, src_node, dst_node, .. }, Combine) => {
                Self::Segment(rank(dst_node, local_index), src_node)
            }
            (&Finding::Point { src, dst, .. }, Dispatch) => Self::Cell(src, dst),
            (&Finding::Point { src, dst, .. }, Combine) => Self::Cell(dst, src),
            _ => return None,
        })
    }

    /// The zone without its path: a probe has at most one finding of each.
    pub(crate) fn key(self) -> Self {
        match self {
            Self::Owner(rank, _) => Self::Owner(rank, PathScope::All),
            Self::Expert(rank, _) => Self::Expert(rank, PathScope::All),
            other => other,
        }
    }

    /// Calls `each` with the keys of all zones of which this one can share more than half of the
    /// smaller, but for cells inside a larger zone: those name the larger one.
    ///
    /// A row or column of a finding has three cells or more, so it shares at most a third with
    /// one that it crosses.
    pub(crate) fn partners(self, topology: Topology, mut each: impl FnMut(Self)) {
        let all = PathScope::All;
        each(self.key());
        match self {
            Self::Owner(owner, _) => {
                for node in 0..topology.nodes() {
                    each(Self::Segment(owner, node));
                    each(Self::Block(topology.node(owner), node));
                }
            }
            Self::Expert(expert, _) => {
                for node in 0..topology.nodes() {
                    each(Self::Block(node, topology.node(expert)));
                }
            }
            Self::Block(owner_node, expert_node) => {
                for owner in topology.ranks_of(owner_node) {
                    each(Self::Owner(owner, all));
                    each(Self::Segment(owner, expert_node));
                }
                for expert in topology.ranks_of(expert_node) {
                    each(Self::Expert(expert, all));
                }
            }
            Self::Segment(owner, expert_node) => {
                each(Self::Owner(owner, all));
                each(Self::Block(topology.node(owner), expert_node));
            }
            Self::Cell(owner, expert) => {
                each(Self::Owner(owner, all));
                each(Self::Expert(expert, all));
                each(Self::Segment(owner, topology.node(expert)));
                each(Self::Block(topology.node(owner), topology.node(expert)));
            }
        }
    }

    /// Whether two zones share more than half of the smaller one.
    pub(crate) fn meets(self, other: Self, topology: Topology) -> bool {
        let (a, b) = (self.area(topology), other.area(topology));
        let smaller = a.cells(topology).min(b.cells(topology));
        2 * a.and(&b).map_or(0, |both| both.cells(topology)) > smaller
    }

    /// The zone as a rectangle of owners and experts, of which a path class may be cut out.
    pub(crate) fn area(self, topology: Topology) -> ZoneArea {
        let all = 0..topology.ep_size();
        let one = |rank: usize| rank..rank + 1;
        let (owners, experts, path) = match self {
            Self::Owner(owner, path) => (one(owner), all, path),
            Self::Expert(expert, path) => (all, one(expert), path),
            Self::Block(a, b) => (topology.ranks_of(a), topology.ranks_of(b), PathScope::All),
            Self::Segment(owner, b) => (one(owner), topology.ranks_of(b), PathScope::All),
            Self::Cell(owner, expert) => (one(owner), one(expert), PathScope::All),
        };
        ZoneArea { owners, experts, path }
    }
}

/// A rectangle of cells, of all or one path class.
#[derive(Debug, Clone)]
pub(crate) struct ZoneArea {
    pub(crate) owners: Range<usize>,
    pub(crate) experts: Range<usize>,
    path: PathScope,
}

impl ZoneArea {
    /// Whether a cell of the rectangle belongs to it.
    pub(crate) fn holds(&self, topology: Topology, owner: usize, expert: usize) -> bool {
        match self.path {
            PathScope::All => true,
            PathScope::IntraNode => topology.same_node(owner, expert),
            PathScope::InterNode => !topology.same_node(owner, expert),
        }
    }

    fn and(&self, other: &Self) -> Option<Self> {
        let path = match (self.path, other.path) {
            (PathScope::All, path) | (path, PathScope::All) => path,
            (a, b) if a == b => a,
            _ => return None,
        };
        let (owners, experts) =
            (overlap(&self.owners, &other.owners), overlap(&self.experts, &other.experts));
        Some(Self { owners, experts, path })
    }

    fn cells(&self, topology: Topology) -> usize {
        let all = self.owners.len() * self.experts.len();
        if self.path == PathScope::All || all == 0 {
            return all;
        }
        let nodes = topology.node(self.owners.start)..topology.node(self.owners.end - 1) + 1;
        let intra: usize = nodes
            .map(|node| {
                let ranks = topology.ranks_of(node);
                overlap(&self.owners, &ranks).len() * overlap(&self.experts, &ranks).len()
            })
            .sum();
        if self.path == PathScope::IntraNode { intra } else { all - intra }
    }
}

fn overlap(a: &Range<usize>, b: &Range<usize>) -> Range<usize> {
    let start = a.start.max(b.start);
    start..a.end.min(b.end).max(start)
}

/// A set of directed rails, each `[local index, source node, destination node]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rails {
    /// One local index from one node to every other: local index, source node.
    From(usize, usize),
    /// One local index from every other node to one: local index, destination node.
    Into(usize, usize),
    /// Every local index in one direction: source node, destination node.
    All(usize, usize),
    /// One rail.
    One([usize; 3]),
}

impl Rails {
    /// The rails of a local finding of a dense probe; `None` for one that has none.
    pub(crate) fn of(topology: Topology, finding: &Finding, direction: Direction) -> Option<Self> {
        use Direction::{Combine, Dispatch};

        if topology.nodes() == 1 {
            return None;
        }
        let place = |rank| (topology.local_index(rank), topology.node(rank));
        match (finding, direction) {
            (&Finding::SourceRow { rank, path, .. }, Dispatch) if path != PathScope::IntraNode => {
                let (local, node) = place(rank);
                Some(Self::From(local, node))
            }
            (&Finding::DestinationColumn { rank, path, .. }, Combine)
                if path != PathScope::IntraNode =>
            {
                let (local, node) = place(rank);
                Some(Self::Into(local, node))
            }
            (&Finding::NodeBlock { src_node, dst_node, .. }, _) if src_node != dst_node => {
                Some(Self::All(src_node, dst_node))
            }
            (&Finding::Rail { local_index, src_node, dst_node, .. }, _) => {
                Some(Self::One([local_index, src_node, dst_node]))
            }
            _ => None,
        }
    }

    /// Calls `each` with every set that can have a rail in common with this one.
    pub(crate) fn partners(self, topology: Topology, mut each: impl FnMut(Self)) {
        let nodes = topology.nodes();
        each(self);
        match self {
            Self::From(local, src) => {
                for dst in (0..nodes).filter(|&dst| dst != src) {
                    each(Self::Into(local, dst));
                    each(Self::All(src, dst));
                    each(Self::One([local, src, dst]));
                }
            }
            Self::Into(local, dst) => {
                for src in (0..nodes).filter(|&src| src != dst) {
                    each(Self::From(local, src));
                    each(Self::All(src, dst));
                    each(Self::One([local, src, dst]));
                }
            }
            Self::All(src, dst) => {
                for local in 0..local_indices(topology) {
                    each(Self::From(local, src));
                    each(Self::Into(local, dst));
                    each(Self::One([local, src, dst]));
                }
            }
            Self::One([local, src, dst]) => {
                each(Self::From(local, src));
                each(Self::Into(local, dst));
                each(Self::All(src, dst));
            }
        }
    }

    /// Appends the rails that two sets share to `shared`, if these are more than half of the
    /// smaller set; says whether they are.
    pub(crate) fn meet(
        self,
        other: Self,
        topology: Topology,
        shared: &mut Vec<[usize; 3]>,
    ) -> bool {
        let first = shared.len();
        self.for_each(topology, |rail| {
            if other.holds(rail) {
                shared.push(rail);
            }
        });
        let meet = 2 * (shared.len() - first) > self.len(topology).min(other.len(topology));
        if !meet {
            shared.truncate(first);
        }
        meet
    }

    fn len(self, topology: Topology) -> usize {
        match self {
            Self::From(..) | Self::Into(..) => topology.nodes() - 1,
            Self::All(..) => local_indices(topology),
            Self::One(_) => 1,
        }
    }

    fn holds(self, [local, src, dst]: [usize; 3]) -> bool {
        match self {
            Self::From(l, a) => (l, a) == (local, src),
            Self::Into(l, b) => (l, b) == (local, dst),
            Self::All(a, b) => (a, b) == (src, dst),
            Self::One(rail) => rail == [local, src, dst],
        }
    }

    fn for_each(self, topology: Topology, each: impl FnMut([usize; 3])) {
        let others = |node: usize| (0..topology.nodes()).filter(move |&other| other != node);
        match self {
            Self::From(local, src) => others(src).map(|dst| [local, src, dst]).for_each(each),
            Self::Into(local, dst) => others(dst).map(|src| [local, src, dst]).for_each(each),
            Self::All(src, dst) => {
                (0..local_indices(topology)).map(|local| [local, src, dst]).for_each(each);
            }
            Self::One(rail) => std::iter::once(rail).for_each(each),
        }
    }
}

fn local_indices(topology: Topology) -> usize {
    topology.ranks_per_node().min(topology.ep_size())
}

#[cfg(test)]
mod tests;
