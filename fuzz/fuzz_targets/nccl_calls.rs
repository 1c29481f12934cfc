//! Any sequence of calls of a few ranks on a few communicators: nothing may panic, and what is given
//! is given once.

#![no_main]

use deepxtrace_nccl_h2::{
    Analyzer, Config, Event, EventKind, Header, Heartbeat, Moment, NcclCall, Phase,
};
use libfuzzer_sys::fuzz_target;

const APIS: [&str; 16] = [
    "ncclAllReduce",
    "ncclAllGather",
    "ncclBroadcast",
    "ncclBcast",
    "ncclReduce",
    "ncclSend",
    "ncclRecv",
    "ncclGroupStart",
    "ncclGroupEnd",
    "ncclCommInitRank",
    "ncclCommSplit",
    "ncclCommShrink",
    "ncclCommDestroy",
    "ncclAllReduceConfig",
    "ncclNewThing",
    "ncclPutSignal",
];
const COMMS: [&str; 4] = ["a", "b", "c", ""];

fuzz_target!(|data: &[u8]| {
    let mut analyzer = Analyzer::new("r", Config::default());
    let mut now: i64 = 0;
    for part in data.chunks_exact(8) {
        let [kind, api, comm, rank, seq, count, peer, more] = part else { return };
        let number = |byte: &u8, range: u8| i64::from(byte % range) - i64::from(byte / range / 40);
        let bit = |at: u8| more >> at & 1 == 1;
        let mut call = NcclCall::new(APIS[usize::from(api % 16)]);
        call.phase = if bit(0) { Phase::Exit } else { Phase::Enter };
        call.comm_uid_hash = COMMS[usize::from(comm % 4)].into();
        (call.comm_rank, call.comm_nranks) = (number(rank, 4), 4);
        (call.comm_seq, call.call_seq) = (number(seq, 12), number(seq, 60));
        (call.count, call.datatype) = (number(count, 3), number(count, 13));
        (call.op, call.root, call.peer) = (number(count, 7), number(peer, 3), number(peer, 5));
        call.result = if bit(1) { number(peer, 9) } else { 0 };
        call.group_id = number(peer, 2);
        call.captured = bit(2);
        if bit(3) {
            call.p2p_op_index = number(seq, 12);
            call.p2p_op_index_scope = "peer_direction".into();
        }
        if bit(4) {
            call.parent_hash = COMMS[usize::from(comm / 4 % 4)].into();
            call.parent_ordinal = number(peer, 2);
            call.excluded = "1,".into();
        }
        let kind = match kind % 12 {
            0 => EventKind::ProcessStart,
            1 => EventKind::ProcessEnd,
            2 => EventKind::Heartbeat(Heartbeat {
                phase: if bit(5) { "checkpointing".into() } else { "train".into() },
                dropped_events: number(count, 3),
                ..Heartbeat::default()
            }),
            3 => EventKind::CommInit(call),
            4 => EventKind::CommDestroy(call),
            5 => {
                now = now.saturating_add(i64::from(*count) * 1_000_000_000);
                let moment = Moment { monotonic_ns: now, unix_ns: now };
                analyzer.scan(moment);
                assert!(analyzer.scan(moment).is_empty(), "given twice");
                continue;
            }
            _ => EventKind::NcclCall(call),
        };
        let header = Header {
            run_id: "r".into(),
            timestamp_unix_ns: now + number(peer, 20),
            rank: number(rank, 4),
            pid: 1,
            world_size: 4,
            ..Header::default()
        };
        analyzer.ingest(&Event { header, kind }, Moment { monotonic_ns: now, unix_ns: now });
    }
    let end = Moment { monotonic_ns: i64::MAX, unix_ns: 0 };
    analyzer.wait_graph(end).to_dot();
    analyzer.finish(end);
    assert!(analyzer.finish(end).is_empty(), "given twice");
});
