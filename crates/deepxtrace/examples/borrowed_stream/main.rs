//! A C interface for a program that owns the stream, the kernels and the communicator, such as one
//! in Python with PyTorch: `borrowed_stream.py` beside this file uses it.
//!
//! It shows what a binding needs: a borrowed `CUstream` and `ncclComm_t`, device addresses and
//! lengths of the counters, one call a step. Every function answers a number below 0 on failure,
//! and `dx_error` tells why; no panic leaves them.

#![allow(unsafe_code, reason = "a C interface")]

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use deepxtrace::collect::{CudaDevice, CudaMemory, LocalGroup, Membership, NcclComm, NcclGroup};
use deepxtrace::config::{Config, Mode};
use deepxtrace::counters::{CompletionProbe, NotifyProbe, Window};
use deepxtrace::{Counters, Diagnose, Report, SyncStep};

type Failure = Box<dyn std::error::Error>;

thread_local! {
    static ERROR: RefCell<CString> = RefCell::default();
}

/// What `dx_open` gives out: collection of one rank, and the root's last window.
pub struct Handle {
    diagnose: Diagnose,
    last: Arc<Mutex<Last>>,
}

/// Of the last window: its number, launches of the dispatch Notify by rank, and tokens of
/// `dispatch_final` by source and destination.
#[derive(Default)]
struct Last {
    index: u64,
    launches: Vec<i64>,
    tokens: Vec<i64>,
}

impl Last {
    fn keep(&mut self, window: &Window) {
        self.index = window.index();
        self.launches.clone_from(&window.notify(NotifyProbe::NotifyDispatch).count);
        let tokens = &window.completion(CompletionProbe::DispatchFinal).tokens;
        self.tokens = tokens.iter().copied().collect();
    }
}

/// Runs `work`; keeps the text of its error for `dx_error`.
fn answered<T>(failed: T, work: impl FnOnce() -> Result<T, Failure>) -> T {
    let text = match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => return value,
        Ok(Err(error)) => error.to_string(),
        Err(_) => "panicked".to_owned(),
    };
    ERROR.with_borrow_mut(|last| *last = CString::new(text).unwrap_or_default());
    failed
}

/// Why the last call on this thread failed; valid until the next.
#[unsafe(no_mangle)]
pub extern "C" fn dx_error() -> *const c_char {
    ERROR.with_borrow(|text| text.as_ptr())
}

/// Makes the counters of rank `rank` of `size` on a device and starts synchronous collection, a
/// window a step. With `comm` null the group is this rank alone. Null on failure.
///
/// # Safety
///
/// `stream` and `comm` are a `CUstream` of the device's primary context and an `ncclComm_t`, or
/// null, and live until `dx_close`. `log` is C text.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dx_open(
    device: i32,
    stream: *mut c_void,
    comm: *mut c_void,
    rank: i32,
    size: i32,
    log: *const c_char,
) -> *mut Handle {
    answered(std::ptr::null_mut(), || {
        // SAFETY: as the caller promises.
        let log = unsafe { std::ffi::CStr::from_ptr(log) }.to_str()?;
        let config = Config {
            enabled: true,
            mode: Mode::Synchronous,
            sync_step: 1,
            warming_time: Some(Duration::ZERO),
            log_path: log.into(),
            ..Config::default()
        };
        let device = CudaDevice::new(device.try_into()?)?;
        let last = Arc::new(Mutex::new(Last::default()));
        let kept = Arc::clone(&last);
        // SAFETY: as the caller promises.
        let memory = unsafe { CudaMemory::on_stream(&device, stream) };
        let builder = if comm.is_null() {
            Diagnose::builder(LocalGroup::new(1)?.remove(0), config)
        } else {
            let membership = Membership::world(rank.try_into()?, size.try_into()?)?;
            // SAFETY: as the caller promises; each step is one call on the caller's thread.
            let group = unsafe {
                NcclGroup::on_stream(NcclComm::borrow(comm)?, &device, stream, membership)?
            };
            Diagnose::builder(group, config)
        };
        let mut diagnose = builder
            .counters(Counters::Normal)
            .memory(memory)
            .on_report(move |report| {
                if let Report::Normal(report) = report
                    && let (Some(window), Ok(mut last)) = (report.window, kept.lock())
                {
                    last.keep(window);
                }
            })
            .build()?
            .ok_or("collection is enabled")?;
        diagnose.start()?;
        Ok(Box::into_raw(Box::new(Handle { diagnose, last })))
    })
}

/// Writes device address and length, in counters of 8 bytes, of the ten parts of the dispatch
/// bundle and the five of the combine bundle. Answers 15.
///
/// # Safety
///
/// `handle` is from `dx_open`; both arrays have room for 15.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dx_parts(handle: *const Handle, address: *mut u64, len: *mut u64) -> i32 {
    answered(-1, || {
        // SAFETY: as the caller promises.
        let diagnose = unsafe { &(*handle).diagnose };
        let dispatch = diagnose.dispatch_bundle().ok_or("no dispatch counters")?.raw();
        let combine = diagnose.combine_bundle().ok_or("no combine counters")?.raw();
        for (place, part) in dispatch.into_iter().chain(combine).enumerate() {
            // SAFETY: as the caller promises.
            unsafe {
                address.add(place).write(part.address);
                len.add(place).write(part.len as u64);
            }
        }
        Ok(15)
    })
}

/// One step: the counters as they are when all work before this call is done, gathered at rank 0
/// and diagnosed there. Answers 1 when they were collected and 0 when not.
///
/// # Safety
///
/// `handle` is from `dx_open`, and only one thread uses it at a time.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dx_step(handle: *mut Handle) -> i32 {
    answered(-1, || {
        // SAFETY: as the caller promises.
        let step = unsafe { &mut (*handle).diagnose }.diagnose_normal_sync()?;
        Ok(i32::from(step == SyncStep::Collected))
    })
}

/// Of rank 0's last window: its number, 0 before the first. `launches` gets the launches of the
/// dispatch Notify by rank, `tokens` the tokens of `dispatch_final` `[source, destination]`.
///
/// # Safety
///
/// As `dx_step`; the arrays have room for `size` and `size * size` of `dx_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dx_window(
    handle: *const Handle,
    launches: *mut i64,
    tokens: *mut i64,
) -> i64 {
    answered(-1, || {
        // SAFETY: as the caller promises.
        let last = unsafe { &(*handle).last };
        let last = last.lock().map_err(|_| "a callback panicked")?;
        for (from, to) in [(&last.launches, launches), (&last.tokens, tokens)] {
            // SAFETY: as the caller promises.
            unsafe { to.copy_from_nonoverlapping(from.as_ptr(), from.len()) };
        }
        Ok(last.index.try_into()?)
    })
}

/// Stops collection and frees the counters: no kernel may add to them any more.
///
/// # Safety
///
/// `handle` is from `dx_open` and used no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dx_close(handle: *mut Handle) {
    answered((), || {
        // SAFETY: as the caller promises.
        drop(unsafe { Box::from_raw(handle) });
        Ok(())
    });
}
