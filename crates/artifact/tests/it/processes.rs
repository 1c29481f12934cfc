//! Several writers, and writers that are killed. A writer is this test program, started again.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use deepxtrace_artifact::{Artifact, Kind, Store, list, read};

use crate::sample::{normal, window};

const FOLDER: &str = "DEEPXTRACE_TEST_WRITER_FOLDER";
const INSTANCE: &str = "DEEPXTRACE_TEST_WRITER_INSTANCE";
const COUNT: &str = "DEEPXTRACE_TEST_WRITER_COUNT";

/// The writer: does nothing unless this program was started by one of the tests below.
#[test]
fn writer() {
    let Ok(folder) = std::env::var(FOLDER) else { return };
    let instance = std::env::var(INSTANCE).unwrap();
    let count: u64 = std::env::var(COUNT).unwrap().parse().unwrap();
    let store = Store::new(folder, 20);
    for index in 1..=count {
        let Artifact::Normal(mut artifact) = normal(window(24, 8, index, None)) else { return };
        artifact.instance = instance.clone().into();
        store.write(&Artifact::Normal(artifact)).unwrap();
    }
}

fn start(folder: &Path, instance: &str, count: u64) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::writer"])
        .env(FOLDER, folder)
        .env(INSTANCE, instance)
        .env(COUNT, count.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_killed_writer_leaves_only_whole_files_and_the_next_writer_cleans_up() {
    let folder = tempfile::tempdir().unwrap();
    for round in 0..12_u64 {
        let mut child = start(folder.path(), "killed", u64::MAX >> 1);
        let begin = Instant::now();
        while list(folder.path()).unwrap().len() < 3 && begin.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        // Another moment in every round.
        std::thread::sleep(Duration::from_micros(137 * round * round));
        child.kill().unwrap();
        child.wait().unwrap();
        let names = list(folder.path()).unwrap();
        assert!(names.len() >= 3, "round {round}: {names:?}");
        for name in names {
            let path = folder.path().join(name.to_string());
            let artifact = read(&path).unwrap_or_else(|error| panic!("round {round}: {error}"));
            assert_eq!(artifact.index(), name.index());
        }
    }
    let store = Store::new(folder.path(), 20);
    store.write(&normal(window(1, 1, 1, None))).unwrap();
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(name.ends_with(".npz"), "left behind: {name}");
    }
}

#[test]
fn writers_of_several_processes_share_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let instances = ["one", "two", "three", "four"];
    let children: Vec<_> =
        instances.iter().map(|instance| start(folder.path(), instance, 60)).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let names = list(folder.path()).unwrap();
    for instance in instances {
        let own: Vec<_> =
            names.iter().filter(|name| name.instance() == instance).map(|n| n.index()).collect();
        assert_eq!(own, (41..=60).collect::<Vec<_>>(), "{instance}");
    }
    assert!(names.iter().all(|name| name.kind() == Kind::Normal));
    for name in &names {
        read(folder.path().join(name.to_string())).unwrap();
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 80);
}
