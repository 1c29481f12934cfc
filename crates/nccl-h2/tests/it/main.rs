//! Integration tests: one binary, one module a subject.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[cfg(feature = "fr")]
mod fr;
#[cfg(feature = "ras")]
mod ras;
mod real;
mod real_probe;
mod support;
