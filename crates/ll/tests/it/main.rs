//! Integration tests of `deepxtrace-ll`, one module a subject.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod json;
mod mean_ratio;
mod real;
mod topology_rule;
