//! Counters in host memory, with an in-order queue in the place of a device stream.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::device::{
    CounterMemory, DeviceError, Enqueued, Identity, STAGING_BUFFERS, SkipReason, Ticket,
};
use crate::slots::Slots;
use crate::stop::lock;

/// Counters in host memory: for programs without a device, and for tests of order without a GPU.
///
/// Counters are atomics, so that any thread may add to them. With a [`HostQueue`] snapshots stand
/// in the order of the work enqueued on it; without one they are copied at once, unordered.
///
/// ```
/// use std::sync::atomic::Ordering::Relaxed;
/// use deepxtrace_collect::{CounterMemory, Enqueued, HostMemory, HostQueue, Stop, Until};
///
/// let queue = HostQueue::new()?;
/// let memory = HostMemory::with_queue(2, &queue);
/// let counters = memory.counters();
/// queue.run(move || counters.get()[0].store(1, Relaxed));
/// let Enqueued::Ticket(ticket) = memory.enqueue_snapshot()? else { panic!("two buffers are free") };
/// let counters = memory.counters();
/// queue.run(move || counters.get()[0].store(2, Relaxed));
///
/// let stop = Stop::new();
/// assert!(memory.wait_ready(ticket, Until::after(std::time::Duration::from_secs(10), &stop))?);
/// let mut snapshot = [0; 2];
/// memory.read(ticket, 0..2, &mut snapshot)?;
/// assert_eq!(snapshot, [1, 0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct HostMemory {
    shared: Arc<Shared>,
    queue: Option<HostQueue>,
    identity: Identity,
    capturing: AtomicBool,
}

#[derive(Debug)]
struct Shared {
    counters: Box<[AtomicI64]>,
    staging: [Staging; STAGING_BUFFERS],
    slots: Slots,
}

#[derive(Debug)]
struct Staging {
    copy: Box<[AtomicI64]>,
    /// Generation of the last finished copy.
    finished: AtomicU64,
}

impl Shared {
    fn copy(&self, ticket: Ticket) {
        let Some(staging) = self.staging.get(ticket.slot) else { return };
        for (to, from) in staging.copy.iter().zip(&self.counters) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        staging.finished.store(ticket.generation, Ordering::Release);
    }

    fn is_finished(&self, ticket: Ticket) -> bool {
        self.staging
            .get(ticket.slot)
            .is_some_and(|staging| staging.finished.load(Ordering::Acquire) == ticket.generation)
    }
}

/// The counters of a [`HostMemory`], kept alive by this.
#[derive(Debug, Clone)]
pub struct HostCounters(Arc<Shared>);

impl HostCounters {
    /// The counters, in the order of the layout.
    #[must_use]
    pub fn get(&self) -> &[AtomicI64] {
        &self.0.counters
    }
}

impl HostMemory {
    /// `len` counters without a queue: snapshots are copied at once, and are not ordered.
    #[must_use]
    pub fn new(len: usize) -> Self {
        Self::make(len, None)
    }

    /// `len` counters whose snapshots stand in the order of `queue`.
    #[must_use]
    pub fn with_queue(len: usize, queue: &HostQueue) -> Self {
        Self::make(len, Some(queue.clone()))
    }

    fn make(len: usize, queue: Option<HostQueue>) -> Self {
        let zeros = || (0..len).map(|_| AtomicI64::new(0)).collect::<Box<[_]>>();
        let staging = || Staging { copy: zeros(), finished: AtomicU64::new(0) };
        let staging = [staging(), staging()];
        let shared = Arc::new(Shared { counters: zeros(), staging, slots: Slots::new() });
        Self { shared, queue, identity: Identity::of_host(), capturing: AtomicBool::new(false) }
    }

    /// The same memory under another identity.
    #[must_use]
    pub fn with_identity(mut self, identity: Identity) -> Self {
        self.identity = identity;
        self
    }

    /// The counters, for the code that counts.
    #[must_use]
    pub fn counters(&self) -> HostCounters {
        HostCounters(Arc::clone(&self.shared))
    }

    /// Says that the queue is being captured, as a CUDA stream can be: snapshots are skipped.
    pub fn set_capturing(&self, capturing: bool) {
        self.capturing.store(capturing, Ordering::Release);
    }
}

impl CounterMemory for HostMemory {
    fn len(&self) -> usize {
        self.shared.counters.len()
    }

    fn address(&self) -> u64 {
        self.shared.counters.as_ptr().addr() as u64
    }

    fn identity(&self) -> Identity {
        self.identity.clone()
    }

    fn is_ordered(&self) -> bool {
        self.queue.is_some()
    }

    fn enqueue_snapshot(&self) -> Result<Enqueued, DeviceError> {
        if self.capturing.load(Ordering::Acquire) {
            return Ok(Enqueued::Skipped(SkipReason::Capturing));
        }
        let Some(ticket) = self.shared.slots.acquire(|ticket| self.shared.is_finished(ticket))
        else {
            return Ok(Enqueued::Skipped(SkipReason::Busy));
        };
        match &self.queue {
            Some(queue) => queue.push(Op::Snapshot(Arc::clone(&self.shared), ticket)),
            None => self.shared.copy(ticket),
        }
        Ok(Enqueued::Ticket(ticket))
    }

    fn is_ready(&self, ticket: Ticket) -> Result<bool, DeviceError> {
        self.shared.slots.check(ticket)?;
        Ok(self.shared.is_finished(ticket))
    }

    fn read(
        &self,
        ticket: Ticket,
        range: Range<usize>,
        out: &mut [i64],
    ) -> Result<(), DeviceError> {
        if !self.is_ready(ticket)? {
            return Err(DeviceError::NotReady(ticket));
        }
        DeviceError::check_range(&range, out.len(), self.len())?;
        let staging = self.shared.staging.get(ticket.slot);
        let copy = staging.and_then(|staging| staging.copy.get(range)).unwrap_or_default();
        for (to, from) in out.iter_mut().zip(copy) {
            *to = from.load(Ordering::Relaxed);
        }
        Ok(())
    }

    fn staged_address(&self, ticket: Ticket) -> Option<u64> {
        self.shared.slots.check(ticket).ok()?;
        self.shared.staging.get(ticket.slot).map(|staging| staging.copy.as_ptr().addr() as u64)
    }

    fn release(&self, ticket: Ticket) {
        self.shared.slots.release(ticket, self.shared.is_finished(ticket));
    }
}

/// An in-order queue of work on a thread of its own: what a stream is to a device.
///
/// Clones share the queue. When the last one is dropped, it waits for what was enqueued.
#[derive(Clone)]
pub struct HostQueue {
    inner: Arc<Inner>,
}

struct Inner {
    work: Arc<Work>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Work {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ops: VecDeque<Op>,
    running: bool,
    closed: bool,
}

enum Op {
    Run(Box<dyn FnOnce() + Send>),
    Snapshot(Arc<Shared>, Ticket),
}

impl fmt::Debug for HostQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = lock(&self.inner.work.state).ops.len();
        f.debug_struct("HostQueue").field("waiting", &waiting).finish()
    }
}

impl HostQueue {
    /// Starts an empty queue.
    ///
    /// # Errors
    ///
    /// The operating system does not give a thread.
    pub fn new() -> std::io::Result<Self> {
        let work = Arc::new(Work::default());
        let thread_work = Arc::clone(&work);
        let thread = std::thread::Builder::new()
            .name("deepxtrace-queue".to_owned())
            .spawn(move || thread_work.run())?;
        Ok(Self { inner: Arc::new(Inner { work, thread: Some(thread) }) })
    }

    /// Enqueues work, without waiting for it.
    pub fn run(&self, work: impl FnOnce() + Send + 'static) {
        self.push(Op::Run(Box::new(work)));
    }

    /// Waits until all that was enqueued so far has run.
    pub fn synchronize(&self) {
        let state = lock(&self.inner.work.state);
        let idle = self
            .inner
            .work
            .changed
            .wait_while(state, |state| state.running || !state.ops.is_empty());
        drop(idle.unwrap_or_else(PoisonError::into_inner));
    }

    fn push(&self, op: Op) {
        lock(&self.inner.work.state).ops.push_back(op);
        self.inner.work.changed.notify_all();
    }
}

impl Work {
    fn run(&self) {
        loop {
            let op = {
                let state = lock(&self.state);
                let waited =
                    self.changed.wait_while(state, |state| state.ops.is_empty() && !state.closed);
                let mut state = waited.unwrap_or_else(PoisonError::into_inner);
                let Some(op) = state.ops.pop_front() else { return };
                state.running = true;
                op
            };
            match op {
                Op::Run(work) => {
                    // A panic in a program's closure must not end the queue for the others.
                    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                }
                Op::Snapshot(shared, ticket) => shared.copy(ticket),
            }
            lock(&self.state).running = false;
            self.changed.notify_all();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        lock(&self.work.state).closed = true;
        self.work.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // The last clone may be dropped by work on the queue itself, which cannot wait for its
            // own end.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}
