//! From dumps to findings.

mod apart;

use std::collections::BTreeSet;

use crate::analyzer::signature::Relation;
use crate::finding::{
    AmbiguousP2p, CollectiveMissingEnter, Confidence, DatatypeContract, DelayedCollectiveEnter,
    Details, Finding, HangType, Heartbeats, MismatchType, MissingRankStatus, P2pCallMismatch,
    P2pMissingCounterpart, P2pSide, SignatureMismatch,
};
use crate::fr::calls::{Calls, Made};
use crate::fr::judged::Judged;
use crate::fr::p2p::{self, Burst, Lone, Numbered, PairMismatch, Pairs, Undecided};
use crate::fr::replay::{self, Cause, Symptom};
use crate::fr::report::{Located, Note, Options, ProcessGroup, Report};
use crate::fr::rounds::{self, Delay, GroupView, Mismatch, Missing, Rounds, Site};
use crate::fr::set::{Coverage, DumpSet};
use crate::fr::sites::{self, Sites};
use crate::fr::stuck;

/// Open calls that an ambiguity lists.
const MAX_CANDIDATES: usize = 16;

const CLOCK_ASSUMPTION: &str = "hosts have synchronized wall clocks";

impl DumpSet {
    /// Matches the calls of all ranks.
    ///
    /// Nothing is concluded about ranks without a dump, nor from what a ring buffer has lost.
    pub fn analyze(&self, options: &Options) -> Report {
        let mut analysis = Analysis {
            set: self,
            calls: Calls::new(&self.shapes),
            options,
            end_ns: self.end_ns(),
            report: Report::default(),
            found: Vec::new(),
        };
        analysis.note_dumps();
        let views = (0..).take(self.groups.len()).filter_map(|number| GroupView::new(self, number));
        let judged: Vec<Judged<'_>> = views.map(|view| analysis.judge(view)).collect();
        let mut causes = replay::causes(self, &judged, &analysis.calls, options, analysis.end_ns);
        let followers = stuck::followers(self, &judged, &mut causes);
        let of_causes = causes.iter().map(|cause| &cause.explained);
        let explained: BTreeSet<Symptom> =
            of_causes.chain(followers.values()).flatten().copied().collect();
        for (place, group) in judged.iter().enumerate() {
            analysis.group(place, group, &explained);
            let elsewhere = followers.get(&place).into_iter().flatten();
            let elsewhere = elsewhere.filter_map(|one| analysis.symptom(&judged, *one)).collect();
            analysis.diverged(group, elsewhere);
        }
        for cause in causes {
            analysis.cause(&judged, cause);
        }
        analysis.finish()
    }

    /// The latest time of any dump: the dumps were taken then or later.
    fn end_ns(&self) -> i64 {
        let records = self.dumps.iter().flat_map(|dump| &dump.records);
        records.map(|record| record.created_ns.max(record.completed_ns)).max().unwrap_or(-1)
    }
}

struct Analysis<'a> {
    set: &'a DumpSet,
    calls: Calls,
    options: &'a Options,
    end_ns: i64,
    report: Report,
    found: Vec<(Order, Located)>,
}

/// Where a finding stands among the findings: the time of its first call, the group, the number of
/// the call, the kind.
type Order = (i64, u32, i64, HangType);

impl Analysis<'_> {
    fn note_dumps(&mut self) {
        if let [only] = &self.set.dumps[..] {
            self.report.notes.push(Note::OneDump { rank: only.rank });
        }
        let missing = self.set.missing_ranks();
        if !missing.is_empty() {
            self.report.notes.push(Note::MissingDumps { ranks: missing });
        }
        let partial = self.set.dumps.iter().filter(|dump| dump.coverage == Coverage::Partial);
        let partial: Vec<i64> = partial.map(|dump| dump.rank).collect();
        if !partial.is_empty() {
            self.report.notes.push(Note::PartialDumps { ranks: partial });
        }
    }

    fn judge<'v>(&mut self, view: GroupView<'v>) -> Judged<'v> {
        let delay_ns = nanoseconds(self.options.config.delayed_enter_threshold_s);
        let rounds = rounds::judge(&view, &self.calls, &self.set.shapes, delay_ns);
        let pairs = p2p::judge(&view, &self.calls);
        self.report.rounds = self.report.rounds.saturating_add(rounds.compared);
        self.report.pairs = self.report.pairs.saturating_add(pairs.paired);
        Judged { view, rounds, pairs }
    }

    /// Adds what was found on a group alone, apart from what a cause explains.
    fn group(&mut self, place: usize, judged: &Judged<'_>, explained: &BTreeSet<Symptom>) {
        let Judged { view, rounds, pairs } = judged;
        self.group_notes(view, rounds, pairs);
        for mismatch in &rounds.mismatches {
            self.mismatch(view, mismatch);
        }
        if let Some(missing) = &rounds.missing
            && !explained.contains(&Symptom::Missing(place))
        {
            self.missing(view, missing);
        }
        for delay in &rounds.delays {
            self.delay(view, delay);
        }
        for mismatch in &pairs.mismatches {
            self.pair_mismatch(view, mismatch);
        }
        for (number, burst) in pairs.bursts.iter().enumerate() {
            if !explained.contains(&Symptom::Burst(place, number)) {
                self.burst(view, burst);
            }
        }
        for undecided in &pairs.undecided {
            self.undecided(view, undecided);
        }
    }

    /// Adds a cause of several symptoms.
    fn cause(&mut self, judged: &[Judged<'_>], cause: Cause) {
        let Some(group) = judged.get(cause.group) else { return };
        let mut call_sites = Sites::new(self.set);
        let mut created_ns = i64::MAX;
        for (place, site) in &cause.calls {
            if let Some(group) = judged.get(*place) {
                call_sites.call(&group.view, *site);
                created_ns = created_ns.min(self.created_ns(&group.view, *site));
            }
        }
        cause.roots.iter().for_each(|rank| call_sites.last_call(*rank));
        let finding = Finding { run_id: self.options.run_id.clone(), ..cause.finding };
        let order = (created_ns, group.view.number, finding.comm_seq, finding.hang_type);
        self.found.push((order, located(&group.view, finding, call_sites)));
    }

    fn group_notes(&mut self, view: &GroupView<'_>, rounds: &Rounds, pairs: &Pairs) {
        let group = view.group.name.to_string();
        let notes = &mut self.report.notes;
        for timeline in view.timelines.iter().filter(|timeline| timeline.other_rank) {
            notes.push(Note::OtherRank { rank: timeline.dump.rank });
        }
        for undecided in &pairs.undecided {
            notes.push(Note::UndecidedP2p {
                group: group.clone(),
                src_comm_rank: undecided.src,
                dst_comm_rank: undecided.dst,
                sends: undecided.sends,
                recvs: undecided.recvs,
            });
        }
        let count = rounds.more_mismatches.saturating_add(pairs.more_mismatches);
        if count > 0 {
            notes.push(Note::MoreMismatches { group: group.clone(), count });
        }
        if let Some(open) = &rounds.open {
            let ranks = globals(view, &open.not_completed);
            let api = self.api(view, open.site);
            let without_dump = globals(view, &view.without_dump);
            let seq = open.seq;
            let note = Note::NotCompleted { group, api, seq, ranks, without_dump };
            self.report.notes.push(note);
        }
    }

    fn mismatch(&mut self, view: &GroupView<'_>, mismatch: &Mismatch) {
        let calls = &mismatch.verdict.calls;
        let signatures =
            || calls.iter().map(|(rank, called)| (*rank, self.calls.describe(called))).collect();
        let sites = &mismatch.sites;
        match mismatch.verdict.relation {
            Relation::Equal => {}
            Relation::OtherDatatype => {
                let bytes = calls.iter().find_map(|(_, called)| called.bytes()).unwrap_or(-1);
                let details = Details::DatatypeContract(DatatypeContract {
                    bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
                    confidence: Confidence::Observed,
                    signature_by_comm_rank: signatures(),
                });
                self.add(view, mismatch.seq, HangType::DatatypeContract, details, sites, &[]);
            }
            Relation::Differ { kind, certain } => {
                let of_api = kind == MismatchType::ApiMismatch;
                let apis = || {
                    let api = |called| self.calls.describe(called).api;
                    calls.iter().map(|(rank, called)| (*rank, api(called))).collect()
                };
                let details = Details::SignatureMismatch(SignatureMismatch {
                    api_by_comm_rank: of_api.then(apis),
                    confidence: if certain { Confidence::Confirmed } else { Confidence::Suspected },
                    entered_comm_ranks: calls.iter().map(|(rank, _)| *rank).collect(),
                    expected_nranks: size(view),
                    explained_findings: Vec::new(),
                    mismatch_type: kind,
                    signature_by_comm_rank: (!of_api).then(signatures),
                });
                let kind = HangType::CollectiveSignatureMismatch;
                self.add(view, mismatch.seq, kind, details, sites, &[]);
            }
        }
    }

    fn missing(&mut self, view: &GroupView<'_>, missing: &Missing) {
        let waited_s = self.waited_s(missing.first_created_ns);
        let threshold = self.options.config.collective_timeout_s;
        let early = waited_s < threshold;
        let lost = missing.behind.is_empty();
        let mut ranks = missing.behind.clone();
        if lost {
            ranks.clone_from(&missing.overwritten);
        }
        let status = |comm_rank: &i64| MissingRankStatus {
            comm_rank: *comm_rank,
            heartbeat: Heartbeats::Unknown,
            heartbeat_age_s: None,
            probe_dropped_events: None,
            rank: Some(view.global(*comm_rank)),
        };
        let mut apis: Vec<String> =
            missing.entered.iter().map(|site| self.api(view, *site)).collect();
        apis.sort_unstable();
        apis.dedup();
        let details = Details::CollectiveMissingEnter(CollectiveMissingEnter {
            api: apis.join("|"),
            confidence: if early || lost { Confidence::Suspected } else { Confidence::Observed },
            detection_phase: "unknown".to_owned(),
            detection_threshold_s: threshold,
            entered_comm_ranks: missing.entered.iter().map(|site| site.comm_rank).collect(),
            expected_nranks: size(view),
            missing_rank_status: ranks.iter().map(status).collect(),
            reason: if lost { "probe_event_loss_possible" } else { "missing_rank_status_unknown" },
            threshold_reason: "normal_collective_phase",
            trace_ended_early: early,
            trace_event_loss_possible: lost,
            waited_s,
            missing_comm_ranks: ranks.clone(),
        });
        let kind = HangType::CollectiveMissingEnter;
        self.add(view, missing.seq, kind, details, &missing.entered, &ranks);
    }

    fn delay(&mut self, view: &GroupView<'_>, delay: &Delay) {
        let api = delay.sites.first().map(|site| self.api(view, *site)).unwrap_or_default();
        let details = Details::DelayedCollectiveEnter(DelayedCollectiveEnter {
            api,
            clock_assumption: CLOCK_ASSUMPTION,
            confidence: Confidence::Suspected,
            enter_spread_s: seconds(delay.spread_ns),
            slow_comm_ranks: delay.slow.clone(),
            slow_type: "pre_communication_slow",
        });
        let kind = HangType::DelayedCollectiveEnter;
        self.add(view, delay.seq, kind, details, &delay.sites, &[]);
    }

    fn pair_mismatch(&mut self, view: &GroupView<'_>, pair: &PairMismatch) {
        let sites = [pair.send.site, pair.recv.site];
        let seq = self.p2p_seq(view, pair.send.site);
        if pair.relation == Relation::OtherDatatype {
            let signature = |numbered: &Numbered| {
                let shape = sites::record(
                    self.set,
                    view.global(numbered.site.comm_rank),
                    numbered.site.record,
                )
                .map_or(0, |record| record.shape);
                let whole = self.calls.whole(Made { comm_rank: numbered.site.comm_rank, shape });
                (numbered.site.comm_rank, whole)
            };
            let mut both = [signature(&pair.send), signature(&pair.recv)];
            both.sort_by_key(|(rank, _)| *rank);
            let bytes = both.iter().find_map(|(_, called)| called.bytes()).unwrap_or(-1);
            let details = Details::DatatypeContract(DatatypeContract {
                bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
                confidence: Confidence::Observed,
                signature_by_comm_rank: both
                    .iter()
                    .map(|(rank, called)| (*rank, self.calls.describe(called)))
                    .collect(),
            });
            return self.add(view, seq, HangType::DatatypeContract, details, &sites, &[]);
        }
        let details = Details::P2pCallMismatch(P2pCallMismatch {
            clock_assumption: CLOCK_ASSUMPTION,
            confidence: Confidence::Confirmed,
            dst_comm_rank: pair.dst,
            mismatch_type: "count_or_datatype_mismatch",
            recv: self.side(view, &pair.recv),
            send: self.side(view, &pair.send),
            src_comm_rank: pair.src,
        });
        self.add(view, seq, HangType::P2pCallMismatch, details, &sites, &[]);
    }

    fn burst(&mut self, view: &GroupView<'_>, burst: &Burst) {
        let created = |site: Site| self.created_ns(view, site);
        let Some(first) = burst.calls.iter().min_by_key(|lone| (created(lone.call.site), lone.src))
        else {
            return;
        };
        let mut directions: Vec<String> =
            burst.calls.iter().map(|lone| format!("{}->{}", lone.src, lone.dst)).collect();
        directions.sort_unstable();
        directions.dedup();
        let seqs = || burst.calls.iter().map(|lone| self.p2p_seq(view, lone.call.site));
        let indexes = || burst.calls.iter().filter_map(|lone| lone.call.index);
        let side = self.side(view, &first.call);
        let waited_s = self.waited_s(created(first.call.site));
        let apis = ["ncclSend", "ncclRecv"];
        let [observed, expected] = if first.sends { apis } else { [apis[1], apis[0]] };
        let details = Details::P2pMissingCounterpart(P2pMissingCounterpart {
            affected_directions: directions,
            aggregated_missing_call_count: i64::try_from(burst.calls.len()).unwrap_or(i64::MAX),
            clock_assumption: CLOCK_ASSUMPTION,
            comm_seq_range: [seqs().min().unwrap_or(-1), seqs().max().unwrap_or(-1)],
            confidence: Confidence::Suspected,
            count: side.count,
            datatype: side.datatype,
            dst_comm_rank: first.dst,
            expected_api: expected,
            local_group_id: 0,
            local_group_op_index: -1,
            local_p2p_op_index: first.call.index,
            local_p2p_op_index_range: indexes().min().zip(indexes().max()).map(|(a, b)| [a, b]),
            observed_api: observed.to_owned(),
            reason: "counterpart_not_observed_in_match_window",
            src_comm_rank: first.src,
            trace_ended_early: waited_s < self.options.config.p2p_timeout_s,
            waited_s,
        });
        let silent = if first.sends { first.dst } else { first.src };
        let (seq, sites) = (self.p2p_seq(view, first.call.site), [first.call.site]);
        self.add(view, seq, HangType::P2pMissingCounterpart, details, &sites, &[silent]);
    }

    /// Sends and receives that could not be paired and that are open for longer than the timeout.
    ///
    /// Where one side has open calls and the other has none, what the other has called is over, and
    /// so is its other side: the open calls are without counterpart. Where both have some, nobody
    /// knows which belong together.
    fn undecided(&mut self, view: &GroupView<'_>, undecided: &Undecided) {
        let timeout = self.options.config.p2p_timeout_s;
        let overdue = |sites: &[Site]| -> Vec<Site> {
            let old = |site: &&Site| self.waited_s(self.created_ns(view, **site)) >= timeout;
            sites.iter().filter(old).copied().collect()
        };
        let (sends, recvs) = (overdue(&undecided.open_sends), overdue(&undecided.open_recvs));
        let (src, dst) = (undecided.src, undecided.dst);
        if sends.is_empty() && recvs.is_empty() {
            return;
        }
        if undecided.open_sends.is_empty() || undecided.open_recvs.is_empty() {
            let lone =
                |sends| move |site| Lone { src, dst, sends, call: Numbered { site, index: None } };
            let calls = sends.into_iter().map(lone(true)).chain(recvs.into_iter().map(lone(false)));
            let calls: Vec<Lone> = calls.collect();
            return self.burst(view, &Burst { calls });
        }
        let sites: Vec<Site> = sends.into_iter().chain(recvs).take(MAX_CANDIDATES).collect();
        let side = |site: &Site| self.side(view, &Numbered { site: *site, index: None });
        let details = Details::AmbiguousP2p(AmbiguousP2p {
            candidate_calls: sites.iter().map(side).collect(),
            clock_assumption: CLOCK_ASSUMPTION,
            confidence: Confidence::Unknown,
            dst_comm_rank: dst,
            reason: "multiple_time_window_candidates",
            src_comm_rank: src,
            trace_ended_early: false,
        });
        let seq = sites.first().map_or(-1, |site| self.p2p_seq(view, *site));
        self.add(view, seq, HangType::AmbiguousP2pMatch, details, &sites, &[]);
    }

    fn created_ns(&self, view: &GroupView<'_>, site: Site) -> i64 {
        sites::record(self.set, view.global(site.comm_rank), site.record)
            .map_or(i64::MAX, |record| record.created_ns)
    }

    fn side(&self, view: &GroupView<'_>, numbered: &Numbered) -> P2pSide {
        let rank = numbered.site.comm_rank;
        let record =
            sites::record(self.set, view.global(rank), numbered.site.record).unwrap_or_default();
        let called = self.calls.whole(Made { comm_rank: rank, shape: record.shape });
        P2pSide {
            api: self.calls.describe(&called).api,
            call_seq: record.op_id,
            comm_seq: record.p2p_seq,
            count: called.count,
            datatype: called.datatype,
            group_id: 0,
            p2p_op_index: numbered.index,
            timestamp_unix_ns: record.created_ns,
        }
    }

    fn p2p_seq(&self, view: &GroupView<'_>, site: Site) -> i64 {
        sites::record(self.set, view.global(site.comm_rank), site.record)
            .map_or(-1, |record| record.p2p_seq)
    }

    fn api(&self, view: &GroupView<'_>, site: Site) -> String {
        sites::record(self.set, view.global(site.comm_rank), site.record)
            .and_then(|record| sites::shape(self.set, record.shape))
            .map(|shape| shape.api().to_owned())
            .unwrap_or_default()
    }

    /// Seconds from a call to the latest time in any dump, and what the user knows beyond it.
    fn waited_s(&self, created_ns: i64) -> f64 {
        let seen = if created_ns > 0 { self.end_ns.saturating_sub(created_ns).max(0) } else { 0 };
        seconds(seen) + self.options.stood_still_s.max(0.0)
    }

    /// Adds a finding about calls and, where some ranks have not made them, about these ranks.
    fn add(
        &mut self,
        view: &GroupView<'_>,
        seq: i64,
        hang_type: HangType,
        details: Details,
        about: &[Site],
        silent: &[i64],
    ) {
        let mut call_sites = Sites::new(self.set);
        about.iter().for_each(|site| call_sites.call(view, *site));
        silent.iter().for_each(|comm_rank| call_sites.last_call(view.global(*comm_rank)));
        let created = about.iter().map(|site| self.created_ns(view, *site));
        let order = (created.min().unwrap_or(i64::MAX), view.number, seq, hang_type);
        let finding = Finding {
            comm_seq: seq,
            comm_uid_hash: view.group.name.to_string(),
            details,
            detected_at_unix_ns: self.end_ns,
            hang_type,
            run_id: self.options.run_id.clone(),
        };
        self.found.push((order, located(view, finding, call_sites)));
    }

    fn finish(mut self) -> Report {
        self.found.sort_by_key(|(order, _)| *order);
        self.report.findings = self.found.into_iter().map(|(_, located)| located).collect();
        self.report.notes.sort();
        self.report.notes.dedup();
        self.report
    }
}

fn located(view: &GroupView<'_>, finding: Finding, call_sites: Sites<'_>) -> Located {
    Located {
        finding,
        process_group: ProcessGroup {
            description: view.group.description.to_string(),
            name: view.group.name.to_string(),
            ranks: view.group.ranks.clone(),
        },
        call_sites: call_sites.finish(),
        ranks_without_dump: globals(view, &view.without_dump),
    }
}

fn globals(view: &GroupView<'_>, comm_ranks: &[i64]) -> Vec<i64> {
    comm_ranks.iter().map(|rank| view.global(*rank)).collect()
}

fn size(view: &GroupView<'_>) -> i64 {
    i64::try_from(view.size()).unwrap_or(i64::MAX)
}

fn seconds(nanoseconds: i64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// Settings are at most a billion seconds.
fn nanoseconds(seconds: f64) -> i64 {
    (seconds * 1e9) as i64
}
