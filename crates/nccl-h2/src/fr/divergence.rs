//! Where the calls of a group go apart, and what explains most of it with least: the rules of
//! traces, on what the dumps still hold.

use crate::analyzer::comm::AgreedRun;
use crate::analyzer::divergence::{Divergence, Sequence, agree_without, explain, same};
use crate::analyzer::operation::Operation;
use crate::analyzer::signature::{Called, Relation};
use crate::analyzer::trouble::window;
use crate::finding::DivergenceKind;
use crate::fr::calls::{Calls, Made, Verdict};
use crate::fr::op::Op;
use crate::fr::rounds::{GroupView, Missing, Site};
use crate::fr::set::Coverage;
use crate::fr::timeline::{Call, Timeline};

/// Rounds that are listed as explained; all are counted.
const MAX_LISTED: usize = 64;

/// An explanation of rounds that differ.
#[derive(Debug)]
pub(crate) struct Diverged {
    /// The first round that it explains.
    pub(crate) seq: i64,
    /// Its ranks are places among the timelines of the group.
    pub(crate) divergence: Divergence,
    /// Ranks of the group whose calls it explains.
    pub(crate) ranks: Vec<i64>,
    /// The calls of all ranks where they go apart.
    pub(crate) sites: Vec<Site>,
    /// How many rounds that differ it explains, and the first of them.
    pub(crate) rounds: i64,
    pub(crate) listed: Vec<i64>,
    /// Rounds behind in which nothing differs and that not all ranks have entered.
    pub(crate) open: i64,
    /// The first round behind that not all ranks have entered.
    pub(crate) missing: Option<Missing>,
    /// Rounds agree again and are over: what stands still later has another cause.
    pub(crate) recovered: bool,
}

impl Diverged {
    /// Whether it explains that a round differs; if so, it is counted.
    pub(crate) fn explains(&mut self, seq: i64, verdict: &Verdict) -> bool {
        if seq < self.seq || !(is_unbalanced(verdict) || agree_without(&verdict.calls, &self.ranks))
        {
            return false;
        }
        self.rounds = self.rounds.saturating_add(1);
        if self.listed.len() < MAX_LISTED {
            self.listed.push(seq);
        }
        true
    }
}

/// Whether the sizes of an all-to-all do not add up: of shifted calls they cannot.
fn is_unbalanced(verdict: &Verdict) -> bool {
    matches!(verdict.relation, Relation::Differ { certain: false, .. })
        && verdict.calls.iter().all(|(_, called)| called.operation == Operation::AllToAll)
}

/// Looks for what explains that the calls of a group differ from a round on.
///
/// Where nobody knows what a rank called before the first difference, as its buffer begins there or
/// leaves out calls by design, only how many calls it is behind or ahead is said, and not which.
pub(crate) fn find(
    view: &GroupView<'_>,
    calls: &Calls,
    start: i64,
    agreed: Option<AgreedRun>,
) -> Option<Diverged> {
    let most = window(view.size());
    let all: Vec<Sequence> =
        view.timelines.iter().map(|timeline| sequence(timeline, calls, start, most)).collect();
    let is_known = |place: usize| view.timelines.get(place).is_some_and(|one| reaches(one, start));
    let known: Vec<Sequence> = all
        .iter()
        .enumerate()
        .map(|(place, calls)| if is_known(place) { calls.clone() } else { Sequence::new() })
        .collect();
    let divergence = match explain(&known, start, agreed) {
        Some(mut divergence) => {
            join(&mut divergence, &all, is_known);
            divergence
        }
        None => without_place(explain(&all, start, None)?, is_known)?,
    };
    let seq = divergence.agreed.0.saturating_add(1).max(start);
    let at = divergence.explanations.first().map_or(start, |one| one.others_position[1]);
    let rank = |place: &usize| view.timelines.get(*place).map(|timeline| timeline.comm_rank);
    Some(Diverged {
        seq,
        ranks: divergence.ranks.iter().filter_map(rank).collect(),
        sites: view.timelines.iter().filter_map(|timeline| site(timeline, at)).collect(),
        divergence,
        rounds: 0,
        listed: Vec::new(),
        open: 0,
        missing: None,
        recovered: false,
    })
}

/// Whether a dump has what its rank called before a round.
fn reaches(timeline: &Timeline<'_>, start: i64) -> bool {
    match timeline.coverage {
        Coverage::Whole => true,
        Coverage::Recent => timeline.calls.first().is_some_and(|first| first.seq < start),
        Coverage::Partial => false,
    }
}

/// Adds ranks whose buffer begins later to those whose calls alone they have.
fn join(divergence: &mut Divergence, all: &[Sequence], is_known: impl Fn(usize) -> bool) {
    let place_of = |place: usize| all.get(place).filter(|calls| !calls.is_empty());
    let reference = (0..all.len())
        .find(|&place| is_known(place) && !divergence.ranks.contains(&place))
        .and_then(place_of);
    let mut groups: Vec<Vec<usize>> =
        divergence.explanations.iter().map(|one| one.ranks.clone()).collect();
    groups.sort_unstable();
    groups.dedup();
    for late in (0..all.len()).filter(|&place| !is_known(place)) {
        let Some(calls) = place_of(late) else { continue };
        let fits = |group: &&Vec<usize>| {
            let first = group.first().and_then(|&place| place_of(place));
            first.is_some_and(|first| same(calls, first))
        };
        let fitting: Vec<&Vec<usize>> = groups.iter().filter(fits).collect();
        if reference.is_some_and(|reference| same(calls, reference)) {
            continue;
        }
        if let [only] = fitting[..] {
            let own = divergence.explanations.iter_mut().filter(|one| one.ranks.starts_with(only));
            own.for_each(|one| one.ranks.push(late));
            divergence.ranks.push(late);
        }
    }
    divergence.explanations.iter_mut().for_each(|one| one.ranks.sort_unstable());
    divergence.ranks.sort_unstable();
}

/// An explanation of calls that began to differ before the buffers of some ranks do: that some are
/// behind or ahead. `None` where that is not all.
fn without_place(
    mut divergence: Divergence,
    is_known: impl Fn(usize) -> bool,
) -> Option<Divergence> {
    let shifted = divergence
        .explanations
        .iter()
        .all(|one| matches!(one.kind, DivergenceKind::Skipped | DivergenceKind::Extra));
    let lost = divergence.ranks.iter().any(|&place| !is_known(place));
    if !shifted || !lost {
        return None;
    }
    for one in &mut divergence.explanations {
        one.call = None;
        one.position[0] = -1;
        one.others_position[0] = -1;
    }
    divergence.agreed = (-1, None);
    Some(divergence)
}

/// The calls of a rank from a number on, by position.
fn sequence(timeline: &Timeline<'_>, calls: &Calls, start: i64, most: usize) -> Sequence {
    let mut placed = Sequence::new();
    let from = timeline.calls.partition_point(|call| call.seq < start);
    let rest = timeline.calls.get(from..).unwrap_or_default();
    for round in rest.chunk_by(|a, b| a.seq == b.seq) {
        let at = round.first().and_then(|call| usize::try_from(call.seq.checked_sub(start)?).ok());
        let Some(at) = at.filter(|at| *at < most) else { break };
        placed.resize(at, None);
        placed.push(called(timeline, round, calls));
    }
    placed
}

/// What a rank called in a round: of a coalesced group the first function with what all its calls
/// move together.
pub(crate) fn called(timeline: &Timeline<'_>, round: &[Call], calls: &Calls) -> Option<Called> {
    let whole = |call: &Call| {
        let shape = timeline.record(call.record).shape;
        let mut called = calls.whole(Made { comm_rank: timeline.comm_rank, shape });
        if calls.op(shape) == Some(Op::Barrier) {
            // A reduction of nothing that the program could have asked for.
            (called.operation, called.count, called.datatype) = (Operation::Unknown, -1, -1);
        }
        called
    };
    let mut all = round.iter().map(whole);
    let first = all.next()?;
    Some(all.fold(first, |sum, more| Called {
        count: if sum.count < 0 || more.count < 0 {
            -1
        } else {
            sum.count.saturating_add(more.count)
        },
        datatype: if sum.datatype == more.datatype { sum.datatype } else { -1 },
        ..sum
    }))
}

fn site(timeline: &Timeline<'_>, seq: i64) -> Option<Site> {
    let at = timeline.calls.partition_point(|call| call.seq < seq);
    let call = timeline.calls.get(at).filter(|call| call.seq == seq)?;
    Some(Site { comm_rank: timeline.comm_rank, record: call.record })
}
