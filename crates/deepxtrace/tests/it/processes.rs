//! The ranks are processes of this test binary, started with [`child`] alone.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use deepxtrace::collect::{Membership, TcpGroup};
use serde_json::Value;

use super::job::{MARK, Plan, run_in_step, run_until_told};

/// How long a whole scenario may take on a loaded machine.
const SCENARIO: Duration = Duration::from_secs(120);
const INTERVAL: Duration = Duration::from_millis(60);
const WINDOWS: u64 = 3;

#[test]
#[ignore = "started by the tests below"]
fn child() {
    let Ok(plan) = std::env::var("JOB_PLAN") else { return };
    let plan: Plan = serde_json::from_str(&plan).unwrap();
    let list = std::env::var("JOB_GLOBAL_RANKS").unwrap_or_default();
    let group = if list.is_empty() {
        TcpGroup::from_env().unwrap()
    } else {
        let ranks: Vec<usize> = serde_json::from_str(&list).unwrap();
        let own = std::env::var("RANK").unwrap().parse().unwrap();
        let root = std::env::var("JOB_ROOT").unwrap().parse().unwrap();
        let membership = Membership::subgroup(ranks, own, root).unwrap();
        TcpGroup::subgroup_from_vars(membership, |name| std::env::var(name).ok()).unwrap()
    };
    match std::env::var("JOB_KIND").unwrap().as_str() {
        "in step" => run_in_step(group, &plan, WINDOWS),
        _ => run_until_told(group, &plan, INTERVAL, SCENARIO),
    }
}

/// A job: its processes, and what they tell.
struct Job {
    plan: Plan,
    kind: &'static str,
    size: usize,
    port: u16,
    subgroup: Option<(Vec<usize>, usize)>,
    processes: Vec<(usize, Child)>,
    send: Sender<Value>,
    told: Receiver<Value>,
}

impl Job {
    fn new(kind: &'static str, size: usize, late: usize, folder: &Path, timeout: Duration) -> Self {
        let (send, told) = channel();
        Self {
            plan: Plan {
                ranks_per_node: 2,
                late,
                log_path: folder.to_owned(),
                round_timeout: timeout,
            },
            kind,
            size,
            port: free_port(),
            subgroup: None,
            processes: Vec::new(),
            send,
            told,
        }
    }

    /// Starts the process of a global rank, which reaches the root at `port`.
    fn start(&mut self, rank: usize, port: u16) {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "processes::child", "--ignored", "--nocapture"])
            .env("JOB_PLAN", serde_json::to_string(&self.plan).unwrap())
            .env("JOB_KIND", self.kind)
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", self.size.to_string())
            .env("MASTER_ADDR", "127.0.0.1")
            .env("MASTER_PORT", (port - 1).to_string())
            .env("TORCHELASTIC_RUN_ID", "the run of this test")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some((ranks, root)) = &self.subgroup {
            command
                .env("JOB_GLOBAL_RANKS", serde_json::to_string(ranks).unwrap())
                .env("JOB_ROOT", root.to_string());
        }
        let mut process = command.spawn().unwrap();
        let (out, send) = (process.stdout.take().unwrap(), self.send.clone());
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                if let Some(text) = line.strip_prefix(MARK) {
                    let _ = send.send(serde_json::from_str(text).unwrap());
                }
            }
        });
        self.processes.push((rank, process));
    }

    fn next(&self) -> Value {
        self.told.recv_timeout(SCENARIO).expect("the job tells something")
    }

    /// Waits for a window of the root for which `wanted` holds.
    fn window(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let begin = Instant::now();
        loop {
            let told = self.next();
            if told["window"].is_u64() && wanted(&told) {
                return told;
            }
            assert!(begin.elapsed() < SCENARIO, "waiting for {what}: {told}");
        }
    }

    fn window_without(&self, missing: &[usize]) -> Value {
        self.window(&format!("missing {missing:?}"), |window| {
            window["state"] == "diagnosed" && window["missing"] == serde_json::json!(missing)
        })
    }

    fn process(&mut self, rank: usize) -> &mut Child {
        // The newest of this rank.
        let found = self.processes.iter_mut().rev().find(|(known, _)| *known == rank);
        &mut found.unwrap().1
    }

    fn signal(&mut self, rank: usize, signal: &str) {
        let id = self.process(rank).id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
    }

    /// Waits for the end of all processes that were not killed.
    fn end(mut self) -> Vec<(usize, bool)> {
        let begin = Instant::now();
        let processes = std::mem::take(&mut self.processes);
        processes
            .into_iter()
            .map(|(rank, mut process)| {
                loop {
                    if let Some(status) = process.try_wait().unwrap() {
                        break (rank, status.success());
                    }
                    if begin.elapsed() > SCENARIO {
                        let _ = process.kill();
                        panic!("rank {rank} does not end");
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
            })
            .collect()
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        for (_, process) in &mut self.processes {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

/// A port that was free a moment ago, as was the one before it, which a launcher would have.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// All ranks in step: what the root gathered is what all counted, and the late rank is named.
fn in_step(size: usize, subgroup: Option<(Vec<usize>, usize)>) {
    let folder = tempfile::tempdir().unwrap();
    let late = size - 1;
    let mut job = Job::new("in step", size, late, folder.path(), Duration::from_secs(60));
    let ranks = subgroup.as_ref().map_or((0..size).collect(), |(ranks, _)| ranks.clone());
    job.subgroup = subgroup;
    let port = job.port;
    for &rank in &ranks {
        job.start(rank, port);
    }
    for index in 1..=WINDOWS {
        let window = job.window("the next window", |_| true);
        assert_eq!(window["window"], index);
        assert_eq!(window["state"], "diagnosed");
        assert_eq!(window["missing"], serde_json::json!([]));
        assert_eq!(window["equal"], true, "{window}");
        assert_eq!(window["late"], serde_json::json!([late]));
        let place = window["places"][0].as_str().unwrap();
        let expected = format!("rank {late} (global rank {}, host ", ranks[late]);
        assert!(place.starts_with(&expected), "{place}");
    }
    let ended = job.end();
    assert_eq!(ended, ranks.iter().map(|rank| (*rank, true)).collect::<Vec<_>>());
    for rank in ranks {
        let log = folder.path().join(format!("diagnose_rank{rank}.log"));
        assert!(log.exists(), "{}", log.display());
    }
}

#[test]
fn two_four_and_eight_processes_gather_what_they_counted() {
    for size in [2, 4, 8] {
        in_step(size, None);
    }
}

#[test]
fn sixty_four_processes_gather_what_they_counted() {
    in_step(64, None);
}

#[test]
fn subgroups_in_any_order_with_any_root_gather_what_they_counted() {
    in_step(4, Some((vec![9, 2, 31, 4], 2)));
    in_step(3, Some((vec![5, 0, 7], 1)));
}

/// Hands bytes on between one rank and the root, until it is told to cut.
struct Proxy {
    port: u16,
    cut: Arc<AtomicBool>,
}

impl Proxy {
    fn new(root_port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let cut = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&cut);
        std::thread::spawn(move || {
            for rank in listener.incoming().map_while(Result::ok) {
                // While the line is cut, nobody gets through.
                if flag.load(Relaxed) {
                    continue;
                }
                let Ok(root) = TcpStream::connect(("127.0.0.1", root_port)) else { continue };
                let flag = Arc::clone(&flag);
                let (a, b) = (rank.try_clone().unwrap(), root.try_clone().unwrap());
                std::thread::spawn(move || hand_on(b, a, None));
                std::thread::spawn(move || hand_on(rank, root, Some(&flag)));
            }
        });
        Self { port, cut }
    }
}

/// Once `cut` is set, hands on a part of the next piece, and closes both sides.
fn hand_on(mut from: TcpStream, mut to: TcpStream, cut: Option<&AtomicBool>) {
    let mut bytes = [0; 4096];
    while let Ok(n @ 1..) = from.read(&mut bytes) {
        let stop = cut.is_some_and(|cut| cut.load(Relaxed));
        let part = if stop { n / 2 } else { n };
        if to.write_all(&bytes[..part]).is_err() || stop {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

#[test]
fn killed_stopped_and_cut_off_ranks_are_named_and_taken_in_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut job = Job::new("until told", 4, 1, folder.path(), Duration::from_millis(400));
    let port = job.port;
    let proxy = Proxy::new(port);
    for rank in 0..4 {
        job.start(rank, if rank == 1 { proxy.port } else { port });
    }
    let window = job.window_without(&[]);
    assert_eq!(window["late"], serde_json::json!([1]));

    // Killed: the others are diagnosed. A new process takes the place.
    job.signal(3, "-KILL");
    let window = job.window_without(&[3]);
    assert_eq!(window["late"], serde_json::json!([1]));
    job.start(3, port);
    job.window_without(&[]);

    // Stopped, and continued.
    job.signal(2, "-STOP");
    let window = job.window_without(&[2]);
    assert_eq!(window["late"], serde_json::json!([1]));
    job.signal(2, "-CONT");
    job.window_without(&[]);

    // Cut off in the middle of an answer.
    proxy.cut.store(true, Relaxed);
    job.window_without(&[1]);
    proxy.cut.store(false, Relaxed);
    let window = job.window_without(&[]);
    assert_eq!(window["late"], serde_json::json!([1]));

    // All end, in any order, and promptly.
    for rank in [2, 0, 1, 3] {
        let input = job.process(rank).stdin.take();
        let _ = input.unwrap().write_all(b"\n");
    }
    let mut ended = Vec::new();
    while ended.len() < 4 {
        let told = job.next();
        if told["ended"].is_boolean() {
            assert_eq!(told["ended"], true, "{told}");
            // 100 ms on a free machine.
            assert!(told["stop_ms"].as_u64().unwrap() < 5_000, "{told}");
            if told["rank"] == 0 {
                assert!(told["rejoined"].as_u64().unwrap() >= 2, "{told}");
            }
            ended.push(told["rank"].as_u64().unwrap());
        }
    }
    ended.sort_unstable();
    assert_eq!(ended, [0, 1, 2, 3]);
    let mut states = job.end();
    states.sort_unstable();
    // The killed one, and all others well.
    assert_eq!(states, [(0, true), (1, true), (2, true), (3, false), (3, true)]);
}

#[test]
fn a_root_that_is_restarted_finds_its_ranks_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut job = Job::new("until told", 3, 1, folder.path(), Duration::from_millis(400));
    let port = job.port;
    for rank in 0..3 {
        job.start(rank, port);
    }
    job.window_without(&[]);
    job.signal(0, "-KILL");
    let _ = job.process(0).wait();
    job.told.try_iter().for_each(drop);
    job.start(0, port);
    let window = job.window("the first window of the new root", |window| window["window"] == 1);
    assert_eq!(window["missing"], serde_json::json!([]), "{window}");
    // The new root's goodbye is the others' as well.
    let input = job.process(0).stdin.take();
    input.unwrap().write_all(b"\n").unwrap();
    let mut states = job.end();
    states.sort_unstable();
    assert_eq!(states, [(0, false), (0, true), (1, true), (2, true)]);
}
