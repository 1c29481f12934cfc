//! `nccl analyze`, `nccl watch`, `nccl replay`, `demo nccl`.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use deepxtrace_sim::nccl::{Call, Fault, Job, write_folder};
use serde_json::Value;

use crate::{command, run};

/// A trace of four ranks, of which rank 2 dies before its sixth call, in `DIR/tracing/RUN`.
fn dead_rank(folder: &Path, run_id: &str) -> PathBuf {
    let mut job = Job::collectives(4, 20).with_run_id(run_id);
    job.plant(&Fault::Dead { rank: 2, call: 5 }).unwrap();
    let path = folder.join("tracing").join(run_id);
    write_folder(&job, &path).unwrap();
    path
}

fn kinds(findings: &[Value]) -> Vec<&str> {
    findings.iter().map(|finding| finding["hang_type"].as_str().unwrap()).collect()
}

#[test]
fn analyze_tells_people_and_programs() {
    let folder = tempfile::tempdir().unwrap();
    dead_rank(folder.path(), "a");
    let text = run(["nccl", "analyze", folder.path().to_str().unwrap()]);
    assert_eq!((text.code, &*text.err), (Some(0), ""));
    assert!(text.out.contains("Rank 2 has not entered ncclAllReduce"), "{}", text.out);
    assert!(text.out.contains("next: "), "{}", text.out);
    let json = run(["nccl", "analyze", "--json", folder.path().to_str().unwrap()]);
    let findings = json.json();
    assert_eq!(kinds(&findings), ["collective_missing_enter"]);
    assert_eq!(findings[0]["run_id"], "a");
    assert_eq!(findings[0]["details"]["missing_comm_ranks"], serde_json::json!([2]));
    let keys: Vec<&String> = findings[0].as_object().unwrap().keys().collect();
    let expected =
        ["comm_seq", "comm_uid_hash", "details", "detected_at_unix_ns", "hang_type", "run_id"];
    assert_eq!(keys, expected);
}

#[test]
fn findings_are_written_into_a_file_once_they_are_complete() {
    let folder = tempfile::tempdir().unwrap();
    let traces = dead_rank(folder.path(), "a");
    let (traces, file) = (traces.to_str().unwrap(), folder.path().join("found.jsonl"));
    let out = file.to_str().unwrap();
    let json = run(["nccl", "analyze", "--json", "--out", out, traces]);
    assert_eq!((json.code, &*json.err), (Some(0), ""));
    assert_eq!(fs::read_to_string(&file).unwrap(), json.out);
    // A later analysis that comes to nothing leaves no findings of an earlier one.
    let failed = run(["nccl", "analyze", "--out", out, folder.path().join("no").to_str().unwrap()]);
    assert_eq!(failed.code, Some(2));
    assert!(!file.exists());
    let nowhere = folder.path().join("no/found.jsonl");
    let failed = run(["nccl", "analyze", "--out", nowhere.to_str().unwrap(), traces]);
    assert_eq!(failed.code, Some(2), "{}", failed.out);
    assert!(failed.err.contains("no/found.jsonl: "), "{}", failed.err);
}

#[cfg(not(feature = "mpi"))]
#[test]
fn without_the_feature_mpi_is_refused() {
    for what in ["analyze", "watch"] {
        let run = run(["nccl", what, "--mpi", "."]);
        assert_eq!(run.code, Some(2));
        assert!(run.err.contains("cargo build --features mpi"), "{}", run.err);
    }
}

#[test]
fn fail_on_findings_counts_what_the_trace_is_sure_of() {
    let folder = tempfile::tempdir().unwrap();
    let mut job = Job::collectives(2, 8).with_watched(5.0);
    job.plant(&Fault::Stall { rank: 1, call: 7 }).unwrap();
    write_folder(&job, folder.path()).unwrap();
    let path = folder.path().to_str().unwrap();
    let early = run(["nccl", "analyze", "--fail-on-findings", path]);
    assert_eq!(early.code, Some(0), "{}", early.out);
    assert!(early.out.contains("--stood-still"), "{}", early.out);
    let late = run(["nccl", "analyze", "--fail-on-findings", "--stood-still", "60", path]);
    assert_eq!(late.code, Some(1));
    let short = run(["nccl", "analyze", "--fail-on-findings", "--collective-timeout-s", "4", path]);
    assert_eq!(short.code, Some(1));
}

#[test]
fn analyze_refuses_what_it_cannot_use_and_says_why() {
    let folder = tempfile::tempdir().unwrap();
    dead_rank(folder.path(), "a");
    dead_rank(folder.path(), "b");
    let path = folder.path().to_str().unwrap();
    let check = |arguments: &[&str], says: &str| {
        let refused = run(["nccl", "analyze"].iter().chain(arguments));
        assert_eq!(refused.code, Some(2), "{arguments:?}");
        assert!(refused.err.contains(says), "{arguments:?}: {}", refused.err);
        assert_eq!(refused.err.lines().count(), 1, "{}", refused.err);
    };
    check(&[path], "several runs, name one of them: a, b");
    check(&[path, "--run-id", "c"], "no run \"c\"; there are: a, b");
    check(&[], "name the folder");
    check(&["/no/such/folder"], "/no/such/folder: ");
    check(&[path, "--run-id", "a", "--stood-still", "nan"], "--stood-still is NaN");
    check(&[path, "--run-id", "a", "--stood-still", "1e300"], "from 0 to 1000000000");
    check(&[path, "--p2p-timeout-s", "0"], "p2p_timeout_s is 0: ");
    check(
        &[path, "--p2p-timeout-s", "5", "--p2p-match-window-s", "6"],
        "p2p_match_window_s is 6: it must not exceed p2p_timeout_s, which is 5",
    );
    check(&[path, "--collective-timeout-s", "1e300"], "collective_timeout_s is 1e300: ");
    // One file shows the other ranks as if they were missing.
    let run_folder = folder.path().join("tracing/a");
    let mut files: Vec<PathBuf> =
        fs::read_dir(&run_folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    check(&[files[0].to_str().unwrap()], &format!("name {}", run_folder.display()));
    assert_eq!(run(["nccl", "analyze", path, "--run-id", "b"]).code, Some(0));
}

#[test]
fn one_is_counted_as_one() {
    let folder = tempfile::tempdir().unwrap();
    write_folder(&Job::collectives(1, 2), folder.path()).unwrap();
    let text = run(["nccl", "analyze", folder.path().to_str().unwrap()]);
    assert_eq!(text.code, Some(0), "{}", text.err);
    assert!(text.out.contains(" lines of 1 process on 1 communicator\n"), "{}", text.out);
}

#[test]
fn a_configuration_file_gives_settings_and_folder_and_flags_win() {
    let folder = tempfile::tempdir().unwrap();
    dead_rank(folder.path(), "a");
    let file = folder.path().join("job.yaml");
    let text = format!(
        "model: {{layers: 4}}\nexperiment:\n  runner:\n    tracing:\n      enabled: true\n      log_dir: {}\n      collective_timeout_s: 500\n",
        folder.path().display()
    );
    fs::write(&file, text).unwrap();
    let file = file.to_str().unwrap();
    let early = |arguments: &[&str]| {
        let found = run(["nccl", "analyze", "--json", "--config", file].iter().chain(arguments));
        found.json()[0]["details"]["trace_ended_early"].as_bool().unwrap()
    };
    assert!(early(&[]), "120 s are less than 500 s");
    assert!(!early(&["--collective-timeout-s", "60"]));
    fs::write(file, "colective_timeout_s: 3\n").unwrap();
    let refused = run(["nccl", "analyze", "--config", file]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.err.contains("do you mean collective_timeout_s?"), "{}", refused.err);
}

#[test]
fn bad_lines_are_named_and_the_good_ones_used() {
    let folder = tempfile::tempdir().unwrap();
    let path = dead_rank(folder.path(), "a");
    let file = path.join("rank_0_pid_1000.jsonl");
    let mut text = fs::read(&file).unwrap();
    text.extend_from_slice(b"not json\n{\"half\":\n");
    fs::write(&file, text).unwrap();
    let found = run(["nccl", "analyze", "--json", path.to_str().unwrap()]);
    assert_eq!(kinds(&found.json()), ["collective_missing_enter"]);
    assert_eq!(found.err.matches("rank_0_pid_1000.jsonl:").count(), 2, "{}", found.err);
}

#[test]
fn the_graph_of_waits_is_written_for_graphviz() {
    let folder = tempfile::tempdir().unwrap();
    let path = dead_rank(folder.path(), "a");
    let dot = folder.path().join("waits.dot");
    let done = run(["nccl", "analyze", path.to_str().unwrap(), "--dot", dot.to_str().unwrap()]);
    assert_eq!(done.code, Some(0));
    let text = fs::read_to_string(dot).unwrap();
    assert!(text.starts_with("digraph waits {"), "{text}");
    assert!(text.contains("label=\"rank 2\", style=filled"), "{text}");
    assert!(text.contains("label=\"ranks 0-1, 3\""), "{text}");
}

#[test]
fn replay_answers_line_by_line_and_reads_no_clock() {
    let folder = tempfile::tempdir().unwrap();
    let session = folder.path().join("session.jsonl");
    let event = |rank: i64, phase: &str| {
        format!(
            "{{\"op\":\"ingest\",\"observed_monotonic_s\":1.0,\"observed_unix_ns\":1,\"event\":{{\
             \"event\":\"nccl_call\",\"run_id\":\"r\",\"rank\":{rank},\"pid\":{rank},\
             \"timestamp_unix_ns\":5,\"api\":\"ncclAllReduce\",\"phase\":\"{phase}\",\
             \"comm_uid_hash\":\"c\",\"comm_rank\":{rank},\"comm_nranks\":3,\"comm_seq\":0,\
             \"call_seq\":0,\"count\":8,\"datatype\":7,\"op\":0,\"root\":-1,\"result\":0}}}}\n"
        )
    };
    let text = format!(
        "{{\"op\":\"config\",\"run_id\":\"r\",\"collective_timeout_s\":5}}\n{}{}{}\
         {{\"op\":\"scan\",\"now_monotonic_s\":5.9,\"now_unix_ns\":8}}\n\n\
         {{\"op\":\"scan\",\"now_monotonic_s\":6.0,\"now_unix_ns\":9}}\n",
        event(0, "enter"),
        event(1, "enter"),
        event(1, "sideways"),
    );
    fs::write(&session, text).unwrap();
    let answers = run(["nccl", "replay", session.to_str().unwrap()]);
    assert_eq!((answers.code, &*answers.err), (Some(0), ""));
    let answers = answers.json();
    let accepted: Vec<Option<bool>> =
        answers.iter().map(|answer| answer["accepted"].as_bool()).collect();
    assert_eq!(accepted, [None, Some(true), Some(true), Some(false), None, None]);
    assert_eq!(answers[4]["findings"], serde_json::json!([]));
    assert_eq!(answers[4]["open_rounds"], 1);
    let finding = &answers[5]["findings"][0];
    assert_eq!(finding["hang_type"], "collective_missing_enter");
    assert_eq!(finding["detected_at_unix_ns"], 9);
    assert_eq!(finding["details"]["waited_s"], 5.0);
}

#[test]
fn replay_names_the_line_that_it_cannot_do() {
    let folder = tempfile::tempdir().unwrap();
    let session = folder.path().join("session.jsonl");
    let check = |text: &str, says: &str| {
        fs::write(&session, text).unwrap();
        let refused = run(["nccl", "replay", session.to_str().unwrap()]);
        assert_eq!(refused.code, Some(2), "{text}");
        assert!(refused.err.contains(says), "{text}: {}", refused.err);
    };
    let config = "{\"op\":\"config\",\"run_id\":\"r\"}\n";
    check("{\"op\":\"scan\",\"now_monotonic_s\":1,\"now_unix_ns\":1}\n", ":1: scan before config");
    check(&format!("{config}{{\"op\":\"dance\"}}\n"), ":2: unknown op \"dance\"");
    check(&format!("{config}nonsense\n"), ":2: ");
    check("{\"op\":\"config\",\"run_id\":\"r\",\"timeout\":3}\n", "unknown field `timeout`");
    check(&format!("{config}{{\"op\":\"ingest\",\"event\":{{}}}}\n"), ":2: missing field");
}

/// Waits until a file has a text, or fails.
fn wait_for(path: &Path, text: &str) -> String {
    let begin = Instant::now();
    loop {
        let found = fs::read_to_string(path).unwrap_or_default();
        if found.contains(text) {
            return found;
        }
        assert!(begin.elapsed() < Duration::from_secs(30), "{}: {found:?}", path.display());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Starts to watch a folder with short times.
fn watch(folder: &Path, more: &[&str]) -> std::process::Child {
    let short = ["--collective-timeout-s", "0.5", "--scan-interval-s", "0.1"];
    command()
        .args(["nccl", "watch", folder.to_str().unwrap(), "--failure-grace-period-s", "1"])
        .args(short)
        .args(more)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn watch_finds_while_the_job_runs_and_ends_with_its_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    // Nothing is there yet.
    let child = watch(folder.path(), &["--json"]);
    std::thread::sleep(Duration::from_millis(150));
    let path = dead_rank(folder.path(), "a");
    let lines = wait_for(&path.join("findings.jsonl"), "\n");
    assert_eq!(lines.lines().count(), 1);
    assert!(lines.starts_with("{\"comm_seq\":5,\"comm_uid_hash\":"), "{lines}");
    assert!(lines.contains("\"hang_type\":\"collective_missing_enter\""), "{lines}");
    let pid = fs::read_to_string(path.join("analyzer.pid")).unwrap();
    assert_eq!(pid.trim(), child.id().to_string());
    fs::write(path.join("training.exit_code"), "1\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), lines);
    assert!(!path.join("analyzer.pid").exists());
    let log = fs::read_to_string(path.join("analyzer.log")).unwrap();
    assert!(log.contains("collective_missing_enter (observed)"), "{log}");

    // Watched again: the file does not grow.
    let again = watch(folder.path(), &[]);
    let output = again.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(fs::read_to_string(path.join("findings.jsonl")).unwrap(), lines);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "");
}

#[test]
fn a_recorded_session_replays_to_the_same_findings() {
    let folder = tempfile::tempdir().unwrap();
    let path = dead_rank(folder.path(), "a");
    let session = folder.path().join("session.jsonl");
    let child = watch(folder.path(), &["--record", session.to_str().unwrap()]);
    let lines = wait_for(&path.join("findings.jsonl"), "\n");
    fs::write(path.join("training.exit_code"), "0\n").unwrap();
    assert_eq!(child.wait_with_output().unwrap().status.code(), Some(0));
    let answers = run(["nccl", "replay", session.to_str().unwrap()]).json();
    let found: Vec<String> = answers
        .iter()
        .filter_map(|answer| answer["findings"].as_array())
        .flatten()
        .map(|finding| finding.to_string() + "\n")
        .collect();
    let expected: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let found: Vec<Value> = found.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(found, expected);
}

#[cfg(unix)]
#[test]
fn a_signal_ends_watching_after_a_last_scan() {
    let folder = tempfile::tempdir().unwrap();
    // Two ranks that differ: found at the next scan, which is far away but for the signal.
    let mut job = Job::collectives(2, 3).with_run_id("a");
    job.plant(&Fault::Wrong { rank: 1, call: 2, made: Call::all_reduce(9) }).unwrap();
    let healthy = Job::collectives(2, 1).with_run_id("a");
    write_folder(&healthy, folder.path()).unwrap();
    let child = command()
        .args(["nccl", "watch", folder.path().to_str().unwrap(), "--scan-interval-s", "600"])
        .args(["--failure-grace-period-s", "60", "--fail-on-findings"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_for(&folder.path().join("analyzer.log"), "is watched");
    std::thread::sleep(Duration::from_millis(300));
    write_folder(&job, folder.path()).unwrap();
    let signal = std::process::Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(signal.success());
    let end = child.wait_with_output().unwrap();
    let text = String::from_utf8(end.stdout).unwrap();
    assert!(text.starts_with("collective_signature_mismatch"), "{text}");
    assert_eq!(end.status.code(), Some(1));
}

#[test]
fn a_run_that_is_watched_already_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = dead_rank(folder.path(), "a");
    let mut first = watch(folder.path(), &[]);
    wait_for(&path.join("analyzer.pid"), "\n");
    let second = watch(folder.path(), &[]).wait_with_output().unwrap();
    assert_eq!(second.status.code(), Some(2));
    let error = String::from_utf8(second.stderr).unwrap();
    assert!(error.contains("watches this run already"), "{error}");
    // A number that was left behind by a process that died is no hindrance.
    first.kill().unwrap();
    first.wait().unwrap();
    let mut third = watch(folder.path(), &[]);
    wait_for(&path.join("findings.jsonl"), "\n");
    fs::File::create(path.join("training.exit_code")).unwrap().write_all(b"0").unwrap();
    assert_eq!(third.wait().unwrap().code(), Some(0));
}

#[test]
fn the_demonstration_finds_what_it_planted() {
    let demo = run(["demo", "nccl", "--json"]);
    assert_eq!((demo.code, &*demo.err), (Some(0), ""));
    let scenarios = demo.json();
    assert!(scenarios.len() >= 8);
    for scenario in &scenarios {
        assert_eq!(scenario["as_expected"], true, "{scenario:#}");
    }
    let text = run(["demo", "nccl"]);
    assert!(text.out.ends_with("8 of 8 as expected\n"), "{}", text.out);
}

#[test]
fn a_trace_without_an_event_is_no_healthy_job() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("rank_0_pid_1.jsonl"), "no json at all\n").unwrap();
    let run = run(["nccl", "analyze", folder.path().to_str().unwrap()]);
    assert_eq!((run.code, run.out.as_str()), (Some(2), ""), "{}", run.err);
    assert!(run.err.contains("nothing can be said"), "{}", run.err);
}
