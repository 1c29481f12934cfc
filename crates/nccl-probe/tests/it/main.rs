//! The probe as users meet it: preloaded into programs that call a stand-in for NCCL.
//!
//! The stand-ins and the programs are C, compiled with gcc; the stand-in writes down the arguments
//! that arrive at it.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    missing_docs,
    reason = "tests"
)]

/// Every function, argument by argument.
mod calls;
/// Names, members and ends of communicators.
mod comms;
/// Two NCCLs, handles, `dlsym`, ctypes.
mod lookup;
/// What may not be lost, and what may not harm the job.
mod loss;
/// Processes that are left alone.
mod nothing;
/// A real NCCL, where one is at hand.
mod real;
mod support;
/// Threads, groups, forks.
mod threads;
