//! Details of findings about rounds of a communicator. Fields stand in the order of the JSON keys.

use serde::{Deserialize, Serialize};

use super::{Confidence, Explained, by_rank};

/// What a rank called in a round.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Signature {
    /// The function.
    pub api: String,
    /// Elements.
    pub count: i64,
    /// `ncclDataType_t`.
    pub datatype: i64,
    /// `ncclRedOp_t`.
    pub op: i64,
    /// Root.
    pub root: i64,
}

/// In what the calls of a round differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MismatchType {
    /// The functions differ.
    ApiMismatch,
    /// Roots of rooted calls differ, and maybe other parameters.
    RootMismatch,
    /// Counts, datatypes or operations differ.
    ParameterMismatch,
}

/// Details of `collective_signature_mismatch`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SignatureMismatch {
    /// The function by communicator rank, for an [`MismatchType::ApiMismatch`].
    #[serde(serialize_with = "optional_by_rank")]
    pub api_by_comm_rank: Option<Vec<(i64, String)>>,
    /// Always confirmed.
    pub confidence: Confidence,
    /// Ranks that have entered.
    pub entered_comm_ranks: Vec<i64>,
    /// Ranks of the communicator.
    pub expected_nranks: i64,
    /// Symptoms elsewhere that this explains and that are no findings of their own.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub explained_findings: Vec<Explained>,
    /// In what they differ.
    pub mismatch_type: MismatchType,
    /// The whole call by communicator rank, for the other types.
    #[serde(serialize_with = "optional_by_rank")]
    pub signature_by_comm_rank: Option<Vec<(i64, Signature)>>,
}

/// What is known of the heartbeats of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Heartbeats {
    /// The latest is recent.
    Alive,
    /// The latest is older than the timeout, or the process said goodbye.
    Stale,
    /// None was seen.
    Unknown,
}

/// What is known about a rank that has not entered.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MissingRankStatus {
    /// Rank in the communicator.
    pub comm_rank: i64,
    /// Its heartbeats.
    pub heartbeat: Heartbeats,
    /// Seconds since the latest.
    pub heartbeat_age_s: Option<f64>,
    /// Events that its probe dropped.
    pub probe_dropped_events: Option<i64>,
    /// Global rank, where known.
    pub rank: Option<i64>,
}

/// Details of `collective_missing_enter`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CollectiveMissingEnter {
    /// The function that the others called; several, joined by `|`, where they differ.
    pub api: String,
    /// Observed, or suspected where the absence may be a loss of events.
    pub confidence: Confidence,
    /// Phase by the heartbeats of the missing ranks, `mixed` or `unknown`.
    pub detection_phase: String,
    /// The timeout that applied, seconds.
    pub detection_threshold_s: f64,
    /// Ranks that have entered.
    pub entered_comm_ranks: Vec<i64>,
    /// Ranks of the communicator.
    pub expected_nranks: i64,
    /// Ranks that have not.
    pub missing_comm_ranks: Vec<i64>,
    /// What is known about each of them.
    pub missing_rank_status: Vec<MissingRankStatus>,
    /// `probe_event_loss_possible`, `rank_exit_or_crash_suspected`, `rank_alive_but_not_entered`
    /// or `missing_rank_status_unknown`.
    pub reason: &'static str,
    /// `normal_collective_phase` or `heartbeat_phase_checkpointing`.
    pub threshold_reason: &'static str,
    /// Whether the trace ended before the timeout had passed.
    pub trace_ended_early: bool,
    /// Whether events of a missing rank may be lost.
    pub trace_event_loss_possible: bool,
    /// Seconds since the first rank entered.
    pub waited_s: f64,
}

/// Details of `delayed_collective_enter`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DelayedCollectiveEnter {
    /// The function.
    pub api: String,
    /// What the spread relies on.
    pub clock_assumption: &'static str,
    /// Always suspected.
    pub confidence: Confidence,
    /// Seconds between the first and the last rank.
    pub enter_spread_s: f64,
    /// Ranks that entered later than the threshold after the first.
    pub slow_comm_ranks: Vec<i64>,
    /// Always `pre_communication_slow`.
    pub slow_type: &'static str,
}

/// Details of `comm_init_missing_enter`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CommInitMissingEnter {
    /// The function that the others called.
    pub api: String,
    /// Observed, or suspected where the absence may be a loss of events.
    pub confidence: Confidence,
    /// Ranks that have entered: of the new communicator, or of the parent for a split or shrink.
    pub entered_comm_ranks: Vec<i64>,
    /// Ranks that have to call.
    pub expected_nranks: i64,
    /// Ranks that have not entered.
    pub missing_comm_ranks: Vec<i64>,
    /// What is known about each of them.
    pub missing_rank_status: Vec<MissingRankStatus>,
    /// The communicator that the new one is made from, `null` for none.
    pub parent_hash: Option<String>,
    /// As in [`CollectiveMissingEnter::reason`].
    pub reason: &'static str,
    /// Whether the trace ended before the timeout had passed.
    pub trace_ended_early: bool,
    /// Whether events of a missing rank may be lost.
    pub trace_event_loss_possible: bool,
    /// Seconds since the first rank entered.
    pub waited_s: f64,
}

/// Details of `datatype_contract`: of a round, or of a send and its receive.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DatatypeContract {
    /// Bytes that every side moves.
    pub bytes: i64,
    /// Always observed.
    pub confidence: Confidence,
    /// The whole call by communicator rank.
    #[serde(serialize_with = "by_rank")]
    pub signature_by_comm_rank: Vec<(i64, Signature)>,
}

fn optional_by_rank<S, T>(items: &Option<Vec<(i64, T)>>, serializer: S) -> Result<S::Ok, S::Error>
where
    S: serde::Serializer,
    T: Serialize,
{
    match items {
        Some(items) => by_rank(items, serializer),
        None => serializer.serialize_none(),
    }
}
