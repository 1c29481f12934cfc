//! Snapshots that the producer's own thread enqueues, when the background asks for one.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::device::{CounterMemory, DeviceError, Enqueued, SkipReason};
use crate::stop::{Until, lock};

/// Asks the producer's thread for a snapshot, instead of enqueueing it from another thread.
///
/// For programs that capture their stream into graphs at any time: between two steps the producer
/// calls [`snapshot_if_due`](Self::snapshot_if_due), which is one atomic load when nothing is due.
/// Clones share the trigger.
#[derive(Clone)]
pub struct Trigger {
    shared: Arc<Shared>,
}

struct Shared {
    memory: Arc<dyn CounterMemory>,
    due: AtomicBool,
    enqueued: Mutex<Option<Result<Enqueued, DeviceError>>>,
    changed: Condvar,
}

impl fmt::Debug for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trigger").field("due", &self.is_due()).finish_non_exhaustive()
    }
}

impl Trigger {
    /// A trigger for snapshots of `memory`.
    #[must_use]
    pub fn new(memory: Arc<dyn CounterMemory>) -> Self {
        let (due, enqueued) = (AtomicBool::new(false), Mutex::new(None));
        Self { shared: Arc::new(Shared { memory, due, enqueued, changed: Condvar::new() }) }
    }

    /// Whether a snapshot is wanted.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.shared.due.load(Ordering::Relaxed)
    }

    /// Enqueues a snapshot if one is wanted; says whether it was. Called by the producer's thread
    /// where its stream may be written to.
    pub fn snapshot_if_due(&self) -> bool {
        if !self.is_due() {
            return false;
        }
        // Under the lock, so that the background cannot give up in between and lose the buffer.
        let mut enqueued = lock(&self.shared.enqueued);
        if !self.shared.due.swap(false, Ordering::AcqRel) {
            return false;
        }
        *enqueued = Some(self.shared.memory.enqueue_snapshot());
        self.shared.changed.notify_all();
        true
    }

    /// Asks for a snapshot and waits until the producer has enqueued it.
    pub(crate) fn enqueue(&self, until: Until<'_>) -> Result<Enqueued, DeviceError> {
        let mut enqueued = lock(&self.shared.enqueued);
        *enqueued = None;
        self.shared.due.store(true, Ordering::Release);
        loop {
            if let Some(result) = enqueued.take() {
                return result;
            }
            if until.is_over() {
                self.shared.due.store(false, Ordering::Release);
                return Ok(Enqueued::Skipped(SkipReason::NotTriggered));
            }
            let time = until.remaining().min(std::time::Duration::from_millis(10));
            let waited = self.shared.changed.wait_timeout(enqueued, time);
            enqueued = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}
