//! Processes that give no sign of life, and runs in which nothing happens.

use super::super::ingest::CHECKPOINTING;
use super::super::process::{Process, ProcessId};
use super::super::{Analyzer, Ready, nanoseconds, seconds};
use super::Scan;
use crate::finding::{
    Confidence, Details, HangType, Heartbeats, LastCall, NoProgress, RankHeartbeatTimeout,
};

/// Ranks whose latest call `no_progress` lists.
const MAX_LISTED: usize = 64;

impl Analyzer {
    pub(super) fn judge_heartbeats(&mut self, scan: Scan, found: &mut Vec<Ready>) {
        if !self.config.detect_heartbeat_timeouts {
            return;
        }
        for id in self.processes.in_order() {
            if let Some(details) = self.silent(id, scan) {
                self.processes[id].heartbeat_reported = true;
                found.push(Ready {
                    comm: None,
                    comm_seq: -1,
                    hang_type: HangType::RankHeartbeatTimeout,
                    details: Details::RankHeartbeatTimeout(details),
                });
            }
        }
    }

    fn silent(&self, id: ProcessId, scan: Scan) -> Option<RankHeartbeatTimeout> {
        let process = &self.processes[id];
        let (_, started) = process.started?;
        if process.ended || process.heartbeat_reported {
            return None;
        }
        let (since, timeout_s, timeout_type, reason) = match process.beat_receipt {
            None => (
                started,
                self.config.initial_heartbeat_timeout_s,
                "initial_heartbeat",
                "probe_heartbeat_not_observed",
            ),
            Some(beat) => (
                beat,
                self.config.heartbeat_timeout_s,
                "subsequent_heartbeat",
                "rank_process_or_probe_thread_unresponsive",
            ),
        };
        let age = scan.alive_at.saturating_sub(since).max(0);
        if age <= nanoseconds(timeout_s) {
            return None;
        }
        let beat = process.beat;
        let text = |name| (!self.names.text(name).is_empty()).then(|| self.text(name));
        let known = |value: i64| (value >= 0).then_some(value);
        Some(RankHeartbeatTimeout {
            confidence: Confidence::Suspected,
            dropped_events: process.dropped,
            heartbeat_age_s: seconds(age),
            last_nccl_api: beat.and_then(|beat| text(beat.api)),
            last_nccl_phase: beat.and_then(|beat| text(beat.call_phase)),
            last_nccl_seq: beat.and_then(|beat| known(beat.call_seq)),
            last_progress_mono_ns: beat.and_then(|beat| known(beat.progress_mono)),
            pid: process.pid,
            rank: process.rank,
            reason,
            timeout_type,
        })
    }

    /// Gives a run in which nothing is open, all processes live, and nobody calls anything.
    pub(super) fn judge_progress(&mut self, scan: Scan, found: &mut Vec<Ready>) {
        let entered = self.processes.iter().map(|(_, process)| process.entered).sum();
        if self.known.no_progress == Some(entered) {
            return;
        }
        let Some(details) = self.standstill(scan) else { return };
        self.known.no_progress = Some(entered);
        found.push(Ready {
            comm: None,
            comm_seq: -1,
            hang_type: HangType::NoProgress,
            details: Details::NoProgress(details),
        });
    }

    fn standstill(&mut self, scan: Scan) -> Option<NoProgress> {
        let nothing_open = self.rounds.len() == 0
            && self.channels.waiting() == 0
            && self.processes.iter().all(|(_, process)| process.open.is_empty());
        if !nothing_open {
            return None;
        }
        let alive_ns = nanoseconds(self.config.heartbeat_timeout_s);
        let (mut latest, mut live, mut checkpointing) = (None, 0, false);
        for (_, process) in self.processes.iter().filter(|(_, process)| !process.ended) {
            if process.captured {
                // What was recorded is replayed unseen: silence proves nothing.
                return None;
            }
            if process.liveness(scan.alive_at, alive_ns).0 != Heartbeats::Alive {
                return None;
            }
            checkpointing |= self.names.text(process.phase()) == CHECKPOINTING;
            latest = latest.max(process.call_receipt);
            live += 1;
        }
        let silent = scan.age(latest?);
        let timeout_s = match checkpointing {
            true => self.config.no_progress_timeout_s.max(self.config.checkpoint_timeout_s),
            false => self.config.no_progress_timeout_s,
        };
        if silent < nanoseconds(timeout_s) {
            return None;
        }
        let in_order = self.processes.in_order();
        let living = in_order.into_iter().filter(|&id| !self.processes[id].ended);
        let last_calls =
            living.filter_map(|id| self.last_call(&self.processes[id])).take(MAX_LISTED).collect();
        Some(NoProgress {
            confidence: Confidence::Suspected,
            last_calls,
            live_processes: live,
            reason: "all_rounds_complete_and_all_ranks_silent",
            silent_s: seconds(silent),
        })
    }

    /// The latest call of a process with its text.
    pub(super) fn last_call(&self, process: &Process) -> Option<LastCall> {
        let last = process.last?;
        Some(LastCall {
            api: self.text(last.api),
            comm_seq: last.comm_seq,
            comm_uid_hash: last.comm.map_or(String::new(), |comm| self.text(self.comms[comm].name)),
            phase: if last.entering { "enter" } else { "exit" },
            rank: process.rank,
            timestamp_unix_ns: last.unix,
        })
    }
}
