//! Simulated NCCL traces: what the probes of a job's ranks would write.
//!
//! A [`Job`] has communicators and, for every rank, a list of [`Step`]s. [`Job::run`] lets the ranks
//! do them: a rank that waits for its calls ([`Step::Sync`]) goes on when all members have entered
//! them, so a fault in the steps of one rank stops others as it would in a real job. What the
//! probes see comes out as events, in the order of each rank. [`Fault`]s change the steps.
//!
//! ```
//! use deepxtrace_nccl_h2::{Analyzer, Config, HangType, Moment};
//! use deepxtrace_sim::nccl::{Fault, Job};
//!
//! // Four ranks make 20 collectives; rank 2 dies before the eighth.
//! let mut job = Job::collectives(4, 20);
//! job.plant(&Fault::Dead { rank: 2, call: 7 })?;
//! let mut analyzer = Analyzer::new(job.run_id(), Config::default());
//! let end = job.run(|_, event| {
//!     let at = event.header.timestamp_unix_ns;
//!     analyzer.ingest(event, Moment { monotonic_ns: at, unix_ns: at });
//! });
//! let found = analyzer.finish(Moment { monotonic_ns: end, unix_ns: end });
//! assert_eq!(found.len(), 1);
//! assert_eq!(found[0].hang_type, HangType::CollectiveMissingEnter);
//! # Ok::<(), deepxtrace_sim::nccl::FaultError>(())
//! ```

mod fault;
mod job;
mod run;
mod shapes;
mod write;

pub use fault::{Fault, FaultError};
pub use job::{Call, Comm, Job, Step};
pub use write::write_folder;
