//! NCCL's RAS: asks a running job for the state of its communicators, and compares its answers.
//!
//! RAS (reliability, availability, serviceability; NCCL 2.24, JSON since 2.28) tells for every
//! communicator which ranks answer and how many operations of each kind each rank has **launched**.
//! That a launched operation is over is not said: equal counts on all ranks prove nothing but that
//! all have launched the same, and a job that hangs on its devices has equal counts too.
//!
//! ```
//! use deepxtrace_nccl_h2::ras::{Answer, Options, judge};
//!
//! let answer = Answer::parse(r#"{"communicators": [{"hash": "0x1", "size": 2, "ranks": [
//!     {"rank": 0, "collective_counts": {"AllReduce": 5}},
//!     {"rank": 1, "collective_counts": {"AllReduce": 4}}]}]}"#)?;
//! let report = judge(&[answer], &Options::default())?;
//! assert_eq!(report.findings[0].behind, [(1, "AllReduce".to_owned(), 1)]);
//! # Ok::<(), deepxtrace_nccl_h2::ras::RasError>(())
//! ```

mod answer;
mod client;
mod error;
mod findings;
mod judge;
mod repair;
mod report;

pub use answer::{Answer, Communicator, MissingRank, MissingStatus, Rank, Status};
pub use client::{Client, DEFAULT_PORT};
pub use error::RasError;
pub use judge::{Options, judge};
pub use report::{Motion, RasFinding, RasReport, State};
