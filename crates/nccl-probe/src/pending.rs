//! Communicators that a call has promised and not yet delivered.
//!
//! In a group a handle is good once `ncclGroupEnd` has returned; a creation that does not block
//! delivers it whenever it likes, into the caller's variable.

use std::sync::{Mutex, PoisonError};

use deepxtrace_nccl_ring::Call;

use crate::comms::Birth;
use crate::library::Library;
use crate::sys::{Handle, Lock, read_pointer};

/// Most promises that are kept; older ones are forgotten.
const MAX_PENDING: usize = 4_096;

/// A promised communicator.
#[derive(Clone)]
pub struct Pending {
    /// Address of the caller's variable.
    pub place: usize,
    /// The library that makes it.
    pub library: &'static Library,
    /// What is known of it.
    pub birth: Birth,
    /// The creation as it was recorded, `None` where it was not.
    pub call: Option<Call>,
    /// The thread whose group it is part of, 0 once that group has ended.
    pub thread: usize,
}

/// Guards the list across a fork.
pub static LOCK: Lock = Lock::new();
static LIST: Mutex<Vec<Pending>> = Mutex::new(Vec::new());

fn with_list<T>(work: impl FnOnce(&mut Vec<Pending>) -> T) -> T {
    // The inner lock is never contended; the outer one can be set free in a forked child.
    let _locked = LOCK.lock();
    work(&mut LIST.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Adds a promise.
pub fn add(pending: Pending) {
    with_list(|list| {
        if list.len() >= MAX_PENDING {
            list.remove(0);
        }
        list.push(pending);
    });
}

/// Takes the promises of a thread's group.
pub fn take_group(thread: usize) -> Vec<Pending> {
    with_list(|list| list.extract_if(.., |pending| pending.thread == thread).collect())
}

/// Takes the newest promise whose variable holds this handle by now.
pub fn take_delivered(handle: Handle) -> Option<Pending> {
    with_list(|list| {
        let found = list.iter().rposition(|pending| {
            pending.thread == 0 && read_pointer(pending.place) == Some(handle as usize)
        })?;
        Some(list.remove(found))
    })
}
