//! What several modules use: recordings, and short ways to write events down.

use std::path::Path;
use std::time::Duration;

use deepxtrace_nccl_h2::{
    Analyzer, Config, Event, EventKind, Finding, HangType, Header, Heartbeat, Moment, NcclCall,
    Phase, RunFolder, Settings, TraceReader,
};

/// The run of all events here.
pub const RUN: &str = "r";
/// The wall clock at which sessions begin.
pub const UNIX: i64 = 1_700_000_000_000_000_000;

/// Unpacks an archive of recordings from the test data into a folder.
pub fn unpack(archive: &str, folder: &Path) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(archive);
    let file = std::fs::File::open(path).unwrap();
    tar::Archive::new(flate2::read::GzDecoder::new(file)).unpack(folder).unwrap();
}

/// All findings of a folder, read to its end.
pub fn analyze(folder: &Path, config: Config, stood_still_s: f64) -> Vec<Finding> {
    let run = RunFolder::find(folder, None).unwrap();
    let mut analyzer = Analyzer::new(run.run_id.clone(), config);
    let reader = TraceReader::new(run.files().unwrap());
    let report = reader.read(
        2,
        |event, receipt| {
            analyzer.ingest(event, receipt);
        },
        |_| {},
    );
    assert_eq!(report.bad_lines(), 0);
    let end = analyzer.newest_receipt_ns().unwrap();
    let end = Moment { monotonic_ns: end, unix_ns: end };
    analyzer.finish_after(end, Duration::from_secs_f64(stood_still_s))
}

/// A moment some seconds after the beginning.
pub fn at(seconds: f64) -> Moment {
    let ns = (seconds * 1e9) as i64;
    Moment { monotonic_ns: ns, unix_ns: UNIX + ns }
}

/// A call of a rank on its way in. Without more it is an AllReduce of 1,024 floats.
#[derive(Debug, Clone)]
pub struct Made {
    pub call: NcclCall<'static>,
    pub rank: i64,
    pub pid: i64,
    pub host_s: f64,
    pub world: i64,
    create: bool,
    destroy: bool,
}

/// A call of a communicator rank (which is also the global rank) on a communicator of a size.
pub fn call(api: &'static str, comm: &'static str, rank: i64, nranks: i64, seq: i64) -> Made {
    let mut call = NcclCall::new(api);
    call.phase = Phase::Enter;
    call.comm_uid_hash = comm.into();
    (call.comm_rank, call.comm_nranks, call.comm_seq) = (rank, nranks, seq);
    (call.count, call.datatype, call.result) = (1024, 7, 0);
    call.op = if api.contains("Reduce") { 0 } else { -1 };
    (call.group_id, call.group_op_index, call.p2p_op_index) = (0, 0, 0);
    Made {
        call,
        rank,
        pid: 100 + rank,
        host_s: f64::NAN,
        world: nranks,
        create: false,
        destroy: false,
    }
}

/// An AllReduce.
pub fn reduce(comm: &'static str, rank: i64, nranks: i64, seq: i64) -> Made {
    call("ncclAllReduce", comm, rank, nranks, seq)
}

/// A numbered send: the `index`-th from `rank` to `peer`.
pub fn send(comm: &'static str, rank: i64, nranks: i64, peer: i64, index: i64) -> Made {
    p2p("ncclSend", comm, (rank, nranks), peer, index)
}

/// A numbered receive: the `index`-th of `rank` from `peer`.
pub fn recv(comm: &'static str, rank: i64, nranks: i64, peer: i64, index: i64) -> Made {
    p2p("ncclRecv", comm, (rank, nranks), peer, index)
}

fn p2p(
    api: &'static str,
    comm: &'static str,
    (rank, nranks): (i64, i64),
    peer: i64,
    index: i64,
) -> Made {
    let mut made = call(api, comm, rank, nranks, index);
    made.call.peer = peer;
    made.call.p2p_op_index = index;
    made.call.p2p_op_index_scope = "peer_direction".into();
    made
}

impl Made {
    /// With a number in its process.
    pub fn numbered(mut self, call_seq: i64) -> Self {
        self.call.call_seq = call_seq;
        self
    }

    /// With a count.
    pub fn count(mut self, count: i64) -> Self {
        self.call.count = count;
        self
    }

    /// With a datatype.
    pub fn datatype(mut self, datatype: i64) -> Self {
        self.call.datatype = datatype;
        self
    }

    /// With a root.
    pub fn root(mut self, root: i64) -> Self {
        self.call.root = root;
        self
    }

    /// With a reduction.
    pub fn op(mut self, op: i64) -> Self {
        self.call.op = op;
        self
    }

    /// In a group.
    pub fn group(mut self, group: i64) -> Self {
        self.call.group_id = group;
        self
    }

    /// Recorded into a graph.
    pub fn captured(mut self) -> Self {
        self.call.captured = true;
        self
    }

    /// Without a number among the calls of its peer and direction.
    pub fn unindexed(mut self) -> Self {
        self.call.p2p_op_index_scope = "".into();
        self
    }

    /// Of another global rank than the one in the communicator.
    pub fn of_rank(mut self, rank: i64) -> Self {
        (self.rank, self.pid) = (rank, 100 + rank);
        self
    }

    /// In a run of a size.
    pub fn world(mut self, world: i64) -> Self {
        self.world = world;
        self
    }

    /// At a wall clock of its host, seconds after the beginning.
    pub fn host(mut self, seconds: f64) -> Self {
        self.host_s = seconds;
        self
    }

    /// On its way out, with a result.
    pub fn exit(mut self, result: i64) -> Self {
        self.call.phase = Phase::Exit;
        self.call.result = result;
        self.call.result_name = if result == 0 { "ncclSuccess" } else { "ncclError" }.into();
        self
    }

    /// As the event of a creation that has returned.
    pub fn created(mut self) -> Self {
        self = self.exit(0);
        self.create = true;
        self
    }

    /// As the event of an end that has returned.
    pub fn destroyed(mut self) -> Self {
        self = self.exit(0);
        self.destroy = true;
        self
    }

    /// The event, received at a time; its host's clock agrees unless it was given.
    pub fn event(&self, seconds: f64) -> Event<'static> {
        let host = if self.host_s.is_nan() { seconds } else { self.host_s };
        let kind = match (self.create, self.destroy) {
            (true, _) => EventKind::CommInit(self.call.clone()),
            (_, true) => EventKind::CommDestroy(self.call.clone()),
            _ => EventKind::NcclCall(self.call.clone()),
        };
        Event { header: header(self.rank, self.pid, self.world, host), kind }
    }
}

pub fn header(rank: i64, pid: i64, world: i64, seconds: f64) -> Header<'static> {
    let ns = (seconds * 1e9) as i64;
    Header {
        run_id: RUN.into(),
        timestamp_unix_ns: UNIX + ns,
        timestamp_mono_ns: ns,
        hostname: "h".into(),
        rank,
        local_rank: rank,
        world_size: world,
        pid,
        ..Header::default()
    }
}

/// An analyzer that is told what happens when.
pub struct Session {
    pub analyzer: Analyzer,
}

impl Session {
    /// With the default settings.
    pub fn new() -> Self {
        Self::with(Settings::default())
    }

    pub fn with(settings: Settings) -> Self {
        Self { analyzer: Analyzer::new(RUN, settings.resolve().unwrap()) }
    }

    /// A call at a time.
    pub fn made(&mut self, seconds: f64, made: Made) -> bool {
        self.analyzer.ingest(&made.event(seconds), at(seconds))
    }

    /// A call that enters and returns at a time.
    pub fn done(&mut self, seconds: f64, made: Made) {
        self.made(seconds, made.clone());
        self.made(seconds, made.exit(0));
    }

    /// An event about a process at a time. The process is that of the calls of the rank.
    pub fn event(&mut self, seconds: f64, rank: i64, kind: EventKind<'static>) -> bool {
        let event = Event { header: header(rank, 100 + rank, 4, seconds), kind };
        self.analyzer.ingest(&event, at(seconds))
    }

    pub fn start(&mut self, seconds: f64, rank: i64) {
        self.event(seconds, rank, EventKind::ProcessStart);
    }

    pub fn dropped(&mut self, seconds: f64, rank: i64, dropped_events: i64) {
        let kind = EventKind::ProbeStatus { dropped_events, discarded_events: -1 };
        self.event(seconds, rank, kind);
    }

    pub fn beat(&mut self, seconds: f64, rank: i64, phase: &'static str) {
        let beat = Heartbeat { phase: phase.into(), dropped_events: 0, ..Heartbeat::default() };
        self.event(seconds, rank, EventKind::Heartbeat(beat));
    }

    pub fn scan(&mut self, seconds: f64) -> Vec<Finding> {
        self.analyzer.scan(at(seconds))
    }

    pub fn finish(&mut self, seconds: f64) -> Vec<Finding> {
        self.analyzer.finish(at(seconds))
    }
}

/// The kinds of findings.
pub fn kinds(findings: &[Finding]) -> Vec<HangType> {
    findings.iter().map(|finding| finding.hang_type).collect()
}

/// The details of the only finding, of a kind.
#[macro_export]
macro_rules! only {
    ($findings:expr, $kind:ident) => {{
        let findings = $findings;
        assert_eq!(findings.len(), 1, "{findings:#?}");
        match findings.into_iter().next().unwrap().details {
            deepxtrace_nccl_h2::Details::$kind(details) => details,
            other => panic!("{other:#?}"),
        }
    }};
}
