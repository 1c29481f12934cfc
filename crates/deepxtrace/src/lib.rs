//! Finds the rank, stage or path that makes a distributed GPU job slow or hang.

#![forbid(unsafe_code)]

pub use deepxtrace_counters as counters;
