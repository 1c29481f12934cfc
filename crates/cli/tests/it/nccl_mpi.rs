//! `deepxtrace nccl analyze --mpi` and `nccl watch --mpi` under a real `mpirun`.

use std::ffi::OsString;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use deepxtrace_sim::nccl::{Fault, Job, write_folder};
use serde_json::Value;
use tempfile::TempDir;

use crate::{Run, run};

/// How long one job may take on a loaded machine.
const LIMIT: Duration = Duration::from_secs(120);

/// A job of processes of the command, each with its own arguments.
fn mpirun(each: &[Vec<OsString>]) -> Command {
    mpirun_of("analyze", each)
}

fn mpirun_of(what: &str, each: &[Vec<OsString>]) -> Command {
    let mut command = Command::new("mpirun");
    for (at, arguments) in each.iter().enumerate() {
        if at > 0 {
            command.arg(":");
        }
        command.args(["-n", "1", env!("CARGO_BIN_EXE_deepxtrace"), "nccl", what, "--mpi"]);
        command.args(arguments);
    }
    command
        // For containers with few cores; harmless elsewhere.
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1")
        // mpirun gives its processes a terminal.
        .env("NO_COLOR", "1")
        .stdin(Stdio::null());
    command
}

fn finished(each: &[Vec<OsString>]) -> Run {
    let output = mpirun(each).output().unwrap();
    Run {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A trace with faults in one folder, and the same files in the folders of some machines.
struct Nodes {
    folder: TempDir,
    count: usize,
}

impl Nodes {
    /// Ranks of a mesh, of which one skips a call and one dies.
    fn new(count: usize) -> Self {
        let mut job = Job::mesh(2, 2, 4, 40);
        job.plant(&Fault::Skip { rank: 3, call: 20 }).unwrap();
        job.plant(&Fault::Dead { rank: 9, call: 31 }).unwrap();
        Self::of(&job, count)
    }

    fn of(job: &Job, count: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write_folder(job, &folder.path().join("all")).unwrap();
        let nodes = Self { folder, count };
        let mut files: Vec<PathBuf> =
            fs::read_dir(nodes.all()).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        for node in 0..count {
            fs::create_dir(nodes.node(node)).unwrap();
        }
        for (at, file) in files.iter().enumerate() {
            fs::copy(file, nodes.node(at % count).join(file.file_name().unwrap())).unwrap();
        }
        nodes
    }

    fn all(&self) -> PathBuf {
        self.folder.path().join("all")
    }

    fn node(&self, node: usize) -> PathBuf {
        self.folder.path().join(format!("node{node}"))
    }

    /// For each process the folder of its machine, and more arguments.
    fn each(&self, more: &[&str]) -> Vec<Vec<OsString>> {
        let arguments = |node| {
            let folder = self.node(node).into_os_string();
            std::iter::once(folder).chain(more.iter().map(OsString::from)).collect()
        };
        (0..self.count).map(arguments).collect()
    }

    /// What one process that reads everything prints.
    fn whole(&self, more: &[&str]) -> Run {
        let folder = self.all();
        run(["nccl", "analyze", folder.to_str().unwrap()].iter().chain(more))
    }
}

#[test]
fn any_number_of_processes_prints_the_same_bytes() {
    let expected = Nodes::new(1).whole(&["--json"]);
    assert!(expected.out.lines().count() >= 2, "{expected:?}");
    for count in [1, 2, 4, 8] {
        let run = finished(&Nodes::new(count).each(&["--json"]));
        assert_eq!((run.code, &run.out, &*run.err), (Some(0), &expected.out, ""), "{count}");
    }
}

#[test]
fn people_read_the_same_but_for_the_place() {
    let nodes = Nodes::new(2);
    let (whole, parts) = (nodes.whole(&[]), finished(&nodes.each(&[])));
    let (first, rest) = parts.out.split_once('\n').unwrap();
    assert_eq!(rest, whole.out.split_once('\n').unwrap().1);
    assert!(first.contains(" (read by 2 processes, which exchanged "), "{first}");
    let counts = |line: &str| line.rsplit_once(": ").unwrap().1.to_owned();
    assert_eq!(counts(first), counts(whole.out.lines().next().unwrap()));
}

#[test]
fn processes_that_see_the_same_folder_share_it_and_one_may_have_nothing() {
    let nodes = Nodes::new(2);
    let expected = nodes.whole(&["--json"]).out;
    let shared: Vec<OsString> = vec![nodes.all().into(), "--json".into()];
    assert_eq!(finished(&vec![shared.clone(); 3]).out, expected);
    let empty = nodes.folder.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let nothing: Vec<OsString> = vec![empty.into(), "--json".into()];
    // The root may be the one without files.
    let run = finished(&[nothing, shared]);
    assert_eq!((run.code, run.out, &*run.err), (Some(0), expected, ""));
}

#[test]
fn several_folders_of_one_process_are_one_trace() {
    let nodes = Nodes::new(3);
    let arguments: Vec<OsString> = (0..3).map(|node| nodes.node(node).into_os_string()).collect();
    let run = finished(&[arguments]);
    let whole = nodes.whole(&[]);
    assert_eq!(run.out.split_once('\n').unwrap().1, whole.out.split_once('\n').unwrap().1);
}

#[test]
fn findings_are_counted_and_written_to_a_file_that_is_whole() {
    let nodes = Nodes::new(2);
    let file = nodes.folder.path().join("found.jsonl");
    let more = ["--stood-still", "100", "--out", file.to_str().unwrap(), "--fail-on-findings"];
    let run = finished(&nodes.each(&more));
    assert_eq!(run.code, Some(1), "{}", run.err);
    let whole = nodes.whole(&["--stood-still", "100", "--json"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), whole.out);
    assert_eq!(parts(nodes.folder.path()), Vec::<PathBuf>::new());
}

/// Files that are not whole.
fn parts(folder: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|end| end == "part")).collect()
}

#[test]
fn a_file_that_a_process_cannot_read_is_named_and_the_others_are_read() {
    let nodes = Nodes::new(2);
    // A folder of the name of a file: even root cannot read it.
    let name = "rank_1_pid_1001.jsonl";
    for folder in [nodes.all(), nodes.node(1)] {
        fs::remove_file(folder.join(name)).unwrap();
        fs::create_dir(folder.join(name)).unwrap();
    }
    let (whole, run) = (nodes.whole(&["--json"]), finished(&nodes.each(&["--json"])));
    assert_eq!((whole.code, run.code), (Some(2), Some(2)), "{}", run.err);
    assert_eq!(run.out, whole.out);
    let told: Vec<&str> = run.err.lines().filter(|line| line.contains(name)).collect();
    assert!(told[0].contains("warning: process 1 on "), "{}", run.err);
    assert!(told.iter().any(|line| line.contains("the findings lack what it holds")), "{told:?}");
}

#[test]
fn what_all_know_to_be_wrong_is_told_once() {
    let nodes = Nodes::new(2);
    let gone: Vec<OsString> = vec![nodes.folder.path().join("gone").into()];
    let run = finished(&vec![gone; 2]);
    assert_eq!(run.code, Some(2));
    let told = run.err.lines().filter(|line| line.starts_with("deepxtrace:")).count();
    assert_eq!(told, 1, "{}", run.err);
    assert!(run.err.contains("gone: no process has such a folder"), "{}", run.err);

    let other = nodes.folder.path().join("other");
    write_folder(&Job::collectives(2, 4).with_run_id("other"), &other).unwrap();
    let run = finished(&[vec![nodes.node(0).into()], vec![other.into()]]);
    assert_eq!(run.code, Some(2));
    assert!(run.err.contains("several runs, name one of them"), "{}", run.err);
}

#[test]
fn a_process_that_is_killed_ends_the_job_and_no_findings_are_left() {
    let nodes = Nodes::of(&Job::collectives(16, 3000), 2);
    let file = nodes.folder.path().join("found.jsonl");
    fs::write(&file, "of an earlier analysis\n").unwrap();
    let mut job = mpirun(&nodes.each(&["--json", "--out", file.to_str().unwrap()]))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It has read some of its 10 MB: the exchange is under way.
    let folder = nodes.node(1);
    let begin = Instant::now();
    let victim = loop {
        assert!(begin.elapsed() < LIMIT && job.try_wait().unwrap().is_none(), "not seen");
        if let Some(pid) = reader_of(&folder).filter(|&pid| bytes_read(pid) > 4 << 20) {
            break pid;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let kill = Command::new("kill").args(["-9", &victim.to_string()]).status().unwrap();
    assert!(kill.success());
    let output = job.wait_with_output().unwrap();
    assert!(begin.elapsed() < LIMIT);
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{err}");
    assert!(err.contains("rank 1") && err.contains("signal 9"), "{err}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    assert!(!file.exists(), "neither the new nor the old findings may be taken for these");
}

/// The process that was given a folder and is no `mpirun`.
fn reader_of(folder: &Path) -> Option<u32> {
    let folder = folder.to_str().unwrap();
    let processes = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    processes.into_iter().find(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let words: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
        let program = words.first().copied().unwrap_or_default();
        program.ends_with(b"deepxtrace") && words.contains(&folder.as_bytes())
    })
}

/// Bytes that a process has read.
fn bytes_read(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("rchar: "));
    line.and_then(|value| value.parse().ok()).unwrap_or(0)
}

/// A job that is watched in the folders of two machines, by processes that scan often.
struct Watched {
    nodes: Nodes,
    job: Child,
    findings: Receiver<Value>,
}

impl Watched {
    /// Each machine by a process of its own.
    fn new(more: &[&str]) -> Self {
        Self::of(|nodes| vec![nodes.node(0), nodes.node(1)], more)
    }

    /// Rank 2 of four dies before a collective. Each process has a folder.
    fn of(folders: impl Fn(&Nodes) -> Vec<PathBuf>, more: &[&str]) -> Self {
        let mut job = Job::collectives(4, 20);
        job.plant(&Fault::Dead { rank: 2, call: 7 }).unwrap();
        let nodes = Nodes::of(&job, 2);
        let settings = ["--json", "--scan-interval-s", "0.2", "--collective-timeout-s", "1"];
        let settings: Vec<OsString> = settings.iter().chain(more).map(OsString::from).collect();
        let each: Vec<Vec<OsString>> = folders(&nodes)
            .into_iter()
            .map(|folder| std::iter::once(folder.into()).chain(settings.iter().cloned()).collect())
            .collect();
        let mut job = mpirun_of("watch", &each)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let (send, findings) = channel();
        let out = BufReader::new(job.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                // The terminal that mpirun gives its processes adds a return.
                let _ = send.send(serde_json::from_str(line.trim()).expect(&line));
            }
        });
        Self { nodes, job, findings }
    }

    fn next(&self) -> Value {
        self.findings.recv_timeout(LIMIT).expect("nothing is found")
    }

    fn end(self) -> (Nodes, Option<i32>, Vec<Value>, String) {
        let output = self.job.wait_with_output().unwrap();
        let rest = self.findings.iter().collect();
        (self.nodes, output.status.code(), rest, String::from_utf8(output.stderr).unwrap())
    }
}

fn kept(folder: &Path) -> Vec<Value> {
    let text = fs::read_to_string(folder.join("findings.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_live_job_on_two_machines_is_watched_until_it_has_ended_on_both() {
    let watched = Watched::new(&["--fail-on-findings"]);
    let found = watched.next();
    assert_eq!(found["hang_type"], "collective_missing_enter");
    assert_eq!(found["details"]["missing_comm_ranks"], serde_json::json!([2]));
    fs::write(watched.nodes.node(0).join("training.exit_code"), "0\n").unwrap();
    // The job has not ended on the other machine.
    std::thread::sleep(Duration::from_millis(500));
    fs::write(watched.nodes.node(1).join("training.exit_code"), "0\n").unwrap();
    let (nodes, code, rest, err) = watched.end();
    assert_eq!((code, rest), (Some(1), vec![]), "{err}");
    assert_eq!(kept(&nodes.node(0)), [found], "it is kept where the first process is");
    assert!(!nodes.node(0).join("analyzer.pid").exists());
    assert!(!nodes.node(1).join("findings.jsonl").exists());
}

#[test]
fn watchers_that_see_the_same_folder_find_it_once() {
    let watched = Watched::of(|nodes| vec![nodes.all(); 3], &[]);
    let found = watched.next();
    assert_eq!(found["details"]["missing_comm_ranks"], serde_json::json!([2]));
    fs::write(watched.nodes.all().join("training.exit_code"), "0\n").unwrap();
    let (nodes, code, rest, err) = watched.end();
    assert_eq!((code, rest, &*err), (Some(0), vec![], ""));
    assert_eq!(kept(&nodes.all()), [found]);
}

#[test]
fn a_signal_to_one_watcher_ends_all_of_them() {
    let watched = Watched::new(&[]);
    watched.next();
    let one = reader_of(&watched.nodes.node(1)).unwrap();
    let kill = Command::new("kill").args(["-TERM", &one.to_string()]).status().unwrap();
    assert!(kill.success());
    let (nodes, code, rest, err) = watched.end();
    assert_eq!((code, rest, &*err), (Some(0), vec![], ""));
    assert_eq!(kept(&nodes.node(0)).len(), 1);
}
