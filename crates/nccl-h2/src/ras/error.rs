//! What can go wrong with RAS and its answers.

use std::time::Duration;

/// Why RAS gave no answer that can be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RasError {
    /// The host has no address.
    #[error("cannot resolve {host}")]
    Resolve {
        /// The host.
        host: String,
        /// Why.
        source: std::io::Error,
    },
    /// Nobody listens.
    #[error(
        "cannot connect to {address} (NCCL 2.24 and later listen on localhost:28028, unless \
         NCCL_RAS_ENABLE=0 or NCCL_RAS_ADDR says otherwise)"
    )]
    Connect {
        /// Host and port.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// The connection broke.
    #[error("the connection to {address} broke")]
    Io {
        /// Host and port.
        address: String,
        /// Why.
        source: std::io::Error,
    },
    /// No whole answer came in time.
    #[error(
        "{address} gave no whole answer within {} s: the process that owns the socket may be \
         stopped or overloaded",
        waited.as_secs_f64()
    )]
    TimedOut {
        /// Host and port.
        address: String,
        /// How long.
        waited: Duration,
    },
    /// An answer beyond the limit.
    #[error("{address} sent more than {limit} bytes")]
    TooLarge {
        /// Host and port.
        address: String,
        /// The limit, bytes.
        limit: usize,
    },
    /// Something else listens on the port.
    #[error("{address} is no RAS socket: it answered {answer:?} to CLIENT PROTOCOL")]
    NoRas {
        /// Host and port.
        address: String,
        /// The beginning of what it said.
        answer: String,
    },
    /// RAS does not follow a command.
    #[error("RAS refused {command:?}: {answer:?}; answers in JSON need NCCL 2.28 or later")]
    Refused {
        /// The command.
        command: String,
        /// What it said.
        answer: String,
    },
    /// An answer that is no JSON, also after repair.
    #[error("the answer of RAS is no JSON that can be read: {problem}")]
    NoJson {
        /// Why.
        problem: String,
    },
    /// Answers that do not follow each other in time.
    #[error(
        "answer {number} is of {found}, before answer {before} of {expected}: give the answers in \
         the order of time"
    )]
    Order {
        /// Number of the answer, from 1.
        number: usize,
        /// Its time.
        found: String,
        /// Number of the answer before.
        before: usize,
        /// Its time.
        expected: String,
    },
}
