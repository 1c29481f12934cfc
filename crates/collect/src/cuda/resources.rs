//! What the driver gives and takes back: device memory, pinned host memory, events, streams.
//!
//! Each is given back when it is dropped; errors of that are ignored, because they mean that the
//! driver or the context has gone before us.

use std::ffi::c_void;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{
    self, CUdeviceptr, CUevent, CUevent_flags, CUresult, CUstream, CUstream_flags,
    CUstreamCaptureStatus,
};

use super::device::CudaDevice;
use super::driver::{check, failure};
use crate::device::DeviceError;
use crate::stop::{Backoff, Until};

/// Device memory.
#[derive(Debug)]
pub(crate) struct DeviceBuffer {
    device: CudaDevice,
    address: CUdeviceptr,
    bytes: usize,
}

impl DeviceBuffer {
    /// `bytes` of device memory, at least one; its content is undefined.
    pub(crate) fn new(device: &CudaDevice, bytes: usize) -> Result<Self, DeviceError> {
        let _entered = device.enter()?;
        let mut address = 0;
        // SAFETY: the context is current; the driver writes one address.
        let result = unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes.max(1)) };
        if result == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            let device = format!("CUDA device {}", device.ordinal());
            return Err(DeviceError::OutOfMemory { bytes, device });
        }
        check("cuMemAlloc", result)?;
        Ok(Self { device: device.clone(), address, bytes })
    }

    pub(crate) fn address(&self) -> CUdeviceptr {
        self.address
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets all of it to 0, behind what is enqueued on `stream`. The context must be current.
    pub(crate) fn clear(&self, stream: CUstream) -> Result<(), DeviceError> {
        if self.bytes == 0 {
            return Ok(());
        }
        // SAFETY: the memory is ours and has that many bytes. Freeing it waits for the device.
        let result = unsafe { sys::cuMemsetD8Async(self.address, 0, self.bytes, stream) };
        check("cuMemsetD8Async", result)
    }

    /// Never gives the memory back: something outside our knowledge may still write to it.
    pub(crate) fn leak(self) {
        std::mem::forget(self);
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if let Ok(_entered) = self.device.enter() {
            // SAFETY: the address is from `cuMemAlloc` and freed once. The driver waits for work
            // that uses it.
            let _ = unsafe { sys::cuMemFree_v2(self.address) };
        }
    }
}

/// Pinned host memory of `i64`, not write-combined: the host reads it.
#[derive(Debug)]
pub(crate) struct PinnedBuffer {
    device: CudaDevice,
    pointer: *mut i64,
    len: usize,
}

// SAFETY: the buffer owns its memory and hands out access by the rules of references.
unsafe impl Send for PinnedBuffer {}

impl PinnedBuffer {
    pub(crate) fn new(device: &CudaDevice, len: usize) -> Result<Self, DeviceError> {
        let _entered = device.enter()?;
        let bytes = len.max(1).saturating_mul(size_of::<i64>());
        let mut pointer: *mut c_void = std::ptr::null_mut();
        // SAFETY: the context is current; the driver writes one pointer.
        let result =
            unsafe { sys::cuMemHostAlloc(&raw mut pointer, bytes, sys::CU_MEMHOSTALLOC_PORTABLE) };
        if result == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
            let device = "the host (pinned memory)".to_owned();
            return Err(DeviceError::OutOfMemory { bytes, device });
        }
        check("cuMemHostAlloc", result)?;
        let pointer = pointer.cast::<i64>();
        // SAFETY: the allocation holds `len` elements; from here on all are initialised.
        unsafe { pointer.write_bytes(0, len) };
        Ok(Self { device: device.clone(), pointer, len })
    }

    pub(crate) fn as_slice(&self) -> &[i64] {
        // SAFETY: `len` initialised elements, aligned by the driver to at least a page. Copies by
        // the device are waited for before this is called.
        unsafe { std::slice::from_raw_parts(self.pointer, self.len) }
    }

    #[cfg(feature = "nccl")]
    pub(crate) fn as_mut_slice(&mut self) -> &mut [i64] {
        // SAFETY: as above, and `&mut self` makes it the only access.
        unsafe { std::slice::from_raw_parts_mut(self.pointer, self.len) }
    }

    /// Never gives the memory back: the device may still write to it.
    pub(crate) fn leak(self) {
        std::mem::forget(self);
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        if let Ok(_entered) = self.device.enter() {
            // SAFETY: the pointer is from `cuMemHostAlloc` and freed once.
            let _ = unsafe { sys::cuMemFreeHost(self.pointer.cast()) };
        }
    }
}

/// How long a wait for the device only gives way to other threads before it sleeps: a sleep takes
/// about as long as the copies that are waited for.
const EAGER: Duration = Duration::from_micros(100);

/// The pauses of a wait for the device.
#[derive(Debug)]
pub(crate) struct Patience {
    begun: Instant,
    backoff: Backoff,
}

impl Patience {
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), backoff: Backoff::default() }
    }

    /// One pause.
    pub(crate) fn rest(&mut self, until: Until<'_>) {
        if self.begun.elapsed() < EAGER {
            std::thread::yield_now();
        } else {
            until.sleep(self.backoff.pause());
        }
    }
}

/// What an event says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventState {
    /// The device has come past it.
    Done,
    /// The device has not come so far.
    Pending,
    /// It was recorded into a graph that was being captured, and so says nothing.
    Captured,
}

/// An event without timing.
#[derive(Debug)]
pub(crate) struct Event {
    device: CudaDevice,
    handle: CUevent,
}

// SAFETY: an event handle may be used from any thread; the driver locks what it needs to.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    pub(crate) fn new(device: &CudaDevice) -> Result<Self, DeviceError> {
        let _entered = device.enter()?;
        let mut handle: CUevent = std::ptr::null_mut();
        let flags = CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
        // SAFETY: the context is current; the driver writes one handle.
        check("cuEventCreate", unsafe { sys::cuEventCreate(&raw mut handle, flags) })?;
        Ok(Self { device: device.clone(), handle })
    }

    /// Records behind what is enqueued on `stream`. The context must be current.
    pub(crate) fn record(&self, stream: CUstream) -> Result<(), DeviceError> {
        // SAFETY: the event is alive, and the stream is by the contract of whoever gave it.
        check("cuEventRecord", unsafe { sys::cuEventRecord(self.handle, stream) })
    }

    /// Asks without waiting. The thread must be in relaxed capture mode.
    pub(crate) fn state(&self) -> Result<EventState, DeviceError> {
        // SAFETY: the event is alive.
        match unsafe { sys::cuEventQuery(self.handle) } {
            CUresult::CUDA_SUCCESS => Ok(EventState::Done),
            CUresult::CUDA_ERROR_NOT_READY => Ok(EventState::Pending),
            CUresult::CUDA_ERROR_CAPTURED_EVENT => Ok(EventState::Captured),
            other => Err(failure("cuEventQuery", other)),
        }
    }

    /// Waits by asking until it is done; `false` when `until` came first, or when it never will
    /// be, because it was captured. The thread must be in relaxed capture mode.
    pub(crate) fn wait(&self, until: Until<'_>) -> Result<bool, DeviceError> {
        let mut patience = Patience::new();
        loop {
            match self.state()? {
                EventState::Done => return Ok(true),
                EventState::Captured => return Ok(false),
                EventState::Pending if until.is_over() => return Ok(false),
                EventState::Pending => patience.rest(until),
            }
        }
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if let Ok(_entered) = self.device.enter() {
            // SAFETY: the handle is from `cuEventCreate` and destroyed once.
            let _ = unsafe { sys::cuEventDestroy_v2(self.handle) };
        }
    }
}

/// A stream of our own, which does not wait for the default stream.
#[derive(Debug)]
pub(crate) struct PrivateStream {
    device: CudaDevice,
    handle: CUstream,
}

// SAFETY: a stream handle may be used from any thread; the driver locks what it needs to.
unsafe impl Send for PrivateStream {}
// SAFETY: as above.
unsafe impl Sync for PrivateStream {}

impl PrivateStream {
    pub(crate) fn new(device: &CudaDevice) -> Result<Self, DeviceError> {
        let _entered = device.enter()?;
        let mut handle: CUstream = std::ptr::null_mut();
        let flags = CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: the context is current; the driver writes one handle.
        check("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut handle, flags) })?;
        Ok(Self { device: device.clone(), handle })
    }

    pub(crate) fn handle(&self) -> CUstream {
        self.handle
    }
}

impl Drop for PrivateStream {
    fn drop(&mut self) {
        if let Ok(_entered) = self.device.enter() {
            // SAFETY: the handle is from `cuStreamCreate` and destroyed once; the driver finishes
            // what is enqueued.
            let _ = unsafe { sys::cuStreamDestroy_v2(self.handle) };
        }
    }
}

/// Whether work that is enqueued on `stream` now would go into a graph, or would break the capture
/// of one (the legacy default stream, while another stream is being captured).
pub(crate) fn is_capturing(stream: CUstream) -> Result<bool, DeviceError> {
    let mut status = CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
    // SAFETY: the stream is alive by the contract of whoever gave it; the driver writes one value.
    match unsafe { sys::cuStreamIsCapturing(stream, &raw mut status) } {
        CUresult::CUDA_SUCCESS => {
            Ok(status != CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE)
        }
        CUresult::CUDA_ERROR_STREAM_CAPTURE_IMPLICIT => Ok(true),
        other => Err(failure("cuStreamIsCapturing", other)),
    }
}

/// Enqueues a copy within the device. The context must be current.
pub(crate) fn copy_on_device(
    to: CUdeviceptr,
    from: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Result<(), DeviceError> {
    // SAFETY: callers pass ranges of their own live buffers, and keep them until an event behind
    // the copy is done.
    let result = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, stream) };
    check("cuMemcpyDtoDAsync", result)
}

/// Enqueues a copy of `to.len()` elements to the start of a pinned buffer. The context must be
/// current; the buffer may be read once an event behind the copy is done.
pub(crate) fn copy_to_host(
    to: &mut PinnedBuffer,
    len: usize,
    from: CUdeviceptr,
    stream: CUstream,
) -> Result<(), DeviceError> {
    let len = len.min(to.len);
    let bytes = len * size_of::<i64>();
    // SAFETY: the pinned buffer holds `len` elements; the caller waits before it reads them and
    // leaks the buffer when that does not come.
    let result = unsafe { sys::cuMemcpyDtoHAsync_v2(to.pointer.cast(), from, bytes, stream) };
    check("cuMemcpyDtoHAsync", result)
}

/// Enqueues a copy of the first `len` elements of a pinned buffer to the device. The context must
/// be current.
#[cfg(feature = "nccl")]
pub(crate) fn copy_to_device(
    to: CUdeviceptr,
    from: &PinnedBuffer,
    len: usize,
    stream: CUstream,
) -> Result<(), DeviceError> {
    let bytes = len.min(from.len) * size_of::<i64>();
    // SAFETY: the pinned buffer holds `len` elements, and the caller changes it only after an
    // event behind the copy.
    let result =
        unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.pointer.cast_const().cast(), bytes, stream) };
    check("cuMemcpyHtoDAsync", result)
}
