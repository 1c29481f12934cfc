//! Preload library that records the NCCL calls of a job without changing it.
//!
//! `LD_PRELOAD=libdeepxtrace_nccl_probe.so` puts the functions exported here before those of NCCL.
//! Each records that a call begins, calls the original, records the result and returns it. A record
//! goes into a ring in shared memory: no lock, no system call, no allocation, no formatting on the
//! thread that calls. A background thread writes the rings to the trace folder as lines of JSON. If
//! the process is killed, `deepxtrace nccl analyze` or `watch` on the same host reads the rest.
//!
//! The first recorded call of a process begins the recording, and the first call of each thread takes
//! a ring; both take some milliseconds. Processes that never call NCCL, or that have no rank, are
//! left alone.
//!
//! | variable | meaning |
//! |---|---|
//! | `DEEPXTRACE_TRACE_DIR` | folder for the trace; without it nothing is recorded |
//! | `DEEPXTRACE_RUN_ID` | name of the run in every event |
//! | `DEEPXTRACE_TRACE_ENABLE` | `0`, `false`, `off`, `no`: nothing is recorded |
//! | `DEEPXTRACE_PHASE` | phase told in heartbeats until `deepxtrace_set_phase` names another |
//! | `DEEPXTRACE_HEARTBEAT_S` | seconds between heartbeats (5) |
//! | `DEEPXTRACE_TRACE_MAX_BYTES` | bytes of trace that a process keeps (1 GiB); the oldest go first |
//! | `DEEPXTRACE_RING_CALLS` | calls that a thread's ring holds (131072) |
//! | `DEEPXTRACE_RING_DIR` | memory file system for the rings (`/dev/shm`) |
//! | `DEEPXTRACE_NCCL_LIBRARY` | the NCCL behind this library where a program is told to load this one |
//! | `DEEPXTRACE_CAPTURE_QUERY` | `0`: the driver is not asked whether a stream is capturing a graph |
//! | `DEEPXTRACE_WRAP_DLSYM` | `1`: functions looked up by `dlsym` on a handle are recorded too |
//!
//! The first three may also be named `FLAGSCALE_TRACE_DIR`, `FLAGSCALE_TRACE_RUN_ID` and
//! `FLAGSCALE_TRACE_ENABLE`.
//!
//! A program says what it is doing, so that a long checkpoint is not taken for a hang:
//!
//! ```python
//! import ctypes
//! ctypes.CDLL(None).deepxtrace_set_phase(b"checkpointing")
//! ```
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#![allow(unsafe_code, reason = "every function here is part of a C interface")]

mod around;
mod capture;
mod comms;
mod config;
mod create;
mod exports;
mod find;
mod library;
mod local;
mod pending;
mod recorder;
mod session;
mod stubs;
mod sys;
mod worker;

pub use exports::*;
pub use stubs::*;

use std::ffi::{CStr, c_char};

/// Says what the process is doing, such as `train` or `checkpointing`. Told in the next heartbeat.
///
/// # Safety
///
/// `phase` is null or C text.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn deepxtrace_set_phase(phase: *const c_char) {
    if !phase.is_null() {
        // SAFETY: as promised by the caller.
        worker::set_phase(unsafe { CStr::from_ptr(phase) }.to_bytes());
    }
}

/// Runs when the library is loaded.
#[cfg_attr(test, allow(dead_code, reason = "a test binary is no preload library"))]
extern "C" fn begin() {
    sys::guarded(find::read_environment);
}

/// Runs when the process ends in order.
#[cfg_attr(test, allow(dead_code, reason = "a test binary is no preload library"))]
extern "C" fn end() {
    sys::guarded(|| {
        if let Some(session) = session::Session::begun() {
            session.end();
        }
    });
}

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static END: extern "C" fn() = end;
