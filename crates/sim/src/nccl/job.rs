//! A job: its communicators, and what each rank does.

/// A call on a communicator: its function and parameters, as NCCL counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Call {
    /// The function.
    pub api: &'static str,
    /// Elements.
    pub count: i64,
    /// `ncclDataType_t`.
    pub datatype: i64,
    /// `ncclRedOp_t`, -1 for none.
    pub op: i64,
    /// Root, -1 for none.
    pub root: i64,
}

impl Call {
    /// An AllReduce of 32-bit floats with a sum.
    pub fn all_reduce(count: i64) -> Self {
        Self { api: "ncclAllReduce", count, datatype: 7, op: 0, root: -1 }
    }

    /// An AllGather of 16-bit brain floats.
    pub fn all_gather(count: i64) -> Self {
        Self { api: "ncclAllGather", count, datatype: 9, op: -1, root: -1 }
    }

    /// A ReduceScatter of 32-bit floats with a sum.
    pub fn reduce_scatter(count: i64) -> Self {
        Self { api: "ncclReduceScatter", count, datatype: 7, op: 0, root: -1 }
    }

    /// A Broadcast of bytes.
    pub fn broadcast(count: i64, root: i64) -> Self {
        Self { api: "ncclBroadcast", count, datatype: 1, op: -1, root }
    }
}

/// One thing that a rank does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Makes a collective call on a communicator.
    Collective {
        /// Index of the communicator.
        comm: usize,
        /// The call.
        call: Call,
    },
    /// Sends to a rank of a communicator.
    Send {
        /// Index of the communicator.
        comm: usize,
        /// Receiving rank in the communicator.
        to: usize,
        /// Elements of 32-bit floats.
        count: i64,
    },
    /// Receives from a rank of a communicator.
    Recv {
        /// Index of the communicator.
        comm: usize,
        /// Sending rank in the communicator.
        from: usize,
        /// Elements of 32-bit floats.
        count: i64,
    },
    /// Begins a group of calls.
    GroupStart,
    /// Ends it.
    GroupEnd,
    /// Waits until all calls made so far are complete.
    Sync,
    /// Computes for some nanoseconds.
    Work(i64),
    /// Lives on and does nothing more: its heartbeats go on.
    Stall,
    /// Dies: its heartbeats end.
    Die,
}

/// A communicator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comm {
    /// Its name: 16 hexadecimal digits.
    pub hash: String,
    /// Global ranks, in the order of their ranks in the communicator.
    pub members: Vec<usize>,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    pub(super) run_id: String,
    pub(super) comms: Vec<Comm>,
    pub(super) steps: Vec<Vec<Step>>,
    pub(super) indexed: bool,
    pub(super) mismatch_hangs: bool,
    pub(super) heartbeat_ns: Option<i64>,
    pub(super) watched_ns: i64,
}

/// The wall clock at which jobs begin, nanoseconds since 1970.
pub(super) const BEGIN_NS: i64 = 1_800_000_000_000_000_000;

impl Job {
    /// A job of ranks that do nothing, on no communicator.
    pub fn new(ranks: usize) -> Self {
        Self {
            run_id: "simulated".to_owned(),
            comms: Vec::new(),
            steps: vec![Vec::new(); ranks],
            indexed: true,
            mismatch_hangs: false,
            heartbeat_ns: Some(5_000_000_000),
            watched_ns: 120_000_000_000,
        }
    }

    /// The run's identity.
    pub fn run_id(&self) -> &str {
        &self.run_id
    }

    /// Names the run.
    #[must_use]
    pub fn with_run_id(mut self, run_id: &str) -> Self {
        run_id.clone_into(&mut self.run_id);
        self
    }

    /// Whether sends and receives carry their number among those of their peer and direction, as
    /// traces of newer probes do.
    #[must_use]
    pub fn with_index(mut self, indexed: bool) -> Self {
        self.indexed = indexed;
        self
    }

    /// Whether calls that differ in a round never complete. Without this they do, as many do on
    /// real devices, and the ranks go on.
    #[must_use]
    pub fn with_hanging_mismatch(mut self, hangs: bool) -> Self {
        self.mismatch_hangs = hangs;
        self
    }

    /// Seconds between heartbeats, `None` for none.
    #[must_use]
    pub fn with_heartbeats(mut self, interval_s: Option<f64>) -> Self {
        self.heartbeat_ns = interval_s.map(|seconds| (seconds * 1e9).max(1e6) as i64);
        self
    }

    /// Seconds for which the trace goes on after nothing happens any more, where a rank still waits
    /// or stalls.
    #[must_use]
    pub fn with_watched(mut self, seconds: f64) -> Self {
        self.watched_ns = (seconds * 1e9).max(0.0) as i64;
        self
    }

    /// Adds a communicator of global ranks and returns its index.
    pub fn add_comm(&mut self, members: Vec<usize>) -> usize {
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        for number in members.iter().chain([&self.comms.len()]) {
            for byte in number.to_le_bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        }
        self.comms.push(Comm { hash: format!("{hash:016x}"), members });
        self.comms.len() - 1
    }

    /// The communicators.
    pub fn comms(&self) -> &[Comm] {
        &self.comms
    }

    /// Ranks of the job.
    pub fn ranks(&self) -> usize {
        self.steps.len()
    }

    /// What a rank does; empty for a rank that the job does not have.
    pub fn steps(&self, rank: usize) -> &[Step] {
        self.steps.get(rank).map_or(&[], |steps| steps)
    }

    /// Adds a step to a rank of the job.
    pub fn push(&mut self, rank: usize, step: Step) {
        if let Some(steps) = self.steps.get_mut(rank) {
            steps.push(step);
        }
    }
}
