//! Low-latency wait matrices: from `.npy`, `.npz`, a matrix of numbers in text, or a log.
//!
//! What a file is follows from its first bytes, not from its name.

mod arrays;
mod line;
mod text;

use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;

use anyhow::{Context, bail};
use deepxtrace::counters::LlPhase;
use ndarray::Array2;
use serde::Serialize;

/// One wait matrix `[waiter, awaited]`, square, and where it was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Waits {
    /// Where it was found.
    pub source: Source,
    /// Waits, 0 or more, in cycles or whatever unit the file has.
    pub matrix: Array2<i64>,
}

/// Where a matrix was found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Source {
    /// The file.
    pub file: String,
    /// Entry of an archive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// Phase, where the file says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<LlPhase>,
    /// Instance that logged it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance_id: Option<String>,
    /// Window, where the log says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window_index: Option<u64>,
    /// Time stamp of the log line, as it stands there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
    /// First line of the matrix in a text, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    /// How many complete matrices of this phase the log has; this is the newest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub of: Option<u64>,
}

/// Reads the matrices of a file: all of an archive, the newest complete one of each phase of a log.
///
/// # Errors
///
/// The file cannot be read, or has no complete square matrix of integers that are 0 or more.
pub fn read(path: &Path) -> anyhow::Result<Vec<Waits>> {
    let name = path.display().to_string();
    let mut file = File::open(path).with_context(|| name.clone())?;
    let metadata = file.metadata().with_context(|| name.clone())?;
    if metadata.is_dir() {
        bail!("{name}: it is a folder, expected a file");
    }
    if metadata.is_file() && metadata.len() == 0 {
        bail!("{name}: the file is empty, expected a wait matrix or a log");
    }
    if !metadata.is_file() {
        // A pipe cannot be read twice: only text can come through it.
        return text::read(BufReader::new(file), &name);
    }
    let mut magic = [0; 6];
    let read = file.read(&mut magic).with_context(|| name.clone())?;
    file.rewind().with_context(|| name.clone())?;
    match &magic[..read] {
        b"\x93NUMPY" => arrays::read_npy(path),
        [b'P', b'K', ..] => arrays::read_npz(path),
        _ => text::read(BufReader::new(file), &name),
    }
}
