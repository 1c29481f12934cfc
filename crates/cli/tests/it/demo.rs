//! `demo`.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::run;

#[test]
fn the_demo_shows_five_right_diagnoses_and_writes_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("made/by/the/demo");
    let run = run(["demo", "--out", out.to_str().unwrap()]);
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""));
    assert_eq!(run.out.matches("8 of 8").count(), 5, "{}", run.out);
    assert!(run.out.contains("rank 9 late for dispatch"), "{}", run.out);
    assert!(run.out.contains("5 of 5 phases diagnosed as expected"), "{}", run.out);
    assert!(!run.out.contains('\x1b'), "no colour without a terminal");

    let log = std::fs::read_to_string(out.join("diagnose_rank0.log")).unwrap();
    let windows: Vec<_> = log.lines().filter(|line| line.contains("Normal state=")).collect();
    assert_eq!(windows.len(), 40);
    for (i, line) in windows.iter().enumerate() {
        assert!(line.starts_with('[') && line.contains("] [Diagnose] InstanceID: "), "{line}");
        assert!(line.contains(&format!(" EPSize: 16 WindowIndex: {} ", i + 1)), "{line}");
    }
}

#[test]
fn the_demo_takes_seconds() {
    let start = Instant::now();
    assert_eq!(run(["demo", "--json"]).code, Some(0));
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[test]
fn an_out_folder_gets_all_windows_and_four_pictures_of_each_phase() {
    let folder = tempfile::tempdir().unwrap();
    let run = run(["demo", "--out", folder.path().to_str().unwrap()]);
    assert!(run.out.contains("40 windows and 20 pictures in "), "{}", run.out);
    let mut names: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    let count = |end: &str| names.iter().filter(|name| name.ends_with(end)).count();
    assert_eq!((count(".npz"), count(".png")), (40, 20), "{names:?}");
    assert_eq!(count("diagnose_rank0.log"), 1, "{names:?}");
    for window in ["000008", "000016", "000024", "000032", "000040"] {
        for view in [
            "notify_duration",
            "dispatch_final_cost_per_sample",
            "dispatch_rdma_recv_cost_per_sample",
            "combine_logical_recv_cost_per_sample",
        ] {
            assert_eq!(count(&format!("_{window}_{view}.png")), 1, "{names:?}");
        }
    }
}

#[test]
fn the_json_of_the_demo_is_one_object_a_phase_and_the_same_for_the_same_seed() {
    let folder = tempfile::tempdir().unwrap();
    let json = || run(["demo", "--json", "--seed", "5", "--out", folder.path().to_str().unwrap()]);
    let (first, second) = (json(), json());
    assert_eq!(first.code, Some(0));
    assert_eq!(first.out, second.out);
    let phases = first.json();
    assert_eq!(phases.len(), 5);
    assert_eq!(
        phases[0],
        json!({"phase": "baseline", "windows": 8, "incidents": [], "expected": [],
               "as_expected": true})
    );
    assert_eq!(
        phases[2]["incidents"],
        json!([{"kind": "pre_stage_arrival_skew", "probe": "cached_notify_combine", "ranks": [9]}])
    );
    assert_eq!(phases[4]["incidents"][0]["owners"], json!([0, 1, 8, 9]));
    assert!(phases.iter().all(|phase| phase["as_expected"] == true));
}

#[test]
fn an_out_folder_that_cannot_be_made_is_an_error() {
    let file = crate::Scratch::new("file", "x");
    let run = run(["demo", "--out", file.text()]);
    assert_eq!(run.code, Some(2));
    assert!(run.err.starts_with(&format!("deepxtrace: {}: ", file.text())), "{}", run.err);
}
