//! A real EP16 wait matrix: rank 4 is slow.

use deepxtrace_counters::Topology;
use deepxtrace_ll::{Arrival, LlDiagnoser, LlFinding, MeanRatioPolicy, Policy};
use ndarray::Array2;

fn matrix() -> Array2<i64> {
    let text = include_str!("../data/ll_ep16_wait_rank4_slow.txt");
    let cells: Vec<i64> = text.split_whitespace().map(|cell| cell.parse().unwrap()).collect();
    Array2::from_shape_vec((16, 16), cells).unwrap()
}

fn diagnoser() -> LlDiagnoser {
    let topology = Topology::new(16, 8).unwrap();
    LlDiagnoser::new(topology, MeanRatioPolicy::default(), Policy::default()).unwrap()
}

#[test]
fn the_mean_rule_finds_column_4_only() {
    let mut diagnoser = diagnoser();
    let matrix = matrix();
    let report = &diagnoser.diagnose(matrix.view()).unwrap().mean_ratio;
    assert_eq!(report.abnormal_cols.len(), 1);
    let column = report.abnormal_cols[0];
    assert_eq!(column.index, 4);
    assert_eq!(column.mean, 7_936_226_405.062_5);
    assert_eq!(column.ratio, 6.710_544_362_224_643);
    assert!(report.abnormal_rows.is_empty());
    assert!(report.abnormal_points.is_empty());
}

#[test]
fn the_topology_rule_finds_column_4_late_and_one_block() {
    let mut diagnoser = diagnoser();
    let matrix = matrix();
    let findings = &diagnoser.diagnose(matrix.view()).unwrap().topology.findings;
    let (mut columns, mut blocks) = (0, 0);
    for finding in findings {
        match *finding {
            LlFinding::Column { rank, ratio, arrival, .. } => {
                assert_eq!((rank, arrival), (4, Arrival::Late));
                assert!((81.35..81.45).contains(&ratio), "{ratio}");
                columns += 1;
            }
            LlFinding::NodeBlock { waiter_node, awaited_node, ratio, .. } => {
                assert_eq!((waiter_node, awaited_node), (1, 0));
                assert!((2.27..2.28).contains(&ratio), "{ratio}");
                blocks += 1;
            }
            ref other => panic!("{other}"),
        }
    }
    assert_eq!((columns, blocks), (1, 1));
}
