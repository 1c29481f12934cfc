//! Each measurement runs alone in a process of its own, as other tests share this one.

#![allow(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use deepxtrace::collect::{Group, LocalGroup, Membership, TcpGroup};
use deepxtrace::config::Config;
use deepxtrace::{Counters, SyncStep};

use super::{Rank, build, every_step, step_all};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: everything is handed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

const CHILD: &str = "DEEPXTRACE_TEST_GROWTH";

/// Runs `what` of [`child`] alone.
fn alone(what: &str) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "growth::child", "--ignored", "--nocapture"])
        .env(CHILD, what)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {text}{errors}");
    assert!(text.contains("1 passed"), "{what}: {text}");
}

#[test]
#[ignore = "started by the tests below"]
fn child() {
    match std::env::var(CHILD).unwrap_or_default().as_str() {
        "collections local" => collections(LocalGroup::new(2).unwrap()),
        "collections tcp" => collections(tcp_groups()),
        "starts local" => starts(1_000, || LocalGroup::new(2).unwrap()),
        "starts tcp" => starts(1_000, tcp_groups),
        "steady" => steady(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn collections_grow_neither_memory_nor_threads_nor_handles() {
    alone("collections local");
    alone("collections tcp");
}

#[test]
fn starts_and_stops_grow_neither_memory_nor_threads_nor_handles() {
    alone("starts local");
    alone("starts tcp");
}

#[test]
fn a_window_without_findings_allocates_nothing_in_steady_state() {
    alone("steady");
}

fn tcp_groups() -> Vec<TcpGroup> {
    let member = |rank| Membership::world(rank, 2).unwrap();
    let mut root = TcpGroup::new(member(0), "127.0.0.1", 0, "secret").unwrap();
    let port = root.listen().unwrap().port();
    vec![root, TcpGroup::new(member(1), "127.0.0.1", port, "secret").unwrap()]
}

/// Resident memory (kB), threads and open files of this process.
fn usage() -> (i64, i64, i64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name))?;
        line.split_whitespace().nth(1)?.parse().ok()
    };
    let files = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    (field("VmRSS:").unwrap_or(0), field("Threads:").unwrap_or(0), files as i64)
}

fn start<G: Group + 'static>(groups: Vec<G>, config: &Config) -> Vec<Rank> {
    let threads: Vec<_> = groups
        .into_iter()
        .map(|group| {
            let config = config.clone();
            std::thread::spawn(move || build(group, config, |builder| builder).unwrap().unwrap())
        })
        .collect();
    let mut ranks: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    ranks.iter_mut().for_each(|rank| rank.diagnose.start().unwrap());
    ranks
}

fn collections<G: Group + 'static>(groups: Vec<G>) {
    let folder = tempfile::tempdir().unwrap();
    let mut ranks = start(groups, &every_step(folder.path()));
    let [root, other] = ranks.as_mut_slice() else { panic!("two ranks") };
    let mut rounds = |count: i64| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for i in 0..count {
                    other.set(1, i);
                    assert_ne!(other.diagnose.diagnose_normal_sync().unwrap(), SyncStep::NotDue);
                }
            });
            for i in 0..count {
                root.set(1, i);
                assert_ne!(root.diagnose.diagnose_normal_sync().unwrap(), SyncStep::NotDue);
            }
        });
    };
    rounds(1_000);
    let before = usage();
    rounds(10_000);
    compare(before);
}

fn starts<G: Group + 'static>(count: usize, groups: impl Fn() -> Vec<G>) {
    let folder = tempfile::tempdir().unwrap();
    let once = || {
        let mut ranks = start(groups(), &every_step(folder.path()));
        step_all(&mut ranks);
    };
    (0..50).for_each(|_| once());
    let before = usage();
    (0..count).for_each(|_| once());
    // Threads that had a connection to make may end a moment later.
    std::thread::sleep(std::time::Duration::from_millis(1_200));
    compare(before);
}

fn compare(before: (i64, i64, i64)) {
    let after = usage();
    assert!(after.0 - before.0 < 2_048, "memory: {before:?} then {after:?}");
    assert!(after.1 <= before.1, "threads: {before:?} then {after:?}");
    assert!(after.2 <= before.2, "open files: {before:?} then {after:?}");
}

fn steady() {
    for counters in [Counters::Normal, Counters::LowLatency, Counters::Both] {
        let folder = tempfile::tempdir().unwrap();
        let config = Config { log_details: true, ..every_step(folder.path()) };
        let group = LocalGroup::new(1).unwrap().remove(0);
        let mut rank = build(group, config, |builder| builder.counters(counters)).unwrap().unwrap();
        rank.diagnose.start().unwrap();
        let len = rank.counters.get().len();
        let mut step = |value: i64| {
            for place in 0..len {
                rank.set(place, value * 1_000);
            }
            if counters != Counters::LowLatency {
                rank.diagnose.diagnose_normal_sync().unwrap();
            }
            if counters != Counters::Normal {
                rank.diagnose.diagnose_ll_sync().unwrap();
            }
        };
        (1..40).for_each(&mut step);
        let before = ALLOCATIONS.load(Relaxed);
        (40..140).for_each(&mut step);
        let allocated = ALLOCATIONS.load(Relaxed) - before;
        assert_eq!(allocated, 0, "{counters:?}: allocations in 100 windows");
    }
}
