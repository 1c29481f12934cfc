//! What the diagnosis makes of simulated jobs: false findings in healthy ones, true ones in jobs
//! with a fault. `cargo test -p deepxtrace-sim detection -- --nocapture` prints the tables.

#![allow(clippy::print_stdout)]

use deepxtrace_counters::{CompletionProbe, NotifyProbe, Topology};
use deepxtrace_normal::{Diagnoser, Finding, Incident, Policy, WindowDiagnosis};
use deepxtrace_sim::{Fault, PathClass, Slowdown, Stage, WorkloadConfig};

use crate::Job;

fn ep(ep_size: usize, cell_noise: f64) -> WorkloadConfig {
    WorkloadConfig { cell_noise, ..WorkloadConfig::new(Topology::new(ep_size, 8).unwrap()) }
}

fn findings(report: &WindowDiagnosis) -> usize {
    report.probes.iter().map(|(_, probe)| probe.findings.len()).sum()
}

/// Windows with a finding, and findings, in `jobs` healthy jobs of `windows` windows each.
fn healthy(config: WorkloadConfig, jobs: u64, windows: usize) -> (usize, usize) {
    let (mut with, mut all) = (0, 0);
    for seed in 0..jobs {
        let mut job = Job::new(config, seed);
        let mut diagnoser = Diagnoser::new(config.topology, Policy::default()).unwrap();
        for _ in 0..windows {
            let found = findings(diagnoser.diagnose(&job.next([])));
            with += usize::from(found > 0);
            all += found;
        }
    }
    (with, all)
}

/// A fault, and the finding that it must lead to.
struct Case {
    name: &'static str,
    fault: fn(rank: usize) -> Fault,
    probe: CompletionProbe,
    is_found: fn(finding: &Finding, rank: usize) -> bool,
}

const DISPATCH: CompletionProbe = CompletionProbe::DispatchFinal;
const COMBINE: CompletionProbe = CompletionProbe::CombineLogicalRecv;

const CASES: [Case; 4] = [
    Case {
        name: "row of dispatch",
        fault: |rank| Fault::SourceRow {
            stage: Stage::Dispatch,
            rank,
            path: PathClass::All,
            factor: 1.6,
        },
        probe: DISPATCH,
        is_found: |finding, wanted| matches!(finding, Finding::SourceRow { rank, .. } if *rank == wanted),
    },
    Case {
        name: "column of dispatch",
        fault: |rank| Fault::DestinationColumn {
            stage: Stage::Dispatch,
            rank,
            path: PathClass::All,
            factor: 1.6,
        },
        probe: DISPATCH,
        is_found: |finding, wanted| matches!(finding, Finding::DestinationColumn { rank, .. } if *rank == wanted),
    },
    Case {
        name: "row of combine",
        fault: |rank| Fault::SourceRow {
            stage: Stage::Combine,
            rank,
            path: PathClass::All,
            factor: 1.6,
        },
        probe: COMBINE,
        is_found: |finding, wanted| matches!(finding, Finding::SourceRow { rank, .. } if *rank == wanted),
    },
    Case {
        name: "column of combine",
        fault: |rank| Fault::DestinationColumn {
            stage: Stage::Combine,
            rank,
            path: PathClass::All,
            factor: 1.6,
        },
        probe: COMBINE,
        is_found: |finding, wanted| matches!(finding, Finding::DestinationColumn { rank, .. } if *rank == wanted),
    },
];

/// Trials of a first window with the fault at another rank each: how many found it, and how many
/// findings of the probe were others.
fn found(config: WorkloadConfig, case: &Case, trials: usize) -> (usize, usize) {
    let (mut hits, mut others) = (0, 0);
    for trial in 0..trials {
        let rank = trial % config.topology.ep_size();
        let window = Job::new(config, 1_000 + trial as u64).next([(case.fault)(rank)]);
        let mut diagnoser = Diagnoser::new(config.topology, Policy::default()).unwrap();
        let report = diagnoser.diagnose(&window);
        let findings = &report.probes.get(case.probe).unwrap().findings;
        let right = findings.iter().filter(|finding| (case.is_found)(finding, rank)).count();
        hits += usize::from(right > 0);
        others += findings.len() - right;
    }
    (hits, others)
}

#[test]
fn a_thousand_healthy_windows_at_4_percent_noise_have_no_finding() {
    println!("healthy windows:  EP  noise  windows  with findings  findings");
    for (ep_size, noise, jobs, windows) in [
        (16, 0.04, 50, 20),
        (32, 0.04, 10, 10),
        (64, 0.04, 5, 10),
        (16, 0.08, 10, 20),
        (16, 0.15, 10, 20),
    ] {
        let (with, all) = healthy(ep(ep_size, noise), jobs, windows);
        let count = jobs as usize * windows;
        println!("{ep_size:>20} {:>5.0} % {count:>8} {with:>14} {all:>9}", noise * 100.0);
        if noise <= 0.04 {
            assert_eq!(all, 0, "EP {ep_size}, {noise}");
        }
    }
}

#[test]
fn over_90_percent_of_rows_and_columns_of_1_6_are_found_at_15_percent_noise() {
    const TRIALS: usize = 200;
    println!("1.6x slower:          EP  noise  found of {TRIALS}  other findings");
    for case in &CASES {
        for (ep_size, noise) in [(16, 0.04), (16, 0.15), (32, 0.15)] {
            let (hits, others) = found(ep(ep_size, noise), case, TRIALS);
            println!(
                "{:<20} {ep_size:>3} {:>4.0} % {hits:>12} {others:>15}",
                case.name,
                noise * 100.0
            );
            assert!(hits * 10 > TRIALS * 9, "{} at EP {ep_size}, {noise}: {hits}", case.name);
        }
    }
}

#[test]
fn costs_that_grow_with_tokens_give_no_false_finding_and_hide_no_true_one() {
    println!(
        "exponent:  healthy windows with findings of 50  column of dispatch found of 50  others"
    );
    for exponent in [0.0, 0.3, 0.6, 1.0] {
        let config = WorkloadConfig {
            dispatch_load_exponent: exponent,
            combine_load_exponent: exponent,
            ..ep(16, 0.02)
        };
        let (with, _) = healthy(config, 10, 5);
        let (hits, others) = found(config, &CASES[1], 50);
        println!("{exponent:>8} {with:>38} {hits:>31} {others:>7}");
        assert_eq!((with, others), (0, 0), "exponent {exponent}");
        assert!(hits >= 48, "exponent {exponent}: {hits}");
    }
}

/// Whether `rank` alone is accused of coming late to combine, and whether it was seen to come late.
fn late_to_combine(report: &WindowDiagnosis, rank: usize) -> (bool, bool) {
    let skew = Incident::PreStageArrivalSkew {
        probe: NotifyProbe::CachedNotifyCombine,
        ranks: vec![rank],
    };
    let found = &report.probes.get(NotifyProbe::CachedNotifyCombine).unwrap().findings;
    let is_late =
        |finding: &Finding| matches!(finding, Finding::LateRank { rank: r, .. } if *r == rank);
    (report.incidents.contains(&skew), found.iter().any(is_late))
}

#[test]
fn a_slow_dispatch_excuses_a_late_rank_and_a_slightly_slow_one_does_not_excuse_computation() {
    let column = |rank, factor| Fault::DestinationColumn {
        stage: Stage::Dispatch,
        rank,
        path: PathClass::All,
        factor,
    };
    for seed in 0..100 {
        let rank = seed as usize % 16;
        let config = ep(16, [0.01, 0.04, 0.15][seed as usize % 3]);
        let mut diagnoser = Diagnoser::new(config.topology, Policy::default()).unwrap();
        let window = Job::new(config, seed).next([column(rank, 2.0)]);
        let seen = late_to_combine(diagnoser.diagnose(&window), rank);
        assert_eq!(seen, (false, true), "seed {seed}: excused");
        let late = Fault::LateBeforeCombine { rank, ns: 1_400_000 };
        let window = Job::new(config, seed).next([column(rank, 1.1), late]);
        let seen = late_to_combine(diagnoser.diagnose(&window), rank);
        assert_eq!(seen, (true, true), "seed {seed}: accused");
    }
}

/// Four nodes: with three, a slow rail is half of a row, and half of its cost goes to the row.
#[test]
fn a_slow_rail_is_found_in_its_direction_only() {
    let config = ep(32, 0.02);
    for seed in 0..20 {
        let fault =
            Fault::Rail { local_index: 5, src_node: 2, dst_node: 0, slowdown: Slowdown::all(1.8) };
        let window = Job::new(config, seed).next([fault]);
        let mut diagnoser = Diagnoser::new(config.topology, Policy::default()).unwrap();
        let report = diagnoser.diagnose(&window);
        for probe in [DISPATCH, COMBINE] {
            let findings = &report.probes.get(probe).unwrap().findings;
            let [Finding::Rail { local_index, src_node, dst_node, ratio, .. }] = findings[..]
            else {
                panic!("seed {seed}, {probe}: {findings:?}");
            };
            assert_eq!((local_index, src_node, dst_node), (5, 2, 0), "seed {seed}, {probe}");
            assert!((ratio - 1.8).abs() < 0.1, "seed {seed}, {probe}: {ratio}");
        }
    }
}
