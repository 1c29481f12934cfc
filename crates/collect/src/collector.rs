//! One rank's part in a round: snapshot, then gather.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::device::{CounterMemory, DeviceError, Enqueued, SkipReason, Ticket};
use crate::gather::{
    CHANNELS, Contribution, Gather, GatherError, Gathered, Request, Residence, Wanted,
};
use crate::stop::Until;
use crate::trigger::Trigger;

/// Takes part in rounds for one rank: on the root it leads them, elsewhere it follows.
///
/// Each channel is a part of the counters with rounds of its own; channel `i` is `channels[i]`.
pub struct Collector {
    memory: Arc<dyn CounterMemory>,
    gather: Box<dyn Gather>,
    channels: Vec<Channel>,
    vector: Vec<i64>,
    timeout: Duration,
    trigger: Option<Trigger>,
}

struct Channel {
    range: Range<usize>,
    round: u64,
    tick: u64,
    /// Only on the root.
    gathered: Option<Gathered>,
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector")
            .field("membership", self.gather.membership())
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// A round as the root sees it when it has ended.
pub struct Round<'a> {
    /// The question.
    pub request: Request,
    /// When it was asked, by the root's clock, ns since 1970.
    pub asked_unix_ns: i64,
    /// The answers.
    pub gathered: &'a Gathered,
    /// Why the root's own snapshot failed, if its device said so.
    pub device_error: Option<DeviceError>,
    /// The way they came, which knows where each rank runs.
    pub gather: &'a dyn Gather,
}

impl fmt::Debug for Round<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Round")
            .field("request", &self.request)
            .field("statuses", &self.gathered.statuses())
            .finish_non_exhaustive()
    }
}

/// A round as the other ranks see it.
#[derive(Debug)]
pub struct Answered {
    /// The question.
    pub request: Request,
    /// Why there was no snapshot, if so.
    pub skipped: Option<SkipReason>,
    /// Why the snapshot failed, if the device said so.
    pub device_error: Option<DeviceError>,
}

impl Collector {
    /// A collector over `memory` for the rank that has joined as `gather`. `timeout` bounds one
    /// round.
    ///
    /// # Errors
    ///
    /// There are no channels or more than [`CHANNELS`], or one reaches beyond the memory.
    pub fn new(
        memory: Arc<dyn CounterMemory>,
        gather: Box<dyn Gather>,
        channels: &[Range<usize>],
        timeout: Duration,
    ) -> Result<Self, DeviceError> {
        let length = memory.len();
        if channels.is_empty() || channels.len() > CHANNELS {
            return Err(DeviceError::Range { start: 0, end: 0, out: channels.len(), length });
        }
        for range in channels {
            DeviceError::check_range(range, range.len(), length)?;
        }
        let longest = channels.iter().map(Range::len).max().unwrap_or(0);
        let (root, ranks) = (gather.membership().is_root(), gather.membership().size());
        let channel = |range: &Range<usize>| Channel {
            range: range.clone(),
            round: 0,
            tick: 0,
            gathered: root.then(|| Gathered::new(ranks, range.len())),
        };
        let channels = channels.iter().map(channel).collect();
        Ok(Self { memory, gather, channels, vector: vec![0; longest], timeout, trigger: None })
    }

    /// Lets the program's own thread enqueue the snapshots, when it calls the trigger.
    #[must_use]
    pub fn with_trigger(mut self, trigger: Trigger) -> Self {
        self.trigger = Some(trigger);
        self
    }

    /// The way to the other ranks.
    #[must_use]
    pub fn gather(&self) -> &dyn Gather {
        &*self.gather
    }

    /// Tells the others that this rank leaves.
    pub fn goodbye(&mut self) {
        self.gather.goodbye();
    }

    /// Root: leads one round on `channel` and waits for the answers.
    ///
    /// # Errors
    ///
    /// As [`Gather::announce`] and [`Gather::gather`]. The number of the round is used up.
    pub fn lead(&mut self, channel: u8, until: Until<'_>) -> Result<Round<'_>, GatherError> {
        let Self { memory, gather, channels, vector, timeout, trigger } = self;
        let state = channels.get_mut(usize::from(channel)).ok_or(GatherError::Channel(channel))?;
        let until = until.at_most(*timeout);
        state.tick += 1;
        let (round, tick, len) = (state.round, state.tick, state.range.len());
        let request = Request { channel, round, len, tick };
        let gathered = state.gathered.as_mut().ok_or(GatherError::WrongSide("lead"))?;
        state.round += 1;
        gather.announce(request)?;
        let asked_unix_ns = unix_ns();
        let taken = Taken::new(&**memory, trigger.as_ref(), *timeout, until);
        let own = taken.contribution(state.range.clone(), gather.residence(), vector);
        gather.gather(request, own.contribution, gathered, until)?;
        Ok(Round { request, asked_unix_ns, gathered, device_error: own.error, gather: &**gather })
    }

    /// Others: waits for a request on any channel, takes the snapshot when it comes, and answers.
    /// `None` when `until` came first.
    ///
    /// # Errors
    ///
    /// As [`Gather::await_request`] and [`Gather::answer`].
    pub fn follow(&mut self, until: Until<'_>) -> Result<Option<Answered>, GatherError> {
        let Some(request) = self.gather.await_request(Wanted::ANY, until)? else {
            return Ok(None);
        };
        self.answer(request, until).map(Some)
    }

    /// Others, in the synchronous schedule: takes part in the round of the present step on
    /// `channel`, for which the root must come to the same step before `until`.
    ///
    /// # Errors
    ///
    /// As [`Gather::await_request`] and [`Gather::answer`].
    pub fn follow_step(
        &mut self,
        channel: u8,
        until: Until<'_>,
    ) -> Result<Option<Answered>, GatherError> {
        let until = until.at_most(self.timeout);
        let state = self.channels.get_mut(usize::from(channel));
        let state = state.ok_or(GatherError::Channel(channel))?;
        state.tick += 1;
        let wanted = Wanted { channel: Some(channel), tick: state.tick };
        let Some(request) = self.gather.await_request(wanted, until)? else { return Ok(None) };
        state.tick = request.tick;
        self.answer(request, until).map(Some)
    }

    fn answer(&mut self, request: Request, until: Until<'_>) -> Result<Answered, GatherError> {
        let Self { memory, gather, channels, vector, timeout, trigger } = self;
        let until = Until::after(*timeout, until.stop());
        let state = channels.get(usize::from(request.channel));
        let range = state.map(|state| state.range.clone());
        let range = range.ok_or(GatherError::Channel(request.channel))?;
        if range.len() != request.len {
            let (rank, length) = (gather.membership().rank(), range.len());
            return Err(GatherError::Length { rank, length, expected: request.len });
        }
        let taken = Taken::new(&**memory, trigger.as_ref(), *timeout, until);
        let own = taken.contribution(range, gather.residence(), vector);
        gather.answer(request, own.contribution, until)?;
        let skipped = match own.contribution {
            Contribution::Skipped(reason) => Some(reason),
            _ => None,
        };
        Ok(Answered { request, skipped, device_error: own.error })
    }
}

/// A snapshot of this rank, given back when dropped, or why there is none.
struct Taken<'a> {
    memory: &'a dyn CounterMemory,
    ticket: Option<Ticket>,
    failed: Option<(SkipReason, Option<DeviceError>)>,
}

struct Own<'a> {
    contribution: Contribution<'a>,
    error: Option<DeviceError>,
}

impl<'a> Taken<'a> {
    /// Takes a snapshot and waits until it is ready: three quarters of the round at most, so that
    /// a refusal still reaches the root in time.
    fn new(
        memory: &'a dyn CounterMemory,
        trigger: Option<&Trigger>,
        timeout: Duration,
        until: Until<'_>,
    ) -> Self {
        let until = until.at_most(timeout - timeout / 4);
        let mut taken = Self { memory, ticket: None, failed: None };
        let enqueued = match trigger {
            Some(trigger) => trigger.enqueue(until),
            None => memory.enqueue_snapshot(),
        };
        match enqueued {
            Ok(Enqueued::Skipped(reason)) => taken.failed = Some((reason, None)),
            Err(error) => taken.failed = Some((SkipReason::DeviceError, Some(error))),
            Ok(Enqueued::Ticket(ticket)) => {
                taken.ticket = Some(ticket);
                match memory.wait_ready(ticket, until) {
                    Ok(true) => {}
                    Ok(false) => taken.failed = Some((SkipReason::NotReady, None)),
                    Err(error) => taken.failed = Some((SkipReason::DeviceError, Some(error))),
                }
            }
        }
        taken
    }

    /// What to hand over for `range`.
    fn contribution<'b>(
        &self,
        range: Range<usize>,
        residence: Residence,
        vector: &'b mut [i64],
    ) -> Own<'b> {
        if let Some((reason, error)) = &self.failed {
            let contribution = Contribution::Skipped(*reason);
            return Own { contribution, error: error.clone() };
        }
        let len = range.len();
        let result = match (self.ticket, residence, vector.get_mut(..len)) {
            (Some(ticket), Residence::Host, Some(vector)) => {
                self.memory.read(ticket, range, vector).map(|()| Contribution::Host(vector))
            }
            (Some(ticket), Residence::Device, _) => {
                let base = self.memory.staged_address(ticket);
                let address = base.and_then(|base| {
                    let bytes = range.start.checked_mul(size_of::<i64>())?;
                    base.checked_add(u64::try_from(bytes).ok()?)
                });
                let address = address.ok_or(DeviceError::UnknownTicket(ticket));
                address.map(|address| Contribution::Device { address, len })
            }
            _ => Ok(Contribution::Skipped(SkipReason::Other)),
        };
        match result {
            Ok(contribution) => Own { contribution, error: None },
            Err(error) => Own {
                contribution: Contribution::Skipped(SkipReason::DeviceError),
                error: Some(error),
            },
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            self.memory.release(ticket);
        }
    }
}

/// The time now, ns since 1970; 0 before 1970.
fn unix_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
