//! Integration tests of `deepxtrace-counters`, one module a subject.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod low_latency;
mod snapshot;
mod window;
