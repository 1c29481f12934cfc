//! The events of a trace: what a probe writes, one JSON object a line.

mod json;
mod text;
mod write;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

pub use text::BadEvent;

/// One event of one process.
///
/// Strings borrow from the text they were read from. Integers that are absent or unusable read as
/// -1, strings as "". Reading and writing use the flat JSON object of the trace format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event<'a> {
    /// What every event carries.
    pub header: Header<'a>,
    /// What happened.
    pub kind: EventKind<'a>,
}

/// What every event carries: when it happened, in which process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header<'a> {
    /// 1 for probe events; the heartbeat files of other writers have 2.
    pub schema_version: i64,
    /// The run that the event belongs to.
    pub run_id: Cow<'a, str>,
    /// Wall clock of the host, nanoseconds since 1970.
    pub timestamp_unix_ns: i64,
    /// Monotonic clock of the host, nanoseconds since a point of its own.
    pub timestamp_mono_ns: i64,
    /// The host.
    pub hostname: Cow<'a, str>,
    /// Global rank of the process in the run.
    pub rank: i64,
    /// Rank of the process within its host.
    pub local_rank: i64,
    /// Ranks in the run.
    pub world_size: i64,
    /// Process number on its host.
    pub pid: i64,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EventKind<'a> {
    /// `process_start`: the trace of this process begins here and is complete from here on.
    ProcessStart,
    /// `process_end`: the process says goodbye.
    ProcessEnd,
    /// `heartbeat`: the process lives.
    Heartbeat(Heartbeat<'a>),
    /// `probe_status`: how many events the probe had to drop so far.
    ProbeStatus {
        /// Events dropped since the process began, -1 where unknown.
        dropped_events: i64,
        /// Events written and removed since to make room, -1 where unknown.
        discarded_events: i64,
    },
    /// `checkpoint_start`: the process begins to write a checkpoint.
    CheckpointStart,
    /// `checkpoint_end`: the process has written its checkpoint.
    CheckpointEnd,
    /// `comm_init`: a call that creates a communicator has returned.
    CommInit(NcclCall<'a>),
    /// `comm_destroy`: a call that ends a communicator has returned.
    CommDestroy(NcclCall<'a>),
    /// `nccl_call`: a call into the library began or returned. A communicator creation that begins
    /// is one too, with phase `enter`.
    NcclCall(NcclCall<'a>),
    /// Any other event, by its name. Readers ignore it.
    Unknown(Cow<'a, str>),
}

/// Fields of a heartbeat, of both writers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat<'a> {
    /// What the process is doing (`training`, `checkpointing`, ...), "" where unknown.
    pub phase: Cow<'a, str>,
    /// Whether the process says that it writes a checkpoint (second writer), `None` where unknown.
    pub checkpoint_active: Option<bool>,
    /// The latest NCCL call of the process.
    pub last_nccl_api: Cow<'a, str>,
    /// Whether that call had entered or returned.
    pub last_nccl_phase: Cow<'a, str>,
    /// `call_seq` of that call.
    pub last_nccl_seq: i64,
    /// Monotonic clock of the host when that call was seen.
    pub last_progress_mono_ns: i64,
    /// Events that the probe dropped so far.
    pub dropped_events: i64,
    /// Events that the probe wrote and removed since to make room.
    pub discarded_events: i64,
    /// Progress counter of the second writer.
    pub progress_seq: i64,
    /// Training iteration of the second writer.
    pub iteration: i64,
    /// Wall clock of the latest progress of the second writer.
    pub last_progress_unix_ns: i64,
}

/// Whether a call began or returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// The call has entered the library.
    Enter,
    /// The call has returned.
    Exit,
    /// Neither word was there.
    Unknown,
}

/// One NCCL call as a process saw it, on its way in or out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NcclCall<'a> {
    /// The function, such as `ncclAllReduce`.
    pub api: Cow<'a, str>,
    /// On its way in or out.
    pub phase: Phase,
    /// Names the communicator: the same on all of its members. "" where unknown.
    pub comm_uid_hash: Cow<'a, str>,
    /// Rank of the process within the communicator.
    pub comm_rank: i64,
    /// Ranks of the communicator.
    pub comm_nranks: i64,
    /// Number of the call on the communicator, from 0; collectives and point-to-point calls are
    /// counted apart. A collective of nothing (count 0) has a number of its own in some traces, and
    /// that of the next collective in others: both are understood.
    pub comm_seq: i64,
    /// Number of the call in the process, increasing.
    pub call_seq: i64,
    /// Elements.
    pub count: i64,
    /// `ncclDataType_t`.
    pub datatype: i64,
    /// `ncclRedOp_t`; 5 and above are user-defined and differ between ranks by design.
    pub op: i64,
    /// Root of a rooted collective.
    pub root: i64,
    /// The other side of a point-to-point call.
    pub peer: i64,
    /// The CUDA stream's pointer.
    pub stream: i64,
    /// Number of the group of calls, 0 outside a group.
    pub group_id: i64,
    /// Place of the call in its group.
    pub group_op_index: i64,
    /// Number of the point-to-point call; see [`NcclCall::peer_index`].
    pub p2p_op_index: i64,
    /// What `p2p_op_index` counts: `peer_direction`, or "" for the whole communicator.
    pub p2p_op_index_scope: Cow<'a, str>,
    /// `ncclResult_t` of a returned call.
    pub result: i64,
    /// Its name, "" on the way in.
    pub result_name: Cow<'a, str>,
    /// Hash of the communicator that this one was made from (creation calls), "" for none.
    pub parent_hash: Cow<'a, str>,
    /// Ordinal of the creation call on the parent, one ordinal a kind of call.
    pub parent_ordinal: i64,
    /// Colour of a split.
    pub color: i64,
    /// The excluded ranks of a shrink, separated by commas.
    pub excluded: Cow<'a, str>,
    /// Whether the call was recorded into a CUDA graph instead of being executed.
    pub captured: bool,
}

impl NcclCall<'_> {
    /// Number of the call among those of its communicator, peer and direction, where the trace
    /// has one.
    ///
    /// ```
    /// use deepxtrace_nccl_h2::NcclCall;
    ///
    /// let mut call = NcclCall::new("ncclSend");
    /// call.p2p_op_index = 7;
    /// assert_eq!(call.peer_index(), None);
    /// call.p2p_op_index_scope = "peer_direction".into();
    /// assert_eq!(call.peer_index(), Some(7));
    /// ```
    pub fn peer_index(&self) -> Option<i64> {
        (self.p2p_op_index >= 0 && self.p2p_op_index_scope == "peer_direction")
            .then_some(self.p2p_op_index)
    }
}

impl<'a> NcclCall<'a> {
    /// A call of a function with everything else unknown.
    pub fn new(api: impl Into<Cow<'a, str>>) -> Self {
        Self { api: api.into(), ..Self::default() }
    }
}

impl Default for NcclCall<'_> {
    fn default() -> Self {
        Self {
            api: Cow::Borrowed(""),
            phase: Phase::Unknown,
            comm_uid_hash: Cow::Borrowed(""),
            comm_rank: -1,
            comm_nranks: -1,
            comm_seq: -1,
            call_seq: -1,
            count: -1,
            datatype: -1,
            op: -1,
            root: -1,
            peer: -1,
            stream: -1,
            group_id: -1,
            group_op_index: -1,
            p2p_op_index: -1,
            p2p_op_index_scope: Cow::Borrowed(""),
            result: -1,
            result_name: Cow::Borrowed(""),
            parent_hash: Cow::Borrowed(""),
            parent_ordinal: -1,
            color: -1,
            excluded: Cow::Borrowed(""),
            captured: false,
        }
    }
}

impl Default for Header<'_> {
    fn default() -> Self {
        Self {
            schema_version: 1,
            run_id: Cow::Borrowed(""),
            timestamp_unix_ns: -1,
            timestamp_mono_ns: -1,
            hostname: Cow::Borrowed(""),
            rank: -1,
            local_rank: -1,
            world_size: -1,
            pid: -1,
        }
    }
}

impl Default for Heartbeat<'_> {
    fn default() -> Self {
        Self {
            phase: Cow::Borrowed(""),
            checkpoint_active: None,
            last_nccl_api: Cow::Borrowed(""),
            last_nccl_phase: Cow::Borrowed(""),
            last_nccl_seq: -1,
            last_progress_mono_ns: -1,
            dropped_events: -1,
            discarded_events: -1,
            progress_seq: -1,
            iteration: -1,
            last_progress_unix_ns: -1,
        }
    }
}

impl Phase {
    /// The word of the trace format, "" for [`Phase::Unknown`].
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Enter => "enter",
            Self::Exit => "exit",
            Self::Unknown => "",
        }
    }
}
