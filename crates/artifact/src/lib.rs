//! Diagnosed windows as files: versioned NPZ archives, with retention.
//!
//! An [`Artifact`] is one window with its counter differences, the thresholds and the diagnosis:
//! everything that is needed to look at it again, to draw it, or to diagnose it with other
//! thresholds. [`Store`] writes artifacts into a folder and keeps the newest of an instance;
//! [`read()`] checks everything in a file before it is believed; [`list`] and [`prune`] look after a
//! folder. `deepxtrace-heatmap` draws artifacts.
//!
//! ```
//! use std::borrow::Cow;
//!
//! use deepxtrace_artifact::{Artifact, NormalArtifact, Store, read};
//! use deepxtrace_counters::{Topology, Window};
//! use deepxtrace_normal::{Diagnoser, Policy};
//!
//! let folder = std::env::temp_dir().join(format!("deepxtrace-doc-{}", std::process::id()));
//! let topology = Topology::new(4, 8)?;
//! let mut diagnoser = Diagnoser::new(topology, Policy::default())?;
//! let mut window = Window::empty(topology);
//! window.set_place(7, 0, 20_000_000_000);
//! let artifact = Artifact::Normal(NormalArtifact {
//!     instance: Cow::Borrowed("job-42"),
//!     policy: Policy::default(),
//!     diagnosis: Cow::Borrowed(diagnoser.diagnose(&window)),
//!     window: Cow::Borrowed(&window),
//! });
//!
//! let path = Store::new(&folder, 128).write(&artifact)?;
//! assert!(path.ends_with("normal_window_job-42_000007.npz"));
//! assert_eq!(read(&path)?, artifact);
//! # std::fs::remove_dir_all(folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Schema, version 1
//!
//! A file is a deflated NPZ archive that `numpy.load(path, allow_pickle=False)` reads. `N` is the
//! EP size; matrices of the Normal mode are `[source, destination]`. The same window gives the same
//! bytes. Every key:
//!
//! | key | dtype | shape | content |
//! |---|---|---|---|
//! | `schema_version` | `<i8` | `()` | [`SCHEMA_VERSION`] |
//! | `kind` | `<U` | `()` | `normal_window` or `ll_window` |
//! | `instance_id` | `<U` | `()` | which run of which group: letters, digits, `.`, `_` and `-` |
//! | `ep_size` | `<i8` | `()` | `N`, ranks |
//! | `ranks_per_node` | `<i8` | `()` | ranks on every node but a short last one |
//! | `window_index` | `<i8` | `()` | number of the window; the first is 1 |
//! | `begin_unix_ns` | `<i8` | `()` | when the older snapshot was taken, ns since 1970 |
//! | `end_unix_ns` | `<i8` | `()` | when the newer snapshot was taken, ns since 1970 |
//! | `valid` | `\|b1` | `(N,)` | whether the rank was present in both snapshots |
//! | `policy_json` | `<U` | `()` | the thresholds, JSON of [`Policy`](deepxtrace_normal::Policy) |
//!
//! Only in a `normal_window`, with `notify_dispatch`, `cached_notify_dispatch` and
//! `cached_notify_combine` for `NOTIFY`, and `dispatch_final`, `dispatch_rdma_recv` and
//! `combine_logical_recv` for `COMPLETION`:
//!
//! | key | dtype | shape | content |
//! |---|---|---|---|
//! | `NOTIFY_duration_ns` | `<i8` | `(N,)` | sum of the durations in the window, ns |
//! | `NOTIFY_count` | `<i8` | `(N,)` | launches |
//! | `NOTIFY_average_ns` | `<f8` | `(N,)` | duration over count, ns; NaN without a launch |
//! | `COMPLETION_cost` | `<i8` | `(N, N)` | sum of the costs, cycles of the destination's GPU |
//! | `COMPLETION_sample_count` | `<i8` | `(N, N)` | samples |
//! | `COMPLETION_token_count` | `<i8` | `(N, N)` | tokens in these samples |
//! | `COMPLETION_cost_per_sample` | `<f8` | `(N, N)` | cost over samples, cycles; NaN unless both are above 0 |
//! | `diagnosis_json` | `<U` | `()` | JSON of [`WindowDiagnosis`](deepxtrace_normal::WindowDiagnosis), a line of `normal analyze --json` |
//!
//! Only in an `ll_window`, `[waiter, awaited]`:
//!
//! | key | dtype | shape | content |
//! |---|---|---|---|
//! | `dispatch_wait`, `combine_wait` | `<i8` | `(N, N)` | waits in the window, cycles of the waiter's GPU |
//! | `mean_policy_json` | `<U` | `()` | thresholds of the mean-ratio rule, JSON of [`MeanRatioPolicy`](deepxtrace_ll::MeanRatioPolicy) |
//! | `dispatch_diagnosis_json`, `combine_diagnosis_json` | `<U` | `()` | JSON of [`LlDiagnosis`](deepxtrace_ll::LlDiagnosis), the object of `ll analyze --json`; `null` when the window was idle |
//!
//! A reader of this version ignores keys that it does not know. What changes the meaning of a key,
//! or adds one that must be there, raises the version, and older readers refuse the file.
//!
//! # What reading costs
//!
//! No length is believed before it was checked: deflate makes at most 1,032 bytes of one, so an
//! archive cannot make the reader allocate more than that multiple of its own size, and what it
//! reads must have the shape that `ep_size` asks for.
//!
//! # Durability
//!
//! A file is written under another name and renamed, so that a reader never sees half of it, even
//! when the writer is killed. The disk is not waited for: after a power cut a file may be damaged,
//! which reading then says.

#![forbid(unsafe_code)]

mod error;
mod model;
mod name;
mod read;
mod store;
mod time;
mod write;

pub use error::{ArtifactError, Reason};
pub use model::{Artifact, LlArtifact, NormalArtifact};
pub use name::{ArtifactName, InvalidInstance, Kind};
pub use read::{read, read_from};
pub use store::{DEFAULT_KEEP, Store, list, prune};
pub use time::utc;

/// The version of the schema that this crate writes, and the newest that it reads.
pub const SCHEMA_VERSION: i64 = 1;
