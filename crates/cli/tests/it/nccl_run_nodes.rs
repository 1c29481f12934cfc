//! `deepxtrace nccl run` around jobs of several processes over a stand-in for NCCL: on two "nodes"
//! that share a folder, and under mpirun.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

use crate::command;
use crate::nccl_run::{gcc, probe};

/// A folder with the stand-in, a program that calls it, and the folder of the run.
struct Job {
    folder: TempDir,
    probe: PathBuf,
}

impl Job {
    /// `None` where the probe is not built.
    fn new() -> Option<Self> {
        let Some(probe) = probe() else {
            eprintln!("skipped: the probe is not built beside this test");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nccl-probe/tests/c");
        let source = |name: &str| sources.join(name).to_str().unwrap().to_owned();
        let (nccl, user) = (source("nccl_stub.c"), source("user.c"));
        let soname = "-Wl,-soname,libnccl.so.2";
        let path = folder.path();
        gcc(path, &["-shared", "-fPIC", soname, "-o", "libnccl.so.2", &nccl, "-lpthread"]);
        gcc(path, &["-o", "user", &user, "-L.", "-l:libnccl.so.2", "-lpthread"]);
        Some(Self { folder, probe })
    }

    fn command(&self, job: &[&str]) -> Command {
        let mut command = command();
        command.args(["nccl", "run", "--run-id", "r", "--out"]);
        command.arg(self.folder.path().join("out")).arg("--probe").arg(&self.probe);
        command.args(["--collective-timeout-s", "1", "--scan-interval-s", "0.2", "--"]).args(job);
        for name in ["NODE_RANK", "GROUP_RANK", "SLURM_NODEID", "OMPI_COMM_WORLD_RANK", "RANK"] {
            command.env_remove(name);
        }
        command.env("LD_LIBRARY_PATH", self.folder.path()).current_dir(self.folder.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Two nodes of two ranks: each runs its own launcher, at the same time.
    fn on_two_nodes(&self, user: &str) -> [Output; 2] {
        let launcher = format!(
            "for local in 0 1; do \
               RANK=$((2 * NODE_RANK + local)) LOCAL_RANK=$local WORLD_SIZE=4 ./user {user} & \
             done; wait"
        );
        let nodes = ["0", "1"].map(|node| {
            self.command(&["sh", "-c", &launcher]).env("NODE_RANK", node).spawn().unwrap()
        });
        nodes.map(|node| node.wait_with_output().unwrap())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("out/tracing/r").join(name)
    }

    /// Ends of AllReduce in the traces, by rank.
    fn calls(&self, ranks: usize) -> Vec<usize> {
        let mut calls = vec![0; ranks];
        for entry in fs::read_dir(self.file("")).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            let Some(rest) = name.strip_prefix("rank_") else { continue };
            let rank: usize = rest.split('_').next().unwrap().parse().unwrap();
            let text = fs::read_to_string(&path).unwrap();
            let exit = |line: &&str| {
                line.contains("\"ncclAllReduce\"") && line.contains("\"phase\":\"exit\"")
            };
            calls[rank] += text.lines().filter(exit).count();
        }
        calls
    }
}

fn errors(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn nodes_that_share_a_folder_are_one_run_which_the_first_analyzes() {
    let Some(job) = Job::new() else { return };
    let [first, second] = job.on_two_nodes("rank_of 4 100");
    let (first, second) = (errors(&first), errors(&second));
    assert!(first.contains("job ended with 0; nothing found"), "{first}");
    assert!(second.contains("job ended with 0; not analyzed here"), "{second}");
    assert_eq!(job.calls(4), [100; 4]);
    assert_eq!(fs::read_to_string(job.file("training.exit_code")).unwrap(), "0\n");
    assert!(!first.contains("no NCCL call") && !second.contains("no NCCL call"));
}

#[test]
fn a_rank_that_is_missing_on_the_second_node_is_found_by_the_first() {
    let Some(job) = Job::new() else { return };
    // Rank 3, on the second node, stops after 20 of 40 calls.
    let [first, second] = job.on_two_nodes("rank_of 4 40 3");
    let (first, second) = (errors(&first), errors(&second));
    assert!(!second.contains("missing_enter"), "{second}");
    let findings = fs::read_to_string(job.file("findings.jsonl")).unwrap();
    let lines: Vec<&str> = findings.lines().collect();
    assert!(!lines.is_empty(), "{first}");
    for line in lines {
        assert!(line.contains("collective_missing_enter"), "{line}");
        assert!(line.contains("\"missing_comm_ranks\":[3]"), "{line}");
    }
    assert!(first.contains("collective_missing_enter"), "{first}");
}

#[test]
fn ranks_that_mpirun_starts_are_recorded_and_analyzed() {
    let there = Command::new("mpirun").arg("--version").output();
    if !there.is_ok_and(|version| version.status.success()) {
        eprintln!("skipped: no mpirun on this machine");
        return;
    }
    let Some(job) = Job::new() else { return };
    let mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "4"];
    let run = |user: &[&str]| errors(&job.command(&[&mpirun[..], user].concat()).output().unwrap());
    let healthy = run(&["./user", "rank_of", "4", "100"]);
    assert!(healthy.contains("job ended with 0; nothing found"), "{healthy}");
    assert_eq!(job.calls(4), [100; 4]);
    fs::remove_dir_all(job.folder.path().join("out")).unwrap();
    let missing = run(&["./user", "rank_of", "4", "40", "2"]);
    assert!(missing.contains("collective_missing_enter"), "{missing}");
    let findings = fs::read_to_string(job.file("findings.jsonl")).unwrap();
    let all = |line: &str| line.contains("\"missing_comm_ranks\":[2]");
    assert!(!findings.is_empty() && findings.lines().all(all), "{findings}");
}
