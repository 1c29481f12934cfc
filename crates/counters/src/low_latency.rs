//! The low-latency vector: how long a rank waited for each other rank.

use std::fmt;
use std::ops::Range;

use ndarray::Array2;
use serde::{Deserialize, Serialize};

use crate::error::{CounterFault, FaultPlace, LayoutError, LlError, SnapshotError, WindowError};
use crate::topology::{MAX_EP_SIZE, Topology};
use crate::window::Step;

/// The two directions of a low-latency exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LlPhase {
    /// Tokens to experts.
    Dispatch,
    /// Results back.
    Combine,
}

impl LlPhase {
    /// Both, in the order of the vector.
    pub const ALL: [Self; 2] = [Self::Dispatch, Self::Combine];

    /// The name in JSON and artifacts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Dispatch => "dispatch",
            Self::Combine => "combine",
        }
    }
}

impl fmt::Display for LlPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The layout of the low-latency vector of one rank: dispatch waits by awaited rank, then combine
/// waits, `2N` in all, in cycles.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LlLayout {
    ep_size: usize,
}

impl LlLayout {
    /// The layout for `ep_size` ranks.
    ///
    /// # Errors
    ///
    /// `ep_size` is 0 or above [`MAX_EP_SIZE`].
    pub fn new(ep_size: usize) -> Result<Self, LayoutError> {
        if ep_size == 0 || ep_size > MAX_EP_SIZE {
            return Err(LayoutError::EpSize(ep_size));
        }
        Ok(Self { ep_size })
    }

    /// Elements of the whole vector, `2N`.
    #[must_use]
    pub fn vector_len(self) -> usize {
        2 * self.ep_size
    }

    /// Place of the waits of one phase, by awaited rank.
    #[must_use]
    pub fn wait(self, phase: LlPhase) -> Range<usize> {
        let start = phase as usize * self.ep_size;
        start..start + self.ep_size
    }
}

/// The difference of two consecutive low-latency snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LlWindow {
    topology: Topology,
    index: u64,
    begin_unix_ns: i64,
    end_unix_ns: i64,
    valid: Vec<bool>,
    wait: [Array2<i64>; 2],
}

impl LlWindow {
    /// An empty window.
    #[must_use]
    pub fn empty(topology: Topology) -> Self {
        let n = topology.ep_size();
        Self {
            topology,
            index: 0,
            begin_unix_ns: 0,
            end_unix_ns: 0,
            valid: vec![true; n],
            wait: [Array2::zeros((n, n)), Array2::zeros((n, n))],
        }
    }

    /// The group.
    #[must_use]
    pub fn topology(&self) -> Topology {
        self.topology
    }

    /// The number of the window; the first after the boundary is 1.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.index
    }

    /// When the older snapshot was taken, ns since 1970.
    #[must_use]
    pub fn begin_unix_ns(&self) -> i64 {
        self.begin_unix_ns
    }

    /// When the newer snapshot was taken, ns since 1970.
    #[must_use]
    pub fn end_unix_ns(&self) -> i64 {
        self.end_unix_ns
    }

    /// Which ranks were present in both snapshots; the rows of the others are 0.
    #[must_use]
    pub fn valid(&self) -> &[bool] {
        &self.valid
    }

    /// The waits of a phase, `[waiter, awaited]`, cycles of the waiter's GPU.
    #[must_use]
    pub fn wait(&self, phase: LlPhase) -> &Array2<i64> {
        &self.wait[phase as usize]
    }

    /// Whether no valid rank has waited.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.wait.iter().flatten().all(|&wait| wait == 0)
    }

    /// Sets number, times and waits: for windows that are read from a file.
    ///
    /// # Errors
    ///
    /// A matrix is not `[N, N]`, or `valid` is not one a rank.
    pub fn set(
        &mut self,
        index: u64,
        (begin_unix_ns, end_unix_ns): (i64, i64),
        valid: Vec<bool>,
        wait: [Array2<i64>; 2],
    ) -> Result<(), SnapshotError> {
        let n = self.topology.ep_size();
        if valid.len() != n {
            return Err(SnapshotError::Present { length: valid.len(), ranks: n });
        }
        if let Some(wrong) = wait.iter().find(|matrix| matrix.dim() != (n, n)) {
            return Err(SnapshotError::Length {
                length: wrong.len(),
                ranks: n,
                each: n,
                expected: n * n,
            });
        }
        (self.index, self.begin_unix_ns, self.end_unix_ns) = (index, begin_unix_ns, end_unix_ns);
        (self.valid, self.wait) = (valid, wait);
        Ok(())
    }
}

/// Turns a series of gathered cumulative low-latency vectors into windows, as [`Windows`] does in
/// Normal mode.
///
/// [`Windows`]: crate::Windows
#[derive(Debug, Clone)]
pub struct LlWindows {
    topology: Topology,
    previous: Vec<i64>,
    present: Vec<bool>,
    timestamp_unix_ns: Option<i64>,
    window: LlWindow,
    next_index: u64,
}

impl LlWindows {
    /// Starts without a boundary; the next vectors become it, and the first window is number 1.
    #[must_use]
    pub fn new(topology: Topology) -> Self {
        let n = topology.ep_size();
        Self {
            topology,
            previous: vec![0; 2 * n * n],
            present: vec![false; n],
            timestamp_unix_ns: None,
            window: LlWindow::empty(topology),
            next_index: 1,
        }
    }

    /// Takes the gathered vectors `[rank, 2N]` and whose arrived.
    ///
    /// # Errors
    ///
    /// - [`LlError::Snapshot`]: a length does not fit the group; nothing changes
    /// - [`LlError::Window`]: a counter went back or jumped: the window is refused, keeps its
    ///   number, and these vectors are the new boundary
    pub fn advance(
        &mut self,
        timestamp_unix_ns: i64,
        counters: &[i64],
        present: &[bool],
    ) -> Result<Step<'_, LlWindow>, LlError> {
        let n = self.topology.ep_size();
        if counters.len() != 2 * n * n {
            let (length, each, expected) = (counters.len(), 2 * n, 2 * n * n);
            return Err(SnapshotError::Length { length, ranks: n, each, expected }.into());
        }
        if present.len() != n {
            return Err(SnapshotError::Present { length: present.len(), ranks: n }.into());
        }
        let begin = self.timestamp_unix_ns.replace(timestamp_unix_ns);
        let result = begin.map(|begin| self.fill(begin, timestamp_unix_ns, counters, present));
        self.previous.copy_from_slice(counters);
        self.present.copy_from_slice(present);
        match result {
            None => Ok(Step::Boundary),
            Some(Ok(())) => Ok(Step::Window(&self.window)),
            Some(Err(error)) => Err(error.into()),
        }
    }

    fn fill(
        &mut self,
        begin: i64,
        end: i64,
        counters: &[i64],
        present: &[bool],
    ) -> Result<(), WindowError> {
        let n = self.topology.ep_size();
        let window = &mut self.window;
        window.index = self.next_index;
        self.next_index += 1;
        (window.begin_unix_ns, window.end_unix_ns) = (begin, end);
        let mut fault = None;
        let rows = self.previous.chunks_exact(n).zip(counters.chunks_exact(n));
        for (i, (old, new)) in rows.enumerate() {
            let (rank, phase) = (i / 2, LlPhase::ALL[i % 2]);
            let valid = present[rank] && self.present[rank];
            window.valid[rank] = valid;
            let cells = window.wait[phase as usize].row_mut(rank);
            for (source, (cell, (&older, &newer))) in
                cells.into_iter().zip(old.iter().zip(new)).enumerate()
            {
                *cell = if valid { newer.wrapping_sub(older) } else { 0 };
                if valid && fault.is_none() {
                    fault = WindowError::check(older, newer, || CounterFault {
                        rank,
                        place: FaultPlace::LowLatency(phase),
                        source: Some(source),
                        older,
                        newer,
                    });
                }
            }
        }
        fault.map_or(Ok(()), Err)
    }

    /// The number that the next window will have.
    #[must_use]
    pub fn next_index(&self) -> u64 {
        self.next_index
    }
}
