//! Integration tests of `deepxtrace-normal`, one module a subject.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod build;
mod completion;
mod correlate;
mod edges;
mod history;
mod json;
mod notify;
mod properties;
mod rates;
mod recording;
mod reference;
#[cfg(feature = "rayon")]
mod threads;
