//! The topology-aware rule, with values worked out by hand.

use deepxtrace_counters::Topology;
use deepxtrace_ll::{
    Arrival, LlDiagnoser, LlFinding, LlRuleError, MeanRatioPolicy, PathScope, Policy, topology_rule,
};
use ndarray::Array2;
use proptest::prelude::*;

fn topology(ep_size: usize, ranks_per_node: usize) -> Topology {
    Topology::new(ep_size, ranks_per_node).unwrap()
}

fn findings(topology: Topology, wait: impl Fn(usize, usize) -> i64) -> Vec<LlFinding> {
    let n = topology.ep_size();
    let matrix = Array2::from_shape_fn((n, n), |(i, j)| wait(i, j));
    topology_rule(matrix.view(), topology, &Policy::default()).unwrap().findings
}

fn healthy(topology: Topology, i: usize, j: usize) -> i64 {
    if topology.same_node(i, j) { 1_000 } else { 200_000 }
}

#[track_caller]
fn close(ours: f64, expected: f64) {
    assert!((ours / expected - 1.0).abs() < 1e-9, "{ours} instead of {expected}");
}

#[test]
fn a_slow_path_in_a_node_is_seen_next_to_much_longer_waits() {
    // Ten times its peers, and a twentieth of an inter-node wait: no mean over all sees it.
    let topology = topology(16, 8);
    let found =
        findings(topology, |i, j| if (i, j) == (2, 5) { 10_000 } else { healthy(topology, i, j) });
    let [LlFinding::Point { waiter: 2, awaited: 5, ratio, score }] = found[..] else {
        panic!("{found:?}")
    };
    close(ratio, 10.0);
    close(score, 10_f64.ln() / 1e-6);
}

#[test]
fn a_third_of_all_columns_being_slow_does_not_hide_them() {
    let topology = topology(12, 12);
    let found = findings(topology, |_, j| if j % 3 == 0 { 8_000 } else { 1_000 });
    let columns: Vec<usize> = found
        .iter()
        .map(|finding| match *finding {
            LlFinding::Column { rank, path: PathScope::All, ratio, arrival, .. } => {
                close(ratio, 8.0);
                assert_eq!(arrival, Arrival::Unknown);
                rank
            }
            ref other => panic!("{other}"),
        })
        .collect();
    assert_eq!(columns, [0, 3, 6, 9]);
}

#[test]
fn a_rank_that_waits_for_nobody_arrives_late() {
    let topology = topology(16, 8);
    // Eight rows of node 0 wait longer for rank 12 than seven of node 1: the median of the 15.
    let others = (7.0 * 1_000.0 + 7.0 * 200_000.0 + 2_000_000.0) / 15.0;
    // Own row: 7 cells of x and 8 of 200 x, 15 in all. Below, then above a quarter.
    let share = |x: f64| (7.0 * x + 8.0 * 200.0 * x) / 15.0 / others;
    for x in [500.0, 560.0] {
        let found = findings(topology, |i, j| {
            if i == 12 {
                healthy(topology, i, j) / 1_000 * x as i64
            } else if j == 12 {
                10 * healthy(topology, i, j)
            } else {
                healthy(topology, i, j)
            }
        });
        let expected = if share(x) <= 0.25 { Arrival::Late } else { Arrival::Unknown };
        let arrival = found.iter().find_map(|finding| match *finding {
            LlFinding::Column { rank: 12, arrival, .. } => Some(arrival),
            _ => None,
        });
        assert_eq!(arrival, Some(expected), "{found:?}");
    }
    assert!(share(500.0) <= 0.25 && share(560.0) > 0.25);
}

#[test]
fn a_rank_without_waits_of_its_own_is_unknown() {
    let topology = topology(8, 8);
    let found = findings(topology, |i, j| match (i, j) {
        (3, _) => 0,
        (_, 3) => 9_000,
        _ => 1_000,
    });
    assert!(
        matches!(found[..], [LlFinding::Column { rank: 3, arrival: Arrival::Unknown, .. }]),
        "{found:?}"
    );
}

#[test]
fn a_waiter_between_nodes_names_its_path_and_a_block_its_nodes() {
    let topology = topology(24, 8);
    let found = findings(topology, |i, j| {
        let slow = i == 9 && !topology.same_node(i, j);
        healthy(topology, i, j) * if slow { 3 } else { 1 }
    });
    let [LlFinding::Row { rank: 9, path: PathScope::InterNode, ratio, .. }] = found[..] else {
        panic!("{found:?}")
    };
    close(ratio, 3.0);

    let found = findings(topology, |i, j| {
        let slow = (topology.node(i), topology.node(j)) == (2, 0);
        healthy(topology, i, j) * if slow { 2 } else { 1 }
    });
    let [LlFinding::NodeBlock { waiter_node: 2, awaited_node: 0, ratio, .. }] = found[..] else {
        panic!("{found:?}")
    };
    close(ratio, 2.0);
}

#[test]
fn a_rail_is_no_kind_of_finding_here() {
    let topology = topology(32, 8);
    let found = findings(topology, |i, j| {
        let slow = i == 2 && topology.node(j) == 3;
        healthy(topology, i, j) * if slow { 3 } else { 1 }
    });
    // Without rails they are eight slow paths.
    assert_eq!(found.len(), 8);
    assert!(found.iter().all(|finding| matches!(finding, LlFinding::Point { waiter: 2, .. })));
}

#[test]
fn what_costs_most_stands_first() {
    let topology = topology(16, 8);
    let found = findings(topology, |i, j| match (i, j) {
        (1, 2) => 50_000,
        (3, 12) => 900_000,
        (4, 13) => 900_000,
        (5, 9) => 1_900_000,
        _ => healthy(topology, i, j),
    });
    let points: Vec<(usize, usize)> = found
        .iter()
        .map(|finding| match *finding {
            LlFinding::Point { waiter, awaited, .. } => (waiter, awaited),
            ref other => panic!("{other}"),
        })
        .collect();
    assert_eq!(points, [(5, 9), (3, 12), (4, 13), (1, 2)]);
}

#[test]
fn fewer_than_three_waits_the_diagonal_and_zeros_say_nothing() {
    assert!(findings(topology(1, 8), |_, _| 5).is_empty());
    assert!(findings(topology(2, 8), |i, j| if i < j { 9_000 } else { 1 }).is_empty());
    assert!(findings(topology(8, 8), |i, j| if i == j { 1 << 40 } else { 1_000 }).is_empty());
    assert!(findings(topology(8, 8), |_, _| 0).is_empty());
}

#[test]
fn a_matrix_that_does_not_fit_and_bad_thresholds_are_refused() {
    let group = topology(4, 2);
    let matrix = Array2::<i64>::zeros((4, 5));
    let error = topology_rule(matrix.view(), group, &Policy::default()).unwrap_err();
    assert!(matches!(error, LlRuleError::Shape(_)));
    assert_eq!(error.to_string(), "wait matrix is 4 x 5, EP size 4 needs 4 x 4");
    let policy = Policy { axis_ratio: 0.5, ..Policy::default() };
    let square = Array2::zeros((4, 4));
    let error = topology_rule(square.view(), group, &policy).unwrap_err();
    assert_eq!(error.to_string(), "axis_ratio is 0.5, it must be a finite number above 1");
    let mut diagnoser =
        LlDiagnoser::new(group, MeanRatioPolicy::default(), Policy::default()).unwrap();
    assert!(diagnoser.diagnose(matrix.view()).is_err());
    assert_eq!(diagnoser.diagnose(square.view()).unwrap().shape, [4, 4]);
    assert!(LlDiagnoser::new(group, MeanRatioPolicy::default(), policy).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_matrix_panics_and_a_used_diagnoser_says_the_same(
        ep_size in 1..12_usize,
        ranks_per_node in 1..9_usize,
        cells in prop::collection::vec(prop_oneof![any::<i64>(), Just(0), 1..1_000_i64], 121),
    ) {
        let topology = topology(ep_size, ranks_per_node);
        let cells = cells[..ep_size * ep_size].to_vec();
        let matrix = Array2::from_shape_vec((ep_size, ep_size), cells).unwrap();
        let mut diagnoser =
            LlDiagnoser::new(topology, MeanRatioPolicy::default(), Policy::default()).unwrap();
        diagnoser.diagnose(Array2::from_elem((ep_size, ep_size), 3).view()).unwrap();
        let report = diagnoser.diagnose(matrix.view()).unwrap();
        let alone = topology_rule(matrix.view(), topology, &Policy::default()).unwrap();
        prop_assert_eq!(&report.topology, &alone);
        let text = serde_json::to_string(&report).unwrap();
        prop_assert!(!text.contains("null"), "{}", text);
    }
}
