//! What a folder keeps.

use std::fs;
use std::path::Path;

use deepxtrace_artifact::{ArtifactName, Kind, Store, list, prune, read};

use crate::sample::{low_latency, normal, window};

/// All file names in a folder, hidden ones too.
fn everything(folder: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn of_ten_thousand_windows_the_newest_128_stay_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path(), 128);
    for index in 1..=10_000 {
        store.write(&normal(window(2, 2, index, None))).unwrap();
    }
    let expected: Vec<_> =
        (9_873..=10_000).map(|index| format!("normal_window_run-1_{index:06}.npz")).collect();
    assert_eq!(everything(folder.path()), expected);
    let newest = read(folder.path().join("normal_window_run-1_010000.npz")).unwrap();
    assert_eq!(newest, normal(window(2, 2, 10_000, None)));
}

#[test]
fn a_million_windows_later_the_newest_are_still_those_with_the_largest_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path(), 2);
    for index in [999_998, 999_999, 1_000_000, 1_000_001] {
        store.write(&normal(window(1, 1, index, None))).unwrap();
    }
    let kept = ["normal_window_run-1_1000000.npz", "normal_window_run-1_1000001.npz"];
    assert_eq!(everything(folder.path()), kept);
}

#[test]
fn foreign_files_other_instances_and_the_other_kind_are_never_touched() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let foreign = [
        "notes.txt",
        "normal_window_run-1_notes.npz",
        "normal_window_run-1_1.npz",
        "normal_window_run-2_000001.npz",
        "snapshots.npz",
        ".something.tmp",
        ".normal_window_run-1_000001.tmp",
    ];
    for name in foreign {
        fs::write(at(name), "foreign").unwrap();
    }
    // A folder and a link with the name of an artifact are somebody else's too.
    fs::create_dir(at("normal_window_run-1_000001.npz")).unwrap();
    std::os::unix::fs::symlink(at("notes.txt"), at("normal_window_run-1_000002.npz")).unwrap();

    let store = Store::new(folder.path(), 1);
    store.write(&low_latency(2, 1)).unwrap();
    for index in 3..=6 {
        store.write(&normal(window(1, 1, index, None))).unwrap();
    }
    let mut expected: Vec<_> = foreign.iter().map(|name| (*name).to_owned()).collect();
    expected.extend(
        [
            "ll_window_run-1_000001.npz",
            "normal_window_run-1_000001.npz",
            "normal_window_run-1_000002.npz",
            "normal_window_run-1_000006.npz",
        ]
        .map(String::from),
    );
    expected.sort();
    assert_eq!(everything(folder.path()), expected);
    for name in foreign {
        assert_eq!(fs::read_to_string(at(name)).unwrap(), "foreign", "{name}");
    }
    assert_eq!(fs::read_to_string(at("notes.txt")).unwrap(), "foreign");
}

#[test]
fn a_window_written_twice_takes_the_place_of_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path(), 128);
    store.write(&normal(window(2, 2, 1, None))).unwrap();
    let path = store.write(&normal(window(2, 2, 1, Some(1)))).unwrap();
    assert_eq!(read(path).unwrap(), normal(window(2, 2, 1, Some(1))));
    assert_eq!(list(folder.path()).unwrap().len(), 1);
}

#[test]
fn a_list_is_in_order_and_a_prune_says_what_it_removed() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path(), 128);
    for index in [3, 1, 2] {
        store.write(&normal(window(1, 1, index, None))).unwrap();
    }
    store.write(&low_latency(1, 9)).unwrap();
    let name = |kind, index| ArtifactName::new(kind, "run-1", index).unwrap();
    let normal = |index| name(Kind::Normal, index);
    let all = [normal(1), normal(2), normal(3), name(Kind::LowLatency, 9)];
    assert_eq!(list(folder.path()).unwrap(), all);
    assert_eq!(prune(folder.path(), Kind::Normal, "run-1", 1).unwrap(), [normal(1), normal(2)]);
    assert_eq!(prune(folder.path(), Kind::Normal, "other", 0).unwrap(), []);
    assert_eq!(list(folder.path()).unwrap(), [normal(3), name(Kind::LowLatency, 9)]);
}

#[test]
fn an_unfinished_file_of_a_writer_that_is_gone_is_removed_and_that_of_a_living_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let dead = folder.path().join(".normal_window_run-1_000001.77-3.tmp");
    let alive = folder.path().join(".normal_window_run-9_000001.78-3.tmp");
    fs::write(&dead, "half").unwrap();
    let file = fs::File::create(&alive).unwrap();
    file.lock().unwrap();
    let store = Store::new(folder.path(), 128);
    store.write(&normal(window(1, 1, 1, None))).unwrap();
    assert!(!dead.exists() && alive.exists());
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let store = Store::new(file.join("folder"), 1);
    let error = store.write(&normal(window(1, 1, 1, None))).unwrap_err();
    assert!(error.file().ends_with("file/folder/normal_window_run-1_000001.npz"), "{error}");
    assert!(list(file.join("folder")).is_err());
}

#[test]
fn a_folder_that_is_removed_meanwhile_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path().join("a/b"), 1);
    let path = store.write(&normal(window(1, 1, 1, None))).unwrap();
    std::fs::remove_dir_all(folder.path().join("a")).unwrap();
    store.write(&normal(window(1, 1, 1, None))).unwrap();
    assert!(path.exists());
}
