//! `ll analyze` on logs: both published forms, and what the library writes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use deepxtrace::collect::LocalGroup;
use deepxtrace::config::{Config, Mode};
use deepxtrace::{Counters, Diagnose};
use serde_json::{Value, json};

use crate::{Scratch, run};

fn header(phase: &str, n: usize, time: &str) -> String {
    format!(
        "[{time}] [Diagnose] InstanceID: abc EPSize: {n}, diagnose: {{'abnormal_cols': []}}, \
         {phase} Wait Recv Cost Per Token Matrix[src_rank, dst_rank]\n"
    )
}

/// Rows of the form with a rank and a time stamp.
fn ranked(rows: &[&str], time: &str) -> String {
    let rows = rows.iter().enumerate();
    rows.map(|(rank, row)| format!("[{time}] [Diagnose] rank={rank} [{row}]\n")).collect()
}

/// Bare rows.
fn bare(rows: &[&str]) -> String {
    rows.iter().map(|row| format!("[{row}]\n")).collect()
}

fn analyze(log: &str) -> Vec<Value> {
    let file = Scratch::new("diagnose_rank0.log", log);
    let run = run(["ll", "analyze", "--json", "--keep-points", file.text()]);
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""));
    run.json()
}

/// The mean of all cells is told by the ratio of the largest one.
fn largest_ratio(matrix: &Value) -> f64 {
    matrix["mean_ratio"]["abnormal_points"][0][3].as_f64().unwrap()
}

#[test]
fn the_newest_complete_matrix_of_each_phase_is_taken_from_either_form() {
    let old = ["0 1 1", "1 0 1", "1 1 0"];
    let new = ["0 0 0", "0 0 90", "0 0 0"];
    for rows in
        [|rows: &[&str], time: &str| ranked(rows, time), |rows: &[&str], _: &str| bare(rows)]
    {
        let mut log = String::from("[2025-09-15 10:00:00,000] [INFO] job started, pid [17] [23]\n");
        log += &(header("Dispatch", 3, "2025-09-15 10:00:01,000") + &rows(&old, "10:00:01"));
        log += &(header("Combine", 3, "2025-09-15 10:00:01,000") + &rows(&new, "10:00:01"));
        log += "[2025-09-15 10:00:01,500] [INFO] something else\n";
        log += &(header("Dispatch", 3, "2025-09-15 10:00:21,000") + &rows(&new, "10:00:21"));
        // Still being written.
        log += &(header("Dispatch", 3, "2025-09-15 10:00:41,000") + &rows(&old[..2], "10:00:41"));
        let found = analyze(&log);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0]["source"]["phase"], "dispatch");
        assert_eq!(found[0]["source"]["time"], "2025-09-15 10:00:21,000");
        assert_eq!(found[0]["source"]["line"], 11);
        assert_eq!(found[0]["source"]["of"], 2);
        assert_eq!(found[0]["source"]["instance_id"], "abc");
        assert_eq!(found[1]["source"]["phase"], "combine");
        assert_eq!(found[1]["source"]["of"], 1);
        // 90 over a mean of 10.
        assert!((largest_ratio(&found[0]) - 9.0).abs() < 1e-6);
    }
}

#[test]
fn rows_may_wrap_come_out_of_order_or_without_a_header() {
    let wrapped = header("Combine", 4, "2025-09-15 10:00:01")
        + "[[ 0  0\n  0 160]\n [0 0 0 0]\n [0 0\n 0 0]\n [0, 0, 0, 0]]\n";
    let found = analyze(&wrapped);
    let points = found[0]["mean_ratio"]["abnormal_points"].as_array().unwrap();
    assert_eq!(
        (points.len(), &points[0].as_array().unwrap()[..3]),
        (1, &json!([0, 3, 160]).as_array().unwrap()[..])
    );
    // 160 over a mean of 10, to which 1e-8 is added.
    assert!((largest_ratio(&found[0]) - 15.999_999_984).abs() < 1e-9);

    let order = header("Dispatch", 3, "2025-09-15 10:00:01")
        + "rank=2 [7 0 0]\nrank=0 [0 0 0]\nnot a row\nrank=1 [0 0 0]\n";
    assert_eq!(
        analyze(&order)[0]["mean_ratio"]["abnormal_points"][0],
        json!([2, 0, 7, 8.999999884285716])
    );

    let without = "[10:00:01] rank=0 [0 5]\n[10:00:01] rank=1 [6 0]\n";
    let found = analyze(without);
    assert_eq!(found[0]["shape"], json!([2, 2]));
    assert_eq!(found[0]["source"]["time"], "10:00:01");
}

#[test]
fn a_broken_matrix_is_passed_over_and_named_when_there_is_no_other() {
    let bad_row = header("Dispatch", 3, "2025-09-15 10:00:41")
        + &ranked(&["0 1 1", "1 x 1", "1 1 0"], "10:00:41");
    let good = header("Dispatch", 3, "2025-09-15 10:00:01") + &bare(&["0 1 1", "1 0 1", "1 1 0"]);
    assert_eq!(analyze(&(good.clone() + &bad_row))[0]["source"]["time"], "2025-09-15 10:00:01");
    assert_eq!(analyze(&(bad_row.clone() + &good))[0]["source"]["line"], 5);

    let refused = |log: &str| {
        let file = Scratch::new("a.log", log);
        let run = run(["ll", "analyze", file.text()]);
        assert_eq!(run.code, Some(2), "{}", run.out);
        assert_eq!(run.err.lines().count(), 1, "{}", run.err);
        let (_, text) = run.err.trim_end().split_once("a.log: ").unwrap();
        text.to_owned()
    };
    assert_eq!(
        refused(&bad_row),
        "no complete wait matrix, line 3: found \"x\", expected an integer that is 0 or more"
    );
    let short = header("Combine", 3, "10:00:01") + &bare(&["0 1 1", "1 0"]);
    assert_eq!(refused(&short), "no complete wait matrix, line 3: row 1 has 2 values, expected 3");
    let torn = header("Combine", 3, "10:00:01") + &bare(&["0 1 1", "1 0 1"]);
    assert_eq!(refused(&torn), "no complete wait matrix, the file ends after 2 of 3 rows");
    assert_eq!(
        refused(&(header("Combine", 3, "10:00:01") + "rank=7 [1 2 3]\n")),
        "no complete wait matrix, line 2: row 7 does not exist among 3 ranks"
    );
    assert_eq!(
        refused(&(header("Combine", 99_999, "10:00:01") + "[1 2 3]\n")),
        "no complete wait matrix, line 2: EPSize is 99999, expected 1 to 4096"
    );
    assert_eq!(
        refused("[10:00:01] [INFO] nothing here\n"),
        "no wait matrix, expected rows of integers: \"rank=<i> [...]\", \"[...]\" or plain numbers"
    );
    // NumPy leaves out the middle of a long row.
    assert!(refused(&(header("Combine", 3, "10:00:01") + "[1 ... 3]\n")).contains("\"...\""));
}

#[test]
fn a_log_of_any_length_is_streamed() {
    let mut log = String::new();
    let filler = "[2025-09-15 10:00:00,000] [INFO] a line of another module of the same program\n";
    for window in 0..2_000 {
        log += &header("Dispatch", 3, &format!("2025-09-15 10:00:00,{window:03}"));
        log += &bare(&["0 1 1", "1 0 1", "1 1 0"]);
        log += &filler.repeat(20);
    }
    let found = analyze(&log);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["source"]["of"], 2_000);
}

/// A program that is killed leaves zeros and torn characters; a header can list a million points.
#[test]
fn logs_may_hold_bytes_that_are_no_text_and_lines_of_any_length() {
    let title = "Combine Wait Recv Cost Per Token Matrix[src_rank, dst_rank]";
    let points = "(0, 1, 99, 9.0), ".repeat(250_000);
    let mut log = b"[10:00:01] [INFO] started\n\0\0\0\n[10:00:01] \xff\xfe torn\n".to_vec();
    log.extend(
        format!(
            "[10:00:02] [Diagnose] InstanceID: abc EPSize: 3, diagnose: {{[{points}]}}, {title}\n"
        )
        .bytes(),
    );
    log.extend(bare(&["0 1 1", "1 0 1", "1 1 0"]).bytes());
    let file = Scratch::new("a.log", log);
    let run = run(["ll", "analyze", "--json", file.text()]);
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""));
    let source = &run.json()[0]["source"];
    assert_eq!((&source["phase"], &source["instance_id"]), (&"combine".into(), &"abc".into()));
    assert_eq!((&source["line"], &source["time"]), (&4.into(), &"10:00:02".into()));
}

/// Two ranks in the low-latency mode, with details in the log.
#[test]
fn the_log_that_the_library_writes_is_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config {
        enabled: true,
        mode: Mode::Synchronous,
        warming_time: Some(Duration::ZERO),
        log_path: folder.path().to_owned(),
        log_details: true,
        ..Config::default()
    };
    std::thread::scope(|scope| {
        for group in LocalGroup::new(2).unwrap() {
            let config = config.clone();
            scope.spawn(move || rank(group, config));
        }
    });
    let path = folder.path().join("diagnose_rank0.log");
    let run = run(["ll", "analyze", "--json", path.to_str().unwrap()]);
    assert_eq!(
        (run.code, run.err.as_str()),
        (Some(0), ""),
        "{}",
        std::fs::read_to_string(&path).unwrap()
    );
    let found = run.json();
    let phases: Vec<_> = found.iter().map(|m| m["source"]["phase"].as_str().unwrap()).collect();
    assert_eq!(phases, ["dispatch", "combine"]);
    for matrix in &found {
        assert_eq!(matrix["source"]["window_index"], 2, "the newest");
        assert_eq!(matrix["source"]["of"], 2);
    }
    // Rank 0 waits 2 x 1,000,000 for rank 1 in dispatch and nothing else happens: 4x the mean.
    let run = crate::run([
        "ll",
        "analyze",
        "--json",
        "--threshold-point",
        "3",
        "--keep-points",
        path.to_str().unwrap(),
    ]);
    let points = &run.json()[0]["mean_ratio"]["abnormal_points"];
    assert_eq!(
        (&points[0][0], &points[0][1], &points[0][2]),
        (&0.into(), &1.into(), &2_000_000.into())
    );
}

fn rank(group: LocalGroup, config: Config) {
    use deepxtrace::collect::{Group as _, HostMemory};
    let rank = group.membership().rank();
    let memory = std::sync::Arc::new(HostMemory::new(4));
    let shared = std::sync::Arc::clone(&memory);
    let mut diagnose = Diagnose::builder(group, config)
        .counters(Counters::LowLatency)
        .memory(move |_| Ok(shared))
        .build()
        .unwrap()
        .unwrap();
    diagnose.start().unwrap();
    diagnose.diagnose_ll_now().unwrap();
    for window in 1..=2 {
        if rank == 0 {
            memory.counters().get()[1].fetch_add(window * 1_000_000, Ordering::Relaxed);
        }
        diagnose.diagnose_ll_now().unwrap();
    }
}
