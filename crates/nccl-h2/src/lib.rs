//! Finds missing, mismatched and stuck NCCL calls in the call traces of a job's ranks.
//!
//! Every rank writes its calls as [`Event`]s, one JSON object a line. An [`Analyzer`] takes the
//! events of all ranks of a run in any order of the ranks, each with the [`Moment`] of its receipt,
//! and gives [`Finding`]s when it is asked to scan. It reads no clock, no file and no environment.
//!
//! ```
//! use deepxtrace_nccl_h2::{Analyzer, Config, Event, Moment};
//!
//! let mut analyzer = Analyzer::new("r", Config::default());
//! let line = r#"{"event":"process_start","run_id":"r","rank":0,"pid":7,"world_size":2}"#;
//! let receipt = Moment { monotonic_ns: 0, unix_ns: 1_700_000_000_000_000_000 };
//! assert!(analyzer.ingest(&Event::parse(line)?, receipt));
//! assert!(analyzer.scan(receipt).is_empty());
//! # Ok::<(), deepxtrace_nccl_h2::BadEvent>(())
//! ```

#![forbid(unsafe_code)]

mod analyzer;
mod config;
mod event;
mod finding;
#[cfg(feature = "fr")]
pub mod fr;
#[cfg(feature = "ras")]
pub mod ras;
mod reader;
mod replay;
pub mod spread;
mod store;

pub use analyzer::{Analyzer, Limits, LimitsReached, Moment, WaitGraph};
pub use config::{Config, ConfigError, MAX_SECONDS, Settings};
pub use event::{BadEvent, Event, EventKind, Header, Heartbeat, NcclCall, Phase};
pub use finding::*;
pub use reader::{
    BadLine, FileReport, MAX_LINE_BYTES, ReadError, ReadReport, RunFolder, TraceReader, TraceTail,
};
pub use replay::{ReplayError, ReplaySession, SessionWriter};
pub use store::FindingsFile;
