//! What is wrong for certain when an event comes, and waits for the next scan to be given.

use serde::{Deserialize, Serialize};

use super::comm::CommId;
use super::ingest::CLOCKS;
use super::names::Name;
use super::process::ProcessId;
use super::signature::Called;
use super::{Analyzer, Ready, seconds};
use crate::finding::{
    Confidence, DatatypeContract, DelayedCollectiveEnter, Details, ErrorExit, HangType, Heartbeats,
    LastRecord,
};

/// A finding without its words.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Noted {
    /// Equal bytes under different datatypes.
    Datatypes {
        comm: CommId,
        seq: i64,
        /// `None` where they are not known, or beyond an `i64`.
        bytes: Option<i64>,
        /// By rank in the communicator.
        calls: Vec<(i64, Called)>,
    },
    /// Ranks that entered a complete round much later than the first.
    Late { comm: CommId, seq: i64, api: Name, spread: i64, ranks: Vec<i64> },
    /// A call that returned an error.
    Failed(Failed),
}

/// A call that returned an error.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Failed {
    pub(crate) process: ProcessId,
    pub(crate) comm: Option<CommId>,
    pub(crate) comm_seq: i64,
    pub(crate) comm_rank: i64,
    pub(crate) call_seq: i64,
    pub(crate) api: String,
    /// Wall clock of the host when it entered, where that was seen.
    pub(crate) entered: Option<i64>,
    /// Wall clock of the host when it returned.
    pub(crate) returned: i64,
    pub(crate) result: i64,
    pub(crate) result_name: String,
    /// Of the process, when the event came.
    pub(crate) liveness: Heartbeats,
}

impl Analyzer {
    /// Keeps a finding for the next scan.
    pub(super) fn note(&mut self, noted: Noted) {
        if self.noted.len() < self.limits.findings {
            self.noted.push(noted);
        } else {
            self.reached.findings += 1;
        }
    }

    /// What was noted since the last scan.
    pub(super) fn take_noted(&mut self) -> Vec<Ready> {
        let noted = std::mem::take(&mut self.noted);
        noted.into_iter().map(|noted| self.worded_note(noted)).collect()
    }

    fn worded_note(&self, noted: Noted) -> Ready {
        match noted {
            Noted::Datatypes { comm, seq, bytes, calls } => {
                let whole = |(rank, called): (i64, Called)| (rank, called.describe(&self.names));
                let mut signature_by_comm_rank: Vec<_> = calls.into_iter().map(whole).collect();
                signature_by_comm_rank.sort();
                let details = Details::DatatypeContract(DatatypeContract {
                    bytes: bytes.unwrap_or(i64::MAX),
                    confidence: Confidence::Observed,
                    signature_by_comm_rank,
                });
                Self::about(comm, seq, HangType::DatatypeContract, details)
            }
            Noted::Late { comm, seq, api, spread, ranks } => {
                let details = Details::DelayedCollectiveEnter(DelayedCollectiveEnter {
                    api: self.text(api),
                    clock_assumption: CLOCKS,
                    confidence: Confidence::Suspected,
                    enter_spread_s: seconds(spread),
                    slow_comm_ranks: ranks,
                    slow_type: "pre_communication_slow",
                });
                Self::about(comm, seq, HangType::DelayedCollectiveEnter, details)
            }
            Noted::Failed(failed) => self.failed_call(failed),
        }
    }

    fn failed_call(&self, failed: Failed) -> Ready {
        let process = &self.processes[failed.process];
        let comm_seq = if failed.comm.is_some() { failed.comm_seq } else { -1 };
        let details = Details::ErrorExit(ErrorExit {
            api: failed.api.clone(),
            call_seq: failed.call_seq,
            comm_rank: (failed.comm_rank >= 0).then_some(failed.comm_rank),
            confidence: Confidence::Observed,
            enter_timestamp_unix_ns: failed.entered,
            error_category: category(failed.result),
            evidence: "api_exit_with_error",
            last_record: LastRecord {
                api: failed.api,
                call_seq: failed.call_seq,
                phase: "exit",
                timestamp_unix_ns: failed.returned,
            },
            phase: "exit",
            pid: process.pid,
            process_liveness: failed.liveness,
            rank: process.rank,
            reason: "nccl_api_returned_error",
            result: failed.result,
            result_name: failed.result_name,
            root_cause_status: "unknown",
            stuck_duration_s: failed
                .entered
                .map(|entered| seconds(failed.returned.saturating_sub(entered))),
        });
        Ready { comm: failed.comm, comm_seq, hang_type: HangType::NcclErrorExit, details }
    }
}

/// What kind of error an `ncclResult_t` is.
fn category(result: i64) -> &'static str {
    match result {
        1 => "cuda_error",
        2 => "system_or_rdma_error",
        3 => "nccl_internal_error",
        4 => "invalid_argument",
        5 => "invalid_usage",
        6 => "remote_error",
        _ => "unknown_error",
    }
}
