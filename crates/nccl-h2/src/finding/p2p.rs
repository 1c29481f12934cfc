//! Details of findings about sends and receives. Fields stand in the order of the JSON keys.

use serde::Serialize;

use super::Confidence;

/// One side of a pair.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct P2pSide {
    /// `ncclSend` or `ncclRecv`.
    pub api: String,
    /// Number of the call in its process.
    pub call_seq: i64,
    /// Number of the call on the communicator.
    pub comm_seq: i64,
    /// Elements.
    pub count: i64,
    /// `ncclDataType_t`.
    pub datatype: i64,
    /// Number of its group, 0 for none.
    pub group_id: i64,
    /// Number among the calls of this peer and direction, `null` where nothing tells it.
    pub p2p_op_index: Option<i64>,
    /// When the call entered, by the wall clock of its host.
    pub timestamp_unix_ns: i64,
}

/// Details of `p2p_missing_counterpart`: the earliest of a burst between two ranks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct P2pMissingCounterpart {
    /// Directions in which calls of the burst have no counterpart: `SRC->DST`.
    pub affected_directions: Vec<String>,
    /// Calls of the burst.
    pub aggregated_missing_call_count: i64,
    /// What the pairing relies on.
    pub clock_assumption: &'static str,
    /// First and last `comm_seq` of the burst.
    pub comm_seq_range: [i64; 2],
    /// Always suspected.
    pub confidence: Confidence,
    /// Elements.
    pub count: i64,
    /// `ncclDataType_t`.
    pub datatype: i64,
    /// Receiving rank in the communicator.
    pub dst_comm_rank: i64,
    /// The call that was not seen.
    pub expected_api: &'static str,
    /// Number of the group of the observed call, 0 for none.
    pub local_group_id: i64,
    /// Place of the observed call in its group.
    pub local_group_op_index: i64,
    /// Number of the observed call among those of its peer and direction.
    pub local_p2p_op_index: Option<i64>,
    /// First and last number of the burst.
    pub local_p2p_op_index_range: Option<[i64; 2]>,
    /// The call that was seen.
    pub observed_api: String,
    /// Always `counterpart_not_observed_in_match_window`.
    pub reason: &'static str,
    /// Sending rank in the communicator.
    pub src_comm_rank: i64,
    /// Whether the trace ended before the timeout had passed.
    pub trace_ended_early: bool,
    /// Seconds since the call entered.
    pub waited_s: f64,
}

/// Details of `p2p_call_mismatch`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct P2pCallMismatch {
    /// What the pairing relies on.
    pub clock_assumption: &'static str,
    /// Always confirmed.
    pub confidence: Confidence,
    /// Receiving rank in the communicator.
    pub dst_comm_rank: i64,
    /// Always `count_or_datatype_mismatch`.
    pub mismatch_type: &'static str,
    /// The receive.
    pub recv: P2pSide,
    /// The send.
    pub send: P2pSide,
    /// Sending rank in the communicator.
    pub src_comm_rank: i64,
}

/// Details of `ambiguous_p2p_match`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AmbiguousP2p {
    /// The open calls between the two ranks, the first of them.
    pub candidate_calls: Vec<P2pSide>,
    /// What the search relied on.
    pub clock_assumption: &'static str,
    /// Always unknown.
    pub confidence: Confidence,
    /// Receiving rank in the communicator.
    pub dst_comm_rank: i64,
    /// Always `multiple_time_window_candidates`.
    pub reason: &'static str,
    /// Sending rank in the communicator.
    pub src_comm_rank: i64,
    /// Whether the trace ended before the timeout had passed.
    pub trace_ended_early: bool,
}
