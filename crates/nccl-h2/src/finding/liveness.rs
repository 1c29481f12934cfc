//! Details of findings about silent processes. Fields stand in the order of the JSON keys.

use serde::Serialize;

use super::{Confidence, LastCall};

/// Details of `rank_heartbeat_timeout`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RankHeartbeatTimeout {
    /// Always suspected.
    pub confidence: Confidence,
    /// Events that the probe dropped so far.
    pub dropped_events: Option<i64>,
    /// Seconds since the latest heartbeat, or since the start where none came.
    pub heartbeat_age_s: f64,
    /// The latest NCCL call, by the latest heartbeat.
    pub last_nccl_api: Option<String>,
    /// Whether it had entered or returned.
    pub last_nccl_phase: Option<String>,
    /// Its number in the process.
    pub last_nccl_seq: Option<i64>,
    /// Monotonic clock of the host when that call was seen.
    pub last_progress_mono_ns: Option<i64>,
    /// Process number.
    pub pid: i64,
    /// Global rank.
    pub rank: i64,
    /// `probe_heartbeat_not_observed` or `rank_process_or_probe_thread_unresponsive`.
    pub reason: &'static str,
    /// `initial_heartbeat` or `subsequent_heartbeat`.
    pub timeout_type: &'static str,
}

/// Details of `no_progress`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NoProgress {
    /// Always suspected.
    pub confidence: Confidence,
    /// The latest call of every rank of the run.
    pub last_calls: Vec<LastCall>,
    /// Processes whose heartbeats go on.
    pub live_processes: i64,
    /// Always `all_rounds_complete_and_all_ranks_silent`.
    pub reason: &'static str,
    /// Seconds since the latest call of any rank.
    pub silent_s: f64,
}
