//! The communicators of the process: which library each belongs to, its name, its counters.
//!
//! Looking one up takes no lock. Entries are never freed: that of a communicator which was
//! destroyed is used again, so a look-up that races with a destruction reads a wrong entry at worst.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize};

use crate::library::Library;
use crate::sys::{Handle, Lock};

const BUCKETS: usize = 1024;
/// Largest communicator whose point-to-point calls are counted by peer.
const MAX_RANKS: usize = 1 << 20;

/// What is known of a communicator when it comes to be.
#[derive(Debug, Clone, Copy, Default)]
pub struct Birth {
    /// Hash that all members agree on, `None` where unknown.
    pub hash: Option<u64>,
    /// Rank and size, -1 where unknown.
    pub members: (i32, i32),
}

/// A communicator.
pub struct Comm {
    handle: AtomicUsize,
    library: AtomicPtr<Library>,
    hash: AtomicU64,
    has_hash: AtomicBool,
    members: AtomicU64,
    /// Collective calls so far.
    pub collectives: AtomicU64,
    /// Sends and receives so far.
    pub point_to_point: AtomicU64,
    /// Splits made from it so far.
    pub splits: AtomicU64,
    /// Shrinks made from it so far.
    pub shrinks: AtomicU64,
    /// Grows made from it so far.
    pub grows: AtomicU64,
    peers: AtomicPtr<AtomicU64>,
    peers_room: AtomicUsize,
    next: *const Self,
}

// SAFETY: `next` is written before the entry is shared and never after; it points to an entry that
// is never freed.
unsafe impl Sync for Comm {}
// SAFETY: as above.
unsafe impl Send for Comm {}

static TABLE: [AtomicPtr<Comm>; BUCKETS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; BUCKETS];
/// Guards insertions and removals.
pub static LOCK: Lock = Lock::new();

#[inline]
fn bucket(handle: usize) -> &'static AtomicPtr<Comm> {
    // Fibonacci hashing: the top ten bits of the product.
    &TABLE[(((handle as u64 >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 54) as usize % BUCKETS]
}

fn chain(handle: usize) -> impl Iterator<Item = &'static Comm> {
    // SAFETY: entries are leaked boxes, shared after they were written.
    let first = unsafe { bucket(handle).load(Acquire).cast_const().as_ref() };
    // SAFETY: as above.
    std::iter::successors(first, |comm| unsafe { comm.next.as_ref() })
}

/// The communicator with this handle.
#[inline]
pub fn find(handle: Handle) -> Option<&'static Comm> {
    let handle = handle as usize;
    if handle == 0 {
        return None;
    }
    chain(handle).find(|comm| comm.handle.load(Acquire) == handle)
}

/// Adds a communicator, in the place of an older one with the same handle if there is one.
pub fn insert(handle: Handle, library: &'static Library, birth: Birth) -> &'static Comm {
    let handle = handle as usize;
    let _locked = LOCK.lock();
    let same = chain(handle).find(|comm| comm.handle.load(Relaxed) == handle);
    let free = || chain(handle).find(|comm| comm.handle.load(Relaxed) == 0);
    if let Some(comm) = same.or_else(free) {
        comm.handle.store(0, Release);
        comm.fill(library, birth);
        comm.handle.store(handle, Release);
        return comm;
    }
    let head = bucket(handle);
    let comm = Box::leak(Box::new(Comm {
        handle: AtomicUsize::new(0),
        library: AtomicPtr::new(std::ptr::null_mut()),
        hash: AtomicU64::new(0),
        has_hash: AtomicBool::new(false),
        members: AtomicU64::new(0),
        collectives: AtomicU64::new(0),
        point_to_point: AtomicU64::new(0),
        splits: AtomicU64::new(0),
        shrinks: AtomicU64::new(0),
        grows: AtomicU64::new(0),
        peers: AtomicPtr::new(std::ptr::null_mut()),
        peers_room: AtomicUsize::new(0),
        next: head.load(Acquire),
    }));
    comm.fill(library, birth);
    comm.handle.store(handle, Release);
    head.store(comm, Release);
    comm
}

/// Forgets a communicator that is about to be destroyed.
pub fn remove(comm: &'static Comm) {
    let _locked = LOCK.lock();
    comm.handle.store(0, Release);
}

impl Comm {
    fn fill(&self, library: &'static Library, birth: Birth) {
        self.library.store(std::ptr::from_ref(library).cast_mut(), Relaxed);
        self.hash.store(birth.hash.unwrap_or(0), Relaxed);
        self.has_hash.store(birth.hash.is_some(), Relaxed);
        let counters =
            [&self.collectives, &self.point_to_point, &self.splits, &self.shrinks, &self.grows];
        counters.into_iter().for_each(|counter| counter.store(0, Relaxed));
        self.set_members(birth.members);
    }

    fn set_members(&self, members: (i32, i32)) {
        self.members.store(deepxtrace_nccl_ring::layout::pair(members.0, members.1), Relaxed);
        let ranks = usize::try_from(members.1).unwrap_or(0).min(MAX_RANKS);
        let wanted = 2 * ranks;
        if self.peers_room.load(Relaxed) < wanted {
            // Zeroed memory of this size comes from the system page by page, when it is touched.
            let counters: Box<[AtomicU64]> = (0..wanted).map(|_| AtomicU64::new(0)).collect();
            self.peers.store(Box::leak(counters).as_mut_ptr(), Release);
            self.peers_room.store(wanted, Release);
        } else {
            (0..2 * ranks).filter_map(|place| self.peer(place)).for_each(|c| c.store(0, Relaxed));
        }
    }

    /// The library that it belongs to.
    #[inline]
    pub fn library(&self) -> Option<&'static Library> {
        // SAFETY: null, or a leaked box.
        unsafe { self.library.load(Relaxed).cast_const().as_ref() }
    }

    /// Its hash, `None` where unknown.
    #[inline]
    pub fn hash(&self) -> Option<u64> {
        self.has_hash.load(Relaxed).then(|| self.hash.load(Relaxed))
    }

    /// Its rank and size, -1 where unknown.
    #[inline]
    pub fn members(&self) -> (i32, i32) {
        deepxtrace_nccl_ring::layout::unpair(self.members.load(Relaxed))
    }

    #[inline]
    fn peer(&self, place: usize) -> Option<&AtomicU64> {
        if place >= self.peers_room.load(Acquire) {
            return None;
        }
        let first = self.peers.load(Acquire);
        // SAFETY: `peers` is a leaked slice of at least `peers_room` counters: the room grows after
        // the pointer, and the slice before it is never freed.
        unsafe { first.add(place).as_ref() }
    }

    /// Number of the next call to or from a peer, 0 for a peer that it does not have.
    #[inline]
    pub fn next_to(&self, peer: i32, receive: bool) -> u64 {
        let place = usize::try_from(peer).ok().and_then(|peer| peer.checked_mul(2));
        let place = place.map(|place| place + usize::from(receive));
        place.and_then(|place| self.peer(place)).map_or(0, |counter| counter.fetch_add(1, Relaxed))
    }
}
