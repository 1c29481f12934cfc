//! Artifacts as files: what NumPy sees, what a folder keeps, what a damaged file says.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]
#![allow(clippy::print_stderr, reason = "a test that was skipped says so")]

mod damaged;
mod fuzzed;
mod numpy;
mod processes;
mod retention;
mod round_trip;
mod sample;
