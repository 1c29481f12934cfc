//! Findings of the Completion probes, with values worked out by hand.

use deepxtrace_counters::Window;
use deepxtrace_normal::{Diagnoser, Finding, PathScope, Policy, ProbeStatus};

use crate::build::{
    CombineLogicalRecv, DispatchFinal, DispatchRdmaRecv, SAMPLES, assert_close, diagnoser, is_edge,
    only, report, set_cells, set_costs, topology,
};

/// With equal costs everywhere but at the fault, all noise is 0 and every score is `ln(ratio)` over
/// the floor of 1e-6.
fn floored_score(ratio: f64) -> f64 {
    ratio.ln() / 1e-6
}

#[test]
fn a_slow_row_in_one_node_of_eight() {
    let mut window = Window::empty(topology(8, 8));
    set_costs(&mut window, DispatchFinal, |s, _| if s == 3 { 1_500.0 } else { 1_000.0 });
    let mut diagnoser = diagnoser(window.topology());
    let diagnosis = diagnoser.diagnose(&window);
    let Finding::SourceRow { rank, path, ratio, score, excess_cycles } =
        *only(diagnosis, DispatchFinal)
    else {
        panic!("a row")
    };
    // Only intra-node cells exist, so their class is all there is.
    assert_eq!((rank, path), (3, PathScope::All));
    assert_close(ratio, 1.5);
    assert_close(score, floored_score(1.5));
    // Seven cells of 1,500 x 1,000 samples, a third of it too much.
    assert_close(excess_cycles, 7.0 * 1_500.0 * SAMPLES as f64 / 3.0);
    // The block's median is a healthy cell.
    let level = report(diagnosis, DispatchFinal).level.unwrap();
    assert_eq!(level.scalar, Some(1_000.0));
    assert_eq!((level.global_ratio, level.best_ratio), (None, None));
}

#[test]
fn the_score_of_a_row_is_its_distance_in_deviations_of_all_rows() {
    // Rows differ by powers of e^0.01: -3 to 3 hundredths, and one at 0.5.
    let steps = [-0.03, -0.02, -0.01, 0.0, 0.01, 0.02, 0.03, 0.5];
    let mut window = Window::empty(topology(8, 8));
    let level = 1_000_000.0;
    set_costs(&mut window, DispatchFinal, |s, _| level * f64::exp(steps[s]));
    let mut diagnoser = diagnoser(window.topology());
    let finding = only(diagnoser.diagnose(&window), DispatchFinal).clone();
    let Finding::SourceRow { rank: 7, ratio, score, .. } = finding else { panic!("{finding}") };
    // Median of the effects 0.005; distances .035 .025 .015 .005 .005 .015 .025 .495, their
    // median (.015 + .025) / 2.
    let mad = 1.4826 * 0.02;
    // Noise of a cell before effects are taken away: 56 cells at the same distances from the
    // median of all, 0.005, seven each: median of the distances (.015 + .025) / 2.
    let error = 1.2533 * (1.4826 * 0.02) / 7_f64.sqrt();
    assert!(error < mad);
    assert!((ratio - f64::exp(0.495)).abs() < 1e-6, "{ratio}");
    assert!((score - 0.495 / mad).abs() < 1e-4, "{score}");
}

#[test]
fn a_slow_column_between_nodes_only_names_its_path() {
    let topology = topology(16, 8);
    let mut window = Window::empty(topology);
    set_costs(&mut window, CombineLogicalRecv, |s, d| match topology.same_node(s, d) {
        true => 1_000.0,
        false if d == 12 => 8_000.0,
        false => 5_000.0,
    });
    let mut diagnoser = diagnoser(topology);
    let diagnosis = diagnoser.diagnose(&window);
    let Finding::DestinationColumn { rank: 12, path, ratio, excess_cycles, .. } =
        *only(diagnosis, CombineLogicalRecv)
    else {
        panic!("column 12")
    };
    assert_eq!(path, PathScope::InterNode);
    assert_close(ratio, 1.6);
    assert_close(excess_cycles, 8.0 * 8_000.0 * SAMPLES as f64 * 0.375);
    // Two blocks of 56 cells at 1,000 and two of 64 at 5,000.
    let scalar = report(diagnosis, CombineLogicalRecv).level.unwrap().scalar.unwrap();
    assert_close(scalar, (112.0 * 1_000.0 + 128.0 * 5_000.0) / 240.0);
}

#[test]
fn a_row_found_in_both_classes_has_the_larger_ratio_of_them() {
    let topology = topology(16, 8);
    let mut window = Window::empty(topology);
    set_costs(&mut window, DispatchFinal, |s, d| match (topology.same_node(s, d), s == 5) {
        (true, false) => 1_000.0,
        (true, true) => 1_400.0,
        (false, false) => 5_000.0,
        (false, true) => 10_000.0,
    });
    let mut diagnoser = diagnoser(topology);
    let Finding::SourceRow { rank: 5, path: PathScope::All, ratio, score, excess_cycles } =
        *only(diagnoser.diagnose(&window), DispatchFinal)
    else {
        panic!("row 5 on all paths")
    };
    assert_close(ratio, 2.0);
    assert_close(score, floored_score(2.0));
    let excess = (7.0 * 1_400.0 + 8.0 * 10_000.0) * SAMPLES as f64 * 0.5;
    assert_close(excess_cycles, excess);
}

#[test]
fn a_point_is_what_its_row_and_column_do_not_explain() {
    let topology = topology(16, 8);
    let mut window = Window::empty(topology);
    set_costs(&mut window, DispatchFinal, |s, d| {
        let level = if topology.same_node(s, d) { 1_000.0 } else { 5_000.0 };
        if (s, d) == (2, 11) { 2.5 * level } else { level }
    });
    let mut diagnoser = diagnoser(topology);
    let Finding::Point { src: 2, dst: 11, ratio, score, excess_cycles } =
        *only(diagnoser.diagnose(&window), DispatchFinal)
    else {
        panic!("point 2 -> 11")
    };
    assert_close(ratio, 2.5);
    assert_close(score, floored_score(2.5));
    assert_close(excess_cycles, 12_500.0 * SAMPLES as f64 * 0.6);
}

#[test]
fn a_node_block_is_compared_with_the_other_blocks_of_its_class() {
    let topology = topology(12, 4);
    let mut window = Window::empty(topology);
    set_costs(&mut window, DispatchFinal, |s, d| match (topology.node(s), topology.node(d)) {
        (a, b) if a == b => 1_000.0,
        (1, 2) => 6_500.0,
        (0, 1) => 4_800.0,
        _ => 5_000.0,
    });
    let mut diagnoser = diagnoser(topology);
    let Finding::NodeBlock { src_node: 1, dst_node: 2, ratio, score, excess_cycles } =
        *only(diagnoser.diagnose(&window), DispatchFinal)
    else {
        panic!("block 1 -> 2")
    };
    // The others are 4,800 and four times 5,000. Every block is its own reference, so the noise is 0.
    assert_close(ratio, 1.3);
    assert_close(score, floored_score(1.3));
    assert_close(excess_cycles, 16.0 * 6_500.0 * SAMPLES as f64 * (1.0 - 1.0 / 1.3));
}

#[test]
fn a_block_of_eight_cells_has_its_class_as_reference_and_is_not_judged() {
    // Node 2 has two ranks: blocks 0 -> 2 and 2 -> 0 have eight cells.
    let topology = topology(10, 4);
    let mut window = Window::empty(topology);
    set_costs(&mut window, DispatchFinal, |s, d| match (topology.node(s), topology.node(d)) {
        (a, b) if a == b => 1_000.0,
        (0, 2) => 15_000.0,
        _ => 5_000.0,
    });
    let mut diagnoser = diagnoser(topology);
    let findings = &report(diagnoser.diagnose(&window), DispatchFinal).findings;
    assert!(!findings.is_empty());
    assert!(
        !findings.iter().any(|finding| matches!(finding, Finding::NodeBlock { .. })),
        "{findings:?}"
    );
}

#[test]
fn a_rail_of_dispatch_is_a_part_of_a_row_and_one_of_combine_a_part_of_a_column() {
    // On three nodes half of the row would be slow, and the row would take half of the effect.
    let topology = topology(16, 4);
    for (probe, slow) in [(DispatchFinal, (5, 2)), (CombineLogicalRecv, (9, 1))] {
        let mut window = Window::empty(topology);
        set_costs(&mut window, probe, |s, d| {
            // Local index 1, from node 1 to node 2.
            let on_rail = match probe {
                DispatchFinal => (s, topology.node(d)) == slow,
                _ => (d, topology.node(s)) == slow,
            };
            let level = if topology.same_node(s, d) { 1_000.0 } else { 5_000.0 };
            if on_rail { 1.5 * level } else { level }
        });
        let mut diagnoser = diagnoser(topology);
        let Finding::Rail { local_index: 1, src_node: 1, dst_node: 2, ratio, score, excess_cycles } =
            *only(diagnoser.diagnose(&window), probe)
        else {
            panic!("the rail")
        };
        assert_close(ratio, 1.5);
        assert_close(score, floored_score(1.5));
        assert_close(excess_cycles, 4.0 * 7_500.0 * SAMPLES as f64 / 3.0);
    }
}

#[test]
fn two_nodes_have_no_rails() {
    let topology = topology(16, 8);
    let mut window = Window::empty(topology);
    set_costs(&mut window, DispatchFinal, |s, d| {
        let level = if topology.same_node(s, d) { 1_000.0 } else { 5_000.0 };
        if s == 5 && d >= 8 { 1.5 * level } else { level }
    });
    let mut diagnoser = diagnoser(topology);
    let finding = only(diagnoser.diagnose(&window), DispatchFinal);
    assert!(
        matches!(finding, Finding::SourceRow { rank: 5, path: PathScope::InterNode, .. }),
        "{finding}"
    );
}

#[test]
fn gateway_axes_and_edges_of_four_nodes() {
    let topology = topology(16, 4);
    let mut window = Window::empty(topology);
    set_costs(&mut window, DispatchRdmaRecv, |s, d| match (s, d) {
        (s, d) if !is_edge(topology, s, d) => 0.0,
        (6, _) => 9_600.0,
        (1, 9) => 20_000.0,
        _ => 8_000.0,
    });
    let mut diagnoser = diagnoser(topology);
    let diagnosis = diagnoser.diagnose(&window);
    let findings = &report(diagnosis, DispatchRdmaRecv).findings;
    // 1.2x is no finding; taken away with the row, it does not hide the edge.
    let [Finding::GatewayEdge { src: 1, dst: 9, ratio, .. }] = findings[..] else {
        panic!("{findings:?}")
    };
    assert_close(ratio, 2.5);
    assert_eq!(report(diagnosis, DispatchRdmaRecv).level.unwrap().scalar, Some(8_000.0));

    set_costs(&mut window, DispatchRdmaRecv, |s, d| match (s, d) {
        (s, d) if !is_edge(topology, s, d) => 0.0,
        (_, 3) => 12_000.0,
        _ => 8_000.0,
    });
    let Finding::DestinationGateway { rank: 3, path: PathScope::All, ratio, excess_cycles, .. } =
        *only(diagnoser.diagnose(&window), DispatchRdmaRecv)
    else {
        panic!("gateway 3")
    };
    assert_close(ratio, 1.5);
    assert_close(excess_cycles, 3.0 * 4_000.0 * SAMPLES as f64);
}

#[test]
fn an_edge_of_two_nodes_needs_less_for_want_of_axes() {
    // The root of 1.25 x 2 is 1.5811.
    for (factor, found) in [(1.59, true), (1.57, false)] {
        let topology = topology(16, 8);
        let mut window = Window::empty(topology);
        set_costs(&mut window, DispatchRdmaRecv, |s, d| match (s, d) {
            (s, d) if !is_edge(topology, s, d) => 0.0,
            (4, 12) => 8_000.0 * factor,
            _ => 8_000.0,
        });
        let mut diagnoser = diagnoser(topology);
        let report = report(diagnoser.diagnose(&window), DispatchRdmaRecv);
        assert_eq!(report.status == ProbeStatus::Anomalous, found, "{factor}");
    }
}

#[test]
fn cells_without_cost_or_samples_and_the_diagonal_are_left_out() {
    let mut window = Window::empty(topology(4, 8));
    set_costs(&mut window, DispatchFinal, |s, d| if s == d { 9e9 } else { 1_000.0 });
    // No samples with a cost, and no cost with samples.
    window.edit_completion(DispatchFinal, |delta| {
        (delta.cost[[0, 1]], delta.samples[[0, 1]]) = (1 << 40, 0);
        (delta.cost[[1, 2]], delta.samples[[1, 2]]) = (0, 5);
    });
    let mut diagnoser = diagnoser(window.topology());
    let report = report(diagnoser.diagnose(&window), DispatchFinal);
    assert_eq!(report.status, ProbeStatus::Ok);
    assert_eq!(report.level.unwrap().scalar, Some(1_000.0));
}

#[test]
fn the_load_step_takes_the_cost_of_tokens_away_and_can_be_turned_off() {
    // Costs are tokens x 100: a slope of 1. Rank 6 has four times the tokens: nobody is slow.
    let topology = topology(8, 8);
    let mut window = Window::empty(topology);
    let tokens = |s: usize, d: usize| (if d == 6 { 40.0 } else { 10.0 }) + ((3 * s + d) % 5) as f64;
    set_cells(&mut window, DispatchFinal, |s, d| (100.0 * tokens(s, d), tokens(s, d)));
    let mut adjusting = diagnoser(topology);
    let adjusted = report(adjusting.diagnose(&window), DispatchFinal);
    assert_eq!(adjusted.status, ProbeStatus::Ok);
    // Every cell at the median load of 12 tokens.
    assert_close(adjusted.level.unwrap().scalar.unwrap(), 1_200.0);

    let policy = Policy { load_adjust: false, ..Policy::default() };
    let mut plain = Diagnoser::new(topology, policy).unwrap();
    let findings = &report(plain.diagnose(&window), DispatchFinal).findings;
    assert!(
        findings.iter().any(|f| matches!(f, Finding::DestinationColumn { rank: 6, .. })),
        "{findings:?}"
    );
}

#[test]
fn the_load_of_the_first_learned_window_stays_the_typical_one() {
    // Twice the tokens in the second window, twice the cost: at equal load nothing changed.
    let topology = topology(8, 8);
    let mut diagnoser = diagnoser(topology);
    let mut window = Window::empty(topology);
    for factor in [1.0, 1.0, 1.0, 2.0] {
        let tokens = |s: usize, d: usize| factor * (10.0 + ((3 * s + d) % 5) as f64);
        set_cells(&mut window, DispatchFinal, |s, d| (100.0 * tokens(s, d), tokens(s, d)));
        let level = report(diagnoser.diagnose(&window), DispatchFinal).level.unwrap();
        assert_close(level.scalar.unwrap(), 1_200.0);
    }
}
