//! The collectives of one process group, round by round.

use crate::analyzer::comm::AgreedRun;
use crate::analyzer::signature::Relation;
use crate::finding::MismatchType;
use crate::fr::calls::{Calls, Made, Verdict};
use crate::fr::divergence::{self, Diverged};
use crate::fr::op::Op;
use crate::fr::record::{Group, Shape, State};
use crate::fr::set::{Coverage, DumpSet};
use crate::fr::timeline::{Call, Timeline};

/// Mismatches of one group that are kept; more are counted.
pub(crate) const MAX_MISMATCHES: usize = 64;

/// Late ranks of one group that are kept, one set of ranks a time.
const MAX_DELAYS: usize = 64;

/// Rounds between two that differ, from which on the second is another matter: as in traces.
const APART: i64 = 8;

/// Differences of one group for which an explanation is looked for.
const MAX_TRIES: usize = 16;

/// A process group with what its ranks did.
#[derive(Debug)]
pub(crate) struct GroupView<'a> {
    /// The number of the group in the set.
    pub(crate) number: u32,
    pub(crate) group: &'a Group,
    /// Ranks that have a dump, in the order of the group.
    pub(crate) timelines: Vec<Timeline<'a>>,
    /// Ranks of the group that have none.
    pub(crate) without_dump: Vec<i64>,
}

impl<'a> GroupView<'a> {
    pub(crate) fn new(set: &'a DumpSet, number: u32) -> Option<Self> {
        let group = set.groups.get(number as usize)?;
        let mut view = Self { number, group, timelines: Vec::new(), without_dump: Vec::new() };
        if group.ranks.is_empty() {
            // The members are not known: those that use the group, under their global ranks.
            let users = set.dumps.iter().filter(|dump| dump.groups.contains(&number));
            view.timelines =
                users.map(|dump| Timeline::new(dump, number, dump.rank, &set.shapes)).collect();
            return Some(view);
        }
        for (comm_rank, rank) in (0..).zip(&group.ranks) {
            match set.dump(*rank) {
                Some(dump) => {
                    view.timelines.push(Timeline::new(dump, number, comm_rank, &set.shapes));
                }
                None => view.without_dump.push(comm_rank),
            }
        }
        Some(view)
    }

    /// Ranks of the group; those that were seen where the dumps do not tell.
    pub(crate) fn size(&self) -> usize {
        self.timelines.len().saturating_add(self.without_dump.len())
    }

    /// The global rank of a rank of the group.
    pub(crate) fn global(&self, comm_rank: i64) -> i64 {
        let rank = usize::try_from(comm_rank).ok().and_then(|place| self.group.ranks.get(place));
        rank.copied().unwrap_or(comm_rank)
    }
}

/// One call of one rank, with its place in the dump.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) comm_rank: i64,
    pub(crate) record: u32,
}

/// A round in which the ranks called different things.
#[derive(Debug)]
pub(crate) struct Mismatch {
    pub(crate) seq: i64,
    pub(crate) verdict: Verdict,
    pub(crate) sites: Vec<Site>,
}

/// A round that some ranks have entered and others not.
#[derive(Debug)]
pub(crate) struct Missing {
    pub(crate) seq: i64,
    pub(crate) entered: Vec<Site>,
    /// Ranks whose dump ends before this round.
    pub(crate) behind: Vec<i64>,
    /// Ranks whose dump does not reach back to their last call on this group.
    pub(crate) overwritten: Vec<i64>,
    pub(crate) first_created_ns: i64,
    /// Later rounds that are open too.
    pub(crate) later_rounds: i64,
}

/// A round that all ranks entered, some of them late.
#[derive(Debug)]
pub(crate) struct Delay {
    pub(crate) seq: i64,
    pub(crate) spread_ns: i64,
    pub(crate) slow: Vec<i64>,
    pub(crate) sites: Vec<Site>,
}

/// A round that all ranks with a dump have entered and that was not over on some.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Open {
    pub(crate) seq: i64,
    pub(crate) site: Site,
    pub(crate) not_completed: Vec<i64>,
}

/// What the rounds of a group show.
#[derive(Debug, Default)]
pub(crate) struct Rounds {
    pub(crate) compared: i64,
    pub(crate) mismatches: Vec<Mismatch>,
    pub(crate) more_mismatches: i64,
    pub(crate) diverged: Vec<Diverged>,
    /// The first round that is open, unless what differs before explains it.
    pub(crate) missing: Option<Missing>,
    pub(crate) delays: Vec<Delay>,
    pub(crate) open: Option<Open>,
    agreed: Option<AgreedRun>,
    last_differing: Option<i64>,
    tries: usize,
}

/// The calls of one round.
struct Round<'t> {
    seq: i64,
    entered: Vec<(&'t Timeline<'t>, &'t [Call])>,
    behind: Vec<i64>,
    overwritten: Vec<i64>,
    /// Whether every rank of the group has entered.
    all: bool,
}

/// Goes through the rounds of a group. A spread above `delay_ns` is late.
pub(crate) fn judge(
    view: &GroupView<'_>,
    calls: &Calls,
    shapes: &[Shape],
    delay_ns: i64,
) -> Rounds {
    let mut rounds = Rounds::default();
    let mut places = vec![0_usize; view.timelines.len()];
    while let Some(round) = next_round(view, &mut places) {
        rounds.compared = rounds.compared.saturating_add(i64::from(round.entered.len() > 1));
        let verdict = compare(&round, calls, shapes);
        let equal = verdict.as_ref().is_none_or(|found| found.0.relation == Relation::Equal);
        let open = rounds.note_missing(&round, calls, equal);
        let mut explained = false;
        match verdict {
            Some((verdict, place)) if !equal => {
                explained = rounds.explain(&round, &verdict, view, calls);
                if !explained {
                    rounds.note_mismatch(&round, verdict, place);
                }
            }
            _ => rounds.note_agreement(&round, open, calls),
        }
        if round.all && !explained {
            rounds.note_delay(&round, delay_ns);
        }
    }
    rounds.blame();
    rounds
}

/// The next number that any rank has, with those that have it and those that do not.
fn next_round<'t>(view: &'t GroupView<'_>, places: &mut [usize]) -> Option<Round<'t>> {
    let next = |(timeline, place): (&Timeline<'_>, &usize)| Some(timeline.calls.get(*place)?.seq);
    let seq = view.timelines.iter().zip(places.iter()).filter_map(next).min()?;
    let mut round = Round {
        seq,
        entered: Vec::with_capacity(view.timelines.len()),
        behind: Vec::new(),
        overwritten: Vec::new(),
        all: false,
    };
    for (timeline, place) in view.timelines.iter().zip(places.iter_mut()) {
        let rest = timeline.calls.get(*place..).unwrap_or_default();
        let count = rest.iter().take_while(|call| call.seq == seq).count();
        *place = place.saturating_add(count);
        let (mine, later) = rest.split_at(count);
        if !mine.is_empty() {
            round.entered.push((timeline, mine));
        } else if later.is_empty() {
            match (timeline.coverage, timeline.calls.is_empty()) {
                (Coverage::Partial, _) => {}
                (Coverage::Recent, true) => round.overwritten.push(timeline.comm_rank),
                _ => round.behind.push(timeline.comm_rank),
            }
        }
    }
    round.all = round.entered.len() == view.size();
    Some(round)
}

/// Compares the calls of a round one after the other, as a coalesced group has several. Gives the
/// first place that differs.
fn compare(round: &Round<'_>, calls: &Calls, shapes: &[Shape]) -> Option<(Verdict, usize)> {
    let longest = round.entered.iter().map(|(_, made)| made.len()).max()?;
    let mut weaker = None;
    for place in 0..longest {
        let made: Vec<Made> = round.made(place).collect();
        if made.len() < round.entered.len() {
            return Some((calls.shorter_group(&made, round.ranks()), place));
        }
        let verdict = calls.relate(&made, round.all);
        match verdict.relation {
            Relation::Differ { .. } => return Some((verdict, place)),
            Relation::OtherDatatype => weaker = Some((verdict, place)),
            Relation::Equal => {
                if let Some(verdict) = unbalanced(round, place, calls, shapes) {
                    return Some((verdict, place));
                }
            }
        }
    }
    weaker
}

/// The sizes of an all-to-all may differ between its ranks, but what all send together is what all
/// receive together. Dumps before version 2.4 do not have these sizes.
fn unbalanced(round: &Round<'_>, place: usize, calls: &Calls, shapes: &[Shape]) -> Option<Verdict> {
    let made: Vec<Made> = round.made(place).collect();
    let of_all_to_all = |made: &Made| calls.op(made.shape) == Some(Op::AllToAll);
    let old = round.entered.iter().any(|(timeline, _)| timeline.dump.version < (2, 4));
    if !round.all || old || !made.iter().all(of_all_to_all) {
        return None;
    }
    let mut totals = [0_i128; 2];
    for made in &made {
        let shape = shapes.get(made.shape as usize)?;
        for (total, tensors) in totals.iter_mut().zip([&shape.inputs, &shape.outputs]) {
            for tensor in tensors {
                *total += i128::from(tensor.bytes()?);
            }
        }
    }
    let [sent, received] = totals;
    (sent != received).then(|| Verdict {
        relation: Relation::Differ { kind: MismatchType::ParameterMismatch, certain: false },
        calls: made.iter().map(|made| (made.comm_rank, calls.sent(*made, shapes))).collect(),
    })
}

impl Round<'_> {
    /// The calls at one place of the round, of the ranks that have one there.
    fn made(&self, place: usize) -> impl Iterator<Item = Made> + '_ {
        self.entered.iter().filter_map(move |(timeline, made)| {
            let record = timeline.record(made.get(place)?.record);
            Some(Made { comm_rank: timeline.comm_rank, shape: record.shape })
        })
    }

    fn ranks(&self) -> impl Iterator<Item = i64> + '_ {
        self.entered.iter().map(|(timeline, _)| timeline.comm_rank)
    }

    /// The call of each rank at a place, its last one where it has fewer.
    fn sites(&self, place: usize) -> Vec<Site> {
        let site = |(timeline, made): &(&Timeline<'_>, &[Call])| {
            let call = made.get(place).or(made.last())?;
            Some(Site { comm_rank: timeline.comm_rank, record: call.record })
        };
        self.entered.iter().filter_map(site).collect()
    }

    fn created(&self) -> impl Iterator<Item = (i64, i64)> + '_ {
        self.entered.iter().filter_map(|(timeline, made)| {
            let created = timeline.record(made.first()?.record).created_ns;
            (created > 0).then_some((timeline.comm_rank, created))
        })
    }

    fn is_completed(&self) -> impl Iterator<Item = (i64, bool)> + '_ {
        self.entered.iter().map(|(timeline, made)| {
            let completed = made.iter().all(|call| call.state == State::Completed);
            (timeline.comm_rank, completed)
        })
    }
}

impl Rounds {
    /// A call that waits for all and is over proves that all have entered: then the dump of a rank
    /// without it is older than the others. Says whether the round is open.
    fn note_missing(&mut self, round: &Round<'_>, calls: &Calls, equal: bool) -> bool {
        if round.behind.is_empty() && round.overwritten.is_empty() {
            return false;
        }
        let waits_for_all = |made: Made| calls.op(made.shape).is_some_and(Op::waits_for_all);
        let waits = round.made(0).all(waits_for_all);
        if equal && waits && round.is_completed().any(|(_, completed)| completed) {
            return false;
        }
        // A round that may be complete, for all that is known, is no finding.
        let over = round.is_completed().all(|(_, completed)| completed);
        if round.behind.is_empty() && over {
            return false;
        }
        if let Some(missing) = &mut self.missing {
            missing.later_rounds = missing.later_rounds.saturating_add(1);
            return true;
        }
        self.missing = Some(Missing {
            seq: round.seq,
            entered: round.sites(0),
            behind: round.behind.clone(),
            overwritten: round.overwritten.clone(),
            first_created_ns: round.created().map(|(_, created)| created).min().unwrap_or(-1),
            later_rounds: 0,
        });
        true
    }

    /// Whether what explains earlier rounds explains a round that differs, or something is found
    /// that does.
    fn explain(
        &mut self,
        round: &Round<'_>,
        verdict: &Verdict,
        view: &GroupView<'_>,
        calls: &Calls,
    ) -> bool {
        let seq = round.seq;
        let near = self.last_differing.is_some_and(|last| seq.saturating_sub(last) <= APART);
        let differs = matches!(verdict.relation, Relation::Differ { .. });
        if differs {
            self.last_differing = Some(seq);
        }
        if let Some(known) = self.diverged.last_mut()
            && (near || known.divergence.lasting)
        {
            return known.explains(seq, verdict);
        }
        if !differs || near || self.tries >= MAX_TRIES {
            return false;
        }
        self.tries = self.tries.saturating_add(1);
        let Some(mut found) = divergence::find(view, calls, seq, self.agreed) else { return false };
        let explained = found.explains(seq, verdict);
        self.diverged.push(found);
        explained
    }

    /// A round in which nothing differs.
    fn note_agreement(&mut self, round: &Round<'_>, open: bool, calls: &Calls) {
        let apart = match self.diverged.last_mut() {
            Some(last) if !last.recovered => {
                let over = round.is_completed().all(|(_, completed)| completed);
                last.recovered = over && !last.divergence.lasting && round.seq > last.seq;
                last.open = last.open.saturating_add(i64::from(open));
                true
            }
            _ => false,
        };
        if apart {
            return;
        }
        self.note_open(round);
        let first = round.entered.first();
        let called = first.and_then(|(timeline, made)| divergence::called(timeline, made, calls));
        let Some(called) = called.filter(|_| round.behind.is_empty()) else { return };
        match &mut self.agreed {
            Some(run) if run.called == called && run.last.checked_add(1) == Some(round.seq) => {
                run.last = round.seq;
            }
            agreed => *agreed = Some(AgreedRun { called, first: round.seq, last: round.seq }),
        }
    }

    /// What stands still behind calls that go apart has its cause there.
    fn blame(&mut self) {
        self.diverged.retain(|diverged| diverged.rounds > 0);
        if let Some(last) = self.diverged.last_mut()
            && !last.recovered
            && self.missing.as_ref().is_some_and(|missing| missing.seq >= last.seq)
        {
            last.missing = self.missing.take();
        }
    }

    fn note_open(&mut self, round: &Round<'_>) {
        if self.open.is_some() || !round.behind.is_empty() || !round.overwritten.is_empty() {
            return;
        }
        let not_completed: Vec<i64> = round
            .is_completed()
            .filter(|(_, completed)| !completed)
            .map(|(rank, _)| rank)
            .collect();
        if let Some(site) = round.sites(0).first().copied()
            && !not_completed.is_empty()
        {
            self.open = Some(Open { seq: round.seq, site, not_completed });
        }
    }

    fn note_delay(&mut self, round: &Round<'_>, delay_ns: i64) {
        let first = round.created().map(|(_, created)| created).min().unwrap_or(0);
        let last = round.created().map(|(_, created)| created).max().unwrap_or(0);
        let spread_ns = last.saturating_sub(first);
        if spread_ns <= delay_ns {
            return;
        }
        let late = |created: i64| created.saturating_sub(first) > delay_ns;
        let slow: Vec<i64> =
            round.created().filter(|(_, created)| late(*created)).map(|(rank, _)| rank).collect();
        let delay = Delay { seq: round.seq, spread_ns, slow, sites: round.sites(0) };
        if let Some(known) = self.delays.iter_mut().find(|known| known.slow == delay.slow) {
            if known.spread_ns < spread_ns {
                *known = delay;
            }
        } else if self.delays.len() < MAX_DELAYS {
            self.delays.push(delay);
        }
    }

    /// The same calls differing in round after round are one mismatch.
    fn note_mismatch(&mut self, round: &Round<'_>, verdict: Verdict, place: usize) {
        if self.mismatches.last().is_some_and(|last| last.verdict == verdict) {
            return;
        }
        if self.mismatches.len() >= MAX_MISMATCHES {
            self.more_mismatches = self.more_mismatches.saturating_add(1);
            return;
        }
        let sites = round.sites(place);
        self.mismatches.push(Mismatch { seq: round.seq, verdict, sites });
    }
}
