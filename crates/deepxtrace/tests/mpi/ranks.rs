use std::path::{Path, PathBuf};
use std::time::Duration;

use deepxtrace::Diagnose;
use deepxtrace::collect::mpi::topology::SimpleCommunicator;
use deepxtrace::collect::mpi::traits::Communicator;
use deepxtrace::collect::mpi::{Threading, initialize_with_threading};
use deepxtrace::collect::{Group, MpiGroup};
use deepxtrace::config::{Config, Mode};
use serde_json::json;

use super::job::{Plan, run_in_step, run_until_told, tell};

/// The variable that names what this rank is to do.
pub const SCENARIO: &str = "DEEPXTRACE_MPI_SCENARIO";

/// The variable that names the folder for logs.
pub const FOLDER: &str = "DEEPXTRACE_MPI_FOLDER";

const JOIN: Duration = Duration::from_secs(60);
const WINDOWS: u64 = 3;

/// One rank's part in `scenario`.
pub fn run(scenario: &str) {
    let single = scenario.starts_with("single");
    let level = if single { Threading::Single } else { Threading::Multiple };
    let (universe, provided) = initialize_with_threading(level).unwrap();
    assert!(single || provided == Threading::Multiple, "{provided:?}");
    let world = SimpleCommunicator::world();
    let (rank, size) = (world.rank() as usize, world.size() as usize);
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let timed = ["until told", "killed"].contains(&scenario);
    let plan = |late| Plan {
        ranks_per_node: 2,
        late,
        log_path: folder.clone(),
        round_timeout: Duration::from_millis(if timed { 400 } else { 60_000 }),
    };
    match scenario {
        "world" | "single in step" => {
            run_in_step(MpiGroup::new(&world, JOIN).unwrap(), &plan(size - 1), WINDOWS);
        }
        "subgroup" => {
            let list = vec![6, 1, 3, 4];
            // The others have no part in it, and are not waited for.
            if list.contains(&rank) {
                let group = MpiGroup::subgroup(&world, list, 1, JOIN).unwrap();
                run_in_step(group, &plan(3), WINDOWS);
            }
        }
        "reverse" => {
            let list = (0..size).rev().collect();
            let group = MpiGroup::subgroup(&world, list, size - 1, JOIN).unwrap();
            run_in_step(group, &plan(size - 1), WINDOWS);
        }
        "split" => {
            // Even and odd ranks, each a group of its own.
            let list: Vec<usize> = (0..size).filter(|other| other % 2 == rank % 2).collect();
            let late = list.len() - 1;
            let group = MpiGroup::subgroup(&world, list, 0, JOIN).unwrap();
            run_in_step(group, &plan(late), WINDOWS);
        }
        "until told" | "killed" => {
            tell(&json!({"rank": rank, "pid": std::process::id()}));
            let group = MpiGroup::new(&world, JOIN).unwrap();
            let interval = Duration::from_millis(60);
            run_until_told(group, &plan(1), interval, Duration::from_secs(100));
        }
        "single" => build_fails(&world, Mode::Asynchronous, 1, &folder),
        "disagree" => {
            let step = if rank == 3 { 5 } else { 1 };
            build_fails(&world, Mode::Synchronous, step, &folder);
        }
        "disabled" => {
            let group = MpiGroup::new(&world, JOIN).unwrap();
            let none = Diagnose::builder(group, Config::default()).build().unwrap().is_none();
            tell(&json!({"none": none}));
        }
        "absent" => {
            // The last rank does not come in time; it comes in the end, so that MPI can finalise.
            if rank == size - 1 {
                std::thread::sleep(Duration::from_secs(3));
                let _ = MpiGroup::new(&world, JOIN);
            } else {
                let error = MpiGroup::new(&world, Duration::from_millis(300)).err().unwrap();
                tell(&json!({"error": error.to_string()}));
                std::thread::sleep(Duration::from_secs(4));
            }
        }
        "starts" => starts(&world, &folder),
        other => panic!("{other}"),
    }
    if scenario == "killed" {
        // Finalising would wait for the dead rank.
        std::process::exit(0);
    }
    drop(universe);
}

fn build_fails(world: &SimpleCommunicator, mode: Mode, sync_step: u64, folder: &std::path::Path) {
    let config =
        Config { enabled: true, mode, sync_step, log_path: folder.to_owned(), ..Config::default() };
    let group = MpiGroup::new(world, JOIN).unwrap();
    let error = Diagnose::builder(group, config).build().err().unwrap();
    tell(&json!({"error": error.to_string()}));
}

/// Resident memory (kB), threads and open files of this process.
fn usage() -> [i64; 3] {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    let files = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    [field("VmRSS:").unwrap_or(0), field("Threads:").unwrap_or(0), files as i64]
}

fn starts(world: &SimpleCommunicator, folder: &Path) {
    let begin = || {
        let group = MpiGroup::new(world, JOIN).unwrap();
        assert_eq!(group.membership().size(), 2);
        let config = Config {
            enabled: true,
            mode: Mode::Synchronous,
            sync_step: 1,
            warming_time: Some(Duration::ZERO),
            log_path: folder.to_owned(),
            ..Config::default()
        };
        let mut diagnose = Diagnose::builder(group, config).build().unwrap().unwrap();
        diagnose.start().unwrap();
        diagnose
    };
    let collect = |count: usize| {
        let mut diagnose = begin();
        for _ in 0..count {
            diagnose.diagnose_normal_sync().unwrap();
        }
    };
    (0..50).for_each(|_| collect(2));
    collect(1_000);
    let before = usage();
    (0..1_000).for_each(|_| collect(2));
    collect(10_000);
    let after = usage();
    tell(&json!({
        "memory_kb": after[0] - before[0],
        "threads": after[1] - before[1],
        "files": after[2] - before[2],
    }));
}
