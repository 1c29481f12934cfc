//! Real MPI ranks. Without `mpirun` around it, this program starts every scenario under `mpirun`
//! and reads what the ranks tell; `cargo xtask mpi` runs it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![allow(clippy::print_stdout, reason = "it reports as tests do")]

#[path = "../common/job.rs"]
mod job;

/// What one rank does in each scenario.
mod ranks;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use job::MARK;
use serde_json::{Value, json};

/// How long one scenario may take on a loaded machine.
const SCENARIO: Duration = Duration::from_secs(120);

fn main() {
    if let Ok(scenario) = std::env::var(ranks::SCENARIO) {
        ranks::run(&scenario);
        return;
    }
    if Command::new("mpirun").arg("--version").output().is_err() {
        println!("skipped: no mpirun on this machine");
        return;
    }
    let only = std::env::args().nth(1).filter(|argument| !argument.starts_with('-'));
    let mut count = 0;
    for (name, test) in TESTS {
        if only.as_ref().is_none_or(|only| name.contains(only.as_str())) {
            println!("test {name} ...");
            let begin = Instant::now();
            test();
            println!("test {name} ... ok in {:.1} s", begin.elapsed().as_secs_f64());
            count += 1;
        }
    }
    println!("mpi: {count} passed, 0 failed");
}

const TESTS: [(&str, fn()); 8] = [
    ("world_gathers_what_all_counted", world),
    ("subgroups_in_any_order_with_any_root", subgroups),
    ("two_subgroups_at_the_same_time", split),
    ("a_stopped_rank_is_missing_and_stop_is_bounded", stopped),
    ("a_killed_rank_is_missing_where_mpi_recovers", killed),
    ("ranks_that_disagree_or_do_not_come", disagreement),
    ("background_needs_thread_multiple", thread_level),
    ("starts_and_stops_leave_nothing_behind", starts),
];

/// The ranks of one scenario under `mpirun`.
struct Job {
    process: Child,
    told: Receiver<Value>,
    /// For the logs.
    _folder: tempfile::TempDir,
}

impl Job {
    fn new(size: usize, scenario: &str) -> Self {
        Self::with_options(size, scenario, &[])
    }

    fn with_options(size: usize, scenario: &str, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut process = Command::new("mpirun")
            .args(["-n", &size.to_string()])
            .args(options)
            .arg(std::env::current_exe().unwrap())
            .env(ranks::SCENARIO, scenario)
            .env(ranks::FOLDER, folder.path())
            // For containers with few cores; harmless elsewhere.
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
            .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (send, told) = channel();
        let out = process.stdout.take().unwrap();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                // Lines of several ranks may share one.
                for text in line.split(MARK).skip(1) {
                    match serde_json::from_str(text.trim()) {
                        Ok(value) => drop(send.send(value)),
                        Err(error) => println!("{error}: {text}"),
                    }
                }
            }
        });
        Self { process, told, _folder: folder }
    }

    fn next(&self) -> Value {
        match self.told.recv_timeout(SCENARIO) {
            Ok(value) => value,
            Err(RecvTimeoutError::Timeout) => panic!("the ranks tell nothing"),
            Err(RecvTimeoutError::Disconnected) => panic!("the ranks have ended"),
        }
    }

    /// The next line that has `key`.
    fn with(&self, key: &str) -> Value {
        loop {
            let told = self.next();
            if !told[key].is_null() {
                return told;
            }
        }
    }

    fn windows_until(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        let begin = Instant::now();
        loop {
            let told = self.with("window");
            if wanted(&told) {
                return told;
            }
            assert!(begin.elapsed() < SCENARIO, "{told}");
        }
    }

    /// Waits for the end; all ranks end well.
    fn end(mut self) -> Vec<Value> {
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                break status;
            }
            assert!(begin.elapsed() < SCENARIO, "mpirun does not end");
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(status.success(), "{status}");
        self.told.iter().collect()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if !matches!(self.process.try_wait(), Ok(None)) {
            return;
        }
        // Asked to end, `mpirun` ends its ranks; killed, it leaves them behind.
        let _ = Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status();
        let begin = Instant::now();
        while matches!(self.process.try_wait(), Ok(None)) && begin.elapsed().as_secs() < 10 {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Windows in step: gathered is what was counted, and the late rank is named with its global rank.
fn in_step(job: &Job, late: usize, global: usize) {
    for index in 1..=3 {
        let window = job.with("window");
        assert_eq!(window["window"], index, "{window}");
        assert_eq!(window["state"], "diagnosed", "{window}");
        assert_eq!(window["missing"], json!([]), "{window}");
        assert_eq!(window["equal"], true, "{window}");
        assert_eq!(window["late"], json!([late]), "{window}");
        let place = window["places"][0].as_str().unwrap();
        assert!(place.starts_with(&format!("rank {late} (global rank {global}, host ")), "{place}");
    }
}

fn world() {
    for size in [2, 4, 8] {
        let job = Job::new(size, "world");
        in_step(&job, size - 1, size - 1);
        job.end();
    }
}

fn subgroups() {
    // Ranks 6, 1, 3, 4 of 8; the second of them is the root, the last is late.
    let job = Job::new(8, "subgroup");
    in_step(&job, 3, 4);
    job.end();
    // All ranks, in the reverse of MPI's order; the last is the root.
    let job = Job::new(4, "reverse");
    in_step(&job, 3, 0);
    job.end();
}

fn split() {
    let job = Job::new(8, "split");
    let mut windows = Vec::new();
    while windows.len() < 6 {
        let window = job.with("window");
        assert_eq!((&window["equal"], &window["missing"]), (&json!(true), &json!([])), "{window}");
        windows.push(window["places"][0].as_str().unwrap().to_owned());
    }
    windows.sort_unstable();
    windows.dedup();
    let named: Vec<_> = windows.iter().map(|place| place.split(',').next().unwrap()).collect();
    assert_eq!(named, ["rank 3 (global rank 6", "rank 3 (global rank 7"]);
    job.end();
}

fn stopped() {
    let mut job = Job::new(4, "until told");
    let mut processes = vec![Value::Null; 4];
    for _ in 0..4 {
        let started = job.with("pid");
        let rank = started["rank"].as_u64().unwrap() as usize;
        processes[rank] = started["pid"].clone();
    }
    let signal = |rank: usize, signal: &str| {
        let id = processes[rank].to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    };
    let diagnosed = |missing: Value| {
        move |window: &Value| window["state"] == "diagnosed" && window["missing"] == missing
    };
    job.windows_until(diagnosed(json!([])));
    signal(2, "-STOP");
    let window = job.windows_until(diagnosed(json!([2])));
    assert_eq!(window["late"], json!([1]), "{window}");
    signal(2, "-CONT");
    job.windows_until(diagnosed(json!([])));
    // Stop while a rank is stopped: the others do not wait for it.
    signal(2, "-STOP");
    job.windows_until(diagnosed(json!([2])));
    // Standard input is the first rank's, which is the root; the others follow it.
    job.process.stdin.take().unwrap().write_all(b"\n").unwrap();
    let mut ended = Vec::new();
    while ended.len() < 3 {
        let told = job.with("ended");
        assert_eq!(told["ended"], true, "{told}");
        assert!(told["stop_ms"].as_u64().unwrap() < 5_000, "{told}");
        ended.push(told["rank"].as_u64().unwrap());
    }
    ended.sort_unstable();
    assert_eq!(ended, [0, 1, 3]);
    // MPI's own finalisation waits for it, as it does without us.
    signal(2, "-CONT");
    job.end();
}

fn killed() {
    // Without recovery Open MPI ends the whole job.
    let job = Job::with_options(4, "killed", &["--enable-recovery"]);
    let mut victim = Value::Null;
    for _ in 0..4 {
        let started = job.with("pid");
        if started["rank"] == 3 {
            victim = started["pid"].clone();
        }
    }
    job.windows_until(|window| window["missing"] == json!([]));
    let id = victim.to_string();
    assert!(Command::new("kill").args(["-KILL", &id]).status().unwrap().success());
    let window = job
        .windows_until(|window| window["state"] == "diagnosed" && window["missing"] == json!([3]));
    assert_eq!(window["late"], json!([1]), "{window}");
    // MPI cannot be finalised with a dead rank: the job is ended from here.
    drop(job);
}

fn disagreement() {
    let told = Job::new(4, "disagree").end();
    assert_eq!(told.len(), 4, "{told:?}");
    for value in told {
        let error = value["error"].as_str().unwrap();
        assert!(
            error.contains("DEEPEP_DIAGNOSE_SYNC_STEP is 1 on ranks 0-2, 5 on rank 3"),
            "{error}"
        );
    }
    let told = Job::new(2, "disabled").end();
    assert_eq!(told, [json!({"none": true}), json!({"none": true})]);
    let told = Job::new(4, "absent").end();
    assert_eq!(told.len(), 3, "{told:?}");
    for value in told {
        let error = value["error"].as_str().unwrap();
        assert!(error.contains("not all of its ranks came in time"), "{error}");
    }
}

fn thread_level() {
    for value in Job::new(2, "single").end() {
        let error = value["error"].as_str().unwrap();
        assert!(error.contains("MPI_THREAD_MULTIPLE"), "{error}");
    }
    // Synchronous collection works without it.
    let job = Job::new(2, "single in step");
    in_step(&job, 1, 1);
    job.end();
}

fn starts() {
    let told = Job::new(2, "starts").end();
    assert_eq!(told.len(), 2);
    for value in told {
        let growth = |key: &str| value[key].as_i64().unwrap();
        assert!(growth("memory_kb") < 4_096, "{value}");
        assert!(growth("threads") <= 0, "{value}");
        assert!(growth("files") <= 0, "{value}");
    }
}
