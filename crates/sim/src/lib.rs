//! Simulated workloads: what the ranks of a real job would count, with and without faults.
//!
//! A [`Workload`] is a mixture-of-experts job on any EP group. Its ranks compute, meet in Notify
//! kernels, send tokens to hot and cold experts and get results back; each keeps the cumulative
//! counters that device kernels would have added up. [`Workload::run_window`] advances all of them
//! by one window, [`Workload::phase`] sets the [`Fault`]s that hold from then on. The same
//! configuration and seed give the same counters.
//!
//! The demo, tests and benchmarks of the other crates take their input from here; [`five_phases`]
//! is the series of experiments whose diagnoses are known.
//!
//! ```
//! use deepxtrace_counters::{NotifyProbe, Step, Topology, Windows};
//! use deepxtrace_sim::{Fault, Workload, WorkloadConfig};
//!
//! let topology = Topology::new(16, 8)?;
//! let mut workload = Workload::new(WorkloadConfig::new(topology), 1)?;
//! let mut windows = Windows::new(topology);
//! windows.advance(&mut workload.snapshot().clone())?;
//!
//! // Rank 9 computes 1.4 ms longer before every dispatch: all others wait for it.
//! workload.phase([Fault::LateBeforeDispatch { rank: 9, ns: 1_400_000 }])?;
//! let mut snapshot = workload.run_window().clone();
//! let Step::Window(window) = windows.advance(&mut snapshot)? else { panic!("a window") };
//! let waits = window.notify(NotifyProbe::NotifyDispatch);
//! assert!(waits.duration_ns[9] * 10 < waits.duration_ns[8]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod arrival;
mod config;
mod effects;
mod fault;
#[cfg(feature = "nccl")]
pub mod nccl;
mod path;
mod phases;
mod random;
mod routing;
mod workload;

pub use config::{ConfigError, WorkloadConfig};
pub use fault::{Fault, FaultError, PathClass, Slowdown, Stage};
pub use phases::{Phase, five_phases};
pub use workload::Workload;
