//! Whether a stream is recording a CUDA graph.

use std::ffi::c_void;
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::Ordering::Relaxed;

use crate::find::find;
use crate::sys::{Stream, loaded};

type IsCapturing = unsafe extern "C-unwind" fn(Stream, *mut u32) -> i32;

/// `CU_STREAM_CAPTURE_STATUS_ACTIVE`.
const ACTIVE: u32 = 1;

static QUERY: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Variable that says not to ask: for jobs without graphs, for which each call counts.
pub const VARIABLE: &str = "DEEPXTRACE_CAPTURE_QUERY";

/// Looks for the driver. It is never loaded by this: whoever creates a communicator has it.
pub fn look_for_driver() {
    let wanted = || std::env::var_os(VARIABLE).is_none_or(|value| value != "0");
    if QUERY.load(Relaxed).is_null() && wanted() {
        let driver = loaded(c"libcuda.so.1");
        if !driver.is_null() {
            QUERY.store(find(driver, c"cuStreamIsCapturing"), Relaxed);
        }
    }
}

/// Whether calls on this stream go into a graph; false where the driver does not say.
#[inline]
pub fn is_capturing(stream: Stream) -> bool {
    let query = QUERY.load(Relaxed);
    if query.is_null() {
        return false;
    }
    let mut status = 0;
    // SAFETY: the driver's function of this name has this type.
    let query = unsafe { std::mem::transmute::<*mut c_void, IsCapturing>(query) };
    // SAFETY: the stream is the one that the caller gives to NCCL; the query changes nothing and
    // ends no capture.
    let answer = unsafe { query(stream, &mut status) };
    answer == 0 && status == ACTIVE
}
