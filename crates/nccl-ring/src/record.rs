//! One slot of a ring, read out.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use crate::api::{Api, Class};
use crate::layout::{MAX_EXCLUDED, RANKS_PER_SLOT, SLOT_WORDS, flag, slot, unpair};

/// A copy of a slot's words.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Record {
    words: [u64; SLOT_WORDS],
}

impl Record {
    /// Reads a slot that is published. The exit is read first: where it is there, so is the result.
    pub(crate) fn read(words: &[AtomicU64]) -> Self {
        let mut copy = [0; SLOT_WORDS];
        let exit = words.get(slot::EXIT).map_or(0, |word| word.load(Acquire));
        copy.iter_mut().zip(words).for_each(|(to, from)| *to = from.load(Relaxed));
        if let Some(word) = copy.get_mut(slot::EXIT) {
            *word = exit;
        }
        Self { words: copy }
    }

    pub(crate) fn word(&self, place: usize) -> u64 {
        self.words.get(place).copied().unwrap_or(0)
    }

    fn pair(&self, place: usize) -> (i32, i32) {
        unpair(self.word(place))
    }

    /// The function, `None` for a number of a later version.
    pub(crate) fn api(&self) -> Option<Api> {
        Api::from_number((self.word(slot::KIND) & 0xffff) as u16)
    }

    pub(crate) fn has(&self, flag: u16) -> bool {
        ((self.word(slot::KIND) >> 16) as u16) & flag != 0
    }

    pub(crate) fn enter_ns(&self) -> u64 {
        self.word(slot::ENTER)
    }

    /// When the call returned, `None` while it is inside the library.
    pub(crate) fn exit_ns(&self) -> Option<u64> {
        Some(self.word(slot::EXIT)).filter(|exit| *exit != 0)
    }

    pub(crate) fn call_seq(&self) -> u64 {
        self.word(slot::CALL_SEQ)
    }

    pub(crate) fn is_creation(&self) -> bool {
        self.api().is_some_and(|api| api.class() == Class::Create)
    }

    pub(crate) fn hash(&self) -> Option<u64> {
        self.has(flag::HASH).then(|| self.word(slot::HASH))
    }

    /// Rank and size of the communicator on the way in (`exit` false) or out.
    pub(crate) fn members(&self, exit: bool) -> (i32, i32) {
        self.pair(if exit && self.is_creation() { slot::EXIT_MEMBERS } else { slot::MEMBERS })
    }

    pub(crate) fn datatype(&self) -> i32 {
        self.pair(slot::KIND).1
    }

    pub(crate) fn op(&self) -> i32 {
        self.pair(slot::OP_ROOT).0
    }

    pub(crate) fn root(&self) -> i32 {
        self.pair(slot::OP_ROOT).1
    }

    pub(crate) fn peer(&self) -> i32 {
        self.pair(slot::PEER_GROUP).0
    }

    pub(crate) fn group_op_index(&self) -> u32 {
        self.pair(slot::PEER_GROUP).1.cast_unsigned()
    }

    pub(crate) fn result(&self) -> i32 {
        self.pair(slot::RESULT).0
    }

    /// Slots behind this one that hold excluded ranks.
    pub(crate) fn continued_by(&self) -> u64 {
        if !self.is_creation() {
            return 0;
        }
        let ranks = self.word(slot::P2P).min(MAX_EXCLUDED as u64);
        ranks.div_ceil(RANKS_PER_SLOT as u64)
    }

    /// Excluded ranks of a continuing slot.
    pub(crate) fn ranks(&self) -> impl Iterator<Item = i32> + '_ {
        let words = self.words.iter().enumerate().filter(|(place, _)| *place != slot::KIND);
        words.flat_map(|(_, word)| {
            let (low, high) = unpair(*word);
            [low, high]
        })
    }
}

/// Where the `rank`th excluded rank stands: which continuing slot, which word, and whether high.
pub(crate) fn excluded_place(rank: usize) -> (usize, usize, bool) {
    let (slot_number, within) = (rank / RANKS_PER_SLOT, rank % RANKS_PER_SLOT);
    let word = within / 2;
    (slot_number, if word >= slot::KIND { word + 1 } else { word }, within % 2 == 1)
}
