//! `artifact show`, `artifact list`, `artifact prune`, and `normal analyze` on a folder of windows.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde_json::json;

use crate::run;

/// The folder of one demo: 40 windows and 20 pictures, for reading only.
static DEMO: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    let run = run(["demo", "--seed", "3", "--out", folder.path().to_str().unwrap()]);
    assert_eq!(run.code, Some(0), "{}", run.err);
    folder
});

pub fn demo() -> &'static Path {
    DEMO.path()
}

/// The file of a window of the demo.
pub fn window(index: usize) -> PathBuf {
    let end = format!("_{index:06}.npz");
    let mut files = std::fs::read_dir(demo()).unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.to_str().unwrap().ends_with(&end)).unwrap()
}

/// A new folder with copies of some windows of the demo.
pub fn copies(indices: &[usize]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for &index in indices {
        let path = window(index);
        std::fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    folder
}

#[test]
fn show_tells_what_a_window_holds() {
    let shown = run([Path::new("artifact"), Path::new("show"), &window(12)]);
    assert_eq!((shown.code, shown.err.as_str()), (Some(0), ""));
    for text in [
        "normal_window",
        "window       12",
        "16 ranks, 8 a node",
        "the defaults",
        "rank 9 arrives late: look at what runs before dispatch (notify_dispatch)",
        "dispatch_rdma_recv     ok",
    ] {
        assert!(shown.out.contains(text), "no {text:?} in\n{}", shown.out);
    }
}

#[test]
fn show_as_json_is_one_object() {
    let shown = run([Path::new("artifact"), Path::new("show"), Path::new("--json"), &window(40)]);
    let [object] = &shown.json()[..] else { panic!("one object: {}", shown.out) };
    assert_eq!(object["kind"], "normal_window");
    assert_eq!((&object["schema_version"], &object["window_index"]), (&json!(1), &json!(40)));
    assert_eq!((&object["ep_size"], &object["ranks_per_node"]), (&json!(16), &json!(8)));
    assert_eq!(object["policy"]["axis_ratio"], json!(1.25));
    assert_eq!(object["diagnosis"]["incidents"][0]["owners"], json!([0, 1, 8, 9]));
    assert!(object.get("dispatch").is_none());
}

#[test]
fn what_is_no_artifact_is_an_error_that_says_why() {
    let file = crate::Scratch::new("a.npz", "not an archive");
    for (path, why) in [
        (file.text(), "not a whole NPZ archive"),
        ("/nonexistent/a.npz", "No such file"),
        (demo().to_str().unwrap(), "it is a folder"),
    ] {
        let shown = run(["artifact", "show", path]);
        assert_eq!(shown.code, Some(2));
        assert!(shown.err.starts_with(&format!("deepxtrace: {path}: ")), "{}", shown.err);
        assert!(shown.err.contains(why), "{}", shown.err);
        assert_eq!(shown.out, "");
    }
}

#[test]
fn list_gives_the_windows_in_order_and_nothing_else() {
    let listed = run(["artifact", "list", demo().to_str().unwrap(), "--json"]);
    let windows: Vec<_> = listed.json().iter().map(|o| o["window_index"].clone()).collect();
    assert_eq!(windows, (1..=40).map(|i| json!(i)).collect::<Vec<_>>());
    let listed = run(["artifact", "list", demo().to_str().unwrap()]);
    assert_eq!(listed.out.lines().count(), 41);
    assert!(listed.out.ends_with("40 windows\n"), "{}", listed.out);
}

#[test]
fn prune_keeps_the_newest_of_the_instance_it_is_told() {
    let folder = copies(&[1, 2, 3, 4]);
    let path = folder.path().to_str().unwrap();
    let id = run(["artifact", "list", path, "--json"]).json()[0]["instance_id"].clone();
    let none = run(["artifact", "prune", path, "--keep", "1", "--instance", "other"]);
    assert_eq!((none.code, none.out.as_str()), (Some(0), "0 windows removed\n"));
    let id = id.as_str().unwrap();
    let pruned = run(["artifact", "prune", path, "--keep", "1", "--instance", id]);
    assert_eq!((pruned.code, pruned.out.as_str()), (Some(0), "3 windows removed\n"));
    let left = run(["artifact", "list", path, "--json"]).json();
    assert_eq!((left.len(), &left[0]["window_index"]), (1, &json!(4)));
}

fn analyze(folder: &Path, more: &[&str]) -> Vec<serde_json::Value> {
    let arguments = ["normal", "analyze", folder.to_str().unwrap(), "--json"];
    let run = run(arguments.iter().chain(more));
    assert_eq!(run.code, Some(0), "{}", run.err);
    run.json()
}

#[test]
fn stored_windows_are_diagnosed_again_as_they_were() {
    let lines = analyze(demo(), &[]);
    assert_eq!(lines.len(), 40);
    for (i, line) in lines.into_iter().enumerate() {
        let shown =
            run([Path::new("artifact"), Path::new("show"), Path::new("--json"), &window(i + 1)]);
        let mut stored = shown.json()[0]["diagnosis"].clone();
        stored["instance_id"] = shown.json()[0]["instance_id"].clone();
        assert_eq!(line, stored, "window {}", i + 1);
    }
}

#[test]
fn other_thresholds_give_other_findings() {
    // The rows of window 40 are 1.6 times their peers, the late rank of window 12 waits 0.03 of it.
    let incidents = |lines: &[serde_json::Value], i: usize| lines[i]["incidents"].clone();
    let strict = analyze(demo(), &["--axis-ratio", "3", "--notify-ratio", "0.001"]);
    assert_eq!(incidents(&strict, 11), json!([]));
    assert_eq!(incidents(&strict, 39), json!([]));
    let usual = analyze(demo(), &[]);
    assert_eq!(usual[11]["incidents"][0]["kind"], "pre_stage_arrival_skew");
    assert_eq!(usual[39]["incidents"][0]["kind"], "localized_data_path_slowdown");
}

#[test]
fn a_folder_without_windows_and_a_damaged_window_are_errors() {
    let empty = tempfile::tempdir().unwrap();
    let path = empty.path().to_str().unwrap();
    let run_empty = run(["normal", "analyze", path]);
    assert_eq!(run_empty.code, Some(2));
    assert!(run_empty.err.contains("no file normal_window_<instance>_<window>.npz"));
    let other = run(["normal", "analyze", demo().to_str().unwrap(), "--instance", "other"]);
    assert_eq!(other.code, Some(2));
    assert!(other.err.contains("of instance other"), "{}", other.err);

    let folder = copies(&[1, 2]);
    let damaged = folder.path().join(window(2).file_name().unwrap());
    let bytes = std::fs::read(&damaged).unwrap();
    std::fs::write(&damaged, &bytes[..bytes.len() / 2]).unwrap();
    let run_damaged = run(["normal", "analyze", folder.path().to_str().unwrap(), "--json"]);
    assert_eq!(run_damaged.code, Some(2));
    let begin = format!("deepxtrace: warning: {}: not a whole NPZ archive", damaged.display());
    assert!(run_damaged.err.starts_with(&begin), "{}", run_damaged.err);
    assert!(run_damaged.err.ends_with("deepxtrace: 1 of 2 files could not be used\n"));
    assert_eq!(run_damaged.json().len(), 1, "the whole window is diagnosed");
}
