//! Making a group of MPI ranks.

use std::fmt;
use std::time::Duration;

use mpi::ffi::MPI_Comm;
use mpi::traits::Communicator;

use super::raw::{Borrowed, Duplicate, any_thread_may_call, is_alive};
use super::{farewell, leaf, root};
use crate::group::{Group, JoinError, Joined, Membership, Proposal};
use crate::stop::{Stop, Until};

/// A group of MPI ranks: all of a communicator, or any of them in any order.
///
/// Making it is collective over the ranks of the group, and over no others: it makes a communicator
/// of its own, so that nothing of it meets the host's messages. The communicator that is handed in
/// is borrowed for that time, and neither freed nor used afterwards. The gather uses nonblocking
/// point-to-point messages only, so that one rank never blocks another.
///
/// MPI stays the host's: it initialises it before and finalises it after, when this group, and what
/// came from it, is dropped. Asynchronous collection calls MPI from a thread of its own, for which
/// MPI must have been initialised with `MPI_THREAD_MULTIPLE`. With less, synchronous collection
/// works from a thread that may call MPI, and making the group waits as long as MPI does when a
/// rank does not come.
///
/// Open MPI ends all ranks of a job when one dies. A rank that is only stopped, or slow, is missing
/// for as long as it is.
///
/// ```no_run
/// use std::time::Duration;
/// use deepxtrace_collect::{MpiGroup, mpi};
///
/// let (_universe, _level) = mpi::initialize_with_threading(mpi::Threading::Multiple)
///     .ok_or("MPI is initialised already")?;
/// // Ranks 7, 1 and 4 of the job are ranks 0, 1 and 2 of the group; rank 1 of it is the root.
/// let world = mpi::topology::SimpleCommunicator::world();
/// let group = MpiGroup::subgroup(&world, vec![7, 1, 4], 1, Duration::from_secs(60))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MpiGroup {
    membership: Membership,
    comm: Duplicate,
}

impl fmt::Debug for MpiGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MpiGroup").field("membership", &self.membership).finish_non_exhaustive()
    }
}

impl MpiGroup {
    /// All ranks of `comm`; rank 0 is the root. `timeout` bounds the wait for the others.
    ///
    /// # Errors
    ///
    /// MPI is not running, a call of it fails, or not all ranks come in time.
    pub fn new(comm: &impl Communicator, timeout: Duration) -> Result<Self, JoinError> {
        let borrowed = Borrowed(comm.as_raw());
        alive()?;
        let ranks = (0..borrowed.size()?).collect();
        Self::make(borrowed, ranks, 0, timeout)
    }

    /// The given ranks of `comm`, in this order; `root` is a rank of the group, a place in the
    /// list. Only these ranks call it.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new); the list names a rank twice, one that `comm` does not have, or not
    /// the own one; or `root` is no place in it.
    pub fn subgroup(
        comm: &impl Communicator,
        ranks: Vec<usize>,
        root: usize,
        timeout: Duration,
    ) -> Result<Self, JoinError> {
        Self::make(Borrowed(comm.as_raw()), ranks, root, timeout)
    }

    /// As [`subgroup`](Self::subgroup), of a communicator that came through a foreign interface.
    ///
    /// # Safety
    ///
    /// `comm` is a valid intracommunicator.
    #[allow(unsafe_code, reason = "a foreign handle")]
    pub unsafe fn from_raw(
        comm: MPI_Comm,
        ranks: Vec<usize>,
        root: usize,
        timeout: Duration,
    ) -> Result<Self, JoinError> {
        Self::make(Borrowed(comm), ranks, root, timeout)
    }

    fn make(
        comm: Borrowed,
        ranks: Vec<usize>,
        root: usize,
        timeout: Duration,
    ) -> Result<Self, JoinError> {
        alive()?;
        farewell::reap();
        let failed =
            |what: &str, reason: String| JoinError::Transport { what: what.to_owned(), reason };
        let size = comm.size()?;
        if let Some(beyond) = ranks.iter().find(|rank| **rank >= size) {
            let reason = format!("rank {beyond} is not in the communicator, which has {size}");
            return Err(failed("making a group of MPI ranks", reason));
        }
        let membership = Membership::subgroup(ranks, comm.rank()?, root)
            .map_err(|error| failed("making a group of MPI ranks", error.to_string()))?;
        let stop = Stop::new();
        let until = Until::after(timeout, &stop);
        let comm = comm.duplicate(membership.global_ranks(), until)?;
        Ok(Self { membership, comm })
    }
}

fn alive() -> Result<(), JoinError> {
    if is_alive() {
        return Ok(());
    }
    Err(JoinError::Transport {
        what: "making a group of MPI ranks".to_owned(),
        reason: "MPI is not initialised, or finalised already".to_owned(),
    })
}

impl Group for MpiGroup {
    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn check_background(&self) -> Result<(), JoinError> {
        if any_thread_may_call() {
            return Ok(());
        }
        let level = if is_alive() {
            format!("{:?}", mpi::environment::threading_support())
        } else {
            "none".to_owned()
        };
        Err(JoinError::Transport {
            what: "asynchronous collection over MPI".to_owned(),
            reason: format!(
                "MPI was initialised with thread level {level}, it needs Multiple \
                 (MPI_THREAD_MULTIPLE)"
            ),
        })
    }

    fn join(
        self: Box<Self>,
        proposal: &Proposal,
        until: Until<'_>,
    ) -> Result<Option<Joined>, JoinError> {
        if self.membership.is_root() {
            root::join(self.membership, self.comm, proposal, until)
        } else {
            leaf::join(self.membership, self.comm, proposal, until)
        }
    }
}
