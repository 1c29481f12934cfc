//! Where a rank stands: its node and its place in the node.

use std::ops::Range;

use thiserror::Error;

/// Largest EP group this crate lays out counters for.
pub const MAX_EP_SIZE: usize = 4096;

/// An EP group of `ep_size` ranks, placed on nodes of `ranks_per_node` in rank order.
///
/// The last node may be short. Ranks are those of the EP group, `0..ep_size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Topology {
    ep_size: usize,
    ranks_per_node: usize,
}

/// A group that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TopologyError {
    /// The number of ranks is 0 or above [`MAX_EP_SIZE`].
    #[error("EP size {0} is not in 1..={MAX_EP_SIZE}")]
    EpSize(usize),
    /// A node must hold at least one rank.
    #[error("ranks per node is 0, it must be at least 1")]
    RanksPerNode,
}

impl Topology {
    /// A group of `ep_size` ranks on nodes of `ranks_per_node`.
    ///
    /// A node size above the EP size means one node.
    ///
    /// # Errors
    ///
    /// - `ep_size` is 0 or above [`MAX_EP_SIZE`]
    /// - `ranks_per_node` is 0
    pub fn new(ep_size: usize, ranks_per_node: usize) -> Result<Self, TopologyError> {
        if ep_size == 0 || ep_size > MAX_EP_SIZE {
            return Err(TopologyError::EpSize(ep_size));
        }
        if ranks_per_node == 0 {
            return Err(TopologyError::RanksPerNode);
        }
        Ok(Self { ep_size, ranks_per_node })
    }

    /// Number of ranks, `N`.
    #[must_use]
    pub fn ep_size(self) -> usize {
        self.ep_size
    }

    /// Ranks on every node but a short last one.
    #[must_use]
    pub fn ranks_per_node(self) -> usize {
        self.ranks_per_node
    }

    /// Number of nodes, a short last one included.
    #[must_use]
    pub fn nodes(self) -> usize {
        self.ep_size.div_ceil(self.ranks_per_node)
    }

    /// The node of `rank`.
    #[must_use]
    pub fn node(self, rank: usize) -> usize {
        rank / self.ranks_per_node
    }

    /// The place of `rank` in its node.
    #[must_use]
    pub fn local_index(self, rank: usize) -> usize {
        rank % self.ranks_per_node
    }

    /// The ranks of `node`; empty for a node that does not exist.
    #[must_use]
    pub fn ranks_of(self, node: usize) -> Range<usize> {
        let start = node.saturating_mul(self.ranks_per_node).min(self.ep_size);
        let end = start.saturating_add(self.ranks_per_node).min(self.ep_size);
        start..end
    }

    /// Whether both ranks stand on one node.
    #[must_use]
    pub fn same_node(self, a: usize, b: usize) -> bool {
        self.node(a) == self.node(b)
    }

    /// The rank on `source_node` through which tokens of that node reach `receiver`: the one with
    /// the receiver's local index. `None` when the node does not exist or is too short to have it.
    #[must_use]
    pub fn gateway_proxy(self, source_node: usize, receiver: usize) -> Option<usize> {
        let ranks = self.ranks_of(source_node);
        let proxy = ranks.start + self.local_index(receiver);
        ranks.contains(&proxy).then_some(proxy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_last_node_has_fewer_ranks_and_no_proxy_for_the_missing_index() {
        let topology = Topology::new(11, 4).unwrap();
        assert_eq!(topology.nodes(), 3);
        assert_eq!(topology.ranks_of(0), 0..4);
        assert_eq!(topology.ranks_of(2), 8..11);
        assert_eq!(topology.ranks_of(3), 11..11);
        assert_eq!(topology.node(10), 2);
        assert_eq!(topology.local_index(10), 2);
        assert_eq!(topology.gateway_proxy(1, 10), Some(6));
        assert_eq!(topology.gateway_proxy(2, 6), Some(10));
        // Local index 3 does not exist on the last node.
        assert_eq!(topology.gateway_proxy(2, 3), None);
        assert_eq!(topology.gateway_proxy(3, 0), None);
    }

    #[test]
    fn one_rank_and_a_node_larger_than_the_group_are_one_node() {
        assert_eq!(Topology::new(1, 8).unwrap().nodes(), 1);
        assert_eq!(Topology::new(4, usize::MAX).unwrap().ranks_of(0), 0..4);
        assert_eq!(Topology::new(4, usize::MAX).unwrap().ranks_of(usize::MAX), 4..4);
    }

    #[test]
    fn impossible_groups_are_refused_with_the_value() {
        assert_eq!(Topology::new(0, 8), Err(TopologyError::EpSize(0)));
        assert_eq!(Topology::new(4097, 8), Err(TopologyError::EpSize(4097)));
        assert_eq!(Topology::new(8, 0), Err(TopologyError::RanksPerNode));
        assert!(Topology::new(4096, 8).is_ok());
        assert_eq!(TopologyError::EpSize(4097).to_string(), "EP size 4097 is not in 1..=4096");
    }
}
