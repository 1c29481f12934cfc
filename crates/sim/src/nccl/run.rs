//! Letting the ranks of a job do their steps.

use std::borrow::Cow;
use std::collections::HashMap;

use deepxtrace_nccl_h2::{Event, EventKind, Header, Heartbeat, NcclCall, Phase};

use super::job::{BEGIN_NS, Call, Job, Step};

/// Host time of one call, and of what lies between two calls.
const CALL_NS: i64 = 4_000;
const GAP_NS: i64 = 6_000;
/// Ranks of one host.
const RANKS_PER_HOST: usize = 8;

/// A call that a rank waits for: a round of a communicator, or a pair of two of its ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Awaited {
    Round { comm: usize, seq: i64 },
    Pair { comm: usize, src: usize, dst: usize, number: i64 },
}

/// How far such a call has come.
#[derive(Debug, Clone, Copy)]
struct Progress {
    entered: usize,
    needed: usize,
    left: usize,
    latest_ns: i64,
    call: Call,
    differs: bool,
}

/// One rank on its way.
#[derive(Debug, Default)]
struct Rank {
    next: usize,
    now_ns: i64,
    call_seq: i64,
    /// By communicator: the next collective and the next send or receive.
    seqs: HashMap<usize, (i64, i64)>,
    /// By communicator, peer and direction: the next call.
    peers: HashMap<(usize, usize, bool), i64>,
    awaited: Vec<Awaited>,
    group: i64,
    groups: i64,
    group_calls: i64,
    next_beat_ns: i64,
    last: Option<(&'static str, i64)>,
    ended: bool,
    dead: bool,
}

struct Run<'j, S> {
    job: &'j Job,
    hosts: Vec<String>,
    progress: HashMap<Awaited, Progress>,
    sink: S,
}

impl Job {
    /// Lets all ranks do their steps, and hands each event with its global rank to `sink`, in the
    /// order of each rank. Returns the wall clock of the latest event.
    pub fn run(&self, sink: impl FnMut(usize, &Event<'_>)) -> i64 {
        let hosts = (0..self.ranks()).map(|rank| format!("node{}", rank / RANKS_PER_HOST));
        let mut run = Run { job: self, hosts: hosts.collect(), progress: HashMap::new(), sink };
        let mut ranks: Vec<Rank> = (0..self.ranks()).map(|rank| run.start(rank)).collect();
        loop {
            let mut moved = false;
            for (number, rank) in ranks.iter_mut().enumerate() {
                moved |= run.advance(number, rank);
            }
            if !moved {
                break;
            }
        }
        let mut end = ranks.iter().map(|rank| rank.now_ns).max().unwrap_or(BEGIN_NS);
        if ranks.iter().any(|rank| !rank.ended) {
            end = end.saturating_add(self.watched_ns);
        }
        for (number, rank) in ranks.iter_mut().enumerate() {
            if !rank.dead {
                run.beat_until(number, rank, end);
            }
        }
        end
    }
}

impl<S: FnMut(usize, &Event<'_>)> Run<'_, S> {
    fn emit(&mut self, number: usize, at_ns: i64, kind: EventKind<'_>) {
        let header = Header {
            schema_version: 1,
            run_id: Cow::Borrowed(&self.job.run_id),
            timestamp_unix_ns: at_ns,
            timestamp_mono_ns: at_ns - BEGIN_NS + 1_000_000_000,
            hostname: Cow::Borrowed(&self.hosts[number]),
            rank: number as i64,
            local_rank: (number % RANKS_PER_HOST) as i64,
            world_size: self.job.ranks() as i64,
            pid: 1000 + number as i64,
        };
        (self.sink)(number, &Event { header, kind });
    }

    fn start(&mut self, number: usize) -> Rank {
        let mut rank = Rank {
            now_ns: BEGIN_NS + number as i64,
            next_beat_ns: BEGIN_NS + number as i64,
            ..Rank::default()
        };
        self.emit(number, rank.now_ns, EventKind::ProcessStart);
        let status = EventKind::ProbeStatus { dropped_events: 0, discarded_events: -1 };
        self.emit(number, rank.now_ns, status);
        for comm in &self.job.comms {
            let Some(place) = comm.members.iter().position(|&member| member == number) else {
                continue;
            };
            rank.now_ns += GAP_NS;
            let call = NcclCall {
                phase: Phase::Exit,
                comm_uid_hash: Cow::Borrowed(&comm.hash),
                comm_rank: place as i64,
                comm_nranks: comm.members.len() as i64,
                comm_seq: 0,
                call_seq: rank.call_seq,
                count: 0,
                stream: 0,
                group_id: 0,
                group_op_index: 0,
                p2p_op_index: 0,
                result: 0,
                result_name: Cow::Borrowed("ncclSuccess"),
                ..NcclCall::new("ncclCommInitRankConfig")
            };
            rank.call_seq += 1;
            self.emit(number, rank.now_ns, EventKind::CommInit(call));
        }
        rank
    }

    /// Does steps of a rank until it has to wait. Answers whether it did any.
    fn advance(&mut self, number: usize, rank: &mut Rank) -> bool {
        let mut moved = false;
        while !rank.ended && !rank.dead {
            let job = self.job;
            match job.steps(number).get(rank.next) {
                None => rank.ended = true,
                Some(Step::Stall) => break,
                Some(Step::Die) => rank.dead = true,
                Some(Step::Sync) if !self.wait(rank) => break,
                Some(Step::Sync) => {}
                Some(Step::Work(ns)) => rank.now_ns = rank.now_ns.saturating_add(*ns),
                Some(step) => self.call(number, rank, step),
            }
            rank.next += usize::from(!rank.ended && !rank.dead);
            moved = true;
            self.beat_until(number, rank, rank.now_ns);
        }
        moved
    }

    /// Waits for the calls of a rank; false when they are not complete.
    fn wait(&mut self, rank: &mut Rank) -> bool {
        let complete = |awaited: &Awaited| {
            self.progress.get(awaited).is_some_and(|progress| {
                progress.entered == progress.needed
                    && !(progress.differs && self.job.mismatch_hangs)
            })
        };
        if !rank.awaited.iter().all(complete) {
            return false;
        }
        for awaited in rank.awaited.drain(..) {
            let Some(progress) = self.progress.get_mut(&awaited) else { continue };
            rank.now_ns = rank.now_ns.max(progress.latest_ns + GAP_NS);
            progress.left += 1;
            if progress.left == progress.needed {
                self.progress.remove(&awaited);
            }
        }
        true
    }

    fn call(&mut self, number: usize, rank: &mut Rank, step: &Step) {
        let job = self.job;
        let mut call = NcclCall {
            call_seq: rank.call_seq,
            count: 0,
            stream: 0,
            group_id: rank.group,
            group_op_index: 0,
            p2p_op_index: 0,
            comm_seq: 0,
            result: 0,
            ..NcclCall::default()
        };
        rank.call_seq += 1;
        let (comm, awaited) = match *step {
            Step::GroupStart => {
                rank.groups += 1;
                rank.group = rank.groups;
                rank.group_calls = 0;
                call.api = Cow::Borrowed("ncclGroupStart");
                call.group_id = rank.group;
                (None, None)
            }
            Step::GroupEnd => {
                call.api = Cow::Borrowed("ncclGroupEnd");
                rank.group = 0;
                (None, None)
            }
            Step::Collective { comm, call: made } => {
                let seq = &mut rank.seqs.entry(comm).or_default().0;
                call.api = Cow::Borrowed(made.api);
                call.comm_seq = *seq;
                (call.count, call.datatype) = (made.count, made.datatype);
                (call.op, call.root) = (made.op, made.root);
                *seq += 1;
                (Some(comm), Some((Awaited::Round { comm, seq: *seq - 1 }, made)))
            }
            Step::Send { comm, to, count } => {
                (Some(comm), { Some(pair(rank, &mut call, (comm, to, true), count, job.indexed)) })
            }
            Step::Recv { comm, from, count } => (Some(comm), {
                Some(pair(rank, &mut call, (comm, from, false), count, job.indexed))
            }),
            _ => return,
        };
        if let Some(on) = comm.and_then(|comm| job.comms.get(comm)) {
            let place = on.members.iter().position(|&member| member == number);
            call.comm_uid_hash = Cow::Borrowed(&on.hash);
            call.comm_rank = place.map_or(-1, |place| place as i64);
            call.comm_nranks = on.members.len() as i64;
            if rank.group > 0 {
                call.group_op_index = rank.group_calls;
                rank.group_calls += 1;
            }
        }
        if let Some((awaited, made)) = awaited {
            self.enter(rank, place_of(awaited, call.comm_rank), made);
        }
        self.emit_call(number, rank, call);
    }

    fn emit_call(&mut self, number: usize, rank: &mut Rank, mut call: NcclCall<'_>) {
        call.phase = Phase::Enter;
        rank.last = static_api(&call.api).map(|api| (api, call.call_seq));
        self.emit(number, rank.now_ns, EventKind::NcclCall(call.clone()));
        rank.now_ns += CALL_NS;
        call.phase = Phase::Exit;
        call.result_name = Cow::Borrowed("ncclSuccess");
        self.emit(number, rank.now_ns, EventKind::NcclCall(call));
        rank.now_ns += GAP_NS;
    }

    fn enter(&mut self, rank: &mut Rank, awaited: Awaited, call: Call) {
        let needed = match awaited {
            Awaited::Round { comm, .. } => {
                self.job.comms.get(comm).map_or(1, |comm| comm.members.len())
            }
            Awaited::Pair { .. } => 2,
        };
        let progress = self.progress.entry(awaited).or_insert(Progress {
            entered: 0,
            needed,
            left: 0,
            latest_ns: 0,
            call,
            differs: false,
        });
        progress.entered += 1;
        progress.latest_ns = progress.latest_ns.max(rank.now_ns);
        progress.differs |= progress.call != call;
        rank.awaited.push(awaited);
    }

    fn beat_until(&mut self, number: usize, rank: &mut Rank, until_ns: i64) {
        let Some(interval) = self.job.heartbeat_ns else { return };
        while rank.next_beat_ns <= until_ns {
            let (api, seq) = rank.last.unwrap_or(("", -1));
            let beat = Heartbeat {
                phase: Cow::Borrowed("train"),
                last_nccl_api: Cow::Borrowed(api),
                last_nccl_phase: Cow::Borrowed(if api.is_empty() { "" } else { "exit" }),
                last_nccl_seq: seq,
                dropped_events: 0,
                ..Heartbeat::default()
            };
            self.emit(number, rank.next_beat_ns, EventKind::Heartbeat(beat));
            rank.next_beat_ns += interval;
        }
    }
}

/// Fills in a send or receive, and tells which pair it belongs to. The own rank in the communicator
/// is not known here: [`place_of`] adds it.
fn pair(
    rank: &mut Rank,
    call: &mut NcclCall<'_>,
    (comm, peer, sends): (usize, usize, bool),
    count: i64,
    indexed: bool,
) -> (Awaited, Call) {
    let number = rank.peers.entry((comm, peer, sends)).or_default();
    let seq = &mut rank.seqs.entry(comm).or_default().1;
    call.api = Cow::Borrowed(if sends { "ncclSend" } else { "ncclRecv" });
    call.comm_seq = *seq;
    (call.count, call.datatype, call.peer) = (count, 7, peer as i64);
    if indexed {
        call.p2p_op_index = *number;
        call.p2p_op_index_scope = Cow::Borrowed("peer_direction");
    }
    let (src, dst) = if sends { (usize::MAX, peer) } else { (peer, usize::MAX) };
    let awaited = Awaited::Pair { comm, src, dst, number: *number };
    *number += 1;
    *seq += 1;
    (awaited, Call { api: "", count, datatype: 7, op: -1, root: -1 })
}

/// Puts the own rank in the communicator where [`pair`] left it open.
fn place_of(awaited: Awaited, own: i64) -> Awaited {
    let own = usize::try_from(own).unwrap_or(usize::MAX);
    match awaited {
        Awaited::Pair { comm, src: usize::MAX, dst, number } => {
            Awaited::Pair { comm, src: own, dst, number }
        }
        Awaited::Pair { comm, src, dst: usize::MAX, number } => {
            Awaited::Pair { comm, src, dst: own, number }
        }
        round => round,
    }
}

fn static_api(api: &str) -> Option<&'static str> {
    const APIS: [&str; 8] = [
        "ncclAllReduce",
        "ncclAllGather",
        "ncclReduceScatter",
        "ncclBroadcast",
        "ncclSend",
        "ncclRecv",
        "ncclGroupStart",
        "ncclGroupEnd",
    ];
    APIS.into_iter().find(|known| *known == api)
}
