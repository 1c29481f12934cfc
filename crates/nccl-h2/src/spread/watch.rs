//! A job that runs, watched from several places.

use std::mem;

use super::files::Homes;
use super::place::{Options, Place, Traffic};
use super::{Damaged, Exchange, SpreadError};
use crate::analyzer::{Given, LimitsReached, Moment, WaitGraph};
use crate::config::Config;
use crate::event::Event;
use crate::finding::Finding;
use crate::reader::Turn;

/// One place from which a run is watched. All places make the same calls of [`Watch::round`] and
/// [`Watch::scan`], with the same moments: those of the root's clock.
///
/// Between two scans the state of a process or communicator is in the place that follows it; for a
/// scan it is moved to the root, judged there as a whole, and moved back.
#[derive(Debug)]
pub struct Watch {
    place: Place,
    /// Of the root.
    given: Given,
    chunk: usize,
    budget: usize,
    rank: u32,
    round: i64,
    event: u32,
}

/// What a scan tells the root.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Scanned {
    /// What is new.
    pub findings: Vec<Finding>,
    /// Who waits for whom.
    pub graph: WaitGraph,
    /// What could not be kept so far.
    pub limits: LimitsReached,
}

impl Watch {
    /// A place that has seen nothing. All places have the same run, configuration and options.
    pub fn new<X: Exchange + ?Sized>(
        run_id: &str,
        config: Config,
        options: Options,
        exchange: &X,
    ) -> Self {
        let places = exchange.size().max(1);
        Self {
            place: Place::new(run_id, config, Homes::by_hash_of(places), places),
            given: Given::default(),
            chunk: options.chunk_bytes,
            budget: (options.chunk_bytes / places).max(1),
            rank: u32::try_from(exchange.rank()).unwrap_or(u32::MAX),
            round: 0,
            event: 0,
        }
    }

    /// Takes in an event that was read here since the last round.
    ///
    /// # Errors
    ///
    /// When the event cannot be written.
    pub fn take_in(&mut self, event: &Event<'_>, receipt: Moment) -> Result<(), Damaged> {
        let turn = Turn { time: self.round, file: self.rank, block: 0, event: self.event };
        self.event = self.event.saturating_add(1);
        self.place.take_in(turn, event, receipt.monotonic_ns)
    }

    /// Whether enough was taken in for one round.
    pub fn is_full(&self) -> bool {
        self.place.waiting() >= self.budget
    }

    /// Moves what was taken in to where it belongs.
    ///
    /// # Errors
    ///
    /// When the exchange fails, or another place sends what is not understood.
    pub fn round<X: Exchange + ?Sized>(
        &mut self,
        exchange: &mut X,
    ) -> Result<(), SpreadError<X::Error>> {
        self.place.round(None, exchange)?;
        (self.round, self.event) = (self.round.saturating_add(1), 0);
        Ok(())
    }

    /// Judges what is open in all places, and tells the root what is new.
    ///
    /// # Errors
    ///
    /// As [`Watch::round`].
    pub fn scan<X: Exchange + ?Sized>(
        &mut self,
        now: Moment,
        exchange: &mut X,
    ) -> Result<Option<Scanned>, SpreadError<X::Error>> {
        let seen = self.place.analyzer.take_seen();
        let mut whole = self.place.give(self.chunk, exchange)?;
        let scanned = whole.as_mut().map(|(whole, _)| {
            whole.put_given(mem::take(&mut self.given));
            let graph = whole.wait_graph(now);
            let findings = whole.scan(now);
            self.given = whole.take_given();
            Scanned { findings, graph, limits: whole.limits_reached() }
        });
        self.place.take_back(whole, self.chunk, exchange)?;
        self.place.analyzer.put_seen(seen);
        Ok(scanned)
    }

    /// What this place has sent.
    pub fn traffic(&self) -> Traffic {
        self.place.traffic
    }
}
