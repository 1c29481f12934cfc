//! Details of findings about calls that did not return, or returned an error. Fields stand in the
//! order of the JSON keys.

use serde::Serialize;

use super::{Confidence, Heartbeats, by_rank};

/// Details of `nccl_missing_exit`: one call of one rank.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MissingExit {
    /// The function.
    pub api: String,
    /// Number of the call in its process.
    pub call_seq: i64,
    /// Rank in the communicator, `null` for a call on none.
    pub comm_rank: Option<i64>,
    /// Observed, or suspected where the exit may be a loss of events.
    pub confidence: Confidence,
    /// When it entered, by the wall clock of its host.
    pub enter_timestamp_unix_ns: i64,
    /// Always `api_enter_without_exit`.
    pub evidence: &'static str,
    /// Latest event of the process, by the wall clock of its host.
    pub last_record: LastRecord,
    /// Always `enter`.
    pub phase: &'static str,
    /// Process number.
    pub pid: i64,
    /// Heartbeats of the process.
    pub process_liveness: Heartbeats,
    /// Global rank.
    pub rank: i64,
    /// Always `nccl_api_entered_but_did_not_return`.
    pub reason: &'static str,
    /// Always `unknown`.
    pub root_cause_status: &'static str,
    /// Seconds since it entered.
    pub stuck_duration_s: f64,
    /// Whether the trace ended before the timeout had passed.
    pub trace_ended_early: bool,
}

/// The latest call that a process has recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LastRecord {
    /// The function, "" for none.
    pub api: String,
    /// Number of the call in its process.
    pub call_seq: i64,
    /// `enter` or `exit`.
    pub phase: &'static str,
    /// Wall clock of its host.
    pub timestamp_unix_ns: i64,
}

/// Details of `collective_missing_exit` and `collective_all_ranks_stuck`: the calls of a round.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RoundMissingExit {
    /// The function.
    pub api: String,
    /// Number of the call of the rank that is stuck longest, in its process.
    pub call_seq: i64,
    /// Observed, or suspected where the exits may be a loss of events.
    pub confidence: Confidence,
    /// When that rank entered, by the wall clock of its host.
    pub enter_timestamp_unix_ns: i64,
    /// Ranks that have entered.
    pub entered_comm_ranks: Vec<i64>,
    /// Always `api_enter_without_exit`.
    pub evidence: &'static str,
    /// Ranks that have returned.
    pub exited_comm_ranks: Vec<i64>,
    /// Ranks of the communicator.
    pub expected_nranks: i64,
    /// Latest event of the process that is stuck longest.
    pub last_record: LastRecord,
    /// Ranks that have not returned.
    pub missing_exit_comm_ranks: Vec<i64>,
    /// Always `enter`.
    pub phase: &'static str,
    /// Process number of the rank that is stuck longest.
    pub pid: i64,
    /// Its heartbeats.
    pub process_liveness: Heartbeats,
    /// Its global rank.
    pub rank: i64,
    /// Always `nccl_api_entered_but_did_not_return`.
    pub reason: &'static str,
    /// The function that the rank that is stuck longest is in.
    pub root_api: String,
    /// Always `unknown`: that a rank is stuck longest does not make it the cause.
    pub root_cause_status: &'static str,
    /// Rank in the communicator of the one that is stuck longest.
    pub root_comm_rank: i64,
    /// Global rank of the one that is stuck longest.
    pub root_rank: i64,
    /// Number of the round.
    pub root_seq: i64,
    /// Seconds since it entered, by rank that has not returned.
    #[serde(serialize_with = "by_rank")]
    pub stuck_duration_by_comm_rank: Vec<(i64, f64)>,
    /// Seconds of the rank that is stuck longest.
    pub stuck_duration_s: f64,
    /// `partial_ranks` or `all_ranks`.
    pub stuck_scope: &'static str,
    /// Whether the trace ended before the timeout had passed.
    pub trace_ended_early: bool,
}

/// Details of `nccl_error_exit`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ErrorExit {
    /// The function.
    pub api: String,
    /// Number of the call in its process.
    pub call_seq: i64,
    /// Rank in the communicator, `null` for a call on none.
    pub comm_rank: Option<i64>,
    /// Always observed.
    pub confidence: Confidence,
    /// When the call entered, by the wall clock of its host; `null` where that was not seen.
    pub enter_timestamp_unix_ns: Option<i64>,
    /// `cuda_error`, `system_or_rdma_error`, `nccl_internal_error`, `invalid_argument`,
    /// `invalid_usage`, `remote_error` or `unknown_error`.
    pub error_category: &'static str,
    /// Always `api_exit_with_error`.
    pub evidence: &'static str,
    /// The error's own record.
    pub last_record: LastRecord,
    /// Always `exit`.
    pub phase: &'static str,
    /// Process number.
    pub pid: i64,
    /// Heartbeats of the process.
    pub process_liveness: Heartbeats,
    /// Global rank.
    pub rank: i64,
    /// Always `nccl_api_returned_error`.
    pub reason: &'static str,
    /// `ncclResult_t`.
    pub result: i64,
    /// Its name.
    pub result_name: String,
    /// Always `unknown`.
    pub root_cause_status: &'static str,
    /// Seconds from the enter to the error, `null` where the enter was not seen.
    pub stuck_duration_s: Option<f64>,
}
