//! The cumulative vectors of all ranks at one moment.

use crate::error::SnapshotError;
use crate::layout::Layout;
use crate::topology::Topology;

/// The gathered cumulative counters of an EP group, shape `[destination, 6 + 9N]`.
///
/// A rank whose vector did not arrive is *absent*; what its row holds then is not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    topology: Topology,
    timestamp_unix_ns: i64,
    counters: Vec<i64>,
    present: Vec<bool>,
}

impl Snapshot {
    /// A snapshot in which every counter is 0 and every rank is present.
    #[must_use]
    pub fn zeros(topology: Topology, timestamp_unix_ns: i64) -> Self {
        let len = topology.ep_size() * vector_len(topology);
        Self {
            topology,
            timestamp_unix_ns,
            counters: vec![0; len],
            present: vec![true; topology.ep_size()],
        }
    }

    /// A snapshot of gathered vectors, one after the other in rank order.
    ///
    /// `present` tells whose vector arrived; `None` means all did.
    ///
    /// # Errors
    ///
    /// - `counters` does not have `N * (6 + 9N)` elements
    /// - `present` does not have `N` elements
    pub fn new(
        topology: Topology,
        timestamp_unix_ns: i64,
        counters: Vec<i64>,
        present: Option<Vec<bool>>,
    ) -> Result<Self, SnapshotError> {
        let ranks = topology.ep_size();
        let each = vector_len(topology);
        if counters.len() != ranks * each {
            return Err(SnapshotError::Length {
                length: counters.len(),
                ranks,
                each,
                expected: ranks * each,
            });
        }
        let present = present.unwrap_or_else(|| vec![true; ranks]);
        if present.len() != ranks {
            return Err(SnapshotError::Present { length: present.len(), ranks });
        }
        Ok(Self { topology, timestamp_unix_ns, counters, present })
    }

    /// The group.
    #[must_use]
    pub fn topology(&self) -> Topology {
        self.topology
    }

    /// When it was taken, by the root's clock, ns since 1970.
    #[must_use]
    pub fn timestamp_unix_ns(&self) -> i64 {
        self.timestamp_unix_ns
    }

    /// Sets when it was taken, ns since 1970.
    pub fn set_timestamp_unix_ns(&mut self, timestamp_unix_ns: i64) {
        self.timestamp_unix_ns = timestamp_unix_ns;
    }

    /// Whose vector arrived, by rank.
    #[must_use]
    pub fn present(&self) -> &[bool] {
        &self.present
    }

    /// Says whether the vector of `rank` arrived; nothing happens for a rank outside the group.
    pub fn set_present(&mut self, rank: usize, present: bool) {
        if let Some(flag) = self.present.get_mut(rank) {
            *flag = present;
        }
    }

    /// All vectors, `[destination, 6 + 9N]` in rank order.
    #[must_use]
    pub fn counters(&self) -> &[i64] {
        &self.counters
    }

    /// All vectors, to be filled in place.
    pub fn counters_mut(&mut self) -> &mut [i64] {
        &mut self.counters
    }

    /// The vector of `rank`, `None` outside the group.
    #[must_use]
    pub fn vector(&self, rank: usize) -> Option<&[i64]> {
        self.counters.chunks_exact(vector_len(self.topology)).nth(rank)
    }

    /// The vector of `rank`, to be filled in place; `None` outside the group.
    pub fn vector_mut(&mut self, rank: usize) -> Option<&mut [i64]> {
        self.counters.chunks_exact_mut(vector_len(self.topology)).nth(rank)
    }
}

fn vector_len(topology: Topology) -> usize {
    Layout::of(topology).vector_len()
}
