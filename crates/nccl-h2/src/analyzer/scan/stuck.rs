//! Calls that entered the library and did not return.

use std::collections::{BTreeMap, HashSet};

use super::super::comm::CommId;
use super::super::operation::Operation;
use super::super::process::{OpenCall, Process, ProcessId};
use super::super::{Analyzer, Ready, nanoseconds, seconds};
use super::mismatch::Blamed;
use super::{Scan, early};
use crate::finding::{Confidence, Details, HangType, LastRecord, MissingExit, RoundMissingExit};

const EVIDENCE: &str = "api_enter_without_exit";
const REASON: &str = "nccl_api_entered_but_did_not_return";

/// The calls of one round that have not returned, by process.
type Stuck = Vec<(ProcessId, OpenCall)>;

impl Analyzer {
    /// Gives calls that have not returned in time, by round where they are collectives. What an
    /// earlier layer tells of is not repeated.
    pub(super) fn judge_stuck(
        &mut self,
        scan: Scan,
        blamed: &Blamed,
        excused: &HashSet<ProcessId>,
        found: &mut Vec<Ready>,
    ) {
        let timeout = nanoseconds(self.config.missing_exit_timeout_s);
        let overdue = |open: &OpenCall| scan.age(open.receipt) >= timeout;
        let mut alone: Stuck = Vec::new();
        let mut rounds: BTreeMap<(CommId, i64), Stuck> = BTreeMap::new();
        for (id, process) in self.processes.iter() {
            if excused.contains(&id) {
                continue;
            }
            for open in process.open.iter().filter(|open| !open.reported) {
                let of_blamed = open.comm.is_some_and(|comm| {
                    blamed.get(&comm).is_some_and(|&first| open.comm_seq >= first)
                });
                if process.ended
                    || of_blamed
                    || !self.has_place(open)
                    || !(scan.ended || overdue(open))
                {
                    continue;
                }
                match self.round_of(open) {
                    Some(round) => rounds.entry(round).or_default().push((id, *open)),
                    None => alone.push((id, *open)),
                }
            }
        }
        for ((comm, seq), stuck) in rounds {
            found.extend(self.round_stuck(comm, seq, &stuck, scan, timeout));
            self.mark_stuck(&stuck);
        }
        for (id, open) in &alone {
            found.push(self.call_stuck(*id, open, scan, timeout));
        }
        self.mark_stuck(&alone);
    }

    /// Whether a collective, send or receive can be on its communicator: one of a rank that this has
    /// not was not accepted, and nothing is said of it.
    fn has_place(&self, open: &OpenCall) -> bool {
        let placed = open.operation.is_round()
            || matches!(open.operation, Operation::Send | Operation::Recv);
        let Some(comm) = open.comm.filter(|_| placed) else { return true };
        (0..self.comms[comm].nranks).contains(&open.comm_rank)
    }

    /// The round that a call stands for: a collective, or the end of a group with one.
    fn round_of(&self, open: &OpenCall) -> Option<(CommId, i64)> {
        let placed = open.operation.is_round() || open.operation == Operation::GroupEnd;
        open.comm.filter(|_| placed && open.comm_seq >= 0).map(|comm| (comm, open.comm_seq))
    }

    fn mark_stuck(&mut self, stuck: &Stuck) {
        for (id, call) in stuck {
            for open in &mut self.processes[*id].open {
                open.reported |= open.call_seq == call.call_seq && open.receipt == call.receipt;
            }
        }
    }

    fn call_stuck(&self, id: ProcessId, open: &OpenCall, scan: Scan, timeout: i64) -> Ready {
        let process = &self.processes[id];
        let age = scan.age(open.receipt);
        let trace_ended_early = age < timeout;
        let alive = nanoseconds(self.config.heartbeat_timeout_s);
        let details = Details::MissingExit(MissingExit {
            api: self.text(open.api),
            call_seq: open.call_seq,
            comm_rank: (open.comm_rank >= 0).then_some(open.comm_rank),
            confidence: early(self.return_seen(process), trace_ended_early),
            enter_timestamp_unix_ns: open.unix,
            evidence: EVIDENCE,
            last_record: self.last_record(process),
            phase: "enter",
            pid: process.pid,
            process_liveness: process.liveness(scan.alive_at, alive).0,
            rank: process.rank,
            reason: REASON,
            root_cause_status: "unknown",
            stuck_duration_s: seconds(age),
            trace_ended_early,
        });
        let (comm, comm_seq) = (open.comm, if open.comm.is_some() { open.comm_seq } else { -1 });
        Ready { comm, comm_seq, hang_type: HangType::NcclMissingExit, details }
    }

    fn round_stuck(
        &self,
        id: CommId,
        seq: i64,
        stuck: &Stuck,
        scan: Scan,
        timeout: i64,
    ) -> Option<Ready> {
        let comm = &self.comms[id];
        let rank_in = |process: ProcessId, open: &OpenCall| match open.comm_rank {
            rank if rank >= 0 => rank,
            _ => comm.rank_of(process).map_or(-1, |rank| rank as i64),
        };
        let mut ranks: Vec<(i64, ProcessId, OpenCall)> = stuck
            .iter()
            .map(|(process, open)| (rank_in(*process, open), *process, *open))
            .collect();
        ranks.sort_by_key(|&(rank, process, _)| (rank, process));
        let missing: Vec<i64> = ranks.iter().map(|&(rank, _, _)| rank).collect();
        let exited: Vec<i64> = (0..comm.nranks).filter(|rank| !missing.contains(rank)).collect();
        // Stuck for longest; of several the lowest rank.
        let &(root_rank, root, open) =
            ranks.iter().min_by_key(|(rank, _, open)| (open.receipt, *rank))?;
        let process = &self.processes[root];
        let all = exited.is_empty();
        let age = scan.age(open.receipt);
        let trace_ended_early = age < timeout;
        let seen = ranks
            .iter()
            .map(|&(_, process, _)| self.return_seen(&self.processes[process]))
            .min()
            .unwrap_or(Confidence::Suspected);
        let alive = nanoseconds(self.config.heartbeat_timeout_s);
        let details = Details::RoundMissingExit(RoundMissingExit {
            api: self.text(open.api),
            call_seq: open.call_seq,
            confidence: early(seen, trace_ended_early),
            enter_timestamp_unix_ns: open.unix,
            entered_comm_ranks: (0..comm.nranks).collect(),
            evidence: EVIDENCE,
            exited_comm_ranks: exited,
            expected_nranks: comm.nranks,
            last_record: self.last_record(process),
            missing_exit_comm_ranks: missing,
            phase: "enter",
            pid: process.pid,
            process_liveness: process.liveness(scan.alive_at, alive).0,
            rank: process.rank,
            reason: REASON,
            root_api: self.text(open.api),
            root_cause_status: "unknown",
            root_comm_rank: root_rank,
            root_rank: process.rank,
            root_seq: seq,
            stuck_duration_by_comm_rank: ranks
                .iter()
                .map(|(rank, _, open)| (*rank, seconds(scan.age(open.receipt))))
                .collect(),
            stuck_duration_s: seconds(age),
            stuck_scope: if all { "all_ranks" } else { "partial_ranks" },
            trace_ended_early,
        });
        let hang_type = match all {
            true => HangType::CollectiveAllRanksStuck,
            false => HangType::CollectiveMissingExit,
        };
        Some(Self::about(id, seq, hang_type, details))
    }

    /// How sure it is that a call has not returned.
    fn return_seen(&self, process: &Process) -> Confidence {
        if process.lost_events() { Confidence::Suspected } else { Confidence::Observed }
    }

    fn last_record(&self, process: &Process) -> LastRecord {
        match process.last {
            Some(last) => LastRecord {
                api: self.text(last.api),
                call_seq: last.call_seq,
                phase: if last.entering { "enter" } else { "exit" },
                timestamp_unix_ns: last.unix,
            },
            None => LastRecord {
                api: String::new(),
                call_seq: -1,
                phase: "enter",
                timestamp_unix_ns: -1,
            },
        }
    }
}
