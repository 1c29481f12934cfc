//! The shared-memory rings of the NCCL preload probe, and how they become a trace.
//!
//! A process that is traced writes each call as one record into a ring in a memory file system: no
//! lock, no system call, no formatting. A [`Drainer`] turns the rings into the lines of the trace,
//! in a background thread of the process while it lives. When it was killed, [`recover()`] writes what
//! is left, from any process of the host: a record that was published is never lost, and none is
//! written twice.
//!
//! ```
//! use deepxtrace_nccl_ring::{recover, ring_folder};
//!
//! let folder = std::env::temp_dir();
//! if let Ok(found) = recover(&folder, &ring_folder()) {
//!     println!("{} dead processes left records", found.drained);
//! }
//! ```

mod api;
mod drain;
mod file;
mod hash;
mod json;
pub mod layout;
mod map;
mod output;
mod record;
mod recover;
#[cfg(test)]
mod tests;
mod writer;

pub use api::{Api, Class, result_name};
pub use drain::Drainer;
pub use file::{Identity, RingFile};
pub use hash::{fnv1a, grow_hash, shrink_hash, split_hash};
pub use map::{Map, monotonic_ns};
pub use recover::{RING_FOLDER, RING_FOLDER_VARIABLE, Recovered, recover, ring_folder, sweep};
pub use writer::{Call, Writer};
