//! What findings of several probes mean together.

use deepxtrace_counters::{CompletionProbe, NotifyProbe, Topology, Window};
use deepxtrace_normal::{
    Evidence, Finding, Incident, IncidentKind, IncidentState, TrackerChange, WindowDiagnosis,
};

use crate::build::{
    CachedNotifyCombine, CachedNotifyDispatch, CombineLogicalRecv, DispatchFinal, DispatchRdmaRecv,
    NotifyDispatch, diagnoser, healthy, healthy_window, is_edge, only, report, set_cells,
    set_costs, set_waits, topology,
};

/// Makes cells of a dense probe of a healthy window slower.
fn slow(window: &mut Window, probe: CompletionProbe, factor: impl Fn(usize, usize) -> f64) {
    let topology = window.topology();
    set_costs(window, probe, |s, d| healthy(topology, s, d) * factor(s, d));
}

fn slow_gateway(window: &mut Window, factor: impl Fn(usize, usize) -> f64) {
    let topology = window.topology();
    set_costs(window, DispatchRdmaRecv, |s, d| {
        if is_edge(topology, s, d) { 8_000.0 * factor(s, d) } else { 0.0 }
    });
}

fn late(window: &mut Window, probe: NotifyProbe, late: usize) {
    set_waits(window, probe, |rank| if rank == late { 5_000 } else { 100_000 });
}

fn diagnose(window: &Window) -> WindowDiagnosis {
    diagnoser(window.topology()).diagnose(window).clone()
}

fn kinds(diagnosis: &WindowDiagnosis) -> Vec<IncidentKind> {
    diagnosis.incidents.iter().map(Incident::kind).collect()
}

fn ep16() -> Topology {
    topology(16, 8)
}

fn if_slow(hit: bool, factor: f64) -> f64 {
    if hit { factor } else { 1.0 }
}

#[test]
fn a_late_rank_with_healthy_data_paths_is_an_arrival_skew_for_each_notify_probe() {
    let mut window = healthy_window(ep16());
    for probe in NotifyProbe::ALL {
        late(&mut window, probe, 9);
    }
    let skew = |probe| Incident::PreStageArrivalSkew { probe, ranks: vec![9] };
    let expected: Vec<_> = NotifyProbe::ALL.into_iter().map(skew).collect();
    assert_eq!(diagnose(&window).incidents, expected);
}

#[test]
fn an_anomalous_or_insufficient_data_path_leaves_the_raw_finding_only() {
    // Dispatch anomalous, by a point; the combine probe still is an arrival skew.
    let mut window = healthy_window(ep16());
    late(&mut window, NotifyDispatch, 9);
    late(&mut window, CachedNotifyCombine, 9);
    slow(&mut window, DispatchFinal, |s, d| if_slow((s, d) == (1, 12), 4.0));
    let diagnosis = diagnose(&window);
    assert!(matches!(only(&diagnosis, NotifyDispatch), Finding::LateRank { rank: 9, .. }));
    assert_eq!(kinds(&diagnosis), [IncidentKind::PreStageArrivalSkew, IncidentKind::Unclassified]);
    assert_eq!(diagnosis.incidents[0].probe(), Some(CachedNotifyCombine));

    // Gateways alone anomalous.
    let mut window = healthy_window(ep16());
    late(&mut window, NotifyDispatch, 9);
    slow_gateway(&mut window, |s, d| if_slow((s, d) == (1, 9), 4.0));
    assert_eq!(kinds(&diagnose(&window)), [IncidentKind::Unclassified]);

    // Gateways insufficient.
    let mut window = healthy_window(ep16());
    late(&mut window, NotifyDispatch, 9);
    set_costs(&mut window, DispatchRdmaRecv, |_, _| 0.0);
    let diagnosis = diagnose(&window);
    assert!(diagnosis.incidents.is_empty());
    assert_eq!(report(&diagnosis, NotifyDispatch).findings.len(), 1);
}

#[test]
fn on_one_node_gateways_are_not_asked_for() {
    let mut window = healthy_window(topology(8, 8));
    late(&mut window, CachedNotifyDispatch, 3);
    assert_eq!(kinds(&diagnose(&window)), [IncidentKind::PreStageArrivalSkew]);
}

#[test]
fn global_findings_of_dispatch_and_combine_meet_and_gateways_support_them() {
    let mut diagnoser = diagnoser(ep16());
    for _ in 0..3 {
        diagnoser.diagnose(&healthy_window(ep16()));
    }
    let mut window = healthy_window(ep16());
    slow(&mut window, DispatchFinal, |_, _| 1.4);
    slow(&mut window, CombineLogicalRecv, |_, _| 1.5);
    let all = |probes: &[CompletionProbe]| Incident::GlobalDataPathSlowdown {
        evidence: probes.iter().map(|&p| Evidence { probe: p.into(), index: 0 }).collect(),
    };
    let incidents = &diagnoser.clone().diagnose(&window).incidents.clone();
    assert_eq!(*incidents, [all(&[DispatchFinal, CombineLogicalRecv])]);

    slow_gateway(&mut window, |_, _| 1.4);
    let incidents = &diagnoser.clone().diagnose(&window).incidents.clone();
    assert_eq!(*incidents, [all(&CompletionProbe::ALL)]);

    // Combine alone is not enough.
    let mut window = healthy_window(ep16());
    slow(&mut window, CombineLogicalRecv, |_, _| 1.5);
    let incidents = &diagnoser.diagnose(&window).incidents;
    let evidence = vec![Evidence { probe: CombineLogicalRecv.into(), index: 0 }];
    assert_eq!(*incidents, [Incident::Unclassified { evidence }]);
}

#[test]
fn the_row_of_a_token_owner_in_dispatch_meets_its_column_in_combine() {
    let mut window = healthy_window(ep16());
    slow(&mut window, DispatchFinal, |s, _| if_slow(s == 3, 2.0));
    slow(&mut window, CombineLogicalRecv, |_, d| if_slow(d == 3, 1.8));
    let diagnosis = diagnose(&window);
    let [
        Incident::LocalizedDataPathSlowdown { owners, experts, node_pairs, edges, rails, evidence },
    ] = &diagnosis.incidents[..]
    else {
        panic!("{:?}", diagnosis.incidents)
    };
    assert_eq!(*owners, [3]);
    assert!(experts.is_empty() && node_pairs.is_empty() && edges.is_empty());
    // From node 0 to 1 in dispatch, from node 1 to 0 in combine: other rails.
    assert!(rails.is_empty());
    let index = |probe: CompletionProbe| Evidence { probe: probe.into(), index: 0 };
    assert_eq!(*evidence, [index(DispatchFinal), index(CombineLogicalRecv)]);
}

#[test]
fn the_column_of_an_expert_in_dispatch_meets_its_row_in_combine() {
    let mut window = healthy_window(ep16());
    slow(&mut window, DispatchFinal, |_, d| if_slow(d == 12, 2.0));
    slow(&mut window, CombineLogicalRecv, |s, _| if_slow(s == 12, 2.0));
    let diagnosis = diagnose(&window);
    let [Incident::LocalizedDataPathSlowdown { owners, experts, .. }] = &diagnosis.incidents[..]
    else {
        panic!("{:?}", diagnosis.incidents)
    };
    assert_eq!((owners.as_slice(), experts.as_slice()), (&[][..], &[12][..]));
}

#[test]
fn a_row_does_not_meet_a_column_that_it_crosses() {
    let mut window = healthy_window(ep16());
    slow(&mut window, DispatchFinal, |s, _| if_slow(s == 3, 2.0));
    // Source 12 of combine is expert 12.
    slow(&mut window, CombineLogicalRecv, |s, _| if_slow(s == 12, 2.0));
    assert_eq!(kinds(&diagnose(&window)), [IncidentKind::Unclassified]);
}

#[test]
fn rows_of_different_path_classes_do_not_meet() {
    let topology = ep16();
    let mut window = healthy_window(topology);
    slow(&mut window, DispatchFinal, |s, d| if_slow(s == 3 && topology.same_node(s, d), 2.0));
    slow(&mut window, CombineLogicalRecv, |s, d| if_slow(d == 3 && !topology.same_node(s, d), 2.0));
    assert_eq!(kinds(&diagnose(&window)), [IncidentKind::Unclassified]);
}

#[test]
fn a_point_meets_the_row_that_holds_it_and_the_same_point() {
    let mut window = healthy_window(ep16());
    slow(&mut window, DispatchFinal, |s, _| if_slow(s == 3, 2.0));
    // Owner 3, expert 9.
    slow(&mut window, CombineLogicalRecv, |s, d| if_slow((s, d) == (9, 3), 4.0));
    let diagnosis = diagnose(&window);
    let [Incident::LocalizedDataPathSlowdown { owners, edges, .. }] = &diagnosis.incidents[..]
    else {
        panic!("{:?}", diagnosis.incidents)
    };
    assert_eq!((owners.as_slice(), edges.as_slice()), (&[3][..], &[[3, 9]][..]));

    let mut window = healthy_window(ep16());
    slow(&mut window, DispatchFinal, |s, d| if_slow((s, d) == (3, 9), 4.0));
    slow(&mut window, CombineLogicalRecv, |s, d| if_slow((s, d) == (9, 3), 4.0));
    let diagnosis = diagnose(&window);
    let [Incident::LocalizedDataPathSlowdown { owners, edges, .. }] = &diagnosis.incidents[..]
    else {
        panic!("{:?}", diagnosis.incidents)
    };
    assert_eq!((owners.as_slice(), edges.as_slice()), (&[][..], &[[3, 9]][..]));
}

#[test]
fn a_block_is_named_from_owner_node_to_expert_node() {
    let topology = topology(32, 8);
    let mut window = healthy_window(topology);
    let from_to = |s, d| (topology.node(s), topology.node(d));
    slow(&mut window, DispatchFinal, |s, d| if_slow(from_to(s, d) == (1, 3), 1.6));
    slow(&mut window, CombineLogicalRecv, |s, d| if_slow(from_to(s, d) == (3, 1), 1.6));
    let diagnosis = diagnose(&window);
    let [Incident::LocalizedDataPathSlowdown { node_pairs, rails, .. }] = &diagnosis.incidents[..]
    else {
        panic!("{:?}", diagnosis.incidents)
    };
    assert_eq!(*node_pairs, [[1, 3]]);
    assert!(rails.is_empty());

    // The same direction in both: owners on node 1, then on node 3; only the rails are the same.
    slow(&mut window, CombineLogicalRecv, |s, d| if_slow(from_to(s, d) == (1, 3), 1.6));
    let diagnosis = diagnose(&window);
    let [Incident::LocalizedDataPathSlowdown { node_pairs, rails, .. }] = &diagnosis.incidents[..]
    else {
        panic!("{:?}", diagnosis.incidents)
    };
    assert!(node_pairs.is_empty());
    let expected: Vec<_> = (0..8).map(|local| [local, 1, 3]).collect();
    assert_eq!(*rails, expected);
}

#[test]
fn the_send_side_of_one_nic_is_one_rail_in_dispatch_and_combine() {
    // Two nodes: rank 0 sends slowly to the other node, as token owner 0 in dispatch and as the
    // gateway of local index 0 in combine, where rank 8 owns the tokens.
    let topology = ep16();
    let mut window = healthy_window(topology);
    slow(&mut window, DispatchFinal, |s, d| if_slow(s == 0 && d >= 8, 2.0));
    slow(&mut window, CombineLogicalRecv, |s, d| if_slow(d == 8 && s < 8, 2.0));
    slow_gateway(&mut window, |s, d| if_slow((s, d) == (0, 8), 2.0));
    let diagnosis = diagnose(&window);
    let [Incident::LocalizedDataPathSlowdown { owners, experts, rails, evidence, .. }] =
        &diagnosis.incidents[..]
    else {
        panic!("{:?}", diagnosis.incidents)
    };
    assert!(owners.is_empty() && experts.is_empty());
    assert_eq!(*rails, [[0, 0, 1]]);
    // The gateway edge 0 -> 8 lies in the direction of the rail.
    let index = |probe: CompletionProbe| Evidence { probe: probe.into(), index: 0 };
    assert_eq!(*evidence, CompletionProbe::ALL.map(index));
}

#[test]
fn rails_of_four_nodes_meet_a_rail_but_not_a_whole_row() {
    let topology = topology(32, 8);
    let mut window = healthy_window(topology);
    // Local index 2 from node 1 to node 3, in both.
    slow(&mut window, DispatchFinal, |s, d| if_slow(s == 10 && topology.node(d) == 3, 2.0));
    slow(&mut window, CombineLogicalRecv, |s, d| if_slow(d == 26 && topology.node(s) == 1, 2.0));
    let diagnosis = diagnose(&window);
    let [Incident::LocalizedDataPathSlowdown { rails, owners, .. }] = &diagnosis.incidents[..]
    else {
        panic!("{:?}", diagnosis.incidents)
    };
    assert_eq!((rails.as_slice(), owners.as_slice()), (&[[2, 1, 3]][..], &[][..]));

    // Row 10 on all rails and column 26 on all: they share one of three.
    let inter = |s, d| !topology.same_node(s, d);
    slow(&mut window, DispatchFinal, |s, d| if_slow(s == 10 && inter(s, d), 2.0));
    slow(&mut window, CombineLogicalRecv, |s, d| if_slow(d == 26 && inter(s, d), 2.0));
    assert_eq!(kinds(&diagnose(&window)), [IncidentKind::Unclassified]);
}

#[test]
fn a_gateway_elsewhere_supports_nothing() {
    let topology = topology(32, 8);
    let mut window = healthy_window(topology);
    slow(&mut window, DispatchFinal, |s, d| if_slow((s, d) == (3, 9), 4.0));
    slow(&mut window, CombineLogicalRecv, |s, d| if_slow((s, d) == (9, 3), 4.0));
    let support = |window: &Window| {
        let diagnosis = diagnose(window);
        assert_eq!(report(&diagnosis, DispatchRdmaRecv).findings.len(), 1);
        let [Incident::LocalizedDataPathSlowdown { evidence, .. }] = &diagnosis.incidents[..]
        else {
            panic!("{:?}", diagnosis.incidents)
        };
        evidence.iter().filter(|evidence| evidence.probe == DispatchRdmaRecv.into()).count()
    };
    for (edge, supporting) in [((2, 10), 1), ((10, 2), 0), ((2, 18), 0)] {
        slow_gateway(&mut window, |s, d| if_slow((s, d) == edge, 4.0));
        assert_eq!(support(&window), supporting, "{edge:?}");
    }
    for (source, supporting) in [(5, 1), (13, 0)] {
        slow_gateway(&mut window, |s, _| if_slow(s == source, 2.0));
        assert_eq!(support(&window), supporting, "source gateway {source}");
    }
    for (destination, supporting) in [(13, 1), (5, 0)] {
        slow_gateway(&mut window, |_, d| if_slow(d == destination, 2.0));
        assert_eq!(support(&window), supporting, "destination gateway {destination}");
    }
}

/// What the only late rank of a probe is explained by.
fn explained(window: &Window, probe: NotifyProbe) -> Option<CompletionProbe> {
    match *only(&diagnose(window), probe) {
        Finding::LateRank { explained_by, .. } => explained_by,
        ref other => panic!("{other}"),
    }
}

/// Everybody waits 1,000 ns, and `late` 50: it is late by 950.
fn late_by_950(window: &mut Window, probe: NotifyProbe, late: usize) {
    set_waits(window, probe, |rank| if rank == late { 50 } else { 1_000 });
}

#[test]
fn a_rank_that_combine_took_longer_is_late_at_dispatch_because_of_it() {
    let mut window = healthy_window(ep16());
    late_by_950(&mut window, NotifyDispatch, 3);
    late_by_950(&mut window, CachedNotifyCombine, 3);
    // 20 % is no finding of the column, but 1,000 cycles: enough. Dispatch to rank 3 is not slow.
    slow(&mut window, CombineLogicalRecv, |_, d| if_slow(d == 3, 1.2));
    let diagnosis = diagnose(&window);
    assert!(report(&diagnosis, CombineLogicalRecv).findings.is_empty());
    assert_eq!(explained(&window, NotifyDispatch), Some(CombineLogicalRecv));
    assert_eq!(explained(&window, CachedNotifyCombine), None);
    let skew = Incident::PreStageArrivalSkew { probe: CachedNotifyCombine, ranks: vec![3] };
    assert_eq!(diagnosis.incidents, [skew]);
}

#[test]
fn half_of_the_lateness_explains_and_a_cycle_less_does_not() {
    for (cost, by) in [(5_475.0, Some(DispatchFinal)), (5_474.0, None)] {
        let mut window = healthy_window(ep16());
        late_by_950(&mut window, CachedNotifyCombine, 3);
        set_costs(&mut window, DispatchFinal, |s, d| match (s / 8, d / 8) {
            (a, b) if a == b => 1_000.0,
            _ if d == 3 => cost,
            _ => 5_000.0,
        });
        assert_eq!(explained(&window, CachedNotifyCombine), by, "{cost}");
        assert_eq!(diagnose(&window).incidents.is_empty(), by.is_some(), "{cost}");
    }
}

#[test]
fn a_clear_column_that_cannot_make_up_the_lateness_explains_nothing() {
    // As measured: 240,000 and 480,000 cycles, a column 10 % above the others, 1.5 ms of computation.
    let mut window = healthy_window(ep16());
    set_waits(&mut window, CachedNotifyCombine, |rank| if rank == 9 { 2_000 } else { 1_500_000 });
    set_costs(&mut window, DispatchFinal, |s, d| {
        let level = if s / 8 == d / 8 { 240_000.0 } else { 480_000.0 };
        level * if_slow(d == 9, 1.1)
    });
    let skew = Incident::PreStageArrivalSkew { probe: CachedNotifyCombine, ranks: vec![9] };
    assert_eq!(diagnose(&window).incidents, [skew]);
}

#[test]
fn a_rank_with_more_tokens_is_late_because_of_them() {
    // Rank 5 has three times the tokens, and its samples take three times as long, as load has it.
    let mut window = healthy_window(ep16());
    late_by_950(&mut window, CachedNotifyCombine, 5);
    set_cells(&mut window, DispatchFinal, |s, d| {
        let level = if s / 8 == d / 8 { 100.0 } else { 500.0 };
        let tokens = if d == 5 { 30.0 } else { 10.0 + ((s + d) % 4) as f64 };
        (level * tokens / 10.0, tokens)
    });
    let diagnosis = diagnose(&window);
    assert!(report(&diagnosis, DispatchFinal).findings.is_empty());
    assert_eq!(explained(&window, CachedNotifyCombine), Some(DispatchFinal));
    assert!(diagnosis.incidents.is_empty());
}

#[test]
fn other_late_ranks_stay_in_the_incident() {
    let mut window = healthy_window(ep16());
    set_waits(&mut window, NotifyDispatch, |rank| match rank {
        3 | 7 => 50,
        _ => 1_000,
    });
    slow(&mut window, CombineLogicalRecv, |_, d| if_slow(d == 3, 1.2));
    let skew = Incident::PreStageArrivalSkew { probe: NotifyDispatch, ranks: vec![7] };
    assert_eq!(diagnose(&window).incidents, [skew]);
}

#[test]
fn a_block_into_the_node_and_a_rail_of_combine_into_the_rank_explain() {
    let topology = topology(32, 8);
    let mut window = healthy_window(topology);
    late_by_950(&mut window, NotifyDispatch, 26);
    late_by_950(&mut window, CachedNotifyCombine, 26);
    for probe in [DispatchFinal, CombineLogicalRecv] {
        slow(&mut window, probe, |s, d| {
            if_slow((topology.node(s), topology.node(d)) == (1, 3), 1.6)
        });
    }
    assert_eq!(explained(&window, NotifyDispatch), Some(CombineLogicalRecv));
    assert_eq!(explained(&window, CachedNotifyCombine), Some(DispatchFinal));

    // A rail of combine ends at one rank. One of dispatch begins at one, and its tokens reach all
    // ranks of the node, rank 26 among them, by an eighth of the node's samples.
    slow(&mut window, DispatchFinal, |s, d| if_slow(s == 10 && topology.node(d) == 3, 1.6));
    slow(&mut window, CombineLogicalRecv, |s, d| if_slow(d == 26 && topology.node(s) == 1, 1.6));
    assert_eq!(explained(&window, NotifyDispatch), Some(CombineLogicalRecv));
    assert_eq!(explained(&window, CachedNotifyCombine), None);
}

#[test]
fn a_rank_without_completion_samples_is_not_explained() {
    let mut window = healthy_window(ep16());
    late_by_950(&mut window, CachedNotifyCombine, 3);
    set_costs(&mut window, DispatchFinal, |s, d| if d == 3 { 0.0 } else { healthy(ep16(), s, d) });
    assert_eq!(explained(&window, CachedNotifyCombine), None);
    set_costs(&mut window, DispatchFinal, |_, _| 0.0);
    assert_eq!(explained(&window, CachedNotifyCombine), None);
}

/// The changes of a series of windows, each with the given late rank.
fn changes(late_ranks: &[Option<usize>]) -> Vec<Vec<(IncidentState, Vec<usize>)>> {
    let mut diagnoser = diagnoser(ep16());
    late_ranks
        .iter()
        .map(|&rank| {
            let mut window = healthy_window(ep16());
            if let Some(rank) = rank {
                late(&mut window, NotifyDispatch, rank);
            }
            let tracker = &diagnoser.diagnose(&window).tracker;
            tracker
                .iter()
                .map(|TrackerChange { kind, state, probe, ranks }| {
                    assert_eq!(*kind, IncidentKind::PreStageArrivalSkew);
                    assert_eq!(*probe, Some(NotifyDispatch));
                    (*state, ranks.clone())
                })
                .collect()
        })
        .collect()
}

#[test]
fn an_incident_is_suspected_then_confirmed_then_cleared_and_told_once() {
    let seen = changes(&[Some(9), Some(9), Some(9), None, None, None, None]);
    let change = |state| vec![(state, vec![9])];
    assert_eq!(
        seen,
        [
            change(IncidentState::Suspected),
            change(IncidentState::Confirmed),
            vec![],
            vec![],
            vec![],
            change(IncidentState::Cleared),
            vec![],
        ]
    );
}

#[test]
fn two_of_the_last_three_windows_confirm_and_two_of_four_do_not() {
    let seen = changes(&[Some(9), None, Some(9)]);
    assert_eq!(seen[2], [(IncidentState::Confirmed, vec![9])]);
    let seen = changes(&[Some(9), None, None, Some(9), Some(9)]);
    assert_eq!(seen[3], []);
    assert_eq!(seen[4], [(IncidentState::Confirmed, vec![9])]);
}

#[test]
fn other_ranks_are_another_incident() {
    let seen = changes(&[Some(9), Some(4), Some(4), None]);
    assert_eq!(seen[1], [(IncidentState::Suspected, vec![4])]);
    assert_eq!(seen[2], [(IncidentState::Confirmed, vec![4])]);
    assert_eq!(seen[3], [(IncidentState::Cleared, vec![9])]);
}

#[test]
fn idle_and_refused_windows_do_not_count_for_an_incident() {
    let mut diagnoser = diagnoser(ep16());
    let mut window = healthy_window(ep16());
    late(&mut window, NotifyDispatch, 9);
    diagnoser.diagnose(&window);
    for _ in 0..5 {
        assert!(diagnoser.diagnose(&Window::empty(ep16())).tracker.is_empty());
        let other = Window::empty(topology(4, 4));
        assert!(diagnoser.diagnose(&other).tracker.is_empty());
    }
    let tracker = &diagnoser.diagnose(&window).tracker;
    assert_eq!(tracker[0].state, IncidentState::Confirmed);
}

#[test]
fn a_localized_incident_is_the_same_while_its_scope_overlaps() {
    let mut diagnoser = diagnoser(ep16());
    let mut states = Vec::new();
    for owner in [3, 3, 4] {
        let mut window = healthy_window(ep16());
        slow(&mut window, DispatchFinal, |s, _| if_slow(s == owner, 2.0));
        slow(&mut window, CombineLogicalRecv, |_, d| if_slow(d == owner, 2.0));
        states
            .push(diagnoser.diagnose(&window).tracker.iter().map(|c| c.state).collect::<Vec<_>>());
    }
    let one = |state| vec![state];
    use IncidentState::{Confirmed, Suspected};
    assert_eq!(states, [one(Suspected), one(Confirmed), one(Suspected)]);
}
