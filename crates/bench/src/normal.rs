//! One Normal window: difference, six probes, correlation, tracker.

use std::error::Error;
use std::hint::black_box;

use deepxtrace_counters::{Snapshot, Topology, Window};
use deepxtrace_normal::{Diagnoser, Policy};
use deepxtrace_sim::{Workload, WorkloadConfig};

use crate::machine::available_bytes;
use crate::timing::{Pair, one_pass, show, side_by_side};

/// The goal of a size, us, on one core.
const GOALS_US: [(usize, Option<f64>); 5] = [
    (16, Some(80.0)),
    (64, Some(800.0)),
    (256, Some(15_000.0)),
    (1024, Some(300_000.0)),
    (4096, None),
];

/// Snapshots' worth of memory that a measurement takes at most: two snapshots and the simulated job
/// that made them, or two snapshots, the window and the matrices of the diagnosis (3.3 measured).
const SNAPSHOTS: u64 = 4;

/// Prints the table, up to `largest` ranks.
pub fn table(largest: usize) -> Result<(), Box<dyn Error>> {
    println!("Normal window (difference of two snapshots, all probes, correlation), one core");
    println!("floor: one pass over the two snapshots\n");
    println!("| EP | window | goal | ns a cell | floor | x floor | windows timed |");
    println!("|---|---|---|---|---|---|---|");
    for (ranks, goal_us) in GOALS_US.into_iter().filter(|&(ranks, _)| ranks <= largest) {
        let needed = SNAPSHOTS * snapshot_bytes(ranks);
        if let Some(free) = available_bytes().filter(|&free| free < needed) {
            let gb = |bytes: u64| bytes as f64 / 1e9;
            println!(
                "| {ranks} | skipped: needs {:.1} GB, {:.1} GB are free | | | | | |",
                gb(needed),
                gb(free)
            );
            continue;
        }
        let pair = measure(ranks)?;
        let cells = (ranks * ranks) as f64;
        let goal = goal_us.map_or("-".to_owned(), |goal| format!("{goal} us"));
        println!(
            "| {ranks} | {} | {goal} | {:.1} | {} | {:.1} | {} |",
            show(pair.work),
            pair.work.as_secs_f64() * 1e9 / cells,
            show(pair.floor),
            pair.ratio(),
            pair.repeats,
        );
    }
    println!();
    Ok(())
}

fn snapshot_bytes(ranks: usize) -> u64 {
    8 * (ranks * (6 + 9 * ranks)) as u64
}

fn measure(ranks: usize) -> Result<Pair, Box<dyn Error>> {
    let topology = Topology::new(ranks, 8)?;
    let (older, newer) = two_snapshots(topology)?;
    let mut window = Window::empty(topology);
    let mut diagnoser = Diagnoser::new(topology, Policy::default())?;
    let mut failed = None;
    let pair = side_by_side(
        |turn| {
            if let Err(error) = window.difference(turn as u64 + 1, &older, &newer) {
                failed = Some(error);
            }
            black_box(diagnoser.diagnose(&window));
        },
        |_| {
            black_box(one_pass(black_box(&older).counters()));
            black_box(one_pass(black_box(&newer).counters()));
        },
    );
    failed.map_or(Ok(pair), |error| Err(error.into()))
}

fn two_snapshots(topology: Topology) -> Result<(Snapshot, Snapshot), Box<dyn Error>> {
    let mut workload = Workload::new(WorkloadConfig::new(topology), 7)?;
    let older = workload.run_window().clone();
    let newer = workload.run_window().clone();
    Ok((older, newer))
}

/// One window of `ranks` ranks, diagnosed `repeats` times: for instruction counts.
pub fn repeat(ranks: usize, repeats: usize) -> Result<(), Box<dyn Error>> {
    let topology = Topology::new(ranks, 8)?;
    let (older, newer) = two_snapshots(topology)?;
    let mut window = Window::empty(topology);
    let mut diagnoser = Diagnoser::new(topology, Policy::default())?;
    for turn in 0..repeats {
        window.difference(turn as u64 + 1, &older, &newer)?;
        black_box(diagnoser.diagnose(&window));
    }
    Ok(())
}
