//! Counters of the MoE communication probes: where each one stands, and what changed between two
//! snapshots.
//!
//! Every rank of an expert-parallel (EP) group owns one vector of cumulative `i64` counters, which
//! device kernels add to and nobody resets. This crate names its parts ([`Layout`],
//! [`LocalVector`]), the place of a rank in its node ([`Topology`]), the vectors of all ranks at
//! one moment ([`Snapshot`]) and the difference of two such moments ([`Window`]), which is what
//! `deepxtrace-normal` diagnoses. The low-latency counterparts are [`LlLayout`] and [`LlWindow`].
//! [`Windows`] and [`LlWindows`] turn a series of snapshots into a series of windows.
//!
//! Nothing here reads a clock, a file or the environment.
//!
//! ```
//! use deepxtrace_counters::{CompletionProbe, Layout, Snapshot, Step, Topology, Windows};
//!
//! let topology = Topology::new(2, 8)?;
//! let layout = Layout::new(topology.ep_size())?;
//! let mut windows = Windows::new(topology);
//!
//! // The first snapshot is the boundary: what happened before it is nobody's window.
//! let mut snapshot = Snapshot::zeros(topology, 0);
//! assert!(matches!(windows.advance(&mut snapshot)?, Step::Boundary));
//!
//! // Rank 1 received one sample of 5,000 cycles from rank 0.
//! let mut snapshot = Snapshot::zeros(topology, 1_000_000_000);
//! let vector = snapshot.vector_mut(1).ok_or("rank 1 is in the group")?;
//! vector[layout.cost(CompletionProbe::DispatchFinal).start] = 5_000;
//! vector[layout.samples(CompletionProbe::DispatchFinal).start] = 1;
//! let Step::Window(window) = windows.advance(&mut snapshot)? else { panic!("a window") };
//! assert_eq!(window.index(), 1);
//! assert_eq!(window.completion(CompletionProbe::DispatchFinal).cost[[0, 1]], 5_000);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod error;
mod layout;
mod low_latency;
mod probe;
mod snapshot;
mod topology;
mod window;

pub use error::{CounterFault, FaultPlace, LayoutError, LlError, SnapshotError, WindowError};
pub use layout::{CompletionGroup, Layout, LocalVector, NotifyPair};
pub use low_latency::{LlLayout, LlPhase, LlWindow, LlWindows};
pub use probe::{
    BundlePart, COMBINE_BUNDLE, CompletionProbe, Counter, DISPATCH_BUNDLE, NotifyProbe, Probe,
};
pub use snapshot::Snapshot;
pub use topology::{MAX_EP_SIZE, Topology, TopologyError};
pub use window::{CompletionDelta, NotifyDelta, Step, Window, Windows};
