//! Counters of every rank of an expert-parallel group, gathered at one of them.
//!
//! Three steps, each behind a trait, so that one can be replaced without touching the others:
//! [`CounterMemory`] holds the counters of this rank and takes snapshots in the order of the work
//! that writes them; [`Gather`] brings the snapshots of all ranks to the root; [`Schedule`] says
//! when. What the counters mean is of no interest here: `deepxtrace-counters` knows their layout.
//!
//! No call waits without a bound: whoever waits takes an [`Until`], a deadline with a [`Stop`] that
//! ends the wait at once. The root learns which ranks did not answer and goes on with the others.
//!
//! The counters of a rank in host memory, and a snapshot of them:
//!
//! ```
//! use std::sync::atomic::Ordering::Relaxed;
//! use deepxtrace_collect::{CounterMemory, Enqueued, HostMemory};
//!
//! let memory = HostMemory::new(3);
//! memory.counters().get()[1].fetch_add(5, Relaxed);
//! let Enqueued::Ticket(ticket) = memory.enqueue_snapshot()? else { panic!("a buffer is free") };
//! let mut snapshot = [0; 3];
//! memory.read(ticket, 0..3, &mut snapshot)?;
//! memory.release(ticket);
//! assert_eq!(snapshot, [0, 5, 0]);
//! # Ok::<(), deepxtrace_collect::DeviceError>(())
//! ```

#![deny(unsafe_code)]

mod background;
mod collector;
#[cfg(feature = "cuda")]
mod cuda;
mod device;
mod gather;
mod group;
mod host;
mod inbox;
mod local;
#[cfg(feature = "mpi")]
mod mpi_group;
#[cfg(feature = "nccl")]
mod nccl;
mod schedule;
mod slots;
mod stop;
mod tcp;
mod trigger;
mod wire;

/// The crate `mpi`, in the version that [`MpiGroup`] is built on.
#[cfg(feature = "mpi")]
pub use ::mpi;
pub use background::{Background, Event};
pub use collector::{Answered, Collector, Round};
#[cfg(feature = "cuda")]
pub use cuda::{CudaDevice, CudaMemory};
pub use device::{
    CounterMemory, DeviceError, Enqueued, Identity, STAGING_BUFFERS, SkipReason, Ticket,
};
pub use gather::{
    CHANNELS, Contribution, Gather, GatherError, GatherEvents, Gathered, Request, Residence,
    Status, Wanted,
};
pub use group::{
    Agreement, Difference, Group, Hello, JoinError, Joined, Membership, MembershipError, Proposal,
    SCHEMA, agree,
};
pub use host::{HostCounters, HostMemory, HostQueue};
pub use local::LocalGroup;
#[cfg(feature = "mpi")]
pub use mpi_group::MpiGroup;
#[cfg(feature = "nccl")]
pub use nccl::{NcclComm, NcclGroup, NcclUniqueId};
pub use schedule::{EveryInterval, EverySteps, Schedule};
pub use stop::{Stop, Until};
pub use tcp::TcpGroup;
pub use trigger::Trigger;
pub use uuid::Uuid;
