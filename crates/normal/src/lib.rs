//! Diagnosis of Normal-mode windows: what one window of counters says about ranks, stages and
//! paths.
//!
//! A [`Diagnoser`] takes the windows of an EP group in order and gives a [`WindowDiagnosis`] for
//! each: the [`Finding`]s of six probes, the [`Incident`]s they add up to, and which incidents
//! persist. It is pure: no clock, no file, no environment; the same windows give the same reports.
//!
//! # What it decides where the specification leaves room
//!
//! - Costs that are equal to the nanosecond or cycle count as ties when findings are ordered.
//! - Gateway edges are all inter-node cells with samples, whatever their local indices: real
//!   counters have them only between equal local indices.
//! - A Notify duration below 0, which no difference of snapshots has, makes the rank invalid.
//! - `unclassified` lists as evidence every finding of the Completion probes, and a global
//!   incident the `global` finding of the gateway probe, if there is one.
//! - A source gateway supports a localized incident when its node is an owner node of the
//!   incident's cells or the source node of its rails; a destination gateway when its node is an
//!   expert node or the destination node of a rail.
//! - `explained_by` stands on a late rank whether or not its probe could make an incident.
//! - The report lists what *changed* for followed incidents ([`TrackerChange`]). An incident that
//!   brings several followed ones together continues the oldest; the others end without a word.
//!   One that is seen in a single window is `cleared` as well.
//! - A row of windows with `global` alone, and the history, are per probe. A window in which the
//!   probe is `ok` breaks the row.
//!
//! # Features
//!
//! - `rayon`: the dense probes, and their rows, on several threads for large groups. The reports
//!   are the same on any number of threads. Each dense probe then has its own working memory.
//!
//! # Example
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
    //! Steps 1 to 6 of the diagnosis, for other matrices of costs between ranks.
    //!
    //! `deepxtrace-ll` runs steps 2 to 6 on wait matrices. Most programs want a
    //! [`Diagnoser`](crate::Diagnoser) instead. Fill a [`DenseSolver`], then ask it what stands out;
    //! with [`median`] for what is left to compare.

    pub use crate::dense::DenseSolver;
    pub use crate::outlier::{Outlier, Place, RailSide, Thresholds};
    pub use crate::select::median;
}

pub use diagnoser::Diagnoser;
pub use finding::{Against, Finding, PathScope};
pub use incident::{Evidence, Incident, IncidentKind, IncidentState, TrackerChange};
pub use policy::{HISTORY_LEN, HISTORY_MIN, MIN_SCORE, Policy, PolicyError};
pub use report::{Level, ProbeReport, ProbeReports, ProbeStatus, WindowDiagnosis, WindowState};
