//! Pictures as a reader sees them: where texts stand, what colour cells have.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod colors;
mod layout;
mod refused;
mod sample;
mod words;
