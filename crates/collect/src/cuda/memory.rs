//! Counters in device memory, and snapshots of them on the producer's stream.

use std::ffi::c_void;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cudarc::driver::sys::{self, CUcontext, CUdeviceptr, CUresult, CUstream};

use super::device::CudaDevice;
use super::driver::check;
use super::resources::{
    DeviceBuffer, Event, EventState, PinnedBuffer, PrivateStream, copy_on_device, copy_to_host,
    is_capturing,
};
use crate::device::{
    CounterMemory, DeviceError, Enqueued, Identity, STAGING_BUFFERS, SkipReason, Ticket,
};
use crate::slots::Slots;
use crate::stop::{Stop, Until, lock};

/// How long a copy from a ready staging buffer to the host may take: far more than it ever does.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// How long dropping waits for copies that are still under way before it leaves their memory alone.
const DROP_TIMEOUT: Duration = Duration::from_secs(1);

/// Counters in the memory of a CUDA device.
///
/// Kernels add to them at [`address`](CounterMemory::address). A snapshot is a copy into one of two
/// staging buffers and an event, both enqueued on the stream that the kernels run on
/// ([`set_producer_stream`](Self::set_producer_stream)): so it holds what the kernels before it
/// wrote and nothing of those after it, and the program never waits. The host asks for the event;
/// once the copy is done, a private stream brings the staging buffer to pinned host memory. That
/// stream never waits for the producer's on the device, because a waiting stream can hold up others
/// that share its hardware queue.
///
/// # Stream capture
///
/// While the producer's stream is being captured into a graph nothing is enqueued and the snapshot
/// is skipped. All calls work in relaxed capture mode, so that no capture of another thread is
/// disturbed. A capture that begins on another thread in the moment between the look at the stream
/// and the copy takes the copy into its graph. A second look behind the copy notices that: the
/// snapshot counts as skipped, its event is not asked for before the capture has ended (the question
/// would invalidate it), and memory that a graph then holds pointers to is never given back. What no
/// look can see is a capture that both begins and ends between two of our calls that follow each
/// other at once. A program that captures at any time avoids all this by triggering snapshots on
/// the thread that captures.
///
/// # Without a producer's stream
///
/// Snapshots are copied on the private stream, in no order with the kernels: counters that change
/// during the copy can be from different moments, and a duration can miss its count.
///
/// ```no_run
/// use deepxtrace_collect::{CounterMemory, CudaDevice, CudaMemory, DeviceError};
///
/// # fn stream_of_the_program() -> *mut std::ffi::c_void { std::ptr::null_mut() }
/// let memory = CudaMemory::new(&CudaDevice::new(0)?, 150)?;
/// // SAFETY: the stream lives until `clear_producer_stream` below.
/// unsafe { memory.set_producer_stream(stream_of_the_program())? };
/// println!("kernels add to the 150 counters at {:#x}", memory.address());
/// memory.enqueue_snapshot()?;
/// memory.clear_producer_stream();
/// # Ok::<(), DeviceError>(())
/// ```
pub struct CudaMemory {
    device: CudaDevice,
    len: usize,
    identity: Identity,
    producer: Mutex<Option<Producer>>,
    ordered: AtomicBool,
    slots: Slots,
    /// A graph of the program holds pointers to our memory.
    in_a_graph: AtomicBool,
    // Fields are dropped in this order: memory goes before the stream that copies it.
    staging: [Mutex<Option<Staging>>; STAGING_BUFFERS],
    reader: Mutex<Reader>,
    counters: Option<DeviceBuffer>,
    private: PrivateStream,
}

/// The stream of the program; it may be null, which is the default stream.
struct Producer(CUstream);

// SAFETY: a stream handle may be used from any thread; the driver locks what it needs to.
unsafe impl Send for Producer {}

/// What came of an enqueue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Enqueued,
    /// The stream is being captured; nothing was enqueued.
    Capturing,
    /// A capture began meanwhile: the copy may be in it.
    Doubtful,
}

#[derive(Debug)]
struct Staging {
    copy: DeviceBuffer,
    taken: Event,
    /// The snapshot of the present use went into a graph instead.
    lost: bool,
    /// A capture was under way behind the copy: it may have begun before it. The event may not be
    /// asked for while that capture lasts.
    doubtful: bool,
}

impl Staging {
    fn new(device: &CudaDevice, bytes: usize) -> Result<Self, DeviceError> {
        Ok(Self {
            copy: DeviceBuffer::new(device, bytes)?,
            taken: Event::new(device)?,
            lost: false,
            doubtful: false,
        })
    }
}

#[derive(Debug)]
struct Reader {
    pinned: Option<PinnedBuffer>,
    copied: Event,
}

impl fmt::Debug for CudaMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaMemory")
            .field("device", &self.device)
            .field("len", &self.len)
            .field("ordered", &self.is_ordered())
            .finish_non_exhaustive()
    }
}

impl CudaMemory {
    /// How a `Diagnose` gets its counters: on `device`, in the order of the program's `stream`
    /// (see [`set_producer_stream`](Self::set_producer_stream)).
    ///
    /// # Safety
    ///
    /// As [`set_producer_stream`](Self::set_producer_stream), for as long as the memory lives.
    pub unsafe fn on_stream(
        device: &CudaDevice,
        stream: *mut c_void,
    ) -> impl FnOnce(usize) -> Result<Arc<dyn CounterMemory>, DeviceError> + 'static {
        let (device, stream) = (device.clone(), Producer(stream.cast()));
        move |len| {
            let memory = Self::new(&device, len)?;
            let Producer(stream) = stream;
            // SAFETY: as the caller promises.
            unsafe { memory.set_producer_stream(stream.cast())? };
            Ok(Arc::new(memory) as Arc<dyn CounterMemory>)
        }
    }

    /// `len` counters on `device`, all 0.
    ///
    /// # Errors
    ///
    /// The device has not enough memory, the host cannot pin enough, or the driver refuses a call
    /// (after a kernel's fault it refuses all).
    pub fn new(device: &CudaDevice, len: usize) -> Result<Self, DeviceError> {
        let bytes = len.checked_mul(size_of::<i64>()).ok_or_else(|| DeviceError::OutOfMemory {
            bytes: usize::MAX,
            device: format!("CUDA device {}", device.ordinal()),
        })?;
        let private = PrivateStream::new(device)?;
        let counters = DeviceBuffer::new(device, bytes)?;
        let staging = || Ok(Mutex::new(Some(Staging::new(device, bytes)?)));
        let staging: [_; STAGING_BUFFERS] = [staging()?, staging()?];
        let reader =
            Reader { pinned: Some(PinnedBuffer::new(device, len)?), copied: Event::new(device)? };
        zero(device, &counters, &private)?;
        for one in &staging {
            if let Some(staging) = &*lock(one) {
                zero(device, &staging.copy, &private)?;
            }
        }
        Ok(Self {
            device: device.clone(),
            len,
            identity: device.identity(),
            producer: Mutex::new(None),
            ordered: AtomicBool::new(false),
            slots: Slots::new(),
            in_a_graph: AtomicBool::new(false),
            staging,
            reader: Mutex::new(reader),
            counters: Some(counters),
            private,
        })
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &CudaDevice {
        &self.device
    }

    /// Says on which stream the kernels run that add to the counters: a `CUstream` or
    /// `cudaStream_t`, from PyTorch (`torch.cuda.current_stream().cuda_stream`), from C or from
    /// `cudarc`. Null is the legacy default stream. It is borrowed: never waited for, never
    /// destroyed.
    ///
    /// # Safety
    ///
    /// `stream` is a stream of this device's primary context, or null, and stays alive until
    /// another stream is set, [`clear_producer_stream`](Self::clear_producer_stream) has returned,
    /// or this memory is dropped.
    ///
    /// # Errors
    ///
    /// The stream belongs to another context, or the driver refuses it.
    pub unsafe fn set_producer_stream(&self, stream: *mut c_void) -> Result<(), DeviceError> {
        let stream: CUstream = stream.cast();
        self.check_stream(stream)?;
        let mut producer = lock(&self.producer);
        *producer = Some(Producer(stream));
        self.ordered.store(true, Ordering::Release);
        Ok(())
    }

    /// Forgets the producer's stream: when this returns, no thread of ours uses it any more, and
    /// the program may destroy it. Snapshots are unordered from here on.
    pub fn clear_producer_stream(&self) {
        let mut producer = lock(&self.producer);
        *producer = None;
        self.ordered.store(false, Ordering::Release);
    }

    /// Refuses a stream of another context. Null and the two special handles belong to whichever
    /// context is current, which is ours when they are used.
    fn check_stream(&self, stream: CUstream) -> Result<(), DeviceError> {
        let _entered = self.device.enter()?;
        // Also tells the driver's own refusal of the handle.
        is_capturing(stream)?;
        if stream.addr() <= 2 {
            return Ok(());
        }
        let mut context: CUcontext = std::ptr::null_mut();
        // SAFETY: the stream is alive by the caller's contract; the driver writes one handle.
        let result = unsafe { sys::cuStreamGetCtx(stream, &raw mut context) };
        check("cuStreamGetCtx", result)?;
        if context == self.device.context() {
            return Ok(());
        }
        let place = format!("CUDA device {}", self.device.ordinal());
        Err(DeviceError::Unavailable {
            what: format!("the producer's stream on {place}"),
            reason: format!("it belongs to another context than the primary one of {place}"),
        })
    }

    fn counters_address(&self) -> CUdeviceptr {
        self.counters.as_ref().map_or(0, DeviceBuffer::address)
    }

    fn bytes(&self) -> usize {
        self.counters.as_ref().map_or(0, DeviceBuffer::bytes)
    }

    /// Enqueues copy and event for a buffer that is ours.
    fn enqueue(&self, ticket: Ticket) -> Result<Outcome, DeviceError> {
        // Held until all is enqueued: `clear_producer_stream` waits for it.
        let producer = lock(&self.producer);
        let stream = match &*producer {
            Some(Producer(stream)) if is_capturing(*stream)? => return Ok(Outcome::Capturing),
            Some(Producer(stream)) => *stream,
            None => self.private.handle(),
        };
        self.with_staging(ticket, |staging| {
            staging.lost = false;
            let to = staging.copy.address();
            copy_on_device(to, self.counters_address(), self.bytes(), stream)?;
            staging.taken.record(stream)?;
            staging.doubtful = producer.is_some() && is_capturing(stream)?;
            Ok(if staging.doubtful { Outcome::Doubtful } else { Outcome::Enqueued })
        })
    }

    fn with_staging<T>(
        &self,
        ticket: Ticket,
        work: impl FnOnce(&mut Staging) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        let unknown = || DeviceError::UnknownTicket(ticket);
        let mut staging = lock(self.staging.get(ticket.slot).ok_or_else(unknown)?);
        work(staging.as_mut().ok_or_else(unknown)?)
    }

    /// Whether the device is done with a buffer. The context must be current.
    fn is_finished(&self, ticket: Ticket) -> bool {
        let state = self.with_staging(ticket, |staging| {
            if staging.doubtful
                && let Some(Producer(stream)) = &*lock(&self.producer)
                && is_capturing(*stream)?
            {
                return Ok(EventState::Pending);
            }
            staging.doubtful = false;
            staging.taken.state()
        });
        match state {
            Ok(EventState::Done) => true,
            Ok(EventState::Pending) => false,
            Ok(EventState::Captured) => self.replace(ticket).is_ok(),
            // The device does nothing any more; the next call on it says why.
            Err(_) => true,
        }
    }

    /// The copy went into a graph: the buffers it names are left to that graph for ever, and the
    /// slot gets new ones.
    fn replace(&self, ticket: Ticket) -> Result<(), DeviceError> {
        self.in_a_graph.store(true, Ordering::Release);
        let Some(slot) = self.staging.get(ticket.slot) else { return Ok(()) };
        let mut staging = lock(slot);
        if let Some(old) = staging.take() {
            old.copy.leak();
            std::mem::forget(old.taken);
        }
        *staging = Some(Staging { lost: true, ..Staging::new(&self.device, self.bytes())? });
        Ok(())
    }
}

impl CounterMemory for CudaMemory {
    fn len(&self) -> usize {
        self.len
    }

    fn address(&self) -> u64 {
        self.counters_address()
    }

    fn identity(&self) -> Identity {
        self.identity.clone()
    }

    fn is_ordered(&self) -> bool {
        self.ordered.load(Ordering::Acquire)
    }

    fn enqueue_snapshot(&self) -> Result<Enqueued, DeviceError> {
        let _entered = self.device.enter()?;
        let Some(ticket) = self.slots.acquire(|ticket| self.is_finished(ticket)) else {
            return Ok(Enqueued::Skipped(SkipReason::Busy));
        };
        match self.enqueue(ticket) {
            Ok(Outcome::Enqueued) => Ok(Enqueued::Ticket(ticket)),
            Ok(outcome) => {
                self.slots.release(ticket, outcome == Outcome::Capturing);
                Ok(Enqueued::Skipped(SkipReason::Capturing))
            }
            Err(error) => {
                // The copy may have been enqueued before the event failed: then the event is an
                // older one and says nothing about the copy, but so does a device in that state.
                self.slots.release(ticket, false);
                Err(error)
            }
        }
    }

    fn is_ready(&self, ticket: Ticket) -> Result<bool, DeviceError> {
        self.slots.check(ticket)?;
        let _entered = self.device.enter()?;
        match self.with_staging(ticket, |staging| Ok((staging.taken.state()?, staging.lost)))? {
            (EventState::Done, false) => Ok(true),
            (EventState::Pending, false) => Ok(false),
            (EventState::Captured, _) => {
                self.replace(ticket)?;
                Err(captured())
            }
            (_, true) => Err(captured()),
        }
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
        DeviceError::check_range(&range, out.len(), self.len)?;
        if out.is_empty() {
            return Ok(());
        }
        let _entered = self.device.enter()?;
        let mut reader = lock(&self.reader);
        let from = self.with_staging(ticket, |staging| Ok(staging.copy.address()))?;
        let from = from + (range.start * size_of::<i64>()) as u64;
        reader.fetch(from, out, self.private.handle())
    }

    fn staged_address(&self, ticket: Ticket) -> Option<u64> {
        self.slots.check(ticket).ok()?;
        self.with_staging(ticket, |staging| Ok(staging.copy.address())).ok()
    }

    fn release(&self, ticket: Ticket) {
        if self.slots.check(ticket).is_err() {
            return;
        }
        let finished = self.device.enter().is_ok_and(|_entered| self.is_finished(ticket));
        self.slots.release(ticket, finished);
    }
}

impl Reader {
    /// Copies from the device to `out` by way of the pinned buffer.
    fn fetch(
        &mut self,
        from: CUdeviceptr,
        out: &mut [i64],
        stream: CUstream,
    ) -> Result<(), DeviceError> {
        let late = || DeviceError::Call {
            call: "cuMemcpyDtoHAsync",
            code: CUresult::CUDA_ERROR_NOT_READY as i64,
            message: format!("the copy to the host was not done within {READ_TIMEOUT:?}"),
        };
        let Some(pinned) = &mut self.pinned else { return Err(late()) };
        copy_to_host(pinned, out.len(), from, stream)?;
        self.copied.record(stream)?;
        let stop = Stop::new();
        if !self.copied.wait(Until::after(READ_TIMEOUT, &stop))? {
            // The device may write to the buffer at any later time: it cannot be used again.
            if let Some(pinned) = self.pinned.take() {
                pinned.leak();
            }
            return Err(late());
        }
        for (to, from) in out.iter_mut().zip(pinned.as_slice()) {
            *to = *from;
        }
        Ok(())
    }
}

impl Drop for CudaMemory {
    fn drop(&mut self) {
        let Ok(_entered) = self.device.enter() else { return };
        let in_a_graph = self.in_a_graph.load(Ordering::Acquire);
        let stop = Stop::new();
        let until = Until::after(DROP_TIMEOUT, &stop);
        let mut idle = true;
        for slot in &self.staging {
            let mut staging = lock(slot);
            // An event that was never recorded is done.
            let done = staging
                .as_ref()
                .is_none_or(|one| !one.doubtful && one.taken.wait(until).unwrap_or(true));
            if !done {
                idle = false;
                if let Some(one) = staging.take() {
                    one.copy.leak();
                    std::mem::forget(one.taken);
                }
            }
        }
        if (in_a_graph || !idle)
            && let Some(counters) = self.counters.take()
        {
            counters.leak();
        }
    }
}

/// The error for a snapshot whose copy became part of a graph.
fn captured() -> DeviceError {
    DeviceError::Call {
        call: "cuEventQuery",
        code: CUresult::CUDA_ERROR_CAPTURED_EVENT as i64,
        message: "the snapshot went into a graph whose capture began at that moment".to_owned(),
    }
}

/// Sets a buffer to 0 and waits for it.
fn zero(
    device: &CudaDevice,
    buffer: &DeviceBuffer,
    stream: &PrivateStream,
) -> Result<(), DeviceError> {
    let _entered = device.enter()?;
    buffer.clear(stream.handle())?;
    // SAFETY: the stream is alive.
    check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(stream.handle()) })
}
