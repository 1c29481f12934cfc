//! Integration tests of `deepxtrace-normal`, one module a subject.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod recording;
mod reference;
