//! Groups and windows at the edge of what can be diagnosed.

use deepxtrace_counters::{
    CompletionProbe, NotifyProbe, Probe, Snapshot, Step, Topology, Window, Windows,
};
use deepxtrace_normal::{Finding, ProbeStatus, WindowDiagnosis, WindowState};
use ndarray::Array2;

use crate::build::{
    CombineLogicalRecv, DispatchFinal, DispatchRdmaRecv, NotifyDispatch, diagnoser, healthy_window,
    only, report, set_costs, set_waits, topology,
};

fn statuses(diagnosis: &WindowDiagnosis) -> Vec<(Probe, ProbeStatus)> {
    diagnosis.probes.iter().map(|(probe, report)| (probe, report.status)).collect()
}

#[test]
fn one_rank_has_nobody_to_be_compared_with() {
    let topology = topology(1, 8);
    let mut diagnoser = diagnoser(topology);
    let diagnosis = diagnoser.diagnose(&healthy_window(topology));
    for (probe, status) in statuses(diagnosis) {
        let expected = match probe {
            Probe::DispatchRdmaRecv => ProbeStatus::NotApplicable,
            _ => ProbeStatus::Insufficient,
        };
        assert_eq!(status, expected, "{probe}");
    }
    assert!(diagnosis.incidents.is_empty());
}

#[test]
fn two_ranks_have_notify_probes_but_too_few_cells() {
    for ranks_per_node in [1, 2] {
        let topology = topology(2, ranks_per_node);
        let mut diagnoser = diagnoser(topology);
        let mut window = healthy_window(topology);
        set_waits(&mut window, NotifyDispatch, |rank| if rank == 1 { 10 } else { 100 });
        let diagnosis = diagnoser.diagnose(&window);
        assert!(matches!(only(diagnosis, NotifyDispatch), Finding::LateRank { rank: 1, .. }));
        assert_eq!(report(diagnosis, DispatchFinal).status, ProbeStatus::Insufficient);
        // Without evidence downstream the raw anomaly is all there is.
        assert!(diagnosis.incidents.is_empty());
    }
}

#[test]
fn a_healthy_window_of_any_shape_has_no_findings() {
    for (ep_size, ranks_per_node) in
        [(3, 8), (4, 1), (7, 2), (8, 8), (11, 4), (16, 8), (20, 8), (33, 16), (64, 8), (13, 13)]
    {
        let topology = topology(ep_size, ranks_per_node);
        let mut diagnoser = diagnoser(topology);
        for _ in 0..5 {
            let diagnosis = diagnoser.diagnose(&healthy_window(topology));
            assert!(!diagnosis.has_findings(), "EP{ep_size}, {ranks_per_node}: {diagnosis:?}");
            assert!(diagnosis.tracker.is_empty());
        }
    }
}

#[test]
fn the_same_finding_appears_on_a_short_last_node() {
    let topology = topology(20, 8);
    let mut diagnoser = diagnoser(topology);
    let mut window = healthy_window(topology);
    set_costs(&mut window, DispatchFinal, |s, d| {
        crate::build::healthy(topology, s, d) * if s == 18 { 1.8 } else { 1.0 }
    });
    let findings = &report(diagnoser.diagnose(&window), DispatchFinal).findings;
    assert!(
        findings.iter().any(|f| matches!(f, Finding::SourceRow { rank: 18, .. })),
        "{findings:?}"
    );
}

#[test]
fn an_idle_window_is_neither_diagnosed_nor_learned() {
    let topology = topology(8, 8);
    let mut diagnoser = diagnoser(topology);
    let mut idle = Window::empty(topology);
    idle.set_place(7, 0, 1);
    let diagnosis = diagnoser.diagnose(&idle);
    assert_eq!((diagnosis.window_index, diagnosis.state), (7, WindowState::Idle));
    assert!(diagnosis.probes.is_empty() && diagnosis.probes.get(DispatchFinal).is_none());
    assert!(diagnosis.incidents.is_empty() && diagnosis.reason.is_none());
}

#[test]
fn a_refused_window_tells_why_and_who_is_missing() {
    let topology = topology(4, 8);
    let mut diagnoser = diagnoser(topology);
    let mut windows = Windows::new(topology);
    let mut snapshot = Snapshot::zeros(topology, 0);
    snapshot.vector_mut(2).unwrap()[1] = 5;
    windows.advance(&mut snapshot).unwrap();
    let error = windows.advance(&mut Snapshot::zeros(topology, 1)).unwrap_err();
    let diagnosis = diagnoser.refuse(1, &error, &[true, false, true, true]);
    assert_eq!((diagnosis.window_index, diagnosis.state), (1, WindowState::Refused));
    assert_eq!(diagnosis.missing_ranks, [1]);
    let reason = diagnosis.reason.as_deref().unwrap();
    for word in ["rank 2", "notify_dispatch", "count", "from 5 to 0"] {
        assert!(reason.contains(word), "{reason}");
    }
    assert!(diagnosis.probes.is_empty());
    // The next report begins anew.
    let diagnosis = diagnoser.diagnose(&healthy_window(topology));
    assert!(diagnosis.reason.is_none() && diagnosis.missing_ranks.is_empty());
}

#[test]
fn windows_that_do_not_fit_the_group_are_refused() {
    let topology = topology(4, 2);
    let mut diagnoser = diagnoser(topology);
    let other = healthy_window(Topology::new(4, 4).unwrap());
    let diagnosis = diagnoser.diagnose(&other);
    assert_eq!(diagnosis.state, WindowState::Refused);
    assert!(diagnosis.reason.as_deref().unwrap().contains("different groups"));

    let mut window = healthy_window(topology);
    window.edit_completion(CombineLogicalRecv, |delta| delta.tokens = Array2::zeros((4, 5)));
    let reason = diagnoser.diagnose(&window).reason.clone().unwrap();
    assert_eq!(reason, "combine_logical_recv has a 4 x 5 matrix, the group has 4 ranks");

    let mut window = healthy_window(topology);
    window.edit_notify(NotifyDispatch, |delta| delta.count.clear());
    let reason = diagnoser.diagnose(&window).reason.clone().unwrap();
    assert_eq!(reason, "notify_dispatch has 0 ranks, the group has 4");
}

#[test]
fn another_memory_order_changes_nothing() {
    let topology = topology(12, 4);
    let window = healthy_window(topology);
    let mut turned = window.clone();
    for probe in CompletionProbe::ALL {
        turned.edit_completion(probe, |delta| {
            for matrix in [&mut delta.cost, &mut delta.samples, &mut delta.tokens] {
                let transposed = matrix.t().as_standard_layout().to_owned();
                *matrix = transposed.reversed_axes();
            }
        });
    }
    let expected = diagnoser(topology).diagnose(&window).clone();
    assert_eq!(*diagnoser(topology).diagnose(&turned), expected);
}

#[test]
fn a_missing_rank_is_left_out_of_everything_and_named() {
    let topology = topology(16, 8);
    let mut window = healthy_window(topology);
    // Rank 5 would be late, its row slow, and its cells as gateway too.
    set_waits(&mut window, NotifyDispatch, |rank| if rank == 5 { 1 } else { 100_000 });
    let slow = |s: usize, d: usize| if s == 5 || d == 5 { 9.0 } else { 1.0 };
    for probe in [DispatchFinal, CombineLogicalRecv] {
        set_costs(&mut window, probe, |s, d| crate::build::healthy(topology, s, d) * slow(s, d));
    }
    set_costs(&mut window, DispatchRdmaRecv, |s, d| {
        if crate::build::is_edge(topology, s, d) { 8_000.0 * slow(s, d) } else { 0.0 }
    });
    let mut diagnoser = diagnoser(topology);
    assert!(diagnoser.diagnose(&window).has_findings());
    window.valid_mut()[5] = false;
    let diagnosis = diagnoser.diagnose(&window);
    assert_eq!(diagnosis.missing_ranks, [5]);
    assert!(!diagnosis.has_findings(), "{diagnosis:?}");
}

#[test]
fn a_rank_is_missing_until_it_has_two_snapshots_in_a_row() {
    let topology = topology(4, 8);
    let mut diagnoser = diagnoser(topology);
    let mut windows = Windows::new(topology);
    let mut missing = Vec::new();
    for (i, present) in [true, false, true, true].into_iter().enumerate() {
        let mut snapshot = Snapshot::zeros(topology, i as i64);
        snapshot.counters_mut().fill(i as i64 * 1_000);
        snapshot.set_present(3, present);
        if let Step::Window(window) = windows.advance(&mut snapshot).unwrap() {
            missing.push(diagnoser.diagnose(window).missing_ranks.clone());
        }
    }
    assert_eq!(missing, [vec![3], vec![3], vec![]]);
}

#[test]
fn fewer_than_three_cells_are_insufficient_and_three_are_enough() {
    let topology = topology(4, 8);
    for (cells, status) in [(2, ProbeStatus::Insufficient), (3, ProbeStatus::Ok)] {
        let mut window = Window::empty(topology);
        set_costs(
            &mut window,
            DispatchFinal,
            |s, d| {
                if s == 0 && d <= cells { 1_000.0 } else { 0.0 }
            },
        );
        let mut diagnoser = diagnoser(topology);
        let report = report(diagnoser.diagnose(&window), DispatchFinal);
        assert_eq!(report.status, status, "{cells} cells");
        assert_eq!(report.level.unwrap().scalar.is_some(), status == ProbeStatus::Ok);
    }
}

#[test]
fn a_window_with_notify_launches_only_is_diagnosed() {
    let topology = topology(16, 8);
    let mut window = Window::empty(topology);
    for probe in NotifyProbe::ALL {
        set_waits(&mut window, probe, |_| 1_000);
    }
    let mut diagnoser = diagnoser(topology);
    let diagnosis = diagnoser.diagnose(&window);
    for (probe, status) in statuses(diagnosis) {
        let expected =
            if probe.notify().is_some() { ProbeStatus::Ok } else { ProbeStatus::Insufficient };
        assert_eq!(status, expected, "{probe}");
    }
}
