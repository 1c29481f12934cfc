//! Finds the rank, stage or path that makes a distributed GPU job slow or hang.
//!
//! This crate joins the others of the workspace under one name; each part is a feature and a
//! module of the same name.
//!
//! | feature | module | holds |
//! |---|---|---|
//! | always | [`counters`] | the layout of the device counters, snapshots and windows |
//! | `normal` (default) | [`normal`] | diagnosis of Normal-mode windows |
//! | `ll` (default) | [`ll`] | diagnosis of low-latency wait matrices |
//! | `collect` (default) | [`collect`], [`config`] | counters in memory, gathered over an EP group; [`Diagnose`] |
//! | `artifact` (default) | [`artifact`] | windows as NPZ files, written and read |
//! | `heatmap` | [`heatmap`] | pictures of windows as SVG, PNG and PDF |
//! | `nccl-h2` | `nccl` | diagnosis of NCCL call traces |
//! | `fr`, `ras` | `nccl` | PyTorch Flight Recorder dumps, answers of NCCL's RAS socket |
//! | `rayon` | [`normal`], [`ll`] | large windows on all threads, with the same results |
//! | `metrics` | [`metrics`] | figures of every window for the `metrics` crate |
//! | `mpi` | [`collect`] | gather over MPI; needs an MPI and libclang to build |
//! | `cuda`, `nccl` | [`collect`] | counters on CUDA devices, gather over NCCL |
//!
//! The default features need nothing but a Rust toolchain.
//!
//! # Example: from cumulative counters to a diagnosis
//!
#![cfg_attr(feature = "normal", doc = "```")]
#![cfg_attr(not(feature = "normal"), doc = "```ignore")]
//! use deepxtrace::counters::{Layout, NotifyProbe, Snapshot, Step, Topology, Windows};
//! use deepxtrace::normal::{Diagnoser, Policy, WindowState};
//!
//! let topology = Topology::new(4, 8)?;
//! let layout = Layout::of(topology);
//! let mut windows = Windows::new(topology);
//! let mut diagnoser = Diagnoser::new(topology, Policy::default())?;
//!
//! // Each snapshot holds the cumulative counters of all ranks; the first is the boundary.
//! windows.advance(&mut Snapshot::zeros(topology, 0))?;
//!
//! // A second later: every rank launched 100 Notify kernels; rank 2 hardly waited in them.
//! let mut snapshot = Snapshot::zeros(topology, 1_000_000_000);
//! for (rank, wait_ns) in [900_000, 905_000, 20_000, 910_000].into_iter().enumerate() {
//!     let vector = snapshot.vector_mut(rank).ok_or("a rank of the group")?;
//!     vector[layout.duration_ns(NotifyProbe::NotifyDispatch)] = wait_ns;
//!     vector[layout.count(NotifyProbe::NotifyDispatch)] = 100;
//! }
//! let Step::Window(window) = windows.advance(&mut snapshot)? else { panic!("a window") };
//!
//! let report = diagnoser.diagnose(window);
//! assert_eq!(report.state, WindowState::Diagnosed);
//! let probe = report.probes.get(NotifyProbe::NotifyDispatch).ok_or("it was diagnosed")?;
//! for finding in &probe.findings {
//!     println!("{finding}"); // rank 2 arrives late: ...
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

#[cfg(feature = "collect")]
pub mod config;
#[cfg(feature = "collect")]
mod diagnose;
#[cfg(feature = "collect")]
mod log;
#[cfg(feature = "collect")]
pub mod metrics;

#[cfg(feature = "artifact")]
pub use deepxtrace_artifact as artifact;
#[cfg(feature = "collect")]
pub use deepxtrace_collect as collect;
pub use deepxtrace_counters as counters;
#[cfg(feature = "heatmap")]
pub use deepxtrace_heatmap as heatmap;
#[cfg(feature = "ll")]
pub use deepxtrace_ll as ll;
/// Diagnosis of NCCL call traces (feature `nccl-h2`; the feature `nccl` is another thing, the gather
/// of counters over NCCL in `collect`).
#[cfg(feature = "nccl-h2")]
pub use deepxtrace_nccl_h2 as nccl;
#[cfg(feature = "normal")]
pub use deepxtrace_normal as normal;
#[cfg(feature = "collect")]
pub use diagnose::{
    Builder, CombineBundle, Counters, Diagnose, DiagnoseError, DispatchBundle, Health, LlBundle,
    LlRecord, LlReport, NormalReport, Notice, Ranks, RawPart, Report, SinkError, SyncStep,
    WindowRecord, WindowSink,
};

/// The examples of the README are tests.
#[cfg(all(doctest, feature = "collect"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
