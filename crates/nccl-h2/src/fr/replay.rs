//! The cause behind several symptoms: what is open in dumps goes through the analyzer of traces,
//! which knows who waits for whom.
//!
//! Only groups in which something is open are replayed, from just before that. A rank about which
//! a dump says nothing is let into every call, so that nobody is found to wait for it, and is taken
//! out of the result.

use std::collections::{BTreeMap, BTreeSet};

use crate::analyzer::{Analyzer, Moment};
use crate::event::{Event, EventKind, Header, NcclCall, Phase};
use crate::finding::{Details, Explained, Finding, HangType, LastCall, WaitEdge, WaitKind};
use crate::fr::calls::{Calls, Made};
use crate::fr::judged::Judged;
use crate::fr::op::Op;
use crate::fr::p2p::Lone;
use crate::fr::report::Options;
use crate::fr::rounds::{GroupView, Site};
use crate::fr::set::{Coverage, DumpSet};
use crate::fr::sites;
use crate::fr::timeline::Timeline;

/// Calls of one rank of one group that are replayed; a rank that is further ahead is so in vain.
const MAX_CALLS: usize = 512;

/// Something that was found on one group alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Symptom {
    /// The round that not all ranks of a group have entered; the place of the group.
    Missing(usize),
    /// A burst of a group: the places of the group and of the burst.
    Burst(usize, usize),
}

/// A finding of the analyzer, in the terms of the dumps.
#[derive(Debug)]
pub(crate) struct Cause {
    /// The group that it names, by its place among the judged ones.
    pub(crate) group: usize,
    pub(crate) finding: Finding,
    /// The calls in which ranks wait: place of the group, and the call.
    pub(crate) calls: Vec<(usize, Site)>,
    /// Global ranks that everybody waits for.
    pub(crate) roots: Vec<i64>,
    /// What it explains.
    pub(crate) explained: BTreeSet<Symptom>,
}

/// One call of a rank that goes to the analyzer.
struct Call<'a> {
    /// Its place in the dump, in whose order the calls of a rank are replayed.
    record: u32,
    event: Event<'a>,
}

/// Finds what stands behind the open calls of several groups, or of several ranks.
pub(crate) fn causes(
    set: &DumpSet,
    judged: &[Judged<'_>],
    calls: &Calls,
    options: &Options,
    end_ns: i64,
) -> Vec<Cause> {
    let open = judged.iter().map(|group| {
        usize::from(group.rounds.missing.is_some()).saturating_add(group.pairs.bursts.len())
    });
    if open.sum::<usize>() < 2 {
        return Vec::new();
    }
    let mut replay = Replay { set, judged, calls, end_ns, ranks: BTreeMap::new() };
    for place in 0..judged.len() {
        replay.add(place);
    }
    let found = replay.run(options);
    found.into_iter().filter_map(|finding| replay.translate(finding)).collect()
}

struct Replay<'a> {
    set: &'a DumpSet,
    judged: &'a [Judged<'a>],
    calls: &'a Calls,
    end_ns: i64,
    /// By global rank: its calls.
    ranks: BTreeMap<i64, Vec<Call<'a>>>,
}

impl<'a> Replay<'a> {
    /// Adds the open part of a group.
    fn add(&mut self, place: usize) {
        let Some(group) = self.judged.get(place) else { return };
        if let Some(missing) = &group.rounds.missing {
            let unknown = unknown_ranks(group, missing.seq);
            let leader =
                group.view.timelines.iter().max_by_key(|timeline| {
                    (after(timeline, missing.seq).len(), -timeline.comm_rank)
                });
            for timeline in &group.view.timelines {
                if !unknown.contains(&timeline.comm_rank) {
                    self.add_rounds(place, &group.view, timeline, timeline.comm_rank, missing.seq);
                }
            }
            for comm_rank in unknown {
                if let Some(leader) = leader {
                    self.add_rounds(place, &group.view, leader, comm_rank, missing.seq);
                }
            }
        }
        for (number, burst) in (0..).zip(&group.pairs.bursts) {
            for (index, lone) in (0..).zip(&burst.calls).take(MAX_CALLS) {
                let (own, peer) =
                    if lone.sends { (lone.src, lone.dst) } else { (lone.dst, lone.src) };
                let mut call = self.call(place, &group.view, own, lone.call.site);
                call.peer = peer;
                // The analyzer names a burst by the number of its first call.
                call.comm_seq = number;
                call.p2p_op_index = index;
                call.p2p_op_index_scope = "peer_direction".into();
                self.push(&group.view, own, lone.call.site, call);
                self.member(place, &group.view, own);
                self.member(place, &group.view, peer);
            }
        }
    }

    /// The calls of a rank from a number on, under the rank that is given.
    fn add_rounds(
        &mut self,
        place: usize,
        view: &GroupView<'a>,
        timeline: &Timeline<'_>,
        comm_rank: i64,
        from: i64,
    ) {
        self.member(place, view, comm_rank);
        for (number, call) in (0..).zip(after(timeline, from)).take(MAX_CALLS) {
            let site = Site { comm_rank: timeline.comm_rank, record: call.record };
            let mut nccl = self.call(place, view, timeline.comm_rank, site);
            nccl.comm_rank = comm_rank;
            nccl.comm_seq = number;
            self.push(view, comm_rank, site, nccl);
        }
    }

    /// A call as a trace would have it, without its number.
    fn call(&self, place: usize, view: &GroupView<'_>, comm_rank: i64, site: Site) -> NcclCall<'a> {
        let rank = view.global(site.comm_rank);
        let shape = sites::record(self.set, rank, site.record).map_or(0, |record| record.shape);
        let whole = self.calls.whole(Made { comm_rank, shape });
        let function = self.calls.op(shape).map_or("ncclAllReduce", function);
        let mut call = NcclCall::new(function);
        call.phase = Phase::Enter;
        call.comm_uid_hash = place.to_string().into();
        call.comm_rank = comm_rank;
        call.comm_nranks = i64::try_from(view.size()).unwrap_or(i64::MAX);
        // A call of nothing waits for nobody in NCCL, but it does in the program.
        call.count = if whole.count == 0 { -1 } else { whole.count };
        call.datatype = whole.datatype;
        call.group_id = 0;
        call
    }

    fn push(&mut self, view: &GroupView<'_>, comm_rank: i64, site: Site, call: NcclCall<'a>) {
        let created = sites::record(self.set, view.global(site.comm_rank), site.record)
            .map_or(-1, |record| record.created_ns);
        let rank = view.global(comm_rank);
        let calls = self.ranks.entry(rank).or_default();
        let header = Header { timestamp_unix_ns: created, ..header(rank) };
        calls.push(Call {
            record: site.record,
            event: Event { header, kind: EventKind::NcclCall(call) },
        });
    }

    /// Lets the analyzer know a rank of a group.
    fn member(&mut self, place: usize, view: &GroupView<'_>, comm_rank: i64) {
        let rank = view.global(comm_rank);
        let mut call = NcclCall::new("ncclCommInitRank");
        call.phase = Phase::Exit;
        call.comm_uid_hash = place.to_string().into();
        call.comm_rank = comm_rank;
        call.comm_nranks = i64::try_from(view.size()).unwrap_or(i64::MAX);
        call.result = 0;
        let event = Event { header: header(rank), kind: EventKind::CommInit(call) };
        self.ranks.entry(rank).or_default().push(Call { record: 0, event });
    }

    fn run(&mut self, options: &Options) -> Vec<Finding> {
        let mut analyzer = Analyzer::new("", options.config);
        let first = self.ranks.values().flatten().map(|call| call.event.header.timestamp_unix_ns);
        let first = first.filter(|time| *time > 0).min().unwrap_or(self.end_ns);
        let receipt =
            |time: i64| Moment { monotonic_ns: time.saturating_sub(first).max(0), unix_ns: time };
        for (rank, calls) in &mut self.ranks {
            calls.sort_by_key(|call| call.record);
            let start = Event { header: header(*rank), kind: EventKind::ProcessStart };
            analyzer.ingest(&start, receipt(first));
            for (number, call) in (1..).zip(calls) {
                let moment = receipt(call.event.header.timestamp_unix_ns);
                if let EventKind::NcclCall(nccl) = &mut call.event.kind {
                    nccl.call_seq = number;
                }
                analyzer.ingest(&call.event, moment);
                // The program goes on once a call is enqueued.
                if let EventKind::NcclCall(nccl) = &mut call.event.kind {
                    nccl.phase = Phase::Exit;
                    nccl.result = 0;
                    analyzer.ingest(&call.event, moment);
                }
            }
        }
        let mut end = receipt(self.end_ns);
        let more = (options.stood_still_s.clamp(0.0, 1e9) * 1e9) as i64;
        end.monotonic_ns = end.monotonic_ns.saturating_add(more);
        analyzer.finish(end)
    }

    /// Puts the numbers and names of the dumps into a finding. Only causes of several symptoms are
    /// taken: single ones were found without.
    fn translate(&self, mut finding: Finding) -> Option<Cause> {
        let group: usize = finding.comm_uid_hash.parse().ok()?;
        let mut calls = Vec::new();
        let mut roots = Vec::new();
        let explained = match &mut finding.details {
            Details::CommunicatorDeadlock(details) => {
                details.cycle.iter_mut().for_each(|edge| self.edge(edge, &mut calls));
                details.orders.iter_mut().for_each(|call| self.last_call(call));
                &mut details.explained_findings
            }
            Details::RootBlocker(details) => {
                details.waits.iter_mut().for_each(|edge| self.edge(edge, &mut calls));
                details.waiting_rank_count =
                    details.waiting_rank_count.saturating_sub(self.unknown_waiting());
                for root in &mut details.roots {
                    root.pid = None;
                    root.last_call = root.rank.and_then(|rank| self.latest(rank));
                    roots.extend(root.rank);
                }
                &mut details.explained_findings
            }
            _ => return None,
        };
        let symptoms = explained.iter_mut().filter_map(|symptom| self.explained(symptom)).collect();
        let judged = self.judged.get(group)?;
        finding.comm_uid_hash = judged.view.group.name.to_string();
        finding.comm_seq = calls.first().map_or(-1, |(place, site)| self.number(*place, *site));
        Some(Cause { group, finding, calls, roots, explained: symptoms })
    }

    fn edge(&self, edge: &mut WaitEdge, calls: &mut Vec<(usize, Site)>) {
        let Ok(place) = edge.comm_uid_hash.parse::<usize>() else { return };
        let Some(group) = self.judged.get(place) else { return };
        if let Some(missing) = &group.rounds.missing {
            let unknown = unknown_ranks(group, missing.seq);
            edge.waiting_ranks
                .retain(|rank| !unknown.iter().any(|unknown| group.view.global(*unknown) == *rank));
        }
        let before = calls.len();
        for rank in &edge.waiting_ranks {
            let site = self.waits_in(place, *rank, edge.kind == WaitKind::P2p, edge.comm_seq);
            calls.extend(site.map(|site| (place, site)));
        }
        if let Some((place, site)) = calls.get(before) {
            edge.comm_seq = self.number(*place, *site);
            edge.api = self.api(*place, *site);
        }
        edge.comm_uid_hash = group.view.group.name.to_string();
    }

    /// The call of a rank in an open round, or in the burst of a number.
    fn waits_in(&self, place: usize, rank: i64, p2p: bool, burst: i64) -> Option<Site> {
        let group = self.judged.get(place)?;
        let of_rank = |site: &Site| group.view.global(site.comm_rank) == rank;
        if p2p {
            let calls = &group.pairs.bursts.get(usize::try_from(burst).ok()?)?.calls;
            return calls.iter().map(|lone: &Lone| lone.call.site).find(of_rank);
        }
        group.rounds.missing.as_ref()?.entered.iter().find(|site| of_rank(site)).copied()
    }

    /// A call of a circle: the one in which its rank waits.
    fn last_call(&self, call: &mut LastCall) {
        let Ok(place) = call.comm_uid_hash.parse::<usize>() else { return };
        let Some(group) = self.judged.get(place) else { return };
        let p2p = matches!(call.api.as_str(), "ncclSend" | "ncclRecv");
        if let Some(site) = self.waits_in(place, call.rank, p2p, call.comm_seq) {
            call.comm_seq = self.number(place, site);
            call.api = self.api(place, site);
        }
        call.comm_uid_hash = group.view.group.name.to_string();
    }

    fn explained(&self, symptom: &mut Explained) -> Option<Symptom> {
        let place: usize = symptom.comm_uid_hash.parse().ok()?;
        let group = self.judged.get(place)?;
        symptom.comm_uid_hash = group.view.group.name.to_string();
        if symptom.hang_type == HangType::CollectiveMissingEnter.as_str() {
            symptom.comm_seq = group.rounds.missing.as_ref()?.seq;
            return Some(Symptom::Missing(place));
        }
        let number = usize::try_from(symptom.comm_seq).ok()?;
        let first = group.pairs.bursts.get(number)?.calls.first()?;
        symptom.comm_seq = self.number(place, first.call.site);
        Some(Symptom::Burst(place, number))
    }

    /// The latest call of a rank in its whole dump.
    fn latest(&self, rank: i64) -> Option<LastCall> {
        let record = sites::last_record(self.set, rank)?;
        let group = self.set.groups.get(record.group as usize)?;
        Some(LastCall {
            api: sites::shape(self.set, record.shape)?.api().to_owned(),
            comm_seq: if record.p2p { record.p2p_seq } else { record.seq },
            comm_uid_hash: group.name.to_string(),
            phase: "enter",
            rank,
            timestamp_unix_ns: record.created_ns,
        })
    }

    /// Ranks about which nothing is known and that were let into calls.
    fn unknown_waiting(&self) -> i64 {
        let mut ranks = BTreeSet::new();
        for group in self.judged {
            if let Some(missing) = &group.rounds.missing {
                let unknown = unknown_ranks(group, missing.seq);
                ranks.extend(unknown.iter().map(|rank| group.view.global(*rank)));
            }
        }
        i64::try_from(ranks.len()).unwrap_or(i64::MAX)
    }

    fn number(&self, place: usize, site: Site) -> i64 {
        let rank = self.judged.get(place).map(|group| group.view.global(site.comm_rank));
        let record = rank.and_then(|rank| sites::record(self.set, rank, site.record));
        record.map_or(-1, |record| if record.p2p { record.p2p_seq } else { record.seq })
    }

    fn api(&self, place: usize, site: Site) -> String {
        let rank = self.judged.get(place).map(|group| group.view.global(site.comm_rank));
        rank.and_then(|rank| sites::record(self.set, rank, site.record))
            .and_then(|record| sites::shape(self.set, record.shape))
            .map(|shape| shape.api().to_owned())
            .unwrap_or_default()
    }
}

/// The process of a rank.
fn header(rank: i64) -> Header<'static> {
    Header { rank, pid: rank, ..Header::default() }
}

/// The function that an operation is for the analyzer: one that it knows to wait.
fn function(op: Op) -> &'static str {
    op.nccl_name().unwrap_or("ncclAllReduce")
}

/// The calls of a rank from a number on.
fn after<'t>(timeline: &'t Timeline<'_>, from: i64) -> &'t [crate::fr::timeline::Call] {
    let start = timeline.calls.partition_point(|call| call.seq < from);
    timeline.calls.get(start..).unwrap_or_default()
}

/// Ranks of a group of which nobody knows whether they have entered a round.
fn unknown_ranks(group: &Judged<'_>, seq: i64) -> Vec<i64> {
    let mut unknown = group.view.without_dump.clone();
    for timeline in &group.view.timelines {
        let begins_later = timeline.calls.first().is_some_and(|call| call.seq > seq);
        let silent = timeline.calls.is_empty() && timeline.coverage == Coverage::Recent;
        let named = group.rounds.missing.as_ref().is_some_and(|missing| {
            missing.behind.is_empty() && missing.overwritten.contains(&timeline.comm_rank)
        });
        if begins_later || timeline.coverage == Coverage::Partial || (silent && !named) {
            unknown.push(timeline.comm_rank);
        }
    }
    unknown.sort_unstable();
    unknown
}
