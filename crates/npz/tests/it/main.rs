//! The reader on files of NumPy, on damaged files and on what the writer made.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod damaged;
mod numpy;
mod round_trip;

use std::path::PathBuf;

/// A file of `tests/data`.
fn data(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}
