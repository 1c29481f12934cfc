//! The analyzer: events in, findings out. It reads no clock, no file and no environment.

pub(crate) mod comm;
mod creation;
pub(crate) mod divergence;
pub(crate) mod ingest;
mod limits;
pub(crate) mod names;
mod noted;
pub(crate) mod operation;
mod p2p;
pub(crate) mod part;
mod process;
mod ranges;
mod renumber;
mod replay;
mod round;
mod scan;
pub(crate) mod signature;
pub(crate) mod trouble;

use crate::config::Config;
use crate::finding::{Details, HangType};

pub use limits::{Limits, LimitsReached};
pub(crate) use scan::Given;
pub use scan::WaitGraph;

use comm::{CommId, Comms};
use creation::Creations;
use names::{Name, Names};
use noted::Noted;
use p2p::{ChannelId, Channels, Pending};
use process::Processes;
use round::Rounds;

/// A moment on two clocks of the analyzer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Moment {
    /// A clock that never goes back, nanoseconds. Every timeout is judged on it.
    pub monotonic_ns: i64,
    /// The wall clock, nanoseconds since 1970. It only labels findings.
    pub unix_ns: i64,
}

/// Matches the calls of all ranks of one run.
///
/// Events may come in any order of the processes; those of one process come in the order in which
/// it wrote them. What is finished leaves no record but a watermark, so that a file may be read
/// again from its start. State grows with what is open and is bounded by [`Limits`].
#[derive(Debug)]
pub struct Analyzer {
    config: Config,
    limits: Limits,
    reached: LimitsReached,
    run_id: String,
    names: Names,
    processes: Processes,
    comms: Comms,
    rounds: Rounds,
    channels: Channels,
    creations: Creations,
    /// Findings that need no scan to be judged.
    noted: Vec<Noted>,
    /// Pairs that differ and whose numbering a loss of events may still unsettle.
    differing_pairs: Vec<(ChannelId, Pending, Pending)>,
    known: scan::Known,
    newest: Option<i64>,
}

/// A finding without its moment and run.
#[derive(Debug)]
struct Ready {
    comm: Option<CommId>,
    comm_seq: i64,
    hang_type: HangType,
    details: Details,
}

impl Analyzer {
    /// An analyzer of one run. Events of other runs are not accepted.
    pub fn new(run_id: impl Into<String>, config: Config) -> Self {
        Self::with_limits(run_id, config, Limits::default())
    }

    /// An analyzer with other bounds of its state.
    pub fn with_limits(run_id: impl Into<String>, config: Config, limits: Limits) -> Self {
        Self {
            config,
            limits,
            reached: LimitsReached::default(),
            run_id: run_id.into(),
            names: Names::new(),
            processes: Processes::default(),
            comms: Comms::default(),
            rounds: Rounds::default(),
            channels: Channels::default(),
            creations: Creations::default(),
            noted: Vec::new(),
            differing_pairs: Vec::new(),
            known: scan::Known::default(),
            newest: None,
        }
    }

    /// The run.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Rounds that some ranks have entered and others not.
    pub fn open_rounds(&self) -> usize {
        self.rounds.len()
    }

    /// Sends and receives that wait for their counterpart.
    pub fn open_p2p_calls(&self) -> usize {
        self.channels.waiting()
    }

    /// Processes of which an event was seen.
    pub fn process_count(&self) -> usize {
        self.processes.len()
    }

    /// Communicators of which an event was seen.
    pub fn communicator_count(&self) -> usize {
        self.comms.len()
    }

    /// The latest receipt of an accepted event, on the monotonic clock.
    pub fn newest_receipt_ns(&self) -> Option<i64> {
        self.newest
    }

    /// What could not be kept, because a bound was reached.
    pub fn limits_reached(&self) -> LimitsReached {
        self.reached
    }

    fn text(&self, name: Name) -> String {
        self.names.text(name).to_owned()
    }
}

/// Nanoseconds as seconds.
fn seconds(nanoseconds: i64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// Seconds as nanoseconds; beyond the range of an `i64` the nearest end.
fn nanoseconds(seconds: f64) -> i64 {
    (seconds * 1e9) as i64
}
