//! Why a layout, a snapshot or a window is refused.

use std::fmt;

use thiserror::Error;

use crate::low_latency::LlPhase;
use crate::probe::{Counter, Probe};
use crate::topology::{MAX_EP_SIZE, Topology};

/// A vector that does not fit a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// The number of ranks is 0 or above [`MAX_EP_SIZE`].
    #[error("EP size {0} is not in 1..={MAX_EP_SIZE}")]
    EpSize(usize),
    /// The vector has another length than its layout.
    #[error("vector has {length} elements, EP size {ep_size} needs {expected}")]
    VectorLen {
        /// Elements found.
        length: usize,
        /// Elements needed.
        expected: usize,
        /// The EP size of the layout.
        ep_size: usize,
    },
}

/// A snapshot that cannot be made from what was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The gathered counters have another length than the group needs.
    #[error("gathered counters have {length} elements, {ranks} ranks of {each} need {expected}")]
    Length {
        /// Elements found.
        length: usize,
        /// Ranks of the group.
        ranks: usize,
        /// Elements a rank.
        each: usize,
        /// Elements needed.
        expected: usize,
    },
    /// The presence flags are not one a rank.
    #[error("presence flags are {length}, the group has {ranks} ranks")]
    Present {
        /// Flags found.
        length: usize,
        /// Ranks of the group.
        ranks: usize,
    },
}

/// A counter that makes a window impossible: it went back, or jumped by more than an `i64` holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CounterFault {
    /// The rank whose vector holds the counter (the receiving side).
    pub rank: usize,
    /// The probe, or the phase in low-latency mode.
    pub place: FaultPlace,
    /// The source rank of a Completion counter, the awaited rank in low-latency mode.
    pub source: Option<usize>,
    /// The value in the older snapshot.
    pub older: i64,
    /// The value in the newer snapshot.
    pub newer: i64,
}

/// What the counter of a [`CounterFault`] counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FaultPlace {
    /// A Normal-mode counter.
    Normal(Probe, Counter),
    /// A low-latency wait.
    LowLatency(LlPhase),
}

impl fmt::Display for CounterFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            FaultPlace::Normal(probe, counter) => {
                write!(f, "rank {}, probe {probe}, counter {counter}", self.rank)?;
            }
            FaultPlace::LowLatency(phase) => write!(f, "rank {}, {phase} wait", self.rank)?,
        }
        if let Some(source) = self.source {
            write!(f, "[{source}]")?;
        }
        write!(f, " went from {} to {}", self.older, self.newer)
    }
}

/// Why two snapshots make no window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WindowError {
    /// A counter went back: the rank was restarted, or its counters were reset.
    #[error("a counter went back: {0} (reset or restart)")]
    CounterDecreased(CounterFault),
    /// A counter changed by more than an `i64` holds: its memory was overwritten.
    #[error("a counter jumped beyond the range of 64 bits: {0}")]
    CounterJumped(CounterFault),
    /// The snapshots belong to different groups.
    #[error(
        "snapshots of different groups: {} ranks, {} a node, then {} ranks, {} a node",
        older.ep_size(), older.ranks_per_node(), newer.ep_size(), newer.ranks_per_node()
    )]
    Topology {
        /// Group of the older snapshot.
        older: Topology,
        /// Group of the newer one.
        newer: Topology,
    },
}

impl WindowError {
    /// The counter at fault, if it is one counter's.
    #[must_use]
    pub fn counter(&self) -> Option<&CounterFault> {
        match self {
            Self::CounterDecreased(fault) | Self::CounterJumped(fault) => Some(fault),
            Self::Topology { .. } => None,
        }
    }

    /// The error for a counter that went from `older` to `newer`; `None` when that is possible.
    pub(crate) fn check(
        older: i64,
        newer: i64,
        fault: impl FnOnce() -> CounterFault,
    ) -> Option<Self> {
        match newer.checked_sub(older) {
            Some(0..) => None,
            None if newer > older => Some(Self::CounterJumped(fault())),
            _ => Some(Self::CounterDecreased(fault())),
        }
    }
}

/// Why low-latency vectors make no window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LlError {
    /// The vectors do not fit the group.
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
    /// The window is refused.
    #[error(transparent)]
    Window(#[from] WindowError),
}
