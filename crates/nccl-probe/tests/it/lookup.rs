use std::process::Command;

use serde_json::Value;

use crate::support::{Built, Job, assert_complete, assert_paired, number, of_api, probe, text};

fn output(job: &Job, arguments: &[&str]) -> String {
    let done = job.run(arguments);
    assert_eq!(String::from_utf8_lossy(&done.stderr), "");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Function, count and whether the communicator is known, of each call that began.
fn calls(events: &[Value]) -> Vec<(&str, i64, bool)> {
    let enters = events.iter().filter(|event| event["phase"] == "enter");
    let fields = |event| {
        (text(event, "api"), number(event, "count"), text(event, "comm_uid_hash").len() == 16)
    };
    enters.map(fields).collect()
}

const BY_NAME: [(&str, i64, bool); 7] = [
    ("ncclCommInitRank", 0, true),
    ("ncclGroupStart", 0, false),
    ("ncclAllReduce", 1, true),
    ("ncclAllReduce", 2, true),
    ("ncclAllReduce", 3, true),
    ("ncclGroupEnd", 0, false),
    ("ncclBcast", 77, true),
];

#[test]
fn a_program_can_be_given_the_probe_in_the_place_of_nccl() {
    let mut job = Job::new();
    let probe = probe();
    let probe = probe.to_str().unwrap();
    let nccl = Built::get().path("second/libnccl.so.2");
    // Not preloaded: the program loads it by name, and the variable says what is behind it.
    job.program(Built::get().path("by_name")).unset("LD_PRELOAD").unset("LD_LIBRARY_PATH");
    job.set("DEEPXTRACE_NCCL_LIBRARY", nccl).log_calls();
    assert_eq!(output(&job, &["by_name", probe]), "alltoall 1 nonsense 0 copy 2\n");
    let events = job.events();
    assert_eq!(calls(&events), BY_NAME);
    assert_complete(&events);
    assert!(job.arrived().iter().all(|line| line.starts_with("2 ")));
}

#[test]
fn a_program_given_the_probe_finds_the_nccl_that_is_loaded_or_can_be() {
    let mut job = Job::new();
    let probe = probe();
    job.program(Built::get().path("by_name"));
    let out = output(&job, &["by_name", probe.to_str().unwrap()]);
    assert_eq!(out, "alltoall 1 nonsense 0 copy 1\n");
    assert_eq!(calls(&job.events()), BY_NAME);
}

#[test]
fn functions_by_name_pass_by_unless_dlsym_is_wrapped() {
    let mut job = Job::new();
    let nccl = Built::get().path("libnccl.so.2");
    let nccl = nccl.to_str().unwrap();
    job.program(Built::get().path("by_name")).unset("LD_LIBRARY_PATH");
    assert_eq!(output(&job, &["by_name", nccl]), "alltoall 1 nonsense 0 copy 1\n");
    // What the library itself calls by name is seen; nothing else is.
    let seen = calls(&job.events()).iter().map(|call| call.0).collect::<Vec<_>>().concat();
    assert_eq!(seen, "ncclBroadcast");
    std::fs::remove_dir_all(job.trace()).unwrap();
    job.set("DEEPXTRACE_WRAP_DLSYM", "1");
    assert_eq!(output(&job, &["by_name", nccl]), "alltoall 1 nonsense 0 copy 1\n");
    let events = job.events();
    assert_eq!(calls(&events), BY_NAME);
    assert_paired(&events, 0);
}

#[test]
fn the_wrapper_answers_null_where_the_library_has_nothing() {
    let mut job = Job::new();
    let nccl = Built::get().path("old/libnccl.so.2");
    job.program(Built::get().path("by_name")).unset("LD_LIBRARY_PATH");
    job.set("DEEPXTRACE_WRAP_DLSYM", "1");
    let out = output(&job, &["by_name", nccl.to_str().unwrap()]);
    assert_eq!(out, "alltoall 0 nonsense 0 copy 1\n");
}

#[test]
fn the_wrapper_keeps_two_libraries_apart() {
    let mut job = Job::new();
    let [first, second] =
        ["libnccl.so.2", "second/libnccl.so.2"].map(|name| Built::get().path(name));
    job.program(Built::get().path("by_name")).unset("LD_LIBRARY_PATH");
    job.set("DEEPXTRACE_WRAP_DLSYM", "1").log_calls();
    let names = [first.to_str().unwrap(), second.to_str().unwrap()];
    let out = output(&job, &["by_name", names[0], names[1]]);
    assert_eq!(out.matches("copy 1").count() + out.matches("copy 2").count(), 2, "{out}");
    let arrived = job.arrived();
    let (half, rest) = arrived.split_at(arrived.len() / 2);
    assert!(half.iter().all(|line| line.starts_with("1 ")), "{half:?}");
    assert!(rest.iter().all(|line| line.starts_with("2 ")), "{rest:?}");
    assert_eq!(calls(&job.events()), [BY_NAME, BY_NAME].concat());
}

#[test]
fn the_linker_still_knows_who_asks() {
    let mut job = Job::new();
    job.program(Built::get().path("by_name"));
    for wrap in ["0", "1"] {
        job.set("DEEPXTRACE_WRAP_DLSYM", wrap);
        // `ncclAllReduce` is the preloaded probe's own.
        assert_eq!(output(&job, &["next"]), "next 1 default 1 text 0\n");
    }
}

#[test]
fn a_library_that_is_loaded_later_out_of_sight_is_recorded() {
    let mut job = Job::new();
    let plugin = Built::get().path("libplugin.so");
    job.program(Built::get().path("by_name")).unset("LD_LIBRARY_PATH");
    assert_eq!(output(&job, &["plugin", plugin.to_str().unwrap()]), "copy 1\ncopy 1\n");
    let events = job.events();
    assert_complete(&events);
    assert_paired(&events, 0);
    assert_eq!(of_api(&events, "ncclAllReduce", "exit").len(), 10 + 1 + 1 + 1);
}

#[test]
fn two_libraries_in_one_process_are_kept_apart() {
    let mut job = Job::new();
    let plugins = ["libplugin.so", "second/libplugin.so"].map(|name| Built::get().path(name));
    let [first, second] = plugins.each_ref().map(|path| path.to_str().unwrap());
    job.program(Built::get().path("by_name")).unset("LD_LIBRARY_PATH").log_calls();
    let out = output(&job, &["plugin", first, second]);
    assert_eq!(out, "copy 1\ncopy 2\ncopy 1\ncopy 2\n");
    // Each library got what its own users called, groups and children included.
    let count = |copy: &str, api: &str| {
        let start = format!("{copy} {api}");
        job.arrived().iter().filter(|line| line.split(' ').take(2).eq(start.split(' '))).count()
    };
    for (copy, reduces) in [("1", 10 + 1 + 2), ("2", 20 + 1 + 2)] {
        assert_eq!(count(copy, "ncclAllReduce"), reduces);
        assert_eq!(count(copy, "ncclGroupStart"), 2);
        assert_eq!(count(copy, "ncclGroupEnd"), 2);
        assert_eq!(count(copy, "ncclCommSplit"), 2);
    }
    let events = job.events();
    assert_paired(&events, 0);
    assert_eq!(of_api(&events, "ncclAllReduce", "exit").len(), 36);
}

/// The way vLLM and SGLang call NCCL.
const CTYPES: &str = r#"
import ctypes, sys

class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_byte * 128)]

nccl = ctypes.CDLL(sys.argv[1])
nccl.ncclGetErrorString.restype = ctypes.c_char_p
pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
nccl.ncclCommInitRank.argtypes = [ctypes.POINTER(pointer), number, UniqueId, number]
nccl.ncclAllReduce.argtypes = [pointer, pointer, size, number, number, pointer, pointer]
nccl.ncclSend.argtypes = [pointer, size, number, number, pointer, pointer]
nccl.ncclCommWindowRegister.argtypes = [pointer, pointer, size, ctypes.POINTER(pointer), number]
version, unique, comm, window = number(), UniqueId(), pointer(), pointer()
assert nccl.ncclGetVersion(ctypes.byref(version)) == 0 and version.value == 23203
assert nccl.ncclGetErrorString(3) == b"a text"
assert nccl.ncclGetUniqueId(ctypes.byref(unique)) == 0
assert nccl.ncclCommInitRank(ctypes.byref(comm), 2, unique, 1) == 0
for count in range(1, 6):
    assert nccl.ncclAllReduce(1, 2, count, 7, 0, comm, 3) == 0
assert nccl.ncclSend(1, 9, 7, 0, comm, 3) == 0
assert nccl.ncclCommWindowRegister(comm, 1, 2, ctypes.byref(window), 0) == 0
ctypes.CDLL(None)
"#;

#[test]
fn python_calls_are_recorded_by_both_ways() {
    if !Command::new("python3").arg("--version").output().is_ok_and(|out| out.status.success()) {
        eprintln!("skipped: no python3 on this machine");
        return;
    }
    let probe = probe();
    let nccl = Built::get().path("libnccl.so.2");
    for (preloaded, wrapped, loads) in
        [(false, false, &probe), (true, false, &probe), (true, true, &nccl)]
    {
        let mut job = Job::new();
        job.program("python3").unset("LD_LIBRARY_PATH").set("DEEPXTRACE_NCCL_LIBRARY", &nccl);
        if !preloaded {
            job.unset("LD_PRELOAD");
        }
        job.set("DEEPXTRACE_WRAP_DLSYM", if wrapped { "1" } else { "0" });
        let events = job.quiet(&["-c", CTYPES, loads.to_str().unwrap()]);
        let counts: Vec<i64> = calls(&events).iter().map(|call| call.1).collect();
        assert_eq!(counts, [0, 1, 2, 3, 4, 5, 9], "{preloaded} {wrapped}");
        assert_complete(&events);
    }
}

#[test]
fn a_program_sets_its_phase_through_ctypes() {
    if !Command::new("python3").arg("--version").output().is_ok_and(|out| out.status.success()) {
        eprintln!("skipped: no python3 on this machine");
        return;
    }
    let mut job = Job::new();
    job.program("python3").set("DEEPXTRACE_NCCL_LIBRARY", Built::get().path("libnccl.so.2"));
    job.set("DEEPXTRACE_HEARTBEAT_S", "0.05");
    let script = format!(
        "{CTYPES}\nimport time\ntime.sleep(1)\nctypes.CDLL(None).deepxtrace_set_phase(b'checkpointing')\ntime.sleep(1)"
    );
    let events = job.quiet(&["-c", &script, probe().to_str().unwrap()]);
    let beats: Vec<&str> =
        events.iter().filter(|e| e["event"] == "heartbeat").map(|e| text(e, "phase")).collect();
    assert_eq!(beats.first(), Some(&"train"));
    assert_eq!(beats.last(), Some(&"checkpointing"));
}
