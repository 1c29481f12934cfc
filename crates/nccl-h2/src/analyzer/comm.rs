//! What is known of each communicator.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::names::Name;
use super::process::ProcessId;
use super::ranges::RangeSet;
use super::round::RoundId;
use super::signature::Called;
use super::trouble::Trouble;

/// A communicator of [`Comms`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct CommId(u32);

impl CommId {
    pub(crate) fn number(self) -> usize {
        self.0 as usize
    }
}

/// Most ranks of a communicator. Events that tell of more are of no use.
pub(crate) const MAX_RANKS: i64 = 1 << 18;

/// One rank of a communicator.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Member {
    pub(crate) process: Option<ProcessId>,
    /// Highest number of a collective that it entered.
    pub(crate) highest: i64,
    /// Number of its latest collective of nothing.
    pub(crate) empty: i64,
    /// Receipt of its latest entered call.
    pub(crate) enter_receipt: i64,
    pub(crate) destroyed: bool,
}

impl Member {
    const UNSEEN: Self =
        Self { process: None, highest: -1, empty: -1, enter_receipt: i64::MIN, destroyed: false };
}

/// A run of equal rounds on which all ranks agreed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AgreedRun {
    pub(crate) called: Called,
    pub(crate) first: i64,
    pub(crate) last: i64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Comm {
    pub(crate) name: Name,
    /// 0 while unknown.
    pub(crate) nranks: i64,
    pub(crate) members: Vec<Member>,
    #[serde(skip)]
    pub(crate) rounds: HashMap<i64, RoundId, foldhash::fast::RandomState>,
    pub(crate) finished: RangeSet,
    pub(crate) agreed: Option<AgreedRun>,
    /// What is kept once rounds differ.
    pub(crate) trouble: Option<Box<Trouble>>,
    /// The late ranks of the latest complete round, empty where none was.
    pub(crate) late: Vec<i64>,
    /// A rank skipped numbers: its events are lost.
    pub(crate) gaps: bool,
    /// A round could not be kept: absence proves nothing any more.
    pub(crate) lossy: bool,
    pub(crate) destroyed: i64,
}

impl Comm {
    fn new(name: Name) -> Self {
        Self {
            name,
            nranks: 0,
            members: Vec::new(),
            rounds: HashMap::default(),
            finished: RangeSet::default(),
            agreed: None,
            trouble: None,
            late: Vec::new(),
            gaps: false,
            lossy: false,
            destroyed: 0,
        }
    }

    /// Notes a rank and the size that it tells. `None` when they cannot be.
    #[inline]
    pub(crate) fn member(&mut self, rank: i64, nranks: i64) -> Option<&mut Member> {
        if nranks > self.nranks && nranks <= MAX_RANKS {
            self.nranks = nranks;
        }
        if rank < 0 || rank >= self.nranks {
            return None;
        }
        // Below MAX_RANKS: it fits.
        let rank = rank as usize;
        if self.members.len() <= rank {
            self.members.resize(rank + 1, Member::UNSEEN);
        }
        Some(&mut self.members[rank])
    }

    pub(crate) fn process(&self, rank: usize) -> Option<ProcessId> {
        self.members.get(rank).and_then(|member| member.process)
    }

    /// Rank of a process in the communicator.
    pub(crate) fn rank_of(&self, process: ProcessId) -> Option<usize> {
        self.members.iter().position(|member| member.process == Some(process))
    }

    /// Notes a round on which all ranks agreed.
    #[inline]
    pub(crate) fn agree(&mut self, seq: i64, called: Called) {
        if self.trouble.as_ref().is_some_and(|trouble| seq >= trouble.start) {
            return;
        }
        match &mut self.agreed {
            Some(run) if seq <= run.last => {}
            Some(run) if run.last.checked_add(1) == Some(seq) && run.called == called => {
                run.last = seq;
            }
            agreed => *agreed = Some(AgreedRun { called, first: seq, last: seq }),
        }
    }
}

/// All communicators of a run.
#[derive(Debug, Default)]
pub(crate) struct Comms {
    list: Vec<Comm>,
    by_name: HashMap<Name, CommId, foldhash::fast::RandomState>,
}

impl Comms {
    /// The communicator of a name; a new one where it was not seen before. `None` when `limit` of
    /// them are known.
    pub(crate) fn of(&mut self, name: Name, limit: usize) -> Option<CommId> {
        if let Some(&id) = self.by_name.get(&name) {
            return Some(id);
        }
        if self.list.len() >= limit {
            return None;
        }
        let id = CommId(u32::try_from(self.list.len()).ok()?);
        self.list.push(Comm::new(name));
        self.by_name.insert(name, id);
        Some(id)
    }

    pub(crate) fn named(&self, name: Name) -> Option<CommId> {
        self.by_name.get(&name).copied()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (CommId, &Comm)> {
        self.list.iter().enumerate().map(|(at, comm)| (CommId(at as u32), comm))
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// All communicators, by number.
    pub(crate) fn into_list(self) -> Vec<Comm> {
        self.list
    }
}

impl std::ops::Index<CommId> for Comms {
    type Output = Comm;

    fn index(&self, id: CommId) -> &Comm {
        // Ids come from `of` alone, and no communicator is ever removed.
        &self.list[id.0 as usize]
    }
}

impl std::ops::IndexMut<CommId> for Comms {
    fn index_mut(&mut self, id: CommId) -> &mut Comm {
        &mut self.list[id.0 as usize]
    }
}
