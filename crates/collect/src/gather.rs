//! The second step: the vectors of all ranks at the root.

use std::sync::Arc;

use thiserror::Error;

use crate::device::{Identity, SkipReason};
use crate::group::Membership;
use crate::stop::Until;

/// Channels are below this number.
pub const CHANNELS: usize = 4;

/// One round: the root asks, and every rank answers with its vector or with the reason why not.
///
/// The root's clock numbers the rounds. A rank that skips one, or answers too late, never shifts
/// the others: an answer counts only for the round that it names.
///
/// On the root, a round is [`announce`](Self::announce) and then [`gather`](Self::gather), between
/// which the root takes its own snapshot. On the others, it is
/// [`await_request`](Self::await_request), the snapshot, and [`answer`](Self::answer).
///
/// # What an implementation owes
///
/// - no call waits beyond its `until`, whatever other ranks do
/// - a rank that is missing costs the others nothing but the wait for it
/// - what is not read in time is dropped, not queued without bound
/// - nothing is allocated in a round without a change of members
pub trait Gather: Send {
    /// The own place in the group.
    fn membership(&self) -> &Membership;

    /// Where the vectors must be when they are handed over.
    fn residence(&self) -> Residence {
        Residence::Host
    }

    /// Where `rank` runs, as it said when it joined last. Only the root knows all.
    fn identity(&self, rank: usize) -> Option<Arc<Identity>>;

    /// Root: tells every rank that a round begins. Does not wait.
    ///
    /// # Errors
    ///
    /// The transport is of no more use. That one rank is not reached is no error.
    fn announce(&mut self, request: Request) -> Result<(), GatherError>;

    /// Root: waits for the answers to `request`, until all have come or `until` is over, and
    /// writes them to `into`, where ranks that have not answered are [`Status::Missing`].
    ///
    /// # Errors
    ///
    /// The transport is of no more use, a length does not fit, or this rank was stopped. Missing
    /// ranks are no error.
    fn gather(
        &mut self,
        request: Request,
        own: Contribution<'_>,
        into: &mut Gathered,
        until: Until<'_>,
    ) -> Result<(), GatherError>;

    /// Others: the newest request that fits `wanted`; `None` when `until` came first. Older ones
    /// that were not answered are dropped.
    ///
    /// # Errors
    ///
    /// The root has said goodbye, the transport is of no more use, or this rank was stopped. That
    /// the root is unreachable for a while is no error.
    fn await_request(
        &mut self,
        wanted: Wanted,
        until: Until<'_>,
    ) -> Result<Option<Request>, GatherError>;

    /// Others: answers a request.
    ///
    /// # Errors
    ///
    /// The answer could not be sent before `until`; the next round is not affected.
    fn answer(
        &mut self,
        request: Request,
        own: Contribution<'_>,
        until: Until<'_>,
    ) -> Result<(), GatherError>;

    /// Tells the others that this rank leaves. Does not wait; later calls do nothing.
    fn goodbye(&mut self);

    /// What has happened on the transport so far.
    fn events(&self) -> GatherEvents {
        GatherEvents::default()
    }
}

/// Where a vector lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residence {
    /// In host memory.
    Host,
    /// In the device's staging buffer.
    Device,
}

/// The root's question for one round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Request {
    /// Which part of the counters is asked for; below [`CHANNELS`]. Each counts its own rounds.
    pub channel: u8,
    /// Number of the round, from 0.
    pub round: u64,
    /// Elements of the vector that is asked for.
    pub len: usize,
    /// How many collections the root's caller has asked for on this channel, in the synchronous
    /// schedule; it tells a late request from one for the present step.
    pub tick: u64,
}

/// Which requests a rank will answer now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// The channel; `None` takes any.
    pub channel: Option<u8>,
    /// The smallest tick.
    pub tick: u64,
}

impl Wanted {
    /// Any request.
    pub const ANY: Self = Self { channel: None, tick: 0 };

    /// Whether `request` is one of them.
    #[must_use]
    pub fn takes(self, request: Request) -> bool {
        self.channel.is_none_or(|channel| channel == request.channel) && request.tick >= self.tick
    }
}

/// What a rank hands over for a round.
#[derive(Debug, Clone, Copy)]
pub enum Contribution<'a> {
    /// Its vector, in host memory.
    Host(&'a [i64]),
    /// Its vector, in device memory: only for a gather whose [`Residence`] is the device.
    Device {
        /// Address of the first element, on the device.
        address: u64,
        /// Elements.
        len: usize,
    },
    /// None, and why.
    Skipped(SkipReason),
}

/// How a rank answered a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// With its vector.
    Ok,
    /// Without one.
    Skipped(SkipReason),
    /// It has left.
    Goodbye,
    /// Not in time.
    Missing,
}

impl Status {
    /// Whether the rank's vector is there.
    #[must_use]
    pub fn is_ok(self) -> bool {
        self == Self::Ok
    }
}

/// The answers of one round, one after the other in rank order. It is used again for every round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gathered {
    vector_len: usize,
    vectors: Vec<i64>,
    statuses: Vec<Status>,
}

impl Gathered {
    /// Room for `ranks` vectors of `vector_len` elements.
    #[must_use]
    pub fn new(ranks: usize, vector_len: usize) -> Self {
        Self {
            vector_len,
            vectors: vec![0; ranks.saturating_mul(vector_len)],
            statuses: vec![Status::Missing; ranks],
        }
    }

    /// Elements of one vector.
    #[must_use]
    pub fn vector_len(&self) -> usize {
        self.vector_len
    }

    /// All vectors, `[rank, vector_len]`. The row of a rank without one is not to be read.
    #[must_use]
    pub fn vectors(&self) -> &[i64] {
        &self.vectors
    }

    /// How each rank answered.
    #[must_use]
    pub fn statuses(&self) -> &[Status] {
        &self.statuses
    }

    /// The vector of `rank`, if it came.
    #[must_use]
    pub fn vector(&self, rank: usize) -> Option<&[i64]> {
        self.statuses.get(rank)?.is_ok().then_some(())?;
        let start = rank.checked_mul(self.vector_len)?;
        self.vectors.get(start..start.checked_add(self.vector_len)?)
    }

    /// Begins a round: nobody has answered.
    pub fn clear(&mut self) {
        self.statuses.fill(Status::Missing);
    }

    /// The row of `rank`, to be filled before its status is set; `None` outside the group.
    pub fn row_mut(&mut self, rank: usize) -> Option<&mut [i64]> {
        let start = rank.checked_mul(self.vector_len)?;
        self.vectors.get_mut(start..start.checked_add(self.vector_len)?)
    }

    /// Says how `rank` answered; nothing happens outside the group.
    pub fn set_status(&mut self, rank: usize, status: Status) {
        if let Some(known) = self.statuses.get_mut(rank) {
            *known = status;
        }
    }

    /// Takes the vector that a rank handed over in host memory, or its reason.
    ///
    /// # Errors
    ///
    /// The vector has another length, or lies in device memory.
    pub fn accept(&mut self, rank: usize, own: Contribution<'_>) -> Result<(), GatherError> {
        let status = match own {
            Contribution::Host(vector) => {
                let expected = self.vector_len;
                if vector.len() != expected {
                    return Err(GatherError::Length { rank, length: vector.len(), expected });
                }
                if let Some(row) = self.row_mut(rank) {
                    row.copy_from_slice(vector);
                }
                Status::Ok
            }
            Contribution::Device { .. } => return Err(GatherError::Residence),
            Contribution::Skipped(reason) => Status::Skipped(reason),
        };
        self.set_status(rank, status);
        Ok(())
    }
}

/// What happened on a transport, counted since the group came together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GatherEvents {
    /// Connections of strangers that were refused: wrong secret, unknown rank, no valid hello.
    pub strangers_refused: u64,
    /// Ranks that were taken in again.
    pub rejoined: u64,
    /// Connections lost without a goodbye.
    pub lost: u64,
    /// Frames that were too large, malformed or not finished in time.
    pub bad_frames: u64,
    /// Answers that came after their round had ended.
    pub late_answers: u64,
}

/// Why a round failed on this rank.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GatherError {
    /// This rank was told to stop.
    #[error("stopped")]
    Stopped,
    /// The root has left the group.
    #[error("the root has left the group")]
    RootLeft,
    /// The root was not reached in time.
    #[error("the root was not reached in time ({0})")]
    NotSent(String),
    /// A vector of the wrong length.
    #[error("rank {rank} handed over {length} elements, the round has {expected}")]
    Length {
        /// Whose.
        rank: usize,
        /// Elements found.
        length: usize,
        /// Elements needed.
        expected: usize,
    },
    /// A vector in device memory for a gather that takes host memory, or the reverse.
    #[error("the vector does not lie where this gather takes it from (device or host memory)")]
    Residence,
    /// The program captures the stream of the gather into a graph: nothing was enqueued, and the
    /// step is skipped. All ranks must capture at the same step.
    #[error("the stream of the gather is being captured: this step was skipped")]
    Capturing,
    /// A channel that this rank does not have.
    #[error("there is no channel {0}")]
    Channel(u8),
    /// Only the root may begin a round, and only others may answer it.
    #[error("{0} was called on the wrong side: the root asks, the others answer")]
    WrongSide(&'static str),
    /// The transport failed.
    #[error("{what}: {reason}")]
    Transport {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        reason: String,
    },
    /// The transport is of no more use: an earlier round left it in an unknown state.
    #[error("the gather is out of use: {0}")]
    OutOfUse(String),
}
