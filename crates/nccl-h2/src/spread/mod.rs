//! One trace whose files lie on several machines.
//!
//! Each machine reads its own files. A process is followed in one place, which is that of its files
//! where these lie together; the calls of a communicator are placed in one place, by its hash. What
//! moves between the places are the fields that the analyzer uses, in rounds of bounded size, and at
//! the end what is open. The root makes one [`Analyzer`](crate::Analyzer) of that, which gives the
//! findings that it would have given if it had read all files itself.
//!
//! [`analyze`] does so for a trace that has ended, [`Watch`] for a job that runs.
//!
//! How bytes move is left to an [`Exchange`]: [`InMemory`] for threads of one process, and whatever
//! the caller has between machines.
//!
//! The bounds of the analyzer's state ([`Limits`](crate::Limits)) hold for each place. Where they
//! are reached, findings may differ from those of one place.

mod exchange;
mod files;
mod place;
mod watch;
mod wire;

pub use exchange::{Exchange, Gone, InMemory, gather, share};
pub use files::Files;
pub use place::{Options, Spread, Traffic, analyze};
pub use watch::{Scanned, Watch};

use thiserror::Error;

use crate::analyzer::part::BadPart;

/// Why a trace that lies on several machines could not be analyzed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SpreadError<E: std::error::Error + 'static> {
    /// The exchange failed.
    #[error(transparent)]
    Exchange(E),
    /// What another place sent is not what is understood here.
    #[error(transparent)]
    Damaged(#[from] Damaged),
    /// There are too many files.
    #[error("{0} trace files are too many")]
    TooManyFiles(usize),
}

/// What another place sent is not what is understood here: all places must run the same program.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Damaged {
    /// The bytes are no message.
    #[error("a message of another process cannot be read: {0}")]
    Message(#[from] postcard::Error),
    /// A message names something that did not come before.
    #[error("a message of another process names something that did not come before")]
    Unknown,
}

impl From<BadPart> for Damaged {
    fn from(_: BadPart) -> Self {
        Self::Unknown
    }
}
