//! The first step: counters in device memory, and snapshots of them in stream order.

use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::stop::{Backoff, Until};

/// Snapshots that can be under way at the same time.
pub const STAGING_BUFFERS: usize = 2;

/// One contiguous allocation of `i64` counters that device kernels add to, with two staging buffers
/// for snapshots of it.
///
/// A snapshot has four moments: it is *enqueued* behind the work that the producer has enqueued so
/// far, it becomes *ready* when the device has come that far, it is *read*, and its buffer is
/// *released*. No call blocks the producer, and none but [`wait_ready`](Self::wait_ready) and
/// [`read`](Self::read) waits for the device.
///
/// The producer's stream belongs to the implementation: it is given when the memory is made, or by
/// a call of the implementation's own.
///
/// # What an implementation owes
///
/// - the counters are zero at first and stay at their address until it is dropped
/// - any method may be called from any thread, several at a time
/// - no method panics; after an error the host program can go on
/// - nothing is allocated by [`enqueue_snapshot`](Self::enqueue_snapshot) and what follows it
pub trait CounterMemory: Send + Sync + 'static {
    /// Elements of the allocation.
    fn len(&self) -> usize;

    /// Whether there are no counters.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The address of the first counter, on the device; for foreign interfaces.
    fn address(&self) -> u64;

    /// What is known of the device and its host.
    fn identity(&self) -> Identity;

    /// Whether snapshots stand in the order of the producer's work. Without a producer's stream
    /// they do not: counters that change during the copy may then be from different moments.
    fn is_ordered(&self) -> bool;

    /// Enqueues a copy of all counters into a free staging buffer, behind the producer's work, and
    /// an event behind the copy.
    ///
    /// # Errors
    ///
    /// The device refuses. That nothing may be enqueued now is no error but
    /// [`Enqueued::Skipped`].
    fn enqueue_snapshot(&self) -> Result<Enqueued, DeviceError>;

    /// Whether the device has finished the copy.
    ///
    /// # Errors
    ///
    /// The device reports a fault, or the ticket is not a snapshot under way.
    fn is_ready(&self, ticket: Ticket) -> Result<bool, DeviceError>;

    /// Waits until the device has finished the copy; `false` when `until` came first.
    ///
    /// # Errors
    ///
    /// As [`is_ready`](Self::is_ready).
    fn wait_ready(&self, ticket: Ticket, until: Until<'_>) -> Result<bool, DeviceError> {
        let mut backoff = Backoff::default();
        loop {
            if self.is_ready(ticket)? {
                return Ok(true);
            }
            if until.is_over() {
                return Ok(false);
            }
            until.sleep(backoff.pause().max(Duration::from_micros(50)));
        }
    }

    /// Copies `range` of a ready snapshot to `out`.
    ///
    /// # Errors
    ///
    /// The device refuses, the snapshot is not ready, the range does not lie in the allocation, or
    /// `out` has another length.
    fn read(&self, ticket: Ticket, range: Range<usize>, out: &mut [i64])
    -> Result<(), DeviceError>;

    /// The address of the staging buffer of a snapshot, on the device; `None` for a ticket that is
    /// not under way. The content is stable from ready to release.
    fn staged_address(&self, ticket: Ticket) -> Option<u64>;

    /// Gives the staging buffer back. A snapshot that is not ready yet may be given back as well:
    /// its buffer is free once the device has finished with it. Unknown tickets are ignored.
    fn release(&self, ticket: Ticket);
}

/// A snapshot under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The staging buffer, below [`STAGING_BUFFERS`].
    pub slot: usize,
    /// Counts the uses of the buffer, so that an old ticket is told from a new one.
    pub generation: u64,
}

/// What came of the wish for a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Enqueued {
    /// The copy is enqueued.
    Ticket(Ticket),
    /// Nothing was enqueued.
    Skipped(SkipReason),
}

/// Why a rank has no snapshot for a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SkipReason {
    /// Both staging buffers are in use.
    Busy,
    /// The producer's stream is being captured into a graph.
    Capturing,
    /// The device did not come to the copy in time.
    NotReady,
    /// The device reported an error.
    DeviceError,
    /// The producer did not trigger the snapshot in time.
    NotTriggered,
    /// A reason this version does not know.
    Other,
}

impl SkipReason {
    const ALL: [(Self, &'static str); 6] = [
        (Self::Other, "other"),
        (Self::Busy, "both staging buffers busy"),
        (Self::Capturing, "stream capture"),
        (Self::NotReady, "device not ready in time"),
        (Self::DeviceError, "device error"),
        (Self::NotTriggered, "producer did not trigger in time"),
    ];

    /// The number that stands for it in messages.
    #[must_use]
    pub fn code(self) -> u8 {
        let place = Self::ALL.iter().position(|(reason, _)| *reason == self);
        place.and_then(|place| u8::try_from(place).ok()).unwrap_or(0)
    }

    /// The reason for a number; [`Other`](Self::Other) for unknown ones.
    #[must_use]
    pub fn from_code(code: u8) -> Self {
        Self::ALL.get(usize::from(code)).map_or(Self::Other, |(reason, _)| *reason)
    }

    /// A few words for logs.
    #[must_use]
    pub fn text(self) -> &'static str {
        Self::ALL.iter().find(|(reason, _)| *reason == self).map_or("other", |(_, text)| text)
    }
}

/// Where a rank runs: what a person needs to find the machine. Unknown parts are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// Host name.
    pub host: String,
    /// Name of the device, such as the GPU's model.
    pub device: String,
    /// UUID of the device.
    pub uuid: String,
    /// Names of the network interfaces near the device.
    pub nics: Vec<String>,
}

impl Identity {
    /// Only the host name, where the operating system tells it.
    #[must_use]
    pub fn of_host() -> Self {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self { host: host.trim().to_owned(), ..Self::default() }
    }
}

/// A device call that failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// A library, a driver or a device is not there.
    #[error("{what} is not available: {reason}")]
    Unavailable {
        /// What was looked for.
        what: String,
        /// What was found instead.
        reason: String,
    },
    /// The memory cannot be had.
    #[error("cannot allocate {bytes} bytes on {device}")]
    OutOfMemory {
        /// Size asked for.
        bytes: usize,
        /// Where.
        device: String,
    },
    /// A call of the device's library failed.
    #[error("{call} failed with {code}: {message}")]
    Call {
        /// Name of the function.
        call: &'static str,
        /// Its error code.
        code: i64,
        /// The library's words for it.
        message: String,
    },
    /// The ticket does not belong to a snapshot under way.
    #[error("no snapshot under way in buffer {} with generation {}", .0.slot, .0.generation)]
    UnknownTicket(Ticket),
    /// The snapshot is not ready to be read.
    #[error("the snapshot in buffer {} is not ready", .0.slot)]
    NotReady(Ticket),
    /// A range or buffer does not fit.
    #[error(
        "range {start}..{end} for a buffer of {out} elements, the allocation has {length}: \
         the range must lie in it and be as long as the buffer"
    )]
    Range {
        /// First element asked for.
        start: usize,
        /// One past the last.
        end: usize,
        /// Elements of the destination.
        out: usize,
        /// Elements of the allocation.
        length: usize,
    },
}

impl DeviceError {
    /// The error for `range` and `out`, if they do not fit `length` elements.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Range`] when the range is not in `0..length` or not as long as `out`.
    pub fn check_range(range: &Range<usize>, out: usize, length: usize) -> Result<(), Self> {
        if range.start <= range.end && range.end <= length && range.len() == out {
            return Ok(());
        }
        Err(Self::Range { start: range.start, end: range.end, out, length })
    }
}
