//! `deepxtrace nccl run`: the job runs as it would without, and what hangs is said.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::{Run, command};

/// A library that does nothing, in the place of the probe: most of these jobs call no NCCL.
fn idle_probe(folder: &Path) -> PathBuf {
    let source = folder.join("idle.c");
    fs::write(&source, "int deepxtrace_idle;\n").unwrap();
    gcc(folder, &["-shared", "-fPIC", "-o", "idle.so", "idle.c"]);
    folder.join("idle.so")
}

pub fn gcc(folder: &Path, arguments: &[&str]) {
    let done = Command::new("gcc").args(arguments).current_dir(folder).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// `deepxtrace nccl run` in a folder of its own.
struct Place {
    folder: TempDir,
    probe: PathBuf,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let probe = idle_probe(folder.path());
        Self { folder, probe }
    }

    fn command(&self, options: &[&str], job: &[&str]) -> Command {
        let mut command = command();
        command.args(["nccl", "run", "--out"]).arg(self.folder.path().join("out"));
        command.arg("--probe").arg(&self.probe).args(["--run-id", "r"]);
        command.args(options).arg("--").args(job);
        for name in ["NODE_RANK", "GROUP_RANK", "SLURM_NODEID", "OMPI_COMM_WORLD_RANK", "RANK"] {
            command.env_remove(name);
        }
        command
    }

    fn run(&self, options: &[&str], job: &[&str]) -> Run {
        let output = self.command(options, job).output().unwrap();
        Run {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("out/tracing/r").join(name)
    }
}

#[test]
fn the_job_s_output_and_exit_code_are_its_own() {
    let place = Place::new();
    let run = place.run(&[], &["sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!((run.code, &*run.out), (Some(7), "out\n"));
    assert!(run.err.contains("err\n"));
    assert!(run.err.contains("no NCCL call was seen"), "{}", run.err);
    assert_eq!(fs::read_to_string(place.file("training.exit_code")).unwrap(), "7\n");
}

#[test]
fn a_job_that_is_killed_gives_the_code_of_a_shell() {
    let place = Place::new();
    let run = place.run(&[], &["sh", "-c", "kill -9 $$"]);
    assert_eq!(run.code, Some(137));
    assert_eq!(fs::read_to_string(place.file("training.exit_code")).unwrap(), "137\n");
}

#[test]
fn the_job_finds_the_probe_and_its_folder_in_its_environment() {
    let place = Place::new();
    let script = "echo $LD_PRELOAD; echo $DEEPXTRACE_TRACE_DIR; echo $DEEPXTRACE_RUN_ID; \
                  echo $VLLM_NCCL_SO_PATH; echo $SGLANG_NCCL_SO_PATH; echo $DEEPXTRACE_WRAP_DLSYM";
    let run = place.run(&["--wrap-dlsym"], &["sh", "-c", script]);
    let probe = place.probe.canonicalize().unwrap();
    let probe = probe.to_str().unwrap();
    let folder = place.file("").canonicalize().unwrap();
    let lines: Vec<&str> = run.out.lines().collect();
    assert_eq!(lines, [probe, folder.to_str().unwrap(), "r", probe, probe, "1"]);
}

#[test]
fn a_signal_sent_to_the_command_reaches_the_job() {
    let place = Place::new();
    let script = "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done";
    let mut child =
        place.command(&[], &["sh", "-c", script]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let kill = Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(kill.success());
    assert_eq!(child.wait().unwrap().code(), Some(9));
}

#[test]
fn what_cannot_be_run_is_bad_usage() {
    let place = Place::new();
    let run = place.run(&[], &["/no/such/program"]);
    assert_eq!(run.code, Some(2));
    assert!(run.err.contains("cannot start /no/such/program"), "{}", run.err);
    let run = place.run(&["--run-id", "../r"], &["true"]);
    assert_eq!(run.code, Some(2));
    let run = place.run(&["--collective-timeout-s", "-1"], &["true"]);
    assert_eq!(run.code, Some(2));
    assert!(!place.file("training.exit_code").exists(), "nothing was started");
}

#[test]
fn only_the_first_node_analyzes_and_writes_the_exit_code() {
    let place = Place::new();
    let run = place.run(&[], &["sh", "-c", "true", "--node_rank=1"]);
    assert_eq!(run.code, Some(0));
    assert!(run.err.contains("not analyzed here"), "{}", run.err);
    assert!(!place.file("training.exit_code").exists());
    let run = place.run(&["--analyze", "always"], &["sh", "-c", "true", "--node_rank=1"]);
    assert!(run.err.contains("nothing found"), "{}", run.err);
}

/// The real probe, where the whole workspace is built.
pub fn probe() -> Option<PathBuf> {
    let own = std::env::current_exe().unwrap();
    let probe = own.with_file_name("libdeepxtrace_nccl_probe.so");
    probe.exists().then_some(probe)
}

#[test]
fn a_rank_that_is_missing_is_said_while_the_job_runs() {
    let Some(probe) = probe() else {
        eprintln!("skipped: the probe is not built beside this test");
        return;
    };
    let place = Place { probe, ..Place::new() };
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nccl-probe/tests/c");
    let source = |name: &str| sources.join(name).to_str().unwrap().to_owned();
    let folder = place.folder.path();
    let (nccl, user) = (source("nccl_stub.c"), source("user.c"));
    let soname = "-Wl,-soname,libnccl.so.2";
    gcc(folder, &["-shared", "-fPIC", soname, "-o", "libnccl.so.2", &nccl, "-lpthread"]);
    gcc(folder, &["-o", "user", &user, "-L.", "-l:libnccl.so.2", "-lpthread"]);
    // Rank 0 of 2 calls and then sleeps; rank 1 does not exist. At the end it is killed.
    let user = folder.join("user");
    let job = format!("RANK=0 WORLD_SIZE=2 timeout -s KILL 4 {} kill 5; exit 0", user.display());
    let options = ["--collective-timeout-s", "1", "--scan-interval-s", "0.5"];
    let mut command = place.command(&options, &["sh", "-c", &job]);
    let output = command.env("LD_LIBRARY_PATH", folder).output().unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{err}");
    assert!(err.contains("collective_missing_enter"), "{err}");
    let findings = fs::read_to_string(place.file("findings.jsonl")).unwrap();
    assert!(findings.lines().any(|line| line.contains("\"missing_comm_ranks\":[1]")), "{findings}");
}
