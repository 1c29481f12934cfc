use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::support::{
    Built, Job, assert_complete, assert_paired, number, of_api, of_kind, probe, text,
};

#[test]
fn a_burst_before_the_end_loses_nothing() {
    let job = Job::new();
    let events = job.quiet(&["burst", "100000"]);
    assert_complete(&events);
    assert_paired(&events, 0);
    let exits = of_api(&events, "ncclAllReduce", "exit");
    assert_eq!(exits.len(), 100_000);
    // One by one, each with its own count.
    for (place, exit) in (0..).zip(exits) {
        assert_eq!((number(exit, "comm_seq"), number(exit, "count")), (place, place + 1));
    }
    assert_eq!(job.ring_files(), 0);
}

#[test]
fn bursts_at_full_speed_drop_nothing() {
    let job = Job::new();
    job.run(&["bursts", "3", "100000"]);
    assert_eq!(job.count_lines(&["ncclAllReduce\",\"phase\":\"exit\""]), 300_000);
    let told = ["probe_status", "\"dropped_events\":0,\"written_events\":600002,"];
    assert_eq!(job.count_lines(&told), 1);
}

#[test]
fn an_end_without_goodbye_loses_nothing() {
    let job = Job::new();
    let done = job.command(&["_exit", "20000"]).output().unwrap();
    assert_eq!(done.status.code(), Some(3));
    let found = job.recover();
    assert_eq!((found.drained, found.failed.len()), (1, 0));
    let events = job.events();
    assert_complete(&events);
    assert_paired(&events, 0);
    assert_eq!(of_api(&events, "ncclAllReduce", "exit").len(), 20_000);
    assert!(of_kind(&events, "process_end").is_empty(), "nobody said goodbye");
}

#[test]
fn what_was_recorded_survives_a_kill() {
    let job = Job::new();
    let mut child = job.start(&["kill", "30000"]);
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "done\n");
    child.kill().unwrap();
    child.wait().unwrap();
    job.recover();
    let events = job.events();
    assert_complete(&events);
    assert_paired(&events, 0);
    assert_eq!(of_api(&events, "ncclAllReduce", "exit").len(), 30_000);
    // Again: nothing twice, nothing left.
    assert_eq!(job.recover().drained, 0);
    assert_eq!(job.events().len(), events.len());
    assert_eq!(job.ring_files(), 0);
}

#[test]
fn a_kill_in_the_middle_of_calls_leaves_whole_records() {
    for pause in [30, 60, 90] {
        let job = Job::new();
        let mut child = job.start(&["burst", "100000000"]);
        while job.ring_files() == 0 || !job.trace().exists() {
            sleep(Duration::from_millis(1));
        }
        sleep(Duration::from_millis(pause));
        child.kill().unwrap();
        child.wait().unwrap();
        // Two readers at once: each event once.
        let second = std::thread::scope(|scope| {
            let other = scope.spawn(|| job.recover());
            job.recover();
            other.join().unwrap()
        });
        assert!(second.failed.is_empty());
        let events = job.events();
        let open = events.iter().filter(|e| e["phase"] == "enter").count()
            - events.iter().filter(|e| e["phase"] == "exit").count();
        assert!(open <= 1);
        let told = of_kind(&events, "probe_status");
        let dropped = number(told.last().unwrap(), "dropped_events");
        // On a machine this busy a ring may have run full; then the numbers have gaps.
        if dropped == 0 {
            assert_paired(&events, open);
        }
        let calls = events.iter().filter(|event| event.get("api").is_some()).count();
        let written = number(told.last().unwrap(), "written_events");
        assert_eq!(written, i64::try_from(calls).unwrap());
    }
}

#[test]
fn the_rings_of_a_living_process_are_left_to_it() {
    let job = Job::new();
    let mut child = job.start(&["kill", "100"]);
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let begun = Instant::now();
    while !job.trace().exists() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        sleep(Duration::from_millis(1));
    }
    let found = job.recover();
    assert_eq!((found.drained, found.living), (0, 1));
    // It writes its calls itself, though it never ends.
    while of_api(&job.events_so_far(), "ncclAllReduce", "exit").len() < 100 {
        assert!(begun.elapsed() < Duration::from_secs(20));
        sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn the_next_process_tidies_up_after_a_dead_one() {
    let mut job = Job::new();
    let status = job.command(&["_exit", "50"]).status().unwrap();
    assert_eq!((status.code(), job.ring_files()), (Some(3), 1));
    let first = job.trace();
    let second = job.folder.path().join("second");
    job.set("DEEPXTRACE_TRACE_DIR", second);
    let mut child = job.start(&["kill", "1"]);
    let begun = Instant::now();
    // Its own ring is there before the other one is gone.
    while job.ring_files() != 1 || fs::read_dir(&first).unwrap().count() == 0 {
        assert!(begun.elapsed() < Duration::from_secs(20));
        sleep(Duration::from_millis(10));
    }
    while of_api(&job.events_so_far(), "ncclAllReduce", "exit").len() < 50 {
        assert!(begun.elapsed() < Duration::from_secs(20));
        sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_full_ring_drops_whole_calls_and_counts_them() {
    let mut job = Job::new();
    // The disk stands still, so nothing is taken out of the ring.
    let flag = job.folder.path().join("blocked");
    fs::write(&flag, "").unwrap();
    job.set("STUB_DISK_BLOCKS", &flag).set("DEEPXTRACE_RING_CALLS", "1024");
    let slow = Built::get().path("slow_disk.so");
    job.set("LD_PRELOAD", format!("{}:{}", slow.display(), probe().display()));
    job.log_calls();
    job.run(&["burst", "5000"]);
    assert_eq!(job.arrived().len(), 5002, "every call reached the library");
    fs::remove_file(&flag).unwrap();
    job.recover();
    let events = job.events();
    let told = of_kind(&events, "probe_status");
    let told = told.last().unwrap();
    // 1024 records: the creation and 1023 calls; 3977 calls of two events each are missing.
    assert_eq!(of_api(&events, "ncclAllReduce", "exit").len(), 1023);
    assert_eq!(number(told, "dropped_events"), 2 * 3977);
    assert_eq!(number(told, "written_events"), 2 * 1024);
}

#[test]
fn a_disk_that_blocks_holds_up_neither_the_calls_nor_the_end() {
    let mut job = Job::new();
    let flag = job.folder.path().join("blocked");
    fs::write(&flag, "").unwrap();
    job.set("STUB_DISK_BLOCKS", &flag);
    let slow = Built::get().path("slow_disk.so");
    job.set("LD_PRELOAD", format!("{}:{}", slow.display(), probe().display()));
    let begun = Instant::now();
    job.run(&["burst", "1000"]);
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    fs::remove_file(&flag).unwrap();
    job.recover();
    let events = job.events();
    assert_complete(&events);
    assert_eq!(of_api(&events, "ncclAllReduce", "exit").len(), 1000);
}

/// A tiny file system in memory, unmounted at the end. `None`, with a word, where that is refused.
struct Tiny<'a>(&'a Path);

impl<'a> Tiny<'a> {
    fn mount(at: &'a Path, size: &str) -> Option<Self> {
        fs::create_dir_all(at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "none"]).arg(at);
        if mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
            return Some(Self(at));
        }
        eprintln!("skipped: mounting a small file system is refused here (not root?)");
        None
    }
}

impl Drop for Tiny<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_switches_recording_off_and_nothing_else() {
    let mut job = Job::new();
    let trace = job.trace();
    let Some(_tiny) = Tiny::mount(&trace, "256k") else { return };
    job.log_calls();
    let done = job.run(&["burst", "50000"]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("NCCL calls are not recorded") && said.contains("No space"), "{said}");
    assert_eq!(job.arrived().len(), 50_002);
    assert_eq!(job.ring_files(), 0, "its memory is given back");
    // What was written is whole lines.
    job.events();
}

#[test]
fn no_room_for_a_ring_switches_recording_off_and_nothing_else() {
    let mut job = Job::new();
    let rings = job.folder.path().join("rings");
    let Some(_tiny) = Tiny::mount(&rings, "64k") else { return };
    job.set("DEEPXTRACE_RING_DIR", &rings).log_calls();
    let done = job.run(&["burst", "10"]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert_eq!(job.arrived().len(), 12);
}

#[test]
fn a_ring_is_small_beside_the_free_memory() {
    let mut job = Job::new();
    let rings = job.folder.path().join("rings");
    let Some(_tiny) = Tiny::mount(&rings, "32m") else { return };
    job.set("DEEPXTRACE_RING_DIR", &rings);
    let mut child = job.start(&["kill", "10"]);
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ring = fs::read_dir(&rings).unwrap().next().unwrap().unwrap();
    let bytes = ring.metadata().unwrap().len();
    child.kill().unwrap();
    child.wait().unwrap();
    // A 64th of 32 MiB is 512 KiB: 2048 slots of 128 bytes and two headers.
    assert_eq!(bytes, 16_384 + 4_096 + 2_048 * 128);
}

#[test]
fn a_ring_folder_that_is_no_memory_is_refused() {
    let mut job = Job::new();
    let disk = Path::new(env!("CARGO_TARGET_TMPDIR"));
    job.set("DEEPXTRACE_RING_DIR", disk);
    let done = job.run(&["burst", "10"]);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    if said.is_empty() {
        eprintln!("skipped: {} is a file system in memory", disk.display());
        return;
    }
    assert!(said.contains("is not a file system in memory"), "{said}");
    assert_eq!(said.lines().count(), 1);
}

#[test]
fn an_unwritable_folder_switches_recording_off_and_nothing_else() {
    let mut job = Job::new();
    // A file stands where the folder should be; that stops root as well.
    let file = job.folder.path().join("file");
    fs::write(&file, "").unwrap();
    job.set("DEEPXTRACE_TRACE_DIR", file.join("trace")).log_calls();
    let done = job.run(&["burst", "1000"]);
    let said = String::from_utf8_lossy(&done.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("file/trace"), "{said}");
    assert_eq!(job.arrived().len(), 1002);
    assert_eq!(job.ring_files(), 0);
}

#[test]
fn the_trace_is_bounded_and_says_what_went() {
    let mut job = Job::new();
    job.set("DEEPXTRACE_TRACE_MAX_BYTES", "4000000");
    let events = job.quiet(&["burst", "40000"]);
    let bytes: u64 = job.files().iter().map(|path| path.metadata().unwrap().len()).sum();
    // Sixteen segments, each of a sixteenth and at most one batch more.
    assert!(bytes < 4_000_000 + 16 * (1 << 20) + (1 << 20), "{bytes}");
    let told = of_kind(&events, "probe_status");
    let told = told.last().unwrap();
    let calls = events.iter().filter(|event| event.get("api").is_some()).count();
    let calls = i64::try_from(calls).unwrap();
    assert_eq!(number(told, "written_events"), 80_002);
    assert!(number(told, "discarded_events") > 0);
    assert_eq!(number(told, "discarded_events"), 80_002 - calls);
    // The newest calls are there.
    let exits = of_api(&events, "ncclAllReduce", "exit");
    assert!(exits.iter().any(|event| number(event, "count") == 40_000));
    assert!(of_kind(&events, "process_start").is_empty(), "the first segment went first");
}

#[test]
fn heartbeats_follow_the_older_records_and_tell_the_phase() {
    let mut job = Job::new();
    job.set("DEEPXTRACE_HEARTBEAT_S", "0.1").set("DEEPXTRACE_PHASE", "checkpointing");
    let events = job.quiet(&["bursts", "1", "100"]);
    let beats = of_kind(&events, "heartbeat");
    assert!(beats.len() >= 5, "{}", beats.len());
    let last = beats.last().unwrap();
    assert_eq!(text(last, "phase"), "checkpointing");
    assert_eq!(text(last, "last_nccl_api"), "ncclAllReduce");
    assert_eq!(text(last, "last_nccl_phase"), "exit");
    assert_eq!((number(last, "last_nccl_seq"), number(last, "dropped_events")), (100, 0));
    let exits = of_api(&events, "ncclAllReduce", "exit");
    let progress = number(exits.last().unwrap(), "timestamp_mono_ns");
    assert_eq!(number(last, "last_progress_mono_ns"), progress);
    for (place, beat) in events.iter().enumerate().filter(|(_, e)| e["event"] == "heartbeat") {
        let time = number(beat, "timestamp_mono_ns");
        let later = events[place..].iter().filter(|event| event.get("api").is_some());
        assert!(later.map(|e| number(e, "timestamp_mono_ns")).all(|t| t > time - 50_000_000));
    }
}
