//! Diagnosis of Normal-mode windows: what one window of counters says about ranks, stages and
//! paths.
//!
//! A [`Diagnoser`] takes the windows of an EP group in order and gives a [`WindowDiagnosis`] for
//! each: the [`Finding`]s of six probes, the [`Incident`]s they add up to, and which incidents
//! persist. It is pure: no clock, no file, no environment; the same windows give the same reports.
//!
//! ```
//! use deepxtrace_counters::{NotifyProbe, Topology, Window};
//! use deepxtrace_normal::{Diagnoser, Policy, WindowState};
//!
//! let topology = Topology::new(4, 8)?;
//! let mut diagnoser = Diagnoser::new(topology, Policy::default())?;
//!
//! let mut window = Window::empty(topology);
//! assert_eq!(diagnoser.diagnose(&window).state, WindowState::Idle);
//!
//! // Rank 2 waits a tenth of what the others wait: it comes last.
//! window.edit_notify(NotifyProbe::NotifyDispatch, |delta| {
//!     delta.duration_ns = vec![1_000, 1_000, 100, 1_000];
//!     delta.count = vec![1; 4];
//! });
//! assert_eq!(diagnoser.diagnose(&window).state, WindowState::Diagnosed);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod area;
mod blocks;
mod class;
mod columns;
mod completion;
mod correlate;
mod dense;
mod diagnoser;
mod family;
mod finding;
mod gateway;
mod history;
mod incident;
mod load;
mod notify;
mod outlier;
mod parallel;
mod policy;
mod report;
mod residual;
mod scope;
mod select;
mod tracker;

pub mod robust {
    //! Steps 2 to 6 of the diagnosis, for other matrices of costs between ranks.
    //!
    //! `deepxtrace-ll` runs them on wait matrices. Most programs want a
    //! [`Diagnoser`](crate::Diagnoser) instead.

    pub use crate::dense::DenseSolver;
    pub use crate::outlier::{Outlier, Place, RailSide, Thresholds};
    pub use crate::select::median;
}

pub use diagnoser::Diagnoser;
pub use finding::{Against, Finding, PathScope};
pub use incident::{Evidence, Incident, IncidentKind, IncidentState, TrackerChange};
pub use policy::{HISTORY_LEN, HISTORY_MIN, MIN_SCORE, Policy, PolicyError};
pub use report::{Level, ProbeReport, ProbeReports, ProbeStatus, WindowDiagnosis, WindowState};
