//! A dump as it is kept for matching: one small record an entry, and what entries share.

use crate::fr::op::{self, Op};

/// How far a call had come when the dump was taken, as far as the recorder knew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) enum State {
    /// Nothing is known, or a word that is not known here.
    #[default]
    Unknown,
    /// Enqueued by the program.
    Scheduled,
    /// Begun on the device.
    Started,
    /// Over.
    Completed,
}

/// One entry of a ring buffer. Integers that are absent are -1.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Record {
    /// When the program enqueued it, wall clock of its host.
    pub(crate) created_ns: i64,
    /// When the recorder found it completed.
    pub(crate) completed_ns: i64,
    /// Number of the collective in its process group, from 1.
    pub(crate) seq: i64,
    /// Number of the send, receive or group of them in its process group, from 1.
    pub(crate) p2p_seq: i64,
    /// Number of the call in its process group, those inside of groups counted too.
    pub(crate) op_id: i64,
    /// Its [`Shape`].
    pub(crate) shape: u32,
    /// Its [`Frame`]s.
    pub(crate) stack: u32,
    /// Its [`Group`].
    pub(crate) group: u32,
    /// How far it has come.
    pub(crate) state: State,
    /// Whether it is a send or receive.
    pub(crate) p2p: bool,
}

/// One tensor of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tensor {
    /// Elements, -1 where unknown.
    pub(crate) elements: i64,
    /// PyTorch's name of the datatype, "" where unknown.
    pub(crate) datatype: Box<str>,
}

impl Tensor {
    /// `ncclDataType_t`, -1 for one that NCCL has not.
    pub(crate) fn nccl_type(&self) -> i64 {
        op::datatype(&self.datatype).map_or(-1, |(number, _)| number)
    }

    /// Bytes of the tensor, where the datatype is known.
    pub(crate) fn bytes(&self) -> Option<i64> {
        let (_, size) = op::datatype(&self.datatype)?;
        (self.elements >= 0).then(|| self.elements.saturating_mul(size))
    }
}

/// What a call is, apart from when and where: equal calls share one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shape {
    /// `profiling_name`.
    pub(crate) name: Box<str>,
    /// What the name says.
    pub(crate) op: Op,
    /// Tensors that go in.
    pub(crate) inputs: Vec<Tensor>,
    /// Tensors that come out.
    pub(crate) outputs: Vec<Tensor>,
}

impl Shape {
    /// Whether the outputs hold nothing, as on the ranks of a gather that are not its root.
    pub(crate) fn outputs_empty(&self) -> bool {
        self.outputs.iter().all(|tensor| tensor.elements == 0)
    }

    /// The function as findings name it: NCCL's where the backend is NCCL, else `profiling_name`
    /// without its ranks.
    pub(crate) fn api(&self) -> &str {
        let word = self.name.split(' ').next().unwrap_or_default();
        match (op::backend(word), self.op.nccl_name()) {
            (("nccl", _), Some(name)) => name,
            _ => word,
        }
    }
}

/// One line of a call stack.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Frame {
    /// The source file.
    pub file: String,
    /// The function.
    pub function: String,
    /// The line, -1 where unknown.
    pub line: i64,
}

/// A process group as one rank knows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group {
    pub(crate) name: Box<str>,
    pub(crate) description: Box<str>,
    /// Global ranks in the order of the group, empty where the dump does not tell.
    pub(crate) ranks: Vec<i64>,
}

/// The dump of one rank.
#[derive(Debug, Default)]
pub(crate) struct Dump {
    /// `version`, such as 2.10.
    pub(crate) version: (u32, u32),
    /// The entries, oldest first.
    pub(crate) records: Vec<Record>,
    pub(crate) shapes: Vec<(Box<[u8]>, Shape)>,
    pub(crate) stacks: Vec<(Box<[u8]>, Vec<Frame>)>,
    /// Groups by the numbers in the records. Groups of `pg_config` without entries stand at the end.
    pub(crate) groups: Vec<Group>,
    /// Whether the ring buffer has dropped its oldest entries.
    pub(crate) wrapped: bool,
    /// Whether the dump leaves out entries by design: only open calls, say.
    pub(crate) filtered: bool,
}
