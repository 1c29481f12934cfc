//! The mean-ratio rule, with values worked out by hand.

use deepxtrace_ll::{AbnormalAxis, AbnormalPoint, MeanRatioPolicy, MeanRatioRule, mean_ratio};
use ndarray::{Array2, array};
use proptest::prelude::*;

fn default() -> MeanRatioPolicy {
    MeanRatioPolicy::default()
}

/// What NumPy gives for the rule: means in floating point, cell by cell.
fn slow_rule(
    matrix: &Array2<i64>,
    policy: &MeanRatioPolicy,
) -> (Vec<usize>, Vec<usize>, Vec<(usize, usize)>) {
    let value = matrix.mapv(|cell| cell as f64);
    let mean = |values: Vec<f64>| values.iter().sum::<f64>() / values.len() as f64;
    let axis = |means: Vec<f64>, threshold: f64| {
        let all = mean(means.clone()) + 1e-8;
        (0..means.len()).filter(|&i| means[i] / all > threshold).collect::<Vec<_>>()
    };
    let columns =
        axis(value.columns().into_iter().map(|c| mean(c.to_vec())).collect(), policy.threshold_col);
    let rows =
        axis(value.rows().into_iter().map(|r| mean(r.to_vec())).collect(), policy.threshold_row);
    let cells: Vec<f64> =
        value.iter().copied().filter(|&v| v != 0.0 || !policy.excluding_zeros).collect();
    let all = if cells.is_empty() { 1.0 } else { mean(cells) + 1e-8 };
    let points = value
        .indexed_iter()
        .filter(|&((i, j), &v)| {
            let hidden = rows.contains(&i) || columns.contains(&j);
            v / all > policy.threshold_point && (policy.keep_points || !hidden)
        })
        .map(|(at, _)| at)
        .collect();
    (columns, rows, points)
}

#[test]
fn a_column_a_row_and_a_point() {
    // 5 x 5 of ones. Column 1 all 40: column means 1, 40, 1, 1, 1, their mean 8.8.
    let mut matrix = Array2::from_elem((5, 5), 1_i64);
    matrix.column_mut(1).fill(40);
    let report = mean_ratio(matrix.view(), &default()).unwrap();
    let expected = AbnormalAxis { index: 1, mean: 40.0, ratio: 40.0 / (8.8 + 1e-8) };
    assert_eq!(report.abnormal_cols, [expected]);
    // Rows are all alike, and the cells of column 1 are at 4.5 times the mean of 8.8.
    assert!(report.abnormal_rows.is_empty() && report.abnormal_points.is_empty());

    let report = mean_ratio(matrix.t(), &default()).unwrap();
    assert_eq!(report.abnormal_rows, [expected]);
    assert!(report.abnormal_cols.is_empty() && report.abnormal_points.is_empty());

    // One cell of 51 in 25: the mean of all is 3; column 3 has the mean 11, 3.67 times the mean.
    let mut matrix = Array2::from_elem((5, 5), 1_i64);
    matrix[[2, 3]] = 51;
    let hidden = mean_ratio(matrix.view(), &default()).unwrap();
    assert_eq!((hidden.abnormal_cols.len(), hidden.abnormal_rows.len()), (1, 1));
    assert!(hidden.abnormal_points.is_empty());
    let policy = MeanRatioPolicy { keep_points: true, ..default() };
    let point = AbnormalPoint { row: 2, col: 3, value: 51, ratio: 51.0 / (3.0 + 1e-8) };
    assert_eq!(mean_ratio(matrix.view(), &policy).unwrap().abnormal_points, [point]);
    // With higher thresholds for rows and columns it stands alone.
    let policy = MeanRatioPolicy { threshold_col: 4.0, threshold_row: 4.0, ..default() };
    assert_eq!(mean_ratio(matrix.view(), &policy).unwrap().abnormal_points, [point]);
}

#[test]
fn a_ratio_at_the_threshold_is_not_above_it() {
    // Column means 6, 1, 1, 0: mean 2, so column 0 is at 3 less a trifle.
    let matrix = array![[6, 1, 1, 0], [6, 1, 1, 0]];
    assert!(mean_ratio(matrix.view(), &default()).unwrap().abnormal_cols.is_empty());
    let matrix = array![[7, 1, 1, 0], [6, 1, 1, 0]];
    assert_eq!(mean_ratio(matrix.view(), &default()).unwrap().abnormal_cols.len(), 1);
}

#[test]
fn zeros_can_be_left_out_of_the_mean_of_points() {
    // Two sixes, one 40, the rest 0: mean of all 3.25 of 16, of the three 17.3.
    let mut matrix = Array2::from_elem((4, 4), 0_i64);
    (matrix[[0, 0]], matrix[[1, 1]], matrix[[2, 2]]) = (6, 6, 40);
    let keep = MeanRatioPolicy { keep_points: true, ..default() };
    let with = mean_ratio(matrix.view(), &keep).unwrap();
    assert_eq!(with.abnormal_points.len(), 1);
    assert_eq!(with.abnormal_points[0].ratio, 40.0 / (52.0 / 16.0 + 1e-8));
    let policy = MeanRatioPolicy { excluding_zeros: true, threshold_point: 2.0, ..keep };
    let without = mean_ratio(matrix.view(), &policy).unwrap();
    assert_eq!(without.abnormal_points.len(), 1);
    assert_eq!(without.abnormal_points[0].ratio, 40.0 / (52.0 / 3.0 + 1e-8));
}

#[test]
fn zeros_and_nothing_at_all_give_nothing() {
    for policy in [default(), MeanRatioPolicy { excluding_zeros: true, ..default() }] {
        for shape in [(0, 0), (0, 3), (1, 1), (16, 16)] {
            let report = mean_ratio(Array2::zeros(shape).view(), &policy).unwrap();
            assert!(report.is_empty(), "{shape:?}");
        }
    }
}

#[test]
fn means_of_the_largest_waits_do_not_overflow() {
    let mut matrix = Array2::from_elem((64, 64), i64::MAX / 16);
    matrix.column_mut(9).fill(i64::MAX);
    let report = mean_ratio(matrix.view(), &default()).unwrap();
    assert_eq!(report.abnormal_cols.len(), 1);
    let column = report.abnormal_cols[0];
    assert_eq!((column.index, column.mean), (9, i64::MAX as f64));
    let all = (63.0 / 16.0 + 1.0) / 64.0;
    assert!((column.ratio * all - 1.0).abs() < 1e-12);
    // And a negative wait, which only a file can hold, is a number like others.
    matrix[[0, 0]] = -1;
    assert_eq!(mean_ratio(matrix.view(), &default()).unwrap().abnormal_cols.len(), 1);
}

#[test]
fn a_threshold_that_is_no_number_above_zero_is_refused() {
    for (policy, message) in [
        (
            MeanRatioPolicy { threshold_col: 0.0, ..default() },
            "threshold_col is 0, it must be a finite number above 0",
        ),
        (
            MeanRatioPolicy { threshold_row: f64::NAN, ..default() },
            "threshold_row is NaN, it must be a finite number above 0",
        ),
        (
            MeanRatioPolicy { threshold_point: f64::INFINITY, ..default() },
            "threshold_point is inf, it must be a finite number above 0",
        ),
    ] {
        let error = mean_ratio(Array2::zeros((2, 2)).view(), &policy).unwrap_err();
        assert_eq!(error.to_string(), message);
        assert!(MeanRatioRule::new(policy).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn indices_are_those_of_the_slow_rule(
        rows in 1..20_usize,
        columns in 1..20_usize,
        cells in prop::collection::vec(prop_oneof![3 => 0..40_i64, 1 => 0..1_000_i64, 1 => Just(0)], 400),
        scale in prop_oneof![Just(1_i64), Just(1 << 20), Just(1 << 52)],
        excluding_zeros in any::<bool>(),
        keep_points in any::<bool>(),
        turned in any::<bool>(),
    ) {
        let policy = MeanRatioPolicy { excluding_zeros, keep_points, ..default() };
        let cells = cells[..rows * columns].iter().map(|cell| cell * scale).collect();
        let matrix = Array2::from_shape_vec((rows, columns), cells).unwrap();
        // The same in memory that is not in row order.
        let stored = if turned { matrix.t().as_standard_layout().to_owned() } else { matrix.clone() };
        let view = if turned { stored.t() } else { stored.view() };
        let mut rule = MeanRatioRule::new(policy).unwrap();
        // Memory of another matrix must not show.
        rule.diagnose(Array2::from_elem((3, 30), 7).view());
        let report = rule.diagnose(view);
        let (columns, rows, points) = slow_rule(&matrix, &policy);
        prop_assert_eq!(report.abnormal_cols.iter().map(|a| a.index).collect::<Vec<_>>(), columns);
        prop_assert_eq!(report.abnormal_rows.iter().map(|a| a.index).collect::<Vec<_>>(), rows);
        prop_assert_eq!(report.abnormal_points.iter().map(|p| (p.row, p.col)).collect::<Vec<_>>(), points);
        for point in &report.abnormal_points {
            prop_assert_eq!(point.value, matrix[[point.row, point.col]]);
        }
    }

    #[test]
    fn any_matrix_has_finite_ratios(
        rows in 1..6_usize,
        cells in prop::collection::vec(any::<i64>(), 30),
    ) {
        let matrix = Array2::from_shape_vec((rows, 5), cells[..rows * 5].to_vec()).unwrap();
        let report = mean_ratio(matrix.view(), &default()).unwrap();
        let ratios = report.abnormal_cols.iter().chain(&report.abnormal_rows).map(|axis| axis.ratio);
        let points = report.abnormal_points.iter().map(|point| point.ratio);
        prop_assert!(ratios.chain(points).all(f64::is_finite));
    }
}
