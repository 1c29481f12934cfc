//! The Notify probes, with values worked out by hand.

use deepxtrace_counters::Window;
use deepxtrace_normal::{Diagnoser, Finding, Policy, ProbeStatus};

use crate::build::{
    CachedNotifyCombine, NotifyDispatch, assert_close, diagnoser, only, report, set_waits, topology,
};

#[test]
fn a_late_rank_is_measured_against_the_median_of_the_others() {
    let mut window = Window::empty(topology(6, 8));
    let averages = [1_000, 1_200, 150, 900, 1_100, 800];
    set_waits(&mut window, NotifyDispatch, |rank| averages[rank]);
    let mut diagnoser = diagnoser(window.topology());
    let Finding::LateRank { rank, ratio, excess_ns, explained_by } =
        only(diagnoser.diagnose(&window), NotifyDispatch)
    else {
        panic!("a late rank")
    };
    // The others are 800, 900, 1000, 1100, 1200: median 1000. 100 launches.
    assert_eq!((*rank, *explained_by), (2, None));
    assert_close(*ratio, 0.15);
    assert_close(*excess_ns, 85_000.0);
}

#[test]
fn the_median_of_an_even_number_of_others_is_the_mean_of_two() {
    let mut window = Window::empty(topology(5, 8));
    let averages = [1_000, 200, 600, 1_200, 800];
    set_waits(&mut window, NotifyDispatch, |rank| averages[rank]);
    let mut diagnoser = diagnoser(window.topology());
    // The others of rank 1 are 600, 800, 1000, 1200: median 900.
    let finding = only(diagnoser.diagnose(&window), NotifyDispatch).clone();
    assert_close(finding.ratio(), 200.0 / 900.0);
    assert_close(finding.excess(), 70_000.0);
}

#[test]
fn a_ratio_of_exactly_a_quarter_is_late_and_one_above_is_not() {
    for (average, late) in [(250, true), (251, false)] {
        let mut window = Window::empty(topology(4, 8));
        set_waits(&mut window, NotifyDispatch, |rank| if rank == 3 { average } else { 1_000 });
        let mut diagnoser = diagnoser(window.topology());
        let report = report(diagnoser.diagnose(&window), NotifyDispatch);
        assert_eq!(report.status == ProbeStatus::Anomalous, late, "{average}");
    }
}

#[test]
fn a_rank_without_launches_is_left_out_and_one_valid_rank_is_insufficient() {
    let mut window = Window::empty(topology(3, 8));
    set_waits(&mut window, NotifyDispatch, |_| 1_000);
    set_waits(&mut window, CachedNotifyCombine, |_| 1_000);
    window.edit_notify(NotifyDispatch, |delta| {
        delta.count[0] = 0;
        delta.duration_ns[0] = 0;
    });
    window.edit_notify(CachedNotifyCombine, |delta| delta.count = vec![0, 0, 7]);
    let mut diagnoser = diagnoser(window.topology());
    let diagnosis = diagnoser.diagnose(&window);
    // Rank 0 would be at ratio 0.
    assert_eq!(report(diagnosis, NotifyDispatch).status, ProbeStatus::Ok);
    assert_eq!(report(diagnosis, CachedNotifyCombine).status, ProbeStatus::Insufficient);
}

#[test]
fn a_median_of_zero_gives_no_finding() {
    let mut window = Window::empty(topology(4, 8));
    set_waits(&mut window, NotifyDispatch, |rank| i64::from(rank == 1));
    let mut diagnoser = diagnoser(window.topology());
    assert_eq!(report(diagnoser.diagnose(&window), NotifyDispatch).status, ProbeStatus::Ok);
}

#[test]
fn late_ranks_are_listed_by_what_they_cost() {
    let mut window = Window::empty(topology(7, 8));
    let averages = [1_000, 200, 1_000, 100, 1_000, 1_000, 200];
    set_waits(&mut window, NotifyDispatch, |rank| averages[rank]);
    let mut diagnoser = diagnoser(window.topology());
    let findings = &report(diagnoser.diagnose(&window), NotifyDispatch).findings;
    let ranks: Vec<usize> = findings
        .iter()
        .map(|finding| match finding {
            Finding::LateRank { rank, .. } => *rank,
            other => panic!("{other}"),
        })
        .collect();
    // Ranks 1 and 6 cost the same: by rank.
    assert_eq!(ranks, [3, 1, 6]);
}

#[test]
fn a_share_below_the_least_is_no_finding() {
    let topology = topology(4, 8);
    let mut window = Window::empty(topology);
    set_waits(&mut window, NotifyDispatch, |rank| if rank == 0 { 100 } else { 1_000 });
    // Each peer loses 100 x 900 ns = 90,000 ns of 10,000,000 ns: 0.9 %.
    window.set_place(1, 5_000, 10_005_000);
    for (share, status) in [(0.0089, ProbeStatus::Anomalous), (0.0091, ProbeStatus::Ok)] {
        let policy = Policy { notify_min_share: share, ..Policy::default() };
        let mut diagnoser = Diagnoser::new(topology, policy).unwrap();
        assert_eq!(report(diagnoser.diagnose(&window), NotifyDispatch).status, status, "{share}");
    }
}
