//! Why an artifact cannot be read or written.

use std::fmt;

use deepxtrace_counters::TopologyError;
use thiserror::Error;

use crate::SCHEMA_VERSION;
use crate::name::InvalidInstance;

/// A file that cannot be read or written: which, and why.
#[derive(Debug)]
pub struct ArtifactError {
    file: String,
    reason: Box<Reason>,
}

/// Why an artifact cannot be read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Reason {
    /// The system could not open, read, write, rename or list it.
    #[error("{0}")]
    Io(#[source] std::io::Error),
    /// It is no NPZ archive, or only a piece of one.
    #[error("not a whole NPZ archive: {0}")]
    NotAnArchive(String),
    /// It is an NPZ archive of something else.
    #[error("not a window artifact: {0}")]
    Foreign(String),
    /// It was written by a newer version.
    #[error(
        "schema version {found} is newer than {known}, the newest that this program reads: \
         use a newer deepxtrace",
        known = SCHEMA_VERSION
    )]
    NewerSchema {
        /// The version in the file.
        found: i64,
    },
    /// No version has this kind of artifact.
    #[error("kind is {0:?}, it must be normal_window or ll_window")]
    UnknownKind(String),
    /// No group has this size.
    #[error("ep_size {ep_size}, ranks_per_node {ranks_per_node}: no such group{}", because(source))]
    Group {
        /// EP size in the file.
        ep_size: i64,
        /// Ranks a node in the file.
        ranks_per_node: i64,
        /// What is wrong with them, unless they are negative.
        #[source]
        source: Option<TopologyError>,
    },
    /// An array is missing, or has a type or shape that the schema does not allow.
    #[error("{0}")]
    Array(String),
    /// The bytes are not those that were written.
    #[error("damaged: {0}")]
    Damaged(String),
    /// The file contradicts itself: it was edited, or written by something that does not follow
    /// the schema.
    #[error("{key}: {what}")]
    Inconsistent {
        /// The key.
        key: String,
        /// What contradicts what.
        what: String,
    },
    /// The instance cannot be part of a file name.
    #[error(transparent)]
    Instance(#[from] InvalidInstance),
}

fn because(source: &Option<TopologyError>) -> String {
    source.as_ref().map_or_else(String::new, |error| format!(" ({error})"))
}

impl ArtifactError {
    pub(crate) fn new(file: impl fmt::Display, reason: impl Into<Reason>) -> Self {
        Self { file: file.to_string(), reason: Box::new(reason.into()) }
    }

    /// The file or folder, as it was named.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Why.
    #[must_use]
    pub fn reason(&self) -> &Reason {
        &self.reason
    }
}

impl fmt::Display for ArtifactError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file, self.reason)
    }
}

impl std::error::Error for ArtifactError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The message of the reason is already printed: only what is below it is a source.
        self.reason.source()
    }
}

impl From<std::io::Error> for Reason {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<deepxtrace_npz::Error> for Reason {
    fn from(error: deepxtrace_npz::Error) -> Self {
        use deepxtrace_npz::ErrorKind;

        let entry = error.entry().map_or_else(String::new, |entry| format!("{entry}: "));
        let kind = error.kind();
        match kind {
            ErrorKind::Io(io) => match io.raw_os_error() {
                Some(code) => Self::Io(std::io::Error::from_raw_os_error(code)),
                // Decoders report what is wrong with the bytes this way.
                None => Self::Damaged(format!("{entry}{io}")),
            },
            ErrorKind::Archive(text) if error.entry().is_none() => Self::NotAnArchive(text.clone()),
            ErrorKind::Archive(text) => Self::Damaged(format!("{entry}{text}")),
            ErrorKind::Header(_) | ErrorKind::Length { .. } => {
                Self::Damaged(format!("{entry}{kind}"))
            }
            _ => Self::Array(format!("{entry}{kind}")),
        }
    }
}
