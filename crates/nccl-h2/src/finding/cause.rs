//! Details of findings about causes behind several symptoms. Fields stand in the order of the JSON
//! keys.

use serde::Serialize;

use super::{Confidence, Heartbeats, Signature};

/// A symptom that a cause explains, and that is therefore not a finding of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Explained {
    /// Number of the round or call.
    pub comm_seq: i64,
    /// The communicator.
    pub comm_uid_hash: String,
    /// The kind of the symptom.
    pub hang_type: &'static str,
}

/// How the calls of some ranks differ from those of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DivergenceKind {
    /// The ranks left out a call.
    Skipped,
    /// The ranks made a call that the others did not make.
    Extra,
    /// The ranks made two neighbouring calls in the other order.
    Swapped,
    /// The ranks went another way and did not come back.
    Branched,
}

/// One explanation of a divergence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Divergence {
    /// The call that was skipped or made in addition, the first of several; of a swap the one that
    /// these ranks made first; of a branch the first call that only these ranks made.
    pub call: Option<Signature>,
    /// How many neighbouring calls were skipped or made in addition.
    pub calls: i64,
    /// Ranks in the communicator that differ from the others.
    pub comm_ranks: Vec<i64>,
    /// What they did.
    pub kind: DivergenceKind,
    /// The other call of a swap or branch: what the others made at this place.
    pub other_call: Option<Signature>,
    /// First and last position at which the others may have the call: a run of equal calls is
    /// named whole.
    pub others_position: [i64; 2],
    /// First and last position at which these ranks may have it.
    pub position: [i64; 2],
}

/// Details of `sequence_divergence`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SequenceDivergence {
    /// Suspected, or unknown where several explanations are equally short.
    pub confidence: Confidence,
    /// Ranks of the communicator.
    pub expected_nranks: i64,
    /// Symptoms that are no findings of their own.
    pub explained_findings: Vec<Explained>,
    /// Rounds that the explanation covers.
    pub explained_rounds: i64,
    /// All equally short explanations.
    pub explanations: Vec<Divergence>,
    /// The last call on which all ranks agree.
    pub last_agreed_call: Option<Signature>,
    /// Its number, -1 for none.
    pub last_agreed_seq: i64,
}

/// What one rank waits in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitKind {
    /// A collective.
    Collective,
    /// A send or receive.
    P2p,
    /// A communicator's creation.
    CommInit,
}

/// One rank, or several in the same call, that wait for others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct WaitEdge {
    /// The function.
    pub api: String,
    /// What is assumed and not seen: `host_blocked_by_stream`, `null` for nothing.
    pub assumed: Option<&'static str>,
    /// Number of the call on the communicator.
    pub comm_seq: i64,
    /// The communicator.
    pub comm_uid_hash: String,
    /// In what they wait.
    pub kind: WaitKind,
    /// Global ranks that wait.
    pub waiting_ranks: Vec<i64>,
    /// Global ranks that they wait for.
    pub waits_for_ranks: Vec<i64>,
    /// How many ranks they wait for of which no event was seen.
    pub waits_for_unseen: i64,
}

/// Details of `communicator_deadlock`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CommunicatorDeadlock {
    /// Suspected: that a rank cannot go on is inferred from what it does not call.
    pub confidence: Confidence,
    /// The circle, one edge a step.
    pub cycle: Vec<WaitEdge>,
    /// Symptoms that are no findings of their own.
    pub explained_findings: Vec<Explained>,
    /// The calls of each rank of the circle, in its own order.
    pub orders: Vec<LastCall>,
    /// Global ranks of the circle.
    pub ranks: Vec<i64>,
    /// Whether the trace ended before the timeout had passed.
    pub trace_ended_early: bool,
    /// Seconds since the first rank waits.
    pub waited_s: f64,
}

/// The latest call of a rank.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LastCall {
    /// The function, "" for none.
    pub api: String,
    /// Number of the call on its communicator.
    pub comm_seq: i64,
    /// Its communicator, "" for none.
    pub comm_uid_hash: String,
    /// `enter` or `exit`.
    pub phase: &'static str,
    /// Global rank.
    pub rank: i64,
    /// Wall clock of its host.
    pub timestamp_unix_ns: i64,
}

/// A rank for which others wait and that waits for nobody.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RootRank {
    /// Rank in the communicator that waits for it, where no event of the rank was seen; else -1.
    pub comm_rank: i64,
    /// Heartbeats of its process.
    pub heartbeat: Heartbeats,
    /// Seconds since the latest.
    pub heartbeat_age_s: Option<f64>,
    /// Its latest call, `null` where none was seen.
    pub last_call: Option<LastCall>,
    /// Phase by its heartbeat, `null` where unknown.
    pub phase: Option<String>,
    /// Process number, `null` where no event of the rank was seen.
    pub pid: Option<i64>,
    /// Events that its probe dropped.
    pub probe_dropped_events: Option<i64>,
    /// Global rank, `null` where no event of the rank was seen.
    pub rank: Option<i64>,
}

/// Details of `root_blocker`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RootBlocker {
    /// Observed or suspected, as the missing enters that it stands for.
    pub confidence: Confidence,
    /// Symptoms that are no findings of their own, at most 1,000 of them.
    pub explained_findings: Vec<Explained>,
    /// How many there are.
    pub explained_findings_count: i64,
    /// As in [`super::CollectiveMissingEnter::reason`].
    pub reason: &'static str,
    /// How many ranks wait for nobody.
    pub root_count: i64,
    /// The ranks that wait for nobody, at most 256 of them.
    pub roots: Vec<RootRank>,
    /// Whether the trace ended before the timeout had passed.
    pub trace_ended_early: bool,
    /// Ranks that wait, directly or through others.
    pub waiting_rank_count: i64,
    /// Seconds since the first rank waits.
    pub waited_s: f64,
    /// The chain from the roots to those that wait longest, a step an edge, at most 16 of them.
    pub waits: Vec<WaitEdge>,
}
