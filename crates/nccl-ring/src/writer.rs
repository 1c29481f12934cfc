//! The recording side of a ring: one thread writes, nobody waits.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::api::Api;
use crate::layout::{
    MAX_EXCLUDED, RANKS_PER_SLOT, RING_HEADER_BYTES, SLOT_WORDS, flag, kind, pair, ring, slot,
};
use crate::map::{Map, prefetch_for_writing};
use crate::record::excluded_place;

/// Events that a call gives: its enter and its exit.
const EVENTS_PER_CALL: u64 = 2;

/// One call, as it is recorded on its way in.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// The function.
    pub api: Api,
    /// See [`flag`].
    pub flags: u16,
    /// Monotonic clock, nanoseconds.
    pub enter_ns: u64,
    /// Number of the call in the process.
    pub call_seq: u64,
    /// Number of the call on its communicator, -1 where it has none; of a creation, the parent's
    /// hash.
    pub comm_seq: u64,
    /// Elements; of a creation, its ordinal on the parent.
    pub count: u64,
    /// The stream's pointer; of a creation, the colour, or the hash of the id that a grow was given.
    pub stream: u64,
    /// Hash of the communicator, where [`flag::HASH`] is set.
    pub hash: u64,
    /// Rank and size of the communicator, -1 where unknown.
    pub members: (i32, i32),
    /// `ncclDataType_t`, -1 for none.
    pub datatype: i32,
    /// `ncclRedOp_t`, -1 for none.
    pub op: i32,
    /// Root, -1 for none.
    pub root: i32,
    /// Peer, -1 for none.
    pub peer: i32,
    /// Number of the group, 0 outside one.
    pub group: u64,
    /// Place in the group.
    pub group_op_index: u32,
    /// Number among the calls of the same peer and direction; of a shrink, the excluded ranks.
    pub p2p: u64,
}

impl Call {
    /// A call with nothing known but its function.
    #[must_use]
    pub const fn new(api: Api) -> Self {
        Self {
            api,
            flags: 0,
            enter_ns: 0,
            call_seq: 0,
            comm_seq: u64::MAX,
            count: 0,
            stream: 0,
            hash: 0,
            members: (-1, -1),
            datatype: -1,
            op: -1,
            root: -1,
            peer: -1,
            group: 0,
            group_op_index: 0,
            p2p: 0,
        }
    }
}

/// Writes calls into a ring. Only one may exist for a ring at a time.
#[derive(Debug)]
pub struct Writer {
    map: Map,
    slots: u64,
    head: u64,
    /// Slots known to be free again, as of the last look.
    tail: u64,
    /// Slot of the call that is inside the library.
    open: u64,
}

impl Writer {
    /// Goes on where the ring's last writer stopped.
    #[must_use]
    pub fn new(map: Map) -> Self {
        let slots = (map.words().len() * 8).saturating_sub(RING_HEADER_BYTES) / (SLOT_WORDS * 8);
        let head = map.words().get(ring::HEAD).map_or(0, |word| word.load(Acquire));
        // The mapping is whole rings, so this is a power of two already.
        let slots = if slots.is_power_of_two() { slots as u64 } else { 0 };
        Self { map, slots, head, tail: 0, open: 0 }
    }

    #[inline]
    fn word(&self, place: usize) -> &AtomicU64 {
        &self.map.words()[place]
    }

    #[inline]
    fn slot(&self, number: u64) -> Option<&[AtomicU64; SLOT_WORDS]> {
        let place = (number & self.slots.wrapping_sub(1)) as usize;
        let from = RING_HEADER_BYTES / 8 + place * SLOT_WORDS;
        self.map.words().get(from..from + SLOT_WORDS)?.try_into().ok()
    }

    /// Records that a call begins. False, and counted, if the ring is full: then do not call
    /// [`Writer::finish`].
    #[inline]
    pub fn begin(&mut self, call: &Call) -> bool {
        if !self.has_room(1) {
            return false;
        }
        let Some(words) = self.slot(self.head) else { return false };
        fill(words, call);
        self.open = self.head;
        self.publish(1);
        true
    }

    /// As [`Writer::begin`] for a shrink, with the ranks that it leaves out.
    pub fn begin_shrink(&mut self, call: &Call, excluded: &[i32]) -> bool {
        let kept = excluded.get(..excluded.len().min(MAX_EXCLUDED)).unwrap_or_default();
        let more = kept.len().div_ceil(RANKS_PER_SLOT) as u64;
        if !self.has_room(1 + more) {
            return false;
        }
        for number in 1..=more {
            let Some(words) = self.slot(self.head + number) else { return false };
            words.iter().for_each(|word| word.store(0, Relaxed));
            words[slot::KIND].store(kind(call.api as u16, flag::CONTINUED, -1), Relaxed);
        }
        for (place, rank) in kept.iter().enumerate() {
            let (slot_number, word, high) = excluded_place(place);
            let Some(words) = self.slot(self.head + 1 + slot_number as u64) else { return false };
            let shifted = u64::from(rank.cast_unsigned()) << if high { 32 } else { 0 };
            words[word].fetch_or(shifted, Relaxed);
        }
        let Some(words) = self.slot(self.head) else { return false };
        fill(words, &Call { p2p: excluded.len() as u64, ..*call });
        self.open = self.head;
        self.publish(1 + more);
        true
    }

    /// Records that the call begun last has returned.
    #[inline]
    pub fn finish(&self, exit_ns: u64, result: i32) {
        self.finish_creation(exit_ns, result, (-1, -1));
    }

    /// As [`Writer::finish`], with the rank and size of the communicator created.
    #[inline]
    pub fn finish_creation(&self, exit_ns: u64, result: i32, members: (i32, i32)) {
        let Some(words) = self.slot(self.open) else { return };
        words[slot::RESULT].store(pair(result, 0), Relaxed);
        words[slot::EXIT_MEMBERS].store(pair(members.0, members.1), Relaxed);
        words[slot::EXIT].store(exit_ns.max(1), Release);
        self.prefetch_next();
    }

    /// Marks the call begun last as one whose communicator does not exist yet when it returns. Its
    /// exit is then a `nccl_call`, and a later [`Writer::note`] gives the `comm_init`.
    pub fn defer(&self) {
        if let Some(words) = self.slot(self.open) {
            words[slot::KIND].fetch_or(u64::from(flag::DEFERRED) << 16, Relaxed);
        }
    }

    /// Records an event that has an exit only, such as `comm_destroy`, all at once.
    pub fn note(&mut self, call: &Call, result: i32) {
        let call = Call { flags: call.flags | flag::NO_ENTER, ..*call };
        if !self.has_room(1) {
            return;
        }
        let Some(words) = self.slot(self.head) else { return };
        fill(words, &call);
        self.open = self.head;
        self.finish_creation(call.enter_ns, result, call.members);
        self.publish(1);
    }

    #[inline]
    fn has_room(&mut self, needed: u64) -> bool {
        if self.head + needed - self.tail <= self.slots {
            return true;
        }
        self.tail = self.word(ring::CURSOR).load(Acquire) / 2;
        let room = self.head + needed - self.tail <= self.slots;
        if !room {
            // Only this thread writes the word.
            let dropped = self.word(ring::DROPPED).load(Relaxed);
            self.word(ring::DROPPED).store(dropped.saturating_add(EVENTS_PER_CALL), Release);
        }
        room
    }

    #[inline]
    fn publish(&mut self, slots: u64) {
        self.head += slots;
        self.word(ring::HEAD).store(self.head, Release);
    }

    /// Has the next slot fetched while the library is at work: a record is then written to lines
    /// that are there, though the ring is larger than the caches.
    #[inline]
    fn prefetch_next(&self) {
        if let Some(words) = self.slot(self.head) {
            prefetch_for_writing(&words[0]);
            prefetch_for_writing(&words[SLOT_WORDS / 2]);
        }
    }
}

#[inline]
fn fill(words: &[AtomicU64; SLOT_WORDS], call: &Call) {
    words[slot::ENTER].store(call.enter_ns, Relaxed);
    words[slot::EXIT].store(0, Relaxed);
    words[slot::CALL_SEQ].store(call.call_seq, Relaxed);
    words[slot::COMM_SEQ].store(call.comm_seq, Relaxed);
    words[slot::COUNT].store(call.count, Relaxed);
    words[slot::STREAM].store(call.stream, Relaxed);
    words[slot::HASH].store(call.hash, Relaxed);
    words[slot::MEMBERS].store(pair(call.members.0, call.members.1), Relaxed);
    words[slot::KIND].store(kind(call.api as u16, call.flags, call.datatype), Relaxed);
    words[slot::OP_ROOT].store(pair(call.op, call.root), Relaxed);
    let group_op_index = call.group_op_index.cast_signed();
    words[slot::PEER_GROUP].store(pair(call.peer, group_op_index), Relaxed);
    words[slot::GROUP].store(call.group, Relaxed);
    words[slot::P2P].store(call.p2p, Relaxed);
}
