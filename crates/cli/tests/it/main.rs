//! The command as users run it: arguments and files in, text, JSON and exit codes out.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    missing_docs
)]

mod artifact;
mod bad_input;
mod demo;
mod heatmap;
mod ll;
mod ll_log;
mod nccl;
mod nccl_dumps;
#[cfg(all(feature = "mpi", target_os = "linux"))]
mod nccl_mpi;
mod nccl_ras;
#[cfg(target_os = "linux")]
mod nccl_run;
#[cfg(target_os = "linux")]
mod nccl_run_nodes;
mod normal;
mod report;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

/// What a run of the command gave.
#[derive(Debug)]
struct Run {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Run {
    /// The objects of `--json`, one a line, and nothing else.
    fn json(&self) -> Vec<Value> {
        self.out.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
    }
}

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_deepxtrace"));
    command.stdin(Stdio::null());
    command
}

fn run<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Run {
    let output = command().args(arguments).output().unwrap();
    Run {
        code: output.status.code(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// A file of `tests/data`.
fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// A new file in a new folder, which goes with the value.
struct Scratch {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Scratch {
    fn new(name: &str, bytes: impl AsRef<[u8]>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        Self { _folder: folder, path }
    }

    fn text(&self) -> &str {
        self.path.to_str().unwrap()
    }
}

#[test]
fn help_and_version_are_no_errors_and_bad_usage_is_2() {
    for arguments in
        [&["--help"][..], &["--version"], &["normal", "analyze", "--help"], &["help", "ll"]]
    {
        assert_eq!(run(arguments).code, Some(0), "{arguments:?}");
    }
    for arguments in
        [&[][..], &["nothing"], &["normal"], &["normal", "analyze"], &["demo", "--seed", "x"]]
    {
        let run = run(arguments);
        assert_eq!(run.code, Some(2), "{arguments:?}");
        assert!(!run.err.is_empty(), "{arguments:?}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_reader_that_goes_away_is_no_error_and_a_full_disk_is_one() {
    let matrix = data("ll_ep16_wait_rank4_slow.txt");
    let mut child = command()
        .args(["ll", "analyze"])
        .args(std::iter::repeat_n(&matrix, 500))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr), (Some(0), vec![]));

    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = command().args(["ll", "analyze"]).arg(&matrix).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("No space left"));
}
