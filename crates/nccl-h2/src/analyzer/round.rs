//! One round of a communicator: the calls with the same number on all of its ranks.

use serde::{Deserialize, Serialize};

use super::comm::CommId;
use super::operation::Operation;
use super::signature::{Called, Relation};
use super::trouble::worst_relation;

/// What one rank did in a round.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Entry {
    /// Wall clock of the host when it entered.
    pub(crate) unix: i64,
    /// Which of the round's different calls it made.
    pub(crate) variant: u16,
    pub(crate) state: EntryState,
    pub(crate) captured: bool,
    /// Collectives of nothing that it made at this place.
    pub(crate) empty: u8,
    /// Which of the round's different calls the last of those was.
    pub(crate) empty_variant: u16,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum EntryState {
    /// Not seen.
    #[default]
    Absent,
    /// Not seen although the rank is in later rounds: the event is lost.
    Lost,
    /// Only collectives of nothing were seen at this place: they take no part in a round, and in
    /// some traces the next collective has the same number.
    Empty,
    Entered,
}

/// Most different calls of one round that are told apart; the others count as the last of them.
const MAX_VARIANTS: usize = 256;

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Round {
    pub(crate) comm: CommId,
    pub(crate) seq: i64,
    /// Earliest receipt of a rank that entered, on the analyzer's monotonic clock.
    pub(crate) first_receipt: i64,
    /// Earliest receipt of anything.
    pub(crate) opened: i64,
    /// How many ranks are in each state.
    pub(crate) entered: i64,
    pub(crate) lost: i64,
    pub(crate) empty: i64,
    /// Different calls, in order of arrival.
    pub(crate) variants: Vec<Called>,
    /// By rank in the communicator, as far as ranks were seen.
    pub(crate) entries: Vec<Entry>,
    pub(crate) missing_reported: bool,
    pub(crate) mismatch_reported: bool,
    /// A missing rank was writing a checkpoint while this round was open.
    pub(crate) checkpointing: bool,
}

impl Round {
    fn new(comm: CommId, seq: i64) -> Self {
        Self {
            comm,
            seq,
            first_receipt: i64::MAX,
            opened: i64::MAX,
            entered: 0,
            lost: 0,
            empty: 0,
            variants: Vec::new(),
            entries: Vec::new(),
            missing_reported: false,
            mismatch_reported: false,
            checkpointing: false,
        }
    }

    /// Makes an old round a new one, keeping its memory.
    fn renew(&mut self, comm: CommId, seq: i64) {
        let (mut variants, mut entries) =
            (std::mem::take(&mut self.variants), std::mem::take(&mut self.entries));
        variants.clear();
        entries.clear();
        *self = Self { variants, entries, ..Self::new(comm, seq) };
    }

    /// Notes that a rank has entered. False when it had already.
    #[inline]
    pub(crate) fn enter(
        &mut self,
        rank: usize,
        entry: Entry,
        called: Called,
        receipt: i64,
    ) -> bool {
        if self.entries.len() <= rank {
            self.entries.resize(rank + 1, Entry::default());
        }
        let unknown = called.operation == Operation::Unknown;
        if self.entries[rank].state == EntryState::Entered && (unknown || !self.is_unknown(rank)) {
            return false;
        }
        let variant = self.variant(called);
        self.leave(rank);
        let place = &mut self.entries[rank];
        *place = Entry {
            variant,
            state: EntryState::Entered,
            empty: place.empty,
            empty_variant: place.empty_variant,
            ..entry
        };
        self.entered += 1;
        self.first_receipt = self.first_receipt.min(receipt);
        self.opened = self.opened.min(receipt);
        true
    }

    /// Notes a collective of nothing of a rank.
    pub(crate) fn enter_empty(&mut self, rank: usize, called: Called, receipt: i64) {
        self.opened = self.opened.min(receipt);
        if self.entries.len() <= rank {
            self.entries.resize(rank + 1, Entry::default());
        }
        let variant = self.variant(called);
        let place = &mut self.entries[rank];
        place.empty = place.empty.saturating_add(1);
        place.empty_variant = variant;
        if matches!(place.state, EntryState::Absent | EntryState::Lost) {
            self.leave(rank);
            self.entries[rank].state = EntryState::Empty;
            self.empty += 1;
        }
    }

    /// Takes a rank out of the count of its state. An unknown function that had entered had no place
    /// in the order after all.
    fn leave(&mut self, rank: usize) {
        match self.entries[rank].state {
            EntryState::Entered => self.entered -= 1,
            EntryState::Lost => self.lost -= 1,
            EntryState::Empty => self.empty -= 1,
            EntryState::Absent => {}
        }
    }

    fn is_unknown(&self, rank: usize) -> bool {
        let variant = usize::from(self.entries[rank].variant);
        self.variants.get(variant).is_some_and(|called| called.operation == Operation::Unknown)
    }

    /// Whether unknown functions stand beside known ones: who made an unknown call may still make
    /// the one that belongs here.
    pub(crate) fn is_mixed(&self) -> bool {
        let unknown =
            |(_, _, called): (i64, &Entry, &Called)| called.operation == Operation::Unknown;
        self.variants.len() > 1 && self.calls().any(unknown) && !self.calls().all(unknown)
    }

    /// The different calls of the ranks that have entered.
    fn used_variants(&self) -> Vec<Called> {
        let mut used: Vec<Called> = Vec::new();
        for (_, _, called) in self.calls() {
            if !used.contains(called) {
                used.push(*called);
            }
        }
        used
    }

    /// Whether nothing but unknown functions was called.
    pub(crate) fn is_unsure(&self) -> bool {
        self.variants.iter().all(|called| called.operation == Operation::Unknown)
    }

    #[inline]
    fn variant(&mut self, called: Called) -> u16 {
        let known = self.variants.iter().position(|variant| *variant == called);
        let at = known.unwrap_or_else(|| {
            if self.variants.len() < MAX_VARIANTS {
                self.variants.push(called);
            }
            self.variants.len() - 1
        });
        // At most MAX_VARIANTS: it fits.
        at as u16
    }

    /// Notes that a rank's call must have been made and was not seen.
    pub(crate) fn lose(&mut self, rank: usize) {
        if self.entries.len() <= rank {
            self.entries.resize(rank + 1, Entry::default());
        }
        if self.entries[rank].state == EntryState::Absent {
            self.entries[rank].state = EntryState::Lost;
            self.lost += 1;
        }
    }

    pub(crate) fn state(&self, rank: usize) -> EntryState {
        self.entries.get(rank).map_or(EntryState::Absent, |entry| entry.state)
    }

    /// The ranks that have entered, with what they called, in order.
    pub(crate) fn calls(&self) -> impl Iterator<Item = (i64, &Entry, &Called)> {
        self.entries.iter().enumerate().filter_map(|(rank, entry)| {
            let called = self.variants.get(usize::from(entry.variant))?;
            (entry.state == EntryState::Entered).then_some((rank as i64, entry, called))
        })
    }

    /// Ranks below `nranks` of which nothing tells that they called, though others wait for them.
    pub(crate) fn missing(&self, nranks: i64) -> impl Iterator<Item = usize> {
        let nranks = usize::try_from(nranks).unwrap_or(0);
        let expected = self.least_empty();
        (0..nranks).filter(move |&rank| match self.state(rank) {
            EntryState::Absent => true,
            // As many collectives of nothing as the others: the next call is the one they wait for.
            EntryState::Empty => self.entries[rank].empty <= expected,
            EntryState::Lost | EntryState::Entered => false,
        })
    }

    /// The least number of collectives of nothing that a rank made before it entered.
    fn least_empty(&self) -> u8 {
        self.calls().map(|(_, entry, _)| entry.empty).min().unwrap_or(0)
    }

    /// Where some ranks made a collective of nothing and others did not: by rank, the call with
    /// which it differs from the others.
    pub(crate) fn partly_empty(&self) -> Option<Vec<(i64, Called)>> {
        if self.entered == 0 {
            return None;
        }
        let least = self.least_empty();
        let more = |entry: &Entry| {
            entry.empty > least && matches!(entry.state, EntryState::Entered | EntryState::Empty)
        };
        if !self.entries.iter().any(more) {
            return None;
        }
        let called = |(rank, entry): (usize, &Entry)| {
            let variant = match entry.state {
                _ if more(entry) => entry.empty_variant,
                EntryState::Entered => entry.variant,
                _ => return None,
            };
            Some((rank as i64, *self.variants.get(usize::from(variant))?))
        };
        Some(self.entries.iter().enumerate().filter_map(called).collect())
    }

    /// How the calls of the ranks relate at worst, and by rank what they called.
    pub(crate) fn verdict(&self) -> (Relation, Vec<(i64, Called)>) {
        if let Some(calls) = self.partly_empty() {
            let variants: Vec<Called> = calls.iter().map(|&(_, called)| called).collect();
            return (worst_relation(&variants), calls);
        }
        let relation = worst_relation(&self.used_variants());
        (relation, self.calls().map(|(rank, _, called)| (rank, *called)).collect())
    }
}

/// A round of [`Rounds`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RoundId(u32);

/// All open rounds. Memory of closed ones is used again.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    list: Vec<Round>,
    open: Vec<bool>,
    free: Vec<RoundId>,
}

impl Rounds {
    /// Opens a round, unless `limit` of them are open.
    pub(crate) fn open(&mut self, comm: CommId, seq: i64, limit: usize) -> Option<RoundId> {
        if let Some(id) = self.free.pop() {
            self.list[id.0 as usize].renew(comm, seq);
            self.open[id.0 as usize] = true;
            return Some(id);
        }
        let id = RoundId(u32::try_from(self.list.len()).ok()?);
        if self.list.len() >= limit {
            return None;
        }
        self.list.push(Round::new(comm, seq));
        self.open.push(true);
        Some(id)
    }

    pub(crate) fn close(&mut self, id: RoundId) {
        if std::mem::replace(&mut self.open[id.0 as usize], false) {
            self.free.push(id);
        }
    }

    /// The open rounds.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (RoundId, &Round)> {
        let numbered = self.list.iter().zip(&self.open).enumerate();
        numbered.filter_map(|(at, (round, &open))| open.then_some((RoundId(at as u32), round)))
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len() - self.free.len()
    }

    /// All open rounds.
    pub(crate) fn into_open(self) -> Vec<Round> {
        let numbered = self.list.into_iter().zip(self.open);
        numbered.filter_map(|(round, open)| open.then_some(round)).collect()
    }

    /// Takes in an open round of elsewhere.
    pub(crate) fn put(&mut self, round: Round) -> Option<RoundId> {
        let id = RoundId(u32::try_from(self.list.len()).ok()?);
        self.list.push(round);
        self.open.push(true);
        Some(id)
    }
}

impl std::ops::Index<RoundId> for Rounds {
    type Output = Round;

    fn index(&self, id: RoundId) -> &Round {
        // Ids come from `open` alone, and the list never becomes shorter.
        &self.list[id.0 as usize]
    }
}

impl std::ops::IndexMut<RoundId> for Rounds {
    fn index_mut(&mut self, id: RoundId) -> &mut Round {
        &mut self.list[id.0 as usize]
    }
}
