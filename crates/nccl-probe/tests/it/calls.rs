use std::collections::BTreeMap;

use serde_json::Value;

use crate::support::{Built, Job, assert_complete, assert_paired, number, of_api, of_kind, text};

/// What the trace must say of a call: function, count, datatype, op, root, peer, stream.
type Told = (&'static str, i64, i64, i64, i64, i64, i64);

/// By hand, from the arguments in `user.c`.
const TOLD: &[Told] = &[
    ("ncclAllReduce", 13, 7, 2, -1, -1, 14),
    ("ncclReduceScatter", 23, 9, 4, -1, -1, 24),
    ("ncclReduce", 33, 6, 1, 5, -1, 34),
    ("ncclBroadcast", 43, 1, -1, 6, -1, 44),
    ("ncclBcast", 52, 2, -1, 7, -1, 53),
    ("ncclAllGather", 63, 10, -1, -1, -1, 64),
    ("ncclAlltoAll", 73, 11, -1, -1, -1, 74),
    ("ncclGather", 83, 3, -1, 2, -1, 84),
    ("ncclScatter", 93, 4, -1, 1, -1, 94),
    ("ncclAllReduceConfig", 113, 7, 3, -1, -1, 114),
    ("ncclReduceScatterConfig", 123, 7, 0, -1, -1, 124),
    ("ncclReduceConfig", 133, 7, 1, 4, -1, 134),
    ("ncclBroadcastConfig", 143, 7, -1, 5, -1, 144),
    ("ncclAllGatherConfig", 153, 7, -1, -1, -1, 154),
    ("ncclAlltoAllConfig", 163, 7, -1, -1, -1, 164),
    ("ncclGatherConfig", 173, 7, -1, 6, -1, 174),
    ("ncclScatterConfig", 183, 7, -1, 7, -1, 184),
    ("ncclSend", 202, 8, -1, -1, 4, 203),
    ("ncclRecv", 212, 5, -1, -1, 2, 213),
    ("ncclPutSignal", 222, 7, -1, -1, 1, 228),
    ("ncclSignal", 0, -1, -1, -1, 6, 234),
    ("ncclWaitSignal", 3, -1, -1, -1, -1, 242),
    ("ncclRedOpCreatePreMulSum", 0, 7, -1, -1, -1, 0),
    ("ncclAllReduce", 263, 7, 812_748_662, -1, -1, 264),
    ("ncclRedOpDestroy", 0, -1, 812_748_662, -1, -1, 0),
];

fn told(event: &Value) -> (&str, i64, i64, i64, i64, i64, i64) {
    let n = |field| number(event, field);
    let api = text(event, "api");
    (api, n("count"), n("datatype"), n("op"), n("root"), n("peer"), n("stream"))
}

#[test]
fn every_argument_is_in_the_trace() {
    let events = Job::new().quiet(&["all"]);
    assert_complete(&events);
    assert_paired(&events, 0);
    let hash = text(of_kind(&events, "comm_init")[0], "comm_uid_hash");
    for phase in ["enter", "exit"] {
        let calls = of_kind(&events, "nccl_call").into_iter().filter(|event| {
            event["phase"] == phase
                && event["comm_uid_hash"] == hash
                && !text(event, "api").starts_with("ncclComm")
        });
        let calls: Vec<&Value> = calls.collect();
        assert_eq!(calls.iter().map(|event| told(event)).collect::<Vec<_>>(), TOLD, "{phase}");
        for event in &calls {
            assert_eq!((number(event, "comm_rank"), number(event, "comm_nranks")), (3, 8));
            assert_eq!((number(event, "group_id"), number(event, "group_op_index")), (0, 0));
            let result = (number(event, "result"), text(event, "result_name"));
            assert_eq!(result, (0, if phase == "exit" { "ncclSuccess" } else { "" }));
        }
        // Collectives and point-to-point calls are counted apart, other calls not at all.
        let sequence: Vec<i64> = calls.iter().map(|event| number(event, "comm_seq")).collect();
        let collectives: Vec<i64> = (0..17).collect();
        let rest = [0, 1, -1, -1, -1, -1, 17, -1];
        assert_eq!(sequence, [&collectives[..], &rest].concat());
    }
}

/// Pointers differ from run to run: those above this are not compared.
const POINTER: i64 = 0x10_0000;

#[test]
fn every_argument_arrives_as_without_the_probe() {
    let arrived = |with: bool| {
        let mut job = Job::new();
        job.log_calls();
        if !with {
            job.unset("LD_PRELOAD");
        }
        job.run(&["all"]);
        assert_eq!(job.files().len(), usize::from(with));
        let plain = |line: String| {
            let words = line.split(' ').map(|word| match word.parse::<i64>() {
                Ok(number) if number > POINTER => "pointer".to_owned(),
                _ => word.to_owned(),
            });
            words.collect::<Vec<_>>().join(" ")
        };
        job.arrived().into_iter().map(plain).collect::<Vec<_>>()
    };
    let without = arrived(false);
    assert_eq!(without.len(), 52);
    // One line by hand, to see that the stand-in writes what it was given.
    assert_eq!(without[10], "1 ncclAllGather 61 62 63 10 pointer 64");
    assert_eq!(arrived(true), without);
}

#[test]
fn one_call_of_the_user_is_one_event() {
    let events = Job::new().quiet(&["all"]);
    // ncclBcast calls the public ncclBroadcast inside; the program calls that once itself.
    assert_eq!(of_api(&events, "ncclBcast", "enter").len(), 1);
    assert_eq!(of_api(&events, "ncclBroadcast", "enter").len(), 1);
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for event in &events {
        *kinds.entry(text(event, "event")).or_default() += 1;
    }
    // InitRank, Config, Scalable, All (two), two splits, Shrink, two Grows.
    assert_eq!(kinds["comm_init"], 10);
    // Finalize, Destroy, Abort, Revoke.
    assert_eq!(kinds["comm_destroy"], 4);
    assert_eq!((kinds["process_start"], kinds["process_end"]), (1, 1));
}

#[test]
fn the_header_tells_the_process() {
    let job = Job::new();
    let events = job.quiet(&["all"]);
    let name = job.files()[0].file_name().unwrap().to_str().unwrap().to_owned();
    for event in &events {
        assert_eq!(number(event, "schema_version"), 1);
        assert_eq!(text(event, "run_id"), "r");
        let ranks = ["rank", "local_rank", "world_size"].map(|field| number(event, field));
        assert_eq!(ranks, [1, 1, 8]);
        assert_eq!(name, format!("rank_1_pid_{}.jsonl", number(event, "pid")));
        let unix = number(event, "timestamp_unix_ns");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let age = i64::try_from(now.as_nanos()).unwrap() - unix;
        assert!((0..60_000_000_000).contains(&age), "{age}");
    }
    let times = events.iter().filter(|event| event["event"] != "heartbeat");
    assert!(times.map(|event| number(event, "timestamp_mono_ns")).is_sorted());
}

#[test]
fn a_failure_is_recorded_and_returned() {
    let mut job = Job::new();
    job.set("STUB_FAIL", "ncclAllReduce:3");
    let events = job.quiet(&["burst", "4"]);
    let exits = of_api(&events, "ncclAllReduce", "exit");
    assert_eq!(exits.len(), 4);
    for exit in exits {
        assert_eq!((number(exit, "result"), text(exit, "result_name")), (3, "ncclInternalError"));
    }
    job.set("STUB_FAIL", "ncclCommInitRank:2");
    let failed = job.command(&["burst", "4"]).output().unwrap();
    assert_eq!(failed.status.code(), Some(9), "the program sees the error");
    let events = job.events();
    let created = of_kind(&events, "comm_init");
    assert_eq!(created.iter().filter(|event| number(event, "result") == 2).count(), 1);
}

#[test]
fn a_function_that_the_library_lacks_is_invalid_usage_said_once() {
    let mut job = Job::new();
    job.set("LD_LIBRARY_PATH", Built::get().path("old"));
    let done = job.run(&["missing"]);
    assert_eq!(String::from_utf8_lossy(&done.stdout), "5\n5\n5\n5\n");
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(said.contains("old/libnccl.so.2 has no ncclAlltoAll"), "{said}");
    assert!(said.contains("has no ncclCommWindowRegister"), "{said}");
    let events = job.events();
    assert_eq!(of_api(&events, "ncclAlltoAll", "enter").len(), 0);
    assert_eq!(of_api(&events, "ncclAllReduce", "exit").len(), 1);
}

#[test]
fn calls_on_a_capturing_stream_are_marked() {
    let mut job = Job::new();
    let built = Built::get();
    let path = format!("{}:{}", built.folder.display(), built.path("driver").display());
    job.program(built.path("user_cuda")).set("LD_LIBRARY_PATH", path);
    let events = job.quiet(&["capture"]);
    let captured = of_api(&events, "ncclAllReduce", "exit");
    let captured: Vec<bool> = captured.iter().map(|event| event["captured"] == true).collect();
    assert_eq!(captured, [true, false, false, true]);
    // Without a driver nothing is marked.
    let events = Job::new().quiet(&["capture"]);
    assert!(events.iter().all(|event| event.get("captured").is_none()));
}
