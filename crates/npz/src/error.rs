//! What is wrong with a file, and where.

use std::fmt;

use thiserror::Error as ThisError;

/// A file that cannot be used: where, and why.
///
/// Prints as one line: `FILE: entry ENTRY: found ..., expected ...`.
#[derive(Debug)]
pub struct Error {
    place: Place,
    kind: Box<ErrorKind>,
}

/// Why a file cannot be used.
#[derive(Debug, ThisError)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The system could not open, read or write it.
    #[error("{0}")]
    Io(#[source] std::io::Error),
    /// It is no ZIP archive, or a damaged one.
    #[error("not a readable NPZ (ZIP) archive: {0}")]
    Archive(String),
    /// The archive has no such array.
    #[error("no entry {name}, the file has: {available}")]
    Missing {
        /// The array asked for.
        name: String,
        /// The arrays that are there.
        available: String,
    },
    /// An entry is no NPY array.
    #[error("not a readable NPY array: {0}")]
    Header(String),
    /// Type, shape or order are not the expected ones.
    #[error("found {found}, expected {expected}")]
    Mismatch {
        /// What is there.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// An element has a value that it must not have.
    #[error("element {index} is {found}, expected {expected}")]
    Value {
        /// Index of the element along each axis.
        index: String,
        /// What is there.
        found: String,
        /// What would be right.
        expected: String,
    },
    /// The data end too early or too late for the shape.
    #[error("{found} bytes of data, {expected} expected for {array}")]
    Length {
        /// Bytes there, or as many as were read before the end.
        found: u64,
        /// Bytes that the header asks for.
        expected: u64,
        /// Type and shape of the array.
        array: String,
    },
    /// The array is larger than the reader allows.
    #[error("array of {bytes} bytes, at most {limit} are read at once")]
    TooLarge {
        /// Bytes of the array.
        bytes: u64,
        /// Bytes allowed.
        limit: u64,
    },
}

/// The file and the entry an error is about.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub file: String,
    pub entry: Option<String>,
}

impl Place {
    pub fn error(&self, kind: ErrorKind) -> Error {
        Error { place: self.clone(), kind: Box::new(kind) }
    }

    pub fn io(&self, error: std::io::Error) -> Error {
        self.error(ErrorKind::Io(error))
    }
}

impl Error {
    /// Why the file cannot be used.
    #[must_use]
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// The file, as it was named when it was opened.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.place.file
    }

    /// The array within the archive, if the error is about one.
    #[must_use]
    pub fn entry(&self) -> Option<&str> {
        self.place.entry.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.place.file)?;
        if let Some(entry) = &self.place.entry {
            write!(f, "entry {entry}: ")?;
        }
        self.kind.fmt(f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The message of the kind is already printed: only what is below it is a source.
        self.kind.source()
    }
}
