//! Sends and receives of one process group: the k-th send from one rank to another pairs with the
//! k-th receive of the other from the one.

use std::collections::BTreeMap;

use crate::analyzer::signature::Relation;
use crate::fr::calls::Calls;
use crate::fr::record::{Record, State};
use crate::fr::rounds::{GroupView, Site};
use crate::fr::timeline::{P2p, Timeline};

/// Mismatches of one group that are kept; more are counted.
const MAX_MISMATCHES: usize = 64;

/// A send and its receive that differ.
#[derive(Debug)]
pub(crate) struct PairMismatch {
    pub(crate) src: i64,
    pub(crate) dst: i64,
    pub(crate) relation: Relation,
    pub(crate) send: Numbered,
    pub(crate) recv: Numbered,
}

/// A call with its number among those of its peer and direction, `None` where older ones are lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Numbered {
    pub(crate) site: Site,
    pub(crate) index: Option<i64>,
}

/// Calls between two ranks whose counterparts were not made: one burst.
#[derive(Debug)]
pub(crate) struct Burst {
    pub(crate) calls: Vec<Lone>,
}

/// A send without its receive, or a receive without its send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lone {
    pub(crate) src: i64,
    pub(crate) dst: i64,
    pub(crate) sends: bool,
    pub(crate) call: Numbered,
}

/// Calls between two ranks that could not be paired, because older ones are lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Undecided {
    pub(crate) src: i64,
    pub(crate) dst: i64,
    pub(crate) sends: usize,
    pub(crate) recvs: usize,
    /// Those that were not over, oldest first.
    pub(crate) open_sends: Vec<Site>,
    pub(crate) open_recvs: Vec<Site>,
}

/// What the sends and receives of a group show.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    pub(crate) paired: i64,
    pub(crate) mismatches: Vec<PairMismatch>,
    pub(crate) more_mismatches: i64,
    pub(crate) bursts: Vec<Burst>,
    pub(crate) undecided: Vec<Undecided>,
}

/// The calls of one direction between two ranks.
struct Direction<'t> {
    src: &'t Timeline<'t>,
    dst: &'t Timeline<'t>,
    /// Whether the group has no other ranks.
    alone: bool,
    sends: Vec<&'t P2p>,
    recvs: Vec<&'t P2p>,
}

/// Pairs the sends and receives of a group.
pub(crate) fn judge(view: &GroupView<'_>, calls: &Calls) -> Pairs {
    let mut pairs = Pairs::default();
    let mut bursts: BTreeMap<(i64, i64), Vec<Lone>> = BTreeMap::new();
    for direction in directions(view) {
        let lone = pairs.pair(&direction, calls);
        if !lone.is_empty() {
            let (src, dst) = (direction.src.comm_rank, direction.dst.comm_rank);
            bursts.entry((src.min(dst), src.max(dst))).or_default().extend(lone);
        }
    }
    pairs.bursts = bursts.into_values().map(|calls| Burst { calls }).collect();
    pairs
}

/// All directions between ranks that both have a dump, in order. A dump whose calls name another
/// rank as the caller is of no use.
fn directions<'t>(view: &'t GroupView<'_>) -> Vec<Direction<'t>> {
    if view.group.ranks.is_empty() {
        return Vec::new();
    }
    let mut found: BTreeMap<(i64, i64), [Vec<&'t P2p>; 2]> = BTreeMap::new();
    for timeline in view.timelines.iter().filter(|timeline| !timeline.other_rank) {
        for call in &timeline.p2p {
            let [sends, recvs] = found.entry((call.src, call.dst)).or_default();
            if call.sends { sends.push(call) } else { recvs.push(call) }
        }
    }
    let timeline = |rank: i64| {
        view.timelines
            .binary_search_by_key(&rank, |timeline| timeline.comm_rank)
            .ok()
            .and_then(|place| view.timelines.get(place))
            .filter(|timeline| !timeline.other_rank)
    };
    let direction = |((src, dst), [sends, recvs]): ((i64, i64), [Vec<&'t P2p>; 2])| {
        let alone = view.group.ranks.len() == 2;
        Some(Direction { src: timeline(src)?, dst: timeline(dst)?, alone, sends, recvs })
    };
    found.into_iter().filter_map(direction).collect()
}

impl Direction<'_> {
    fn send(&self, call: &P2p) -> Record {
        self.src.record(call.record)
    }

    fn recv(&self, call: &P2p) -> Record {
        self.dst.record(call.record)
    }

    fn relation(&self, calls: &Calls, send: &P2p, recv: &P2p) -> Relation {
        calls.pair(self.send(send).shape, self.recv(recv).shape)
    }

    fn site(&self, call: &P2p) -> Site {
        let timeline = if call.sends { self.src } else { self.dst };
        Site { comm_rank: timeline.comm_rank, record: call.record }
    }

    fn undecided(&self) -> Undecided {
        let open = |calls: &[&P2p]| {
            let open = calls.iter().filter(|call| call.state != State::Completed);
            open.map(|call| self.site(call)).collect()
        };
        Undecided {
            src: self.src.comm_rank,
            dst: self.dst.comm_rank,
            sends: self.sends.len(),
            recvs: self.recvs.len(),
            open_sends: open(&self.sends),
            open_recvs: open(&self.recvs),
        }
    }

    /// How many of the oldest sends and receives lie before the first pair.
    ///
    /// Where no call is lost, that is none. Else the calls are lined up by `p2p_seq_id`, which
    /// counts the sends and receives of a rank with all ranks of its group. So this is done only in
    /// groups of two, and only if, from the first number that both sides still have to the last that
    /// both have, the numbers are the same on both sides and the amounts too.
    fn line_up(&self, calls: &Calls) -> Option<(usize, usize)> {
        if self.src.p2p_whole && self.dst.p2p_whole {
            return Some((0, 0));
        }
        if !self.alone {
            return None;
        }
        let sends: Vec<i64> = self.sends.iter().map(|call| self.send(call).p2p_seq).collect();
        let recvs: Vec<i64> = self.recvs.iter().map(|call| self.recv(call).p2p_seq).collect();
        let low = first_full(self.src, &sends)?.max(first_full(self.dst, &recvs)?);
        let high = (*sends.last()?).min(*recvs.last()?);
        let skipped = |numbers: &[i64]| numbers.iter().take_while(|number| **number < low).count();
        let (first_send, first_recv) = (skipped(&sends), skipped(&recvs));
        let common = |numbers: &[i64], first: usize| -> Vec<i64> {
            numbers.iter().skip(first).copied().filter(|number| *number <= high).collect()
        };
        let shared = common(&sends, first_send);
        let equal_amounts = self
            .sends
            .iter()
            .skip(first_send)
            .zip(self.recvs.iter().skip(first_recv))
            .take(shared.len())
            .all(|(send, recv)| {
                !matches!(self.relation(calls, send, recv), Relation::Differ { .. })
            });
        let lined_up = !shared.is_empty() && shared == common(&recvs, first_recv) && equal_amounts;
        lined_up.then_some((first_send, first_recv))
    }
}

/// The first `p2p_seq_id` of which no call can be lost.
fn first_full(timeline: &Timeline<'_>, numbers: &[i64]) -> Option<i64> {
    let first = *numbers.first()?;
    let torn = timeline.dump.wrapped
        && timeline
            .p2p
            .first()
            .is_some_and(|call| call.record == 0 && timeline.record(call.record).p2p_seq == first);
    (first >= 1).then(|| if torn { first.saturating_add(1) } else { first })
}

impl Pairs {
    /// Pairs the calls of one direction, and gives those that are left over.
    fn pair(&mut self, direction: &Direction<'_>, calls: &Calls) -> Vec<Lone> {
        let (src, dst) = (direction.src.comm_rank, direction.dst.comm_rank);
        let Some((first_send, first_recv)) = direction.line_up(calls) else {
            self.undecided.push(direction.undecided());
            return Vec::new();
        };
        let whole = direction.src.p2p_whole && direction.dst.p2p_whole;
        let number = |place: usize| i64::try_from(place).ok().filter(|_| whole);
        let sends: Vec<_> = direction.sends.iter().skip(first_send).collect();
        let recvs: Vec<_> = direction.recvs.iter().skip(first_recv).collect();
        for (place, (send, recv)) in sends.iter().zip(&recvs).enumerate() {
            let relation = direction.relation(calls, send, recv);
            let numbered =
                |call: &P2p| Numbered { site: direction.site(call), index: number(place) };
            let (send, recv) = (numbered(send), numbered(recv));
            self.note(PairMismatch { src, dst, relation, send, recv });
        }
        let paired = sends.len().min(recvs.len());
        // A receive that is over had its send: the dump of the sender is older, then.
        let left = sends.iter().skip(paired).chain(recvs.iter().skip(paired)).enumerate();
        left.filter(|(_, call)| call.sends || call.state != State::Completed)
            .map(|(place, call)| {
                let index = number(paired.saturating_add(place));
                let call_site = Numbered { site: direction.site(call), index };
                Lone { src, dst, sends: call.sends, call: call_site }
            })
            .collect()
    }

    fn note(&mut self, pair: PairMismatch) {
        self.paired = self.paired.saturating_add(1);
        if pair.relation == Relation::Equal {
            return;
        }
        if self.mismatches.len() < MAX_MISMATCHES {
            self.mismatches.push(pair);
        } else {
            self.more_mismatches = self.more_mismatches.saturating_add(1);
        }
    }
}
