//! What the analyzer finds, as typed values and as one JSON object a line.

mod cause;
mod collective;
mod liveness;
mod p2p;
mod stuck;

use serde::{Serialize, Serializer};

pub use cause::{
    CommunicatorDeadlock, Divergence, DivergenceKind, Explained, LastCall, RootBlocker, RootRank,
    SequenceDivergence, WaitEdge, WaitKind,
};
pub use collective::{
    CollectiveMissingEnter, CommInitMissingEnter, DatatypeContract, DelayedCollectiveEnter,
    Heartbeats, MismatchType, MissingRankStatus, Signature, SignatureMismatch,
};
pub use liveness::{NoProgress, RankHeartbeatTimeout};
pub use p2p::{AmbiguousP2p, P2pCallMismatch, P2pMissingCounterpart, P2pSide};
pub use stuck::{ErrorExit, LastRecord, MissingExit, RoundMissingExit};

/// What is wrong: one kind a rule of the analyzer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum HangType {
    /// The calls of one rank were skipped, repeated or swapped against those of the others.
    SequenceDivergence,
    /// Ranks wait for each other in a circle.
    CommunicatorDeadlock,
    /// Everybody waits, directly or through others, for these ranks, and they wait for nobody.
    RootBlocker,
    /// The ranks of one round called different things.
    CollectiveSignatureMismatch,
    /// Some ranks have not entered a collective.
    CollectiveMissingEnter,
    /// All ranks entered, some of them late.
    DelayedCollectiveEnter,
    /// A communicator's creation was entered by some of its ranks only.
    CommInitMissingEnter,
    /// One side of a send and receive pair was never seen.
    P2pMissingCounterpart,
    /// A send and its receive differ.
    P2pCallMismatch,
    /// A send or receive has several possible partners.
    AmbiguousP2pMatch,
    /// One rank's call has not returned.
    NcclMissingExit,
    /// The calls of some ranks of a round have not returned.
    CollectiveMissingExit,
    /// The calls of all ranks of a round have not returned.
    CollectiveAllRanksStuck,
    /// A call returned an error.
    NcclErrorExit,
    /// A process that had started gives no heartbeat.
    RankHeartbeatTimeout,
    /// Nothing is open and yet nobody calls anything.
    NoProgress,
    /// Equal bytes under different datatypes, where only bytes matter.
    DatatypeContract,
}

/// How sure a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// Several explanations are equally good.
    Unknown,
    /// Likely, and something that would prove it is not known.
    Suspected,
    /// Seen: the trace says so, and nothing that would contradict it is missing.
    Observed,
    /// Certain: the calls themselves differ.
    Confirmed,
}

/// One thing that is wrong.
///
/// The JSON form has sorted keys: `comm_seq, comm_uid_hash, details, detected_at_unix_ns,
/// hang_type, run_id`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// The first call that it is about, -1 for none.
    pub comm_seq: i64,
    /// The communicator, "" for none.
    pub comm_uid_hash: String,
    /// What is known, by kind.
    pub details: Details,
    /// The moment of the scan that gave it, nanoseconds since 1970.
    pub detected_at_unix_ns: i64,
    /// The kind.
    pub hang_type: HangType,
    /// The run.
    pub run_id: String,
}

/// What is known about a finding, by its kind.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
#[non_exhaustive]
#[allow(missing_docs, reason = "each holds the details that are named after it")]
pub enum Details {
    SequenceDivergence(SequenceDivergence),
    CommunicatorDeadlock(CommunicatorDeadlock),
    RootBlocker(RootBlocker),
    SignatureMismatch(SignatureMismatch),
    CollectiveMissingEnter(CollectiveMissingEnter),
    DelayedCollectiveEnter(DelayedCollectiveEnter),
    CommInitMissingEnter(CommInitMissingEnter),
    P2pMissingCounterpart(P2pMissingCounterpart),
    P2pCallMismatch(P2pCallMismatch),
    AmbiguousP2p(AmbiguousP2p),
    MissingExit(MissingExit),
    RoundMissingExit(RoundMissingExit),
    ErrorExit(ErrorExit),
    RankHeartbeatTimeout(RankHeartbeatTimeout),
    NoProgress(NoProgress),
    DatatypeContract(DatatypeContract),
}

impl HangType {
    /// The word of the JSON form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SequenceDivergence => "sequence_divergence",
            Self::CommunicatorDeadlock => "communicator_deadlock",
            Self::RootBlocker => "root_blocker",
            Self::CollectiveSignatureMismatch => "collective_signature_mismatch",
            Self::CollectiveMissingEnter => "collective_missing_enter",
            Self::DelayedCollectiveEnter => "delayed_collective_enter",
            Self::CommInitMissingEnter => "comm_init_missing_enter",
            Self::P2pMissingCounterpart => "p2p_missing_counterpart",
            Self::P2pCallMismatch => "p2p_call_mismatch",
            Self::AmbiguousP2pMatch => "ambiguous_p2p_match",
            Self::NcclMissingExit => "nccl_missing_exit",
            Self::CollectiveMissingExit => "collective_missing_exit",
            Self::CollectiveAllRanksStuck => "collective_all_ranks_stuck",
            Self::NcclErrorExit => "nccl_error_exit",
            Self::RankHeartbeatTimeout => "rank_heartbeat_timeout",
            Self::NoProgress => "no_progress",
            Self::DatatypeContract => "datatype_contract",
        }
    }
}

impl Confidence {
    /// The word of the JSON form.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Suspected => "suspected",
            Self::Observed => "observed",
            Self::Confirmed => "confirmed",
        }
    }
}

impl Finding {
    /// How sure it is.
    pub fn confidence(&self) -> Confidence {
        match &self.details {
            Details::SequenceDivergence(d) => d.confidence,
            Details::CommunicatorDeadlock(d) => d.confidence,
            Details::RootBlocker(d) => d.confidence,
            Details::SignatureMismatch(d) => d.confidence,
            Details::CollectiveMissingEnter(d) => d.confidence,
            Details::DelayedCollectiveEnter(d) => d.confidence,
            Details::CommInitMissingEnter(d) => d.confidence,
            Details::P2pMissingCounterpart(d) => d.confidence,
            Details::P2pCallMismatch(d) => d.confidence,
            Details::AmbiguousP2p(d) => d.confidence,
            Details::MissingExit(d) => d.confidence,
            Details::RoundMissingExit(d) => d.confidence,
            Details::ErrorExit(d) => d.confidence,
            Details::RankHeartbeatTimeout(d) => d.confidence,
            Details::NoProgress(d) => d.confidence,
            Details::DatatypeContract(d) => d.confidence,
        }
    }

    /// Whether the trace ended before the timeout of this finding had passed: nothing is proved.
    pub fn trace_ended_early(&self) -> bool {
        match &self.details {
            Details::CommunicatorDeadlock(d) => d.trace_ended_early,
            Details::RootBlocker(d) => d.trace_ended_early,
            Details::CollectiveMissingEnter(d) => d.trace_ended_early,
            Details::CommInitMissingEnter(d) => d.trace_ended_early,
            Details::P2pMissingCounterpart(d) => d.trace_ended_early,
            Details::AmbiguousP2p(d) => d.trace_ended_early,
            Details::MissingExit(d) => d.trace_ended_early,
            Details::RoundMissingExit(d) => d.trace_ended_early,
            _ => false,
        }
    }

    /// The finding as one line of compact JSON with sorted keys, without a newline.
    pub fn to_json(&self) -> String {
        // Maps with text keys and plain values: this cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }
}

/// Writes a list of ranks by communicator rank as an object with the ranks as text keys.
fn by_rank<S, T>(items: &[(i64, T)], serializer: S) -> Result<S::Ok, S::Error>
where
    S: Serializer,
    T: Serialize,
{
    serializer.collect_map(items.iter().map(|(rank, item)| (rank, item)))
}
