//! Bounds of the analyzer's state.

use serde::{Deserialize, Serialize};

/// How much an analyzer keeps at most. What comes beyond is not kept, and is counted in
/// [`LimitsReached`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Calls of ranks in open rounds, over all communicators (16 bytes each).
    pub round_entries: usize,
    /// Sends and receives that wait (160 bytes each).
    pub p2p_calls: usize,
    /// Ordered pairs of ranks that send and receive (150 bytes each).
    pub p2p_channels: usize,
    /// Communicators, and creations of them.
    pub communicators: usize,
    /// Findings that wait for a scan.
    pub findings: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            round_entries: 1 << 23,
            p2p_calls: 1 << 19,
            p2p_channels: 1 << 22,
            communicators: 1 << 18,
            findings: 10_000,
        }
    }
}

/// Events that were not kept, because a bound was reached: what they would have shown is not known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct LimitsReached {
    /// Entries of ranks into rounds that could not be opened.
    pub rounds: u64,
    /// Sends and receives.
    pub p2p_calls: u64,
    /// Events on communicators that could not be added, or with a text that was not kept.
    pub communicators: u64,
    /// Events of processes that could not be added.
    pub processes: u64,
    /// Entered calls whose return is not followed.
    pub open_calls: u64,
    /// Findings.
    pub findings: u64,
}

impl LimitsReached {
    /// Adds what another place could not keep.
    pub(crate) fn add(&mut self, other: Self) {
        self.rounds += other.rounds;
        self.p2p_calls += other.p2p_calls;
        self.communicators += other.communicators;
        self.processes += other.processes;
        self.open_calls += other.open_calls;
        self.findings += other.findings;
    }

    /// Whether any bound was reached.
    pub fn any(&self) -> bool {
        *self != Self::default()
    }
}
