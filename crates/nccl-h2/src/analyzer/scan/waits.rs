//! Who waits for whom: incomplete rounds, sends and receives without counterpart, creations that
//! some ranks have not entered.

use std::collections::{BTreeMap, HashSet};

use super::super::Analyzer;
use super::super::comm::{Comm, CommId};
use super::super::creation::{CreationKey, OpenCreation, listed};
use super::super::ingest::CHECKPOINTING;
use super::super::names::Name;
use super::super::nanoseconds;
use super::super::operation::Creation;
use super::super::p2p::{ChannelId, Pending, Side};
use super::super::process::ProcessId;
use super::super::round::{Round, RoundId};
use super::Scan;
use crate::finding::WaitKind;

/// A rank that waits or is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Node {
    Process(ProcessId),
    /// A rank of a communicator of which no event was seen.
    Unseen(CommId, usize),
}

/// What is waited in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    Round(RoundId),
    /// The channels between two ranks in which calls wait, one or two of them.
    Pair(Vec<ChannelId>),
    Creation(CreationKey),
}

/// Ranks that wait for others.
#[derive(Debug, Clone)]
pub(super) struct Edge {
    pub(super) waiting: Vec<Node>,
    pub(super) missing: Vec<Node>,
}

/// One thing that ranks wait in.
#[derive(Debug, Clone)]
pub(super) struct Wait {
    pub(super) what: What,
    pub(super) kind: WaitKind,
    /// The communicator, where it is known; of a split or shrink the parent.
    pub(super) comm: Option<CommId>,
    /// Its name.
    pub(super) hash: Name,
    pub(super) seq: i64,
    pub(super) api: Name,
    /// Who waits for whom; two entries where two ranks wait for each other.
    pub(super) edges: Vec<Edge>,
    pub(super) first_receipt: i64,
    pub(super) threshold: i64,
    /// Waited longer than the threshold.
    pub(super) overdue: bool,
    /// Given before, alone or within another finding.
    pub(super) reported: bool,
}

impl Analyzer {
    /// Everything that is waited in, in an order that depends on names and numbers alone. In a live
    /// scan what has waited for less than half of its threshold is left out.
    pub(super) fn collect_waits(&mut self, scan: Scan) -> Vec<Wait> {
        let mut waits = self.round_waits(scan);
        waits.extend(self.pair_waits(scan));
        waits.extend(self.creation_waits(scan));
        waits.retain(|wait| {
            scan.ended || wait.reported || scan.age(wait.first_receipt) >= wait.threshold / 2
        });
        waits.sort_by_cached_key(|wait| {
            (self.text(wait.hash), wait.seq, wait.kind, wait.edges.len(), self.text(wait.api))
        });
        waits
    }

    /// The first incomplete round of each communicator: who waits in a later one waits in that, too.
    fn round_waits(&mut self, scan: Scan) -> Vec<Wait> {
        let mut first: BTreeMap<CommId, (i64, RoundId)> = BTreeMap::new();
        for (id, round) in self.rounds.iter() {
            let nranks = self.comms[round.comm].nranks;
            let nobody = round.entered == 0 || round.is_unsure();
            if nobody || round.missing(nranks).next().is_none() {
                continue;
            }
            let place = first.entry(round.comm).or_insert((round.seq, id));
            if round.seq < place.0 {
                *place = (round.seq, id);
            }
        }
        first.into_iter().filter_map(|(comm, (_, id))| self.round_wait(comm, id, scan)).collect()
    }

    fn round_wait(&mut self, id: CommId, round_id: RoundId, scan: Scan) -> Option<Wait> {
        let round = &self.rounds[round_id];
        let comm = &self.comms[id];
        let rest = self.remaining(comm);
        let missing: Vec<Node> =
            round.missing(comm.nranks).map(|rank| node(id, comm, rank, rest)).collect();
        let waiting: Vec<Node> = round
            .calls()
            // Ranks of a round are not negative.
            .map(|(rank, _, _)| node(id, comm, rank as usize, rest))
            .collect();
        let checkpointing = round.checkpointing || self.checkpointing(round, &missing);
        let api = round.calls().next().map(|(_, _, called)| called.api)?;
        let threshold = match checkpointing {
            true => self.config.checkpoint_timeout_s,
            false => self.config.collective_timeout_s,
        };
        let threshold = nanoseconds(threshold);
        let wait = Wait {
            what: What::Round(round_id),
            kind: WaitKind::Collective,
            comm: Some(id),
            hash: comm.name,
            seq: round.seq,
            api,
            edges: vec![Edge { waiting, missing }],
            first_receipt: round.first_receipt,
            threshold,
            overdue: scan.age(round.first_receipt) >= threshold,
            reported: round.missing_reported,
        };
        self.rounds[round_id].checkpointing = checkpointing;
        Some(wait)
    }

    /// Whether a missing rank has been writing a checkpoint since a round began.
    fn checkpointing(&self, round: &Round, missing: &[Node]) -> bool {
        missing.iter().any(|node| {
            let Node::Process(id) = node else { return false };
            let process = &self.processes[*id];
            self.names.text(process.phase()) == CHECKPOINTING
                || process.checkpoint_receipt.is_some_and(|at| at >= round.first_receipt)
        })
    }

    /// The process of the one rank of a communicator that is not known, where that is certain: it
    /// spans the whole run, and one process of the run has no place in it yet.
    fn remaining(&self, comm: &Comm) -> Option<ProcessId> {
        let known: Vec<ProcessId> =
            comm.members.iter().filter_map(|member| member.process).collect();
        let world = known.iter().map(|&id| self.processes[id].world_size).max()?;
        if comm.nranks != world || known.len() as i64 != world - 1 {
            return None;
        }
        let mut others = self.processes.iter().filter(|(id, process)| {
            process.rank >= 0
                && !known
                    .iter()
                    .any(|known| known == id || self.processes[*known].rank == process.rank)
        });
        let (id, _) = others.next()?;
        others.next().is_none().then_some(id)
    }

    fn pair_waits(&mut self, scan: Scan) -> Vec<Wait> {
        let mut pairs: BTreeMap<(CommId, i64, i64), Vec<ChannelId>> = BTreeMap::new();
        for id in self.channels.active() {
            let channel = &self.channels[id];
            let key = (channel.comm, channel.src.min(channel.dst), channel.src.max(channel.dst));
            pairs.entry(key).or_default().push(id);
        }
        pairs
            .into_iter()
            .filter_map(|((comm, _, _), mut channels)| {
                channels.sort_by_key(|&id| (self.channels[id].src, self.channels[id].dst));
                self.pair_wait(comm, channels, scan)
            })
            .collect()
    }

    fn pair_wait(&self, id: CommId, channels: Vec<ChannelId>, scan: Scan) -> Option<Wait> {
        let comm = &self.comms[id];
        let threshold = nanoseconds(self.config.p2p_timeout_s);
        let reported = channels.iter().any(|&id| self.channels[id].missing_reported);
        let mut calls: Vec<(Pending, i64, i64)> = Vec::new();
        for &id in &channels {
            let channel = &self.channels[id];
            calls.extend(self.unmatched(id).map(|call| (call, channel.src, channel.dst)));
        }
        calls.sort_by_key(|(call, src, dst)| (call.receipt, call.side, *src, *dst, call.call_seq));
        let (first, _, _) = *calls.first()?;
        let rest = self.remaining(comm);
        let mut edges: Vec<Edge> = Vec::new();
        for (call, src, dst) in &calls {
            let other = if call.side == Side::Send { *dst } else { *src };
            let waiting = Node::Process(call.process);
            if edges.iter().all(|edge| edge.waiting[0] != waiting) {
                let other = usize::try_from(other).unwrap_or(usize::MAX);
                let missing = node(id, comm, other, rest);
                edges.push(Edge { waiting: vec![waiting], missing: vec![missing] });
            }
        }
        Some(Wait {
            what: What::Pair(channels),
            kind: WaitKind::P2p,
            comm: Some(id),
            hash: comm.name,
            seq: first.comm_seq,
            api: first.called.api,
            edges,
            first_receipt: first.receipt,
            threshold,
            overdue: scan.age(first.receipt) >= threshold,
            reported,
        })
    }

    /// The calls of a channel that wait, that were not given before, and that have no candidates
    /// among the calls without a number on the other side.
    pub(super) fn unmatched(&self, id: ChannelId) -> impl Iterator<Item = Pending> {
        let times = self.channels.is_loose(id).then(|| self.times(id));
        let window = nanoseconds(self.config.p2p_match_window_s);
        let calls: Vec<Pending> = self.channels.calls(id).copied().collect();
        calls.into_iter().filter(move |call| {
            let near = times.as_ref().is_some_and(|times| times.near(call, window));
            call.reported.is_none() && !near
        })
    }

    /// When the calls of a channel entered, by side.
    pub(super) fn times(&self, id: ChannelId) -> Times {
        let mut times = Times { sends: Vec::new(), recvs: Vec::new() };
        for call in self.channels.calls(id) {
            match call.side {
                Side::Send => times.sends.push(call.unix),
                Side::Recv => times.recvs.push(call.unix),
            }
        }
        times.sends.sort_unstable();
        times.recvs.sort_unstable();
        times
    }

    fn creation_waits(&mut self, scan: Scan) -> Vec<Wait> {
        let mut open: Vec<(CreationKey, OpenCreationView)> = self
            .creations
            .iter_mut()
            .map(|(key, creation)| (*key, OpenCreationView::of(creation)))
            .collect();
        // Those of one parent are alike in all that waits are sorted by.
        open.sort_by_cached_key(|(key, _)| {
            (self.text(key.of), key.kind, key.ordinal, self.text(key.excluded))
        });
        open.into_iter()
            .filter_map(|(key, creation)| self.creation_wait(key, creation, scan))
            .collect()
    }

    fn creation_wait(
        &self,
        key: CreationKey,
        creation: OpenCreationView,
        scan: Scan,
    ) -> Option<Wait> {
        let expected = self.expected_callers(&key, creation.told_nranks)?;
        if creation.callers.len() as i64 >= expected {
            return None;
        }
        let missing = self.missing_callers(&key, &creation, expected);
        if missing.is_empty() {
            return None;
        }
        let threshold = nanoseconds(self.config.collective_timeout_s);
        let waiting = creation.callers.iter().map(|&(process, _)| Node::Process(process)).collect();
        Some(Wait {
            what: What::Creation(key),
            kind: WaitKind::CommInit,
            comm: self.comms.named(key.of),
            hash: key.of,
            seq: -1,
            api: creation.api,
            edges: vec![Edge { waiting, missing }],
            first_receipt: creation.first_receipt,
            threshold,
            overdue: scan.age(creation.first_receipt) >= threshold,
            reported: creation.reported,
        })
    }

    /// Ranks that have to call for a creation and have not.
    fn missing_callers(
        &self,
        key: &CreationKey,
        creation: &OpenCreationView,
        expected: i64,
    ) -> Vec<Node> {
        let callers: HashSet<Node> =
            creation.callers.iter().map(|&(id, _)| Node::Process(id)).collect();
        let Some(comm_id) = self.comms.named(key.of) else { return Vec::new() };
        let comm = &self.comms[comm_id];
        let excluded = match key.kind {
            Creation::Shrink => listed(self.names.text(key.excluded)).unwrap_or_default(),
            _ => Vec::new(),
        };
        let nranks = match key.kind {
            Creation::Init => expected,
            _ => comm.nranks,
        };
        let rest = self.remaining(comm);
        (0..nranks)
            .filter(|rank| excluded.binary_search(rank).is_err())
            // Below the largest size of a communicator: it fits.
            .map(|rank| node(comm_id, comm, rank as usize, rest))
            .filter(|node| !callers.contains(node))
            .collect()
    }
}

/// The rank of a communicator as a node; `rest` is the process of the only unknown rank.
fn node(id: CommId, comm: &Comm, rank: usize, rest: Option<ProcessId>) -> Node {
    match comm.process(rank).or(rest) {
        Some(process) => Node::Process(process),
        None => Node::Unseen(id, rank),
    }
}

/// When the calls of a channel entered, by the wall clocks of their hosts, sorted.
pub(super) struct Times {
    sends: Vec<i64>,
    recvs: Vec<i64>,
}

impl Times {
    /// Whether there is a call of the other side within the window of a call.
    pub(super) fn near(&self, call: &Pending, window: i64) -> bool {
        let others = match call.side {
            Side::Send => &self.recvs,
            Side::Recv => &self.sends,
        };
        let from = others.partition_point(|&unix| unix < call.unix.saturating_sub(window));
        others.get(from).is_some_and(|&unix| unix <= call.unix.saturating_add(window))
    }
}

/// What a scan needs of an open creation.
#[derive(Debug, Clone)]
pub(super) struct OpenCreationView {
    pub(super) api: Name,
    pub(super) told_nranks: i64,
    /// Process, and the rank that its call told.
    pub(super) callers: Vec<(ProcessId, i64)>,
    pub(super) first_receipt: i64,
    pub(super) reported: bool,
}

impl OpenCreationView {
    fn of(creation: &OpenCreation) -> Self {
        let mut callers: Vec<(ProcessId, i64)> =
            creation.callers.iter().map(|caller| (caller.process, caller.told_rank)).collect();
        callers.sort_unstable();
        Self {
            api: creation.api,
            told_nranks: creation.told_nranks,
            callers,
            first_receipt: creation.first_receipt,
            reported: creation.reported,
        }
    }
}
