//! Integration tests: one binary, one module a subject.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod cause;
#[cfg(feature = "fr")]
mod fr;
mod order;
mod pairs;
#[cfg(feature = "ras")]
mod ras;
mod reading;
mod real;
mod real_probe;
mod rounds;
mod spread;
mod stuck;
mod support;
