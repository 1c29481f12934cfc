//! The difference of two snapshots: what happened in between.

use std::ops::Range;

use ndarray::Array2;

use crate::error::{CounterFault, FaultPlace, WindowError};
use crate::layout::Layout;
use crate::probe::{CompletionProbe, NotifyProbe};
use crate::snapshot::Snapshot;
use crate::topology::Topology;

/// Side of the squares that are turned over: two cache lines of a row.
const TILE: usize = 16;

/// What one Notify probe counted in a window, by rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotifyDelta {
    /// Sum of the durations, ns, by rank.
    pub duration_ns: Vec<i64>,
    /// Launches, by rank.
    pub count: Vec<i64>,
}

/// What one Completion probe counted in a window, each `[source, destination]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletionDelta {
    /// Sum of the costs, cycles of the destination's GPU.
    pub cost: Array2<i64>,
    /// Samples.
    pub samples: Array2<i64>,
    /// Tokens in these samples.
    pub tokens: Array2<i64>,
}

/// The difference of two consecutive snapshots, source-oriented: no counter in it is negative.
///
/// Counters of a rank that is not [valid](Self::valid) are 0 where that rank is the destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    topology: Topology,
    index: u64,
    begin_unix_ns: i64,
    end_unix_ns: i64,
    valid: Vec<bool>,
    notify: [NotifyDelta; 3],
    completion: [CompletionDelta; 3],
    idle: bool,
}

impl Window {
    /// An empty, idle window: a buffer for [`Window::difference`], or for a test to fill.
    #[must_use]
    pub fn empty(topology: Topology) -> Self {
        let n = topology.ep_size();
        let notify = || NotifyDelta { duration_ns: vec![0; n], count: vec![0; n] };
        let matrix = || Array2::zeros((n, n));
        let completion = || CompletionDelta { cost: matrix(), samples: matrix(), tokens: matrix() };
        Self {
            topology,
            index: 0,
            begin_unix_ns: 0,
            end_unix_ns: 0,
            valid: vec![true; n],
            notify: [notify(), notify(), notify()],
            completion: [completion(), completion(), completion()],
            idle: true,
        }
    }

    /// Makes this the difference `newer - older`, without allocating when the group is the same.
    ///
    /// A rank is valid when its vector is present in both.
    ///
    /// # Errors
    ///
    /// - a counter of a valid rank went back, or changed by more than an `i64` holds: the first
    ///   one by rank and offset is named
    /// - the snapshots belong to different groups
    ///
    /// The window then holds nothing to use.
    pub fn difference(
        &mut self,
        index: u64,
        older: &Snapshot,
        newer: &Snapshot,
    ) -> Result<(), WindowError> {
        if older.topology() != newer.topology() {
            return Err(WindowError::Topology { older: older.topology(), newer: newer.topology() });
        }
        if self.topology != newer.topology() {
            *self = Self::empty(newer.topology());
        }
        self.index = index;
        self.begin_unix_ns = older.timestamp_unix_ns();
        self.end_unix_ns = newer.timestamp_unix_ns();
        for (valid, (a, b)) in
            self.valid.iter_mut().zip(older.present().iter().zip(newer.present()))
        {
            *valid = *a && *b;
        }
        let mut tally = Tally { bad: false, active: false };
        self.difference_notify(older, newer, &mut tally);
        self.difference_completion(older, newer, &mut tally);
        self.idle = !tally.active;
        if tally.bad
            && let Some(error) = first_fault(&self.valid, older, newer)
        {
            return Err(error);
        }
        Ok(())
    }

    fn difference_notify(&mut self, older: &Snapshot, newer: &Snapshot, tally: &mut Tally) {
        let layout = Layout::of(self.topology);
        let len = layout.vector_len();
        let rows = older.counters().chunks_exact(len).zip(newer.counters().chunks_exact(len));
        for (rank, (old, new)) in rows.enumerate() {
            let valid = self.valid[rank];
            for (probe, delta) in NotifyProbe::ALL.into_iter().zip(&mut self.notify) {
                let (duration, count) = (layout.duration_ns(probe), layout.count(probe));
                if valid {
                    delta.duration_ns[rank] = tally.subtract(old[duration], new[duration]);
                    delta.count[rank] = tally.subtract(old[count], new[count]);
                    tally.active |= delta.count[rank] > 0;
                } else {
                    delta.duration_ns[rank] = 0;
                    delta.count[rank] = 0;
                }
            }
        }
    }

    fn difference_completion(&mut self, older: &Snapshot, newer: &Snapshot, tally: &mut Tally) {
        let layout = Layout::of(self.topology);
        let n = self.topology.ep_size();
        for first in (0..n).step_by(TILE) {
            let turn = Turn {
                valid: &self.valid,
                destinations: first..(first + TILE).min(n),
                vector_len: layout.vector_len(),
                older: older.counters(),
                newer: newer.counters(),
            };
            for (probe, delta) in CompletionProbe::ALL.into_iter().zip(&mut self.completion) {
                let parts = [
                    (layout.cost(probe).start, &mut delta.cost, false),
                    (layout.samples(probe).start, &mut delta.samples, true),
                    (layout.tokens(probe).start, &mut delta.tokens, false),
                ];
                for (offset, matrix, counts) in parts {
                    let Some(out) = matrix.as_slice_mut() else { continue };
                    let sum = turn.counter(offset, out);
                    tally.bad |= sum.bad();
                    tally.active |= counts && sum.any != 0;
                }
            }
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

    /// Length of the window, ns; 0 when the clock went back.
    #[must_use]
    pub fn duration_ns(&self) -> i64 {
        self.end_unix_ns.saturating_sub(self.begin_unix_ns).max(0)
    }

    /// Sets number and times: for windows that are read from a file.
    pub fn set_place(&mut self, index: u64, begin_unix_ns: i64, end_unix_ns: i64) {
        self.index = index;
        self.begin_unix_ns = begin_unix_ns;
        self.end_unix_ns = end_unix_ns;
    }

    /// Which ranks were present in both snapshots.
    #[must_use]
    pub fn valid(&self) -> &[bool] {
        &self.valid
    }

    /// Which ranks were present in both snapshots, to be set when a window is read from a file.
    pub fn valid_mut(&mut self) -> &mut [bool] {
        &mut self.valid
    }

    /// The ranks that are not valid, in order.
    pub fn missing_ranks(&self) -> impl Iterator<Item = usize> + '_ {
        self.valid.iter().enumerate().filter(|&(_, valid)| !valid).map(|(rank, _)| rank)
    }

    /// Whether no valid rank has a new sample or Notify launch.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.idle
    }

    /// What a Notify probe counted, by rank.
    #[must_use]
    pub fn notify(&self, probe: NotifyProbe) -> &NotifyDelta {
        &self.notify[probe as usize]
    }

    /// What a Completion probe counted, `[source, destination]`.
    #[must_use]
    pub fn completion(&self, probe: CompletionProbe) -> &CompletionDelta {
        &self.completion[probe as usize]
    }

    /// Changes what a Notify probe counted, for windows that do not come from snapshots.
    pub fn edit_notify(&mut self, probe: NotifyProbe, edit: impl FnOnce(&mut NotifyDelta)) {
        edit(&mut self.notify[probe as usize]);
        self.refresh_idle();
    }

    /// Changes what a Completion probe counted, for windows that do not come from snapshots.
    pub fn edit_completion(
        &mut self,
        probe: CompletionProbe,
        edit: impl FnOnce(&mut CompletionDelta),
    ) {
        edit(&mut self.completion[probe as usize]);
        self.refresh_idle();
    }

    fn refresh_idle(&mut self) {
        let launches = self.notify.iter().flat_map(|delta| &delta.count);
        let samples = self.completion.iter().flat_map(|delta| &delta.samples);
        self.idle = !launches.chain(samples).any(|&count| count > 0);
    }
}

/// What a pass over the counters noticed.
struct Tally {
    bad: bool,
    active: bool,
}

impl Tally {
    fn subtract(&mut self, older: i64, newer: i64) -> i64 {
        let difference = newer.wrapping_sub(older);
        self.bad |= newer < older || difference < 0;
        difference
    }
}

/// Turns the counters of some destinations, each a row of a snapshot, into columns of matrices
/// `[source, destination]`.
struct Turn<'a> {
    valid: &'a [bool],
    destinations: Range<usize>,
    vector_len: usize,
    older: &'a [i64],
    newer: &'a [i64],
}

impl Turn<'_> {
    /// Writes the differences of the counter at `offset` of the destinations into their columns of
    /// `out`, a square at a time, so that both sides are read and written in whole cache lines.
    fn counter(&self, offset: usize, out: &mut [i64]) -> BitSum {
        let n = self.valid.len();
        let mut sum = BitSum::default();
        let mut tile = [[0_i64; TILE]; TILE];
        for (at, rows) in out.chunks_mut(TILE * n).enumerate() {
            let (first, width) = (at * TILE, rows.len() / n);
            for (line, destination) in tile.iter_mut().zip(self.destinations.clone()) {
                if !self.valid[destination] {
                    *line = [0; TILE];
                    continue;
                }
                let start = destination * self.vector_len + offset + first;
                let older = &self.older[start..start + width];
                let newer = &self.newer[start..start + width];
                for ((cell, &older), &newer) in line.iter_mut().zip(older).zip(newer) {
                    *cell = sum.subtract(older, newer);
                }
            }
            for (source, row) in rows.chunks_exact_mut(n).enumerate() {
                for (cell, line) in row[self.destinations.clone()].iter_mut().zip(&tile) {
                    *cell = line[source];
                }
            }
        }
        sum
    }
}

/// What many subtractions noticed, without a branch or a comparison in any of them.
#[derive(Default)]
struct BitSum {
    /// All bits of all differences.
    any: i64,
    /// Its sign says whether a counter went back; see [`BitSum::subtract`].
    back: i64,
}

impl BitSum {
    fn subtract(&mut self, older: i64, newer: i64) -> i64 {
        let difference = newer.wrapping_sub(older);
        // The sign of the difference, put right where it overflowed: negative if newer < older.
        self.back |= difference ^ ((newer ^ older) & (difference ^ newer));
        self.any |= difference;
        difference
    }

    /// Whether a counter went back, or changed by more than an `i64` holds (then the difference
    /// itself is negative).
    fn bad(&self) -> bool {
        self.back < 0 || self.any < 0
    }
}

/// The first counter, by rank and offset, that makes the difference impossible.
fn first_fault(valid: &[bool], older: &Snapshot, newer: &Snapshot) -> Option<WindowError> {
    let layout = Layout::of(newer.topology());
    let len = layout.vector_len();
    let rows = older.counters().chunks_exact(len).zip(newer.counters().chunks_exact(len));
    rows.enumerate().filter(|(rank, _)| valid[*rank]).find_map(|(rank, (old, new))| {
        old.iter().zip(new).enumerate().find_map(|(offset, (&older, &newer))| {
            let (probe, counter, source) = layout.describe(offset)?;
            WindowError::check(older, newer, || CounterFault {
                rank,
                place: FaultPlace::Normal(probe, counter),
                source,
                older,
                newer,
            })
        })
    })
}

/// What a new snapshot led to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step<'a, W = Window> {
    /// It is the first one: everything before it is discarded.
    Boundary,
    /// It ends a window.
    Window(&'a W),
}

/// Turns a series of snapshots of one group into windows.
///
/// Two snapshots and one window are kept; after the first two calls nothing is allocated.
#[derive(Debug, Clone)]
pub struct Windows {
    previous: Option<Snapshot>,
    window: Window,
    next_index: u64,
}

impl Windows {
    /// Starts without a boundary; the next snapshot becomes it, and the first window is number 1.
    #[must_use]
    pub fn new(topology: Topology) -> Self {
        Self { previous: None, window: Window::empty(topology), next_index: 1 }
    }

    /// Takes the next snapshot, which then is the older end of the window after this.
    ///
    /// `newer` is swapped with the snapshot before it: the caller gets that buffer to fill again.
    ///
    /// # Errors
    ///
    /// The window is refused for a reason of [`Window::difference`]. It keeps its number, and the
    /// snapshot is the new boundary, unless it belongs to another group.
    pub fn advance(&mut self, newer: &mut Snapshot) -> Result<Step<'_>, WindowError> {
        let Some(previous) = &mut self.previous else {
            self.previous = Some(newer.clone());
            return Ok(Step::Boundary);
        };
        if previous.topology() != newer.topology() {
            return Err(WindowError::Topology {
                older: previous.topology(),
                newer: newer.topology(),
            });
        }
        let index = self.next_index;
        self.next_index += 1;
        let result = self.window.difference(index, previous, newer);
        std::mem::swap(previous, newer);
        result.map(|()| Step::Window(&self.window))
    }

    /// The number that the next window will have.
    #[must_use]
    pub fn next_index(&self) -> u64 {
        self.next_index
    }

    /// Forgets the boundary: the next snapshot becomes it.
    pub fn restart(&mut self) {
        self.previous = None;
    }
}
