//! Why a call of [`Diagnose`](crate::Diagnose) fails.

use deepxtrace_collect::{DeviceError, GatherError, JoinError};
use deepxtrace_counters::TopologyError;
use deepxtrace_normal::PolicyError;
use thiserror::Error;

use crate::config::ConfigError;

/// Why a call of [`Diagnose`](crate::Diagnose) failed. The program can go on after any of them.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum DiagnoseError {
    /// A setting cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A threshold cannot be used.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The group cannot be laid out.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// The ranks did not come together, or disagree.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// A round failed.
    #[error(transparent)]
    Gather(#[from] GatherError),
    /// The operating system gave no thread.
    #[error("cannot start a thread: {0}")]
    Thread(String),
    /// The call does not fit the mode or the moment.
    #[error("{call}: {reason}")]
    Misuse {
        /// The call.
        call: &'static str,
        /// Why not now.
        reason: &'static str,
    },
}
