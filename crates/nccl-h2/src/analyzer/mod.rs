//! The analyzer: events in, findings out. It reads no clock, no file and no environment.

use crate::config::Config;
use crate::event::Event;
use crate::finding::Finding;

/// A moment on two clocks of the analyzer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moment {
    /// A clock that never goes back, nanoseconds. Every timeout is judged on it.
    pub monotonic_ns: i64,
    /// The wall clock, nanoseconds since 1970. It only labels findings.
    pub unix_ns: i64,
}

/// Matches the calls of all ranks of one run.
#[derive(Debug)]
pub struct Analyzer {
    config: Config,
    run_id: String,
}

impl Analyzer {
    /// An analyzer of one run. Events of other runs are not accepted.
    pub fn new(run_id: impl Into<String>, config: Config) -> Self {
        Self { config, run_id: run_id.into() }
    }

    /// Takes an event that was received at a moment, and says whether it was of any use.
    pub fn ingest(&mut self, event: &Event<'_>, receipt: Moment) -> bool {
        let _ = receipt;
        event.header.run_id == self.run_id
    }

    /// Judges what is open, and gives what is new.
    pub fn scan(&mut self, now: Moment) -> Vec<Finding> {
        let _ = (now, self.config);
        Vec::new()
    }

    /// Judges a trace that has ended: all that is open is reported.
    pub fn finish(&mut self, end: Moment) -> Vec<Finding> {
        self.scan(end)
    }

    /// Rounds that some ranks have entered and others not.
    pub fn open_rounds(&self) -> usize {
        0
    }

    /// Sends and receives that wait for their counterpart.
    pub fn open_p2p_calls(&self) -> usize {
        0
    }
}
