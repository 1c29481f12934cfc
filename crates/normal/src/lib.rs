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
//! # Costs that turn upwards with load
//!
//! The specification adjusts load by one straight line. On real GPUs the cost of a receiver was flat
//! up to about the mean load and grew as fast as load, and faster, above it: of one routing in six
//! the rank with the most popular experts was called a slow column (1.33x) in every healthy window.
//! So the line of step 1 is bent, upwards only:
//!
//! - The middle third are the cells with `q1 < x < q2`. Where it is not empty, and its median `x` is
//!   more than 0.025 from that of each outer third, the line has the slopes left to middle (`b1`) and
//!   middle to right (`b2`) instead of `beta`, of medians as there, clamped to [0, 1], when `b1 < b2`.
//! - It bends at the median `x` of the middle third and at that of the right third; behind that its
//!   slope is `min(2 b2 - b1, 1)`: the bend goes on, up to costs in proportion to load.
//! - `A <- A * exp(c(x0) - c(x))`, with `c` the line.
//!
//! Against the typical cell no cell is thereby brought higher than by the straight line. On the
//! windows of two H200s the largest column of a healthy window fell from 1.33 to 1.18; a column had to
//! be slowed 1.27x to be found, on average over all ranks, where it had to be 1.31x. `docs/gpu.md` has
//! the numbers.
//!
//! # Late because of the stage before
//!
//! The specification forgives a late rank whose column of the stage before has a ratio of 1.05, and
//! compares no amounts: on real GPUs 27 us of dispatch then explain 1.5 ms of computation, while a
//! rank with hot experts, which ends its dispatch late by load alone, is accused. Here a late rank is
//! explained by amounts, and by nothing else:
//!
//! - `T(r)` is how long the stage before took rank `r`, by path class, from raw costs: within the node
//!   the sum of the costs of its valid cells over the sum of their samples; between nodes the same
//!   for each other source node, and of these the largest. So load counts, and so does a slow
//!   column, a node block or a rail.
//! - The excess is `T(r)` less the median of the other ranks' `T`, the larger of both classes, in
//!   cycles. A class in which only one rank has cells has none.
//! - The rank is explained when the excess is at least half of its lateness, the median of the others'
//!   Notify averages less its own, with a cycle for a nanosecond.
//!
//! This takes the samples of one launch as waited for at the same time, as the probes define them. GPUs
//! run at more than 1 GHz, so that a cycle for a nanosecond forgives rather more than it should. On
//! two H200s the excess was 1.4 to 8.0 times the lateness where a slow path or more tokens made
//! ranks late, and at most 0.10 of it where a rank computed longer. Where one rank had several times the
//! tokens of others, all ranks of its node came late with it, and those with few tokens are accused.
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
mod stage;
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
