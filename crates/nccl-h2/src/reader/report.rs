//! What a reader has met.

use std::path::PathBuf;

/// Bad lines of one file that are kept with their reason; all are counted.
pub(super) const MAX_KEPT: usize = 10;

/// What was read, file by file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReadReport {
    /// The files, in the order in which they were given or found.
    pub files: Vec<FileReport>,
}

/// What was read of one file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileReport {
    /// The file.
    pub path: PathBuf,
    /// Bytes read.
    pub bytes: u64,
    /// Lines read, bad ones included.
    pub lines: u64,
    /// Lines that are no event.
    pub bad_lines: u64,
    /// The first of them.
    pub first_bad: Vec<BadLine>,
    /// Times that the file was truncated or replaced and read again from its start.
    pub restarts: u64,
    /// Why the file, or the rest of it, could not be read.
    pub error: Option<String>,
}

/// A line that is no event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// Number of the line in its file, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub reason: String,
}

impl FileReport {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, ..Self::default() }
    }

    pub(super) fn bad(&mut self, line: u64, reason: impl Into<String>) {
        self.bad_lines += 1;
        if self.first_bad.len() < MAX_KEPT {
            self.first_bad.push(BadLine { line, reason: reason.into() });
        }
    }
}

impl ReadReport {
    /// Lines read, over all files.
    pub fn lines(&self) -> u64 {
        self.files.iter().map(|file| file.lines).sum()
    }

    /// Bytes read, over all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Lines that are no event, over all files.
    pub fn bad_lines(&self) -> u64 {
        self.files.iter().map(|file| file.bad_lines).sum()
    }
}
