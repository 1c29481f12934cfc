//! Judging what is open.

mod cleanup;
mod graph;
mod judge;
mod liveness;
mod mismatch;
mod missing;
mod pairs;
mod picture;
mod stuck;
mod waits;

pub use picture::WaitGraph;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::comm::CommId;
use super::names::Name;
use super::process::ProcessId;
use super::{Analyzer, Moment, Ready, nanoseconds};
use crate::finding::{Confidence, Details, Finding, HangType};

/// What was given before and is not given again.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Functions of communicators whose datatypes were warned of.
    pub(super) datatype_warned: HashSet<(CommId, Name)>,
    /// The error in which a process's calls on a communicator end, until one succeeds.
    pub(super) failing: HashMap<(ProcessId, Option<CommId>), (Name, i64)>,
    /// Calls of a process whose error was given.
    pub(super) errors: HashMap<ProcessId, Vec<i64>>,
    /// Causes of waits that were given, while they last.
    causes: Vec<graph::ActiveCause>,
    /// Calls entered by all processes when `no_progress` was given.
    no_progress: Option<u64>,
}

/// What was given before and concerns a run as a whole.
#[derive(Debug, Default)]
pub(crate) struct Given {
    causes: Vec<graph::ActiveCause>,
    no_progress: Option<u64>,
}

impl Known {
    /// Takes out what concerns the run as a whole.
    pub(super) fn take_given(&mut self) -> Given {
        Given { causes: std::mem::take(&mut self.causes), no_progress: self.no_progress.take() }
    }

    /// Puts it in again; processes and communicators have the numbers that they had.
    pub(super) fn put_given(&mut self, given: Given) {
        (self.causes, self.no_progress) = (given.causes, given.no_progress);
    }
}

/// One scan: when, and how to judge.
#[derive(Debug, Clone, Copy)]
struct Scan {
    /// Now, on the analyzer's monotonic clock.
    now: i64,
    /// The moment at which a process must have lived: earlier than now where the trace ended before.
    alive_at: i64,
    /// The trace has ended: everything open is judged.
    ended: bool,
}

impl Scan {
    fn live(now: i64) -> Self {
        Self { now, alive_at: now, ended: false }
    }

    fn ended(now: i64) -> Self {
        Self { now, alive_at: now, ended: true }
    }

    fn age(self, receipt: i64) -> i64 {
        self.now.saturating_sub(receipt).max(0)
    }
}

impl Analyzer {
    /// Judges what is open, and gives what is new, sorted by kind, communicator and number.
    pub fn scan(&mut self, now: Moment) -> Vec<Finding> {
        self.judge(Scan::live(now.monotonic_ns), now)
    }

    /// Judges a trace that has ended at a moment: everything open is given. What had waited less
    /// than its timeout by then is marked `trace_ended_early` and at most suspected.
    pub fn finish(&mut self, end: Moment) -> Vec<Finding> {
        self.finish_after(end, Duration::ZERO)
    }

    /// As [`Analyzer::finish`], for a job that is known to have stood still for some time after the
    /// trace ended: everything has waited that much longer. Whether a process lived is judged at the
    /// end of the trace.
    pub fn finish_after(&mut self, end: Moment, stood_still: Duration) -> Vec<Finding> {
        let more = i64::try_from(stood_still.as_nanos()).unwrap_or(i64::MAX);
        let now = Moment {
            monotonic_ns: end.monotonic_ns.saturating_add(more),
            unix_ns: end.unix_ns.saturating_add(more),
        };
        let scan = Scan { alive_at: end.monotonic_ns, ..Scan::ended(now.monotonic_ns) };
        self.judge(scan, now)
    }

    fn judge(&mut self, scan: Scan, now: Moment) -> Vec<Finding> {
        self.settle(scan);
        let mut found = self.take_noted();
        let blamed = self.judge_mismatches(&mut found);
        self.judge_pairs(scan, &mut found);
        let waiting = self.judge_waits(scan, &blamed, &mut found);
        self.judge_stuck(scan, &blamed, &waiting, &mut found);
        self.judge_heartbeats(scan, &mut found);
        self.judge_progress(scan, &mut found);
        self.clean_up(scan);
        self.finished(found, now)
    }

    /// Closes the rounds for which lost events alone are awaited, and those which all ranks have
    /// entered but some with an unknown function or a collective of nothing.
    fn settle(&mut self, scan: Scan) {
        let timeout = nanoseconds(self.config.collective_timeout_s);
        let mut gaps: Vec<CommId> = Vec::new();
        let mut mixed = Vec::new();
        for (id, round) in self.rounds.iter() {
            let nranks = self.comms[round.comm].nranks;
            if round.lost > 0 {
                gaps.push(round.comm);
            }
            let in_time = !scan.ended && scan.age(round.first_receipt) < timeout;
            let all = round.missing(nranks).next().is_none() && round.entered > 0;
            if all && round.lost == 0 && !in_time {
                mixed.push(id);
            }
        }
        mixed.sort_by_key(|&id| (self.rounds[id].comm, self.rounds[id].seq));
        for id in mixed {
            self.finish_round(id);
        }
        gaps.sort_unstable();
        gaps.dedup();
        for comm in gaps {
            self.sweep_lost(comm, -1);
        }
    }

    fn finished(&self, found: Vec<Ready>, now: Moment) -> Vec<Finding> {
        let mut findings: Vec<Finding> = found
            .into_iter()
            .map(|ready| Finding {
                comm_seq: ready.comm_seq,
                comm_uid_hash: ready
                    .comm
                    .map_or(String::new(), |comm| self.text(self.comms[comm].name)),
                details: ready.details,
                detected_at_unix_ns: now.unix_ns,
                hang_type: ready.hang_type,
                run_id: self.run_id.clone(),
            })
            .collect();
        findings.sort_by_cached_key(|finding| {
            (finding.hang_type, finding.comm_uid_hash.clone(), finding.comm_seq, finding.to_json())
        });
        findings
    }

    /// A finding about a communicator's call.
    pub(super) fn about(
        comm: CommId,
        comm_seq: i64,
        hang_type: HangType,
        details: Details,
    ) -> Ready {
        Ready { comm: Some(comm), comm_seq, hang_type, details }
    }
}

/// The confidence of something that was waited for less long than its timeout.
fn early(confidence: Confidence, trace_ended_early: bool) -> Confidence {
    if trace_ended_early { confidence.min(Confidence::Suspected) } else { confidence }
}
