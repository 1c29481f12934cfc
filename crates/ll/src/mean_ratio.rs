//! The mean-ratio rule, compatible with the Python original.

use deepxtrace_normal::PolicyError;
use ndarray::ArrayView2;
use serde::{Deserialize, Serialize};

/// Added to every denominator.
const EPSILON: f64 = 1e-8;

/// Thresholds of the mean-ratio rule. A ratio must be above its threshold, not equal to it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MeanRatioPolicy {
    /// A column's mean over the mean of column means (3.0).
    pub threshold_col: f64,
    /// A row's mean over the mean of row means (3.0).
    pub threshold_row: f64,
    /// A cell over the mean of all cells (5.0).
    pub threshold_point: f64,
    /// Leave zero cells out of the mean that points are compared with (false).
    pub excluding_zeros: bool,
    /// Also list the points in abnormal rows and columns (false).
    pub keep_points: bool,
}

impl Default for MeanRatioPolicy {
    fn default() -> Self {
        Self {
            threshold_col: 3.0,
            threshold_row: 3.0,
            threshold_point: 5.0,
            excluding_zeros: false,
            keep_points: false,
        }
    }
}

impl MeanRatioPolicy {
    /// Checks every threshold.
    ///
    /// # Errors
    ///
    /// The first threshold that is not a finite number above 0, in the order of the fields.
    pub fn validate(&self) -> Result<(), PolicyError> {
        let thresholds = [
            ("threshold_col", self.threshold_col),
            ("threshold_row", self.threshold_row),
            ("threshold_point", self.threshold_point),
        ];
        match thresholds.into_iter().find(|(_, value)| !(value.is_finite() && *value > 0.0)) {
            Some((name, value)) => {
                Err(PolicyError { name, value, allowed: "a finite number above 0" })
            }
            None => Ok(()),
        }
    }
}

/// A row or column above its threshold; as JSON `[index, mean, ratio]`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(from = "(usize, f64, f64)", into = "(usize, f64, f64)")]
pub struct AbnormalAxis {
    /// The row (waiter) or column (awaited).
    pub index: usize,
    /// Its mean, cycles.
    pub mean: f64,
    /// Its mean over the mean of all means.
    pub ratio: f64,
}

impl From<(usize, f64, f64)> for AbnormalAxis {
    fn from((index, mean, ratio): (usize, f64, f64)) -> Self {
        Self { index, mean, ratio }
    }
}

impl From<AbnormalAxis> for (usize, f64, f64) {
    fn from(axis: AbnormalAxis) -> Self {
        (axis.index, axis.mean, axis.ratio)
    }
}

/// A cell above its threshold; as JSON `[row, col, value, ratio]`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(from = "(usize, usize, i64, f64)", into = "(usize, usize, i64, f64)")]
pub struct AbnormalPoint {
    /// The waiter.
    pub row: usize,
    /// The awaited.
    pub col: usize,
    /// The wait, cycles.
    pub value: i64,
    /// The wait over the mean of all cells.
    pub ratio: f64,
}

impl From<(usize, usize, i64, f64)> for AbnormalPoint {
    fn from((row, col, value, ratio): (usize, usize, i64, f64)) -> Self {
        Self { row, col, value, ratio }
    }
}

impl From<AbnormalPoint> for (usize, usize, i64, f64) {
    fn from(point: AbnormalPoint) -> Self {
        (point.row, point.col, point.value, point.ratio)
    }
}

/// What the mean-ratio rule found; rows and columns by index, points by row, then column.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MeanRatioReport {
    /// Awaited ranks that everyone waits for.
    pub abnormal_cols: Vec<AbnormalAxis>,
    /// Waiters that wait for everyone.
    pub abnormal_rows: Vec<AbnormalAxis>,
    /// Single waits.
    pub abnormal_points: Vec<AbnormalPoint>,
}

impl MeanRatioReport {
    /// Whether nothing was found.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.abnormal_cols.is_empty()
            && self.abnormal_rows.is_empty()
            && self.abnormal_points.is_empty()
    }
}

/// The mean-ratio rule, with memory that is kept between matrices.
#[derive(Debug, Clone, Default)]
pub(crate) struct MeanRatio {
    columns: Vec<f64>,
    rows: Vec<f64>,
}

impl MeanRatio {
    /// Fills `report` from `matrix` `[waiter, awaited]`, of any shape.
    pub(crate) fn diagnose(
        &mut self,
        matrix: ArrayView2<'_, i64>,
        policy: &MeanRatioPolicy,
        report: &mut MeanRatioReport,
    ) {
        report.abnormal_cols.clear();
        report.abnormal_rows.clear();
        report.abnormal_points.clear();
        if matrix.is_empty() {
            return;
        }
        let (waiters, awaited) = matrix.dim();
        self.columns.clear();
        self.columns.resize(awaited, 0.0);
        self.rows.clear();
        let (mut total, mut non_zero) = (0.0, 0_usize);
        for row in matrix.rows() {
            let mut sum = 0.0;
            for (column, &cell) in self.columns.iter_mut().zip(row) {
                let value = cell as f64;
                *column += value;
                sum += value;
                non_zero += usize::from(cell != 0);
            }
            self.rows.push(sum / awaited as f64);
            total += sum;
        }
        self.columns.iter_mut().for_each(|sum| *sum /= waiters as f64);
        outliers(&self.columns, policy.threshold_col, &mut report.abnormal_cols);
        outliers(&self.rows, policy.threshold_row, &mut report.abnormal_rows);
        let cells = if policy.excluding_zeros { non_zero } else { waiters * awaited };
        let mean = if cells == 0 { 1.0 } else { total / cells as f64 + EPSILON };
        points(matrix, mean, policy, report);
    }
}

fn outliers(means: &[f64], threshold: f64, found: &mut Vec<AbnormalAxis>) {
    let all = means.iter().sum::<f64>() / means.len() as f64 + EPSILON;
    for (index, &mean) in means.iter().enumerate() {
        let ratio = mean / all;
        if ratio > threshold {
            found.push(AbnormalAxis { index, mean, ratio });
        }
    }
}

fn points(
    matrix: ArrayView2<'_, i64>,
    mean: f64,
    policy: &MeanRatioPolicy,
    report: &mut MeanRatioReport,
) {
    for (row, cells) in matrix.rows().into_iter().enumerate() {
        let in_row = report.abnormal_rows.iter().any(|axis| axis.index == row);
        if in_row && !policy.keep_points {
            continue;
        }
        for (col, &value) in cells.iter().enumerate() {
            let ratio = value as f64 / mean;
            if ratio > policy.threshold_point
                && (policy.keep_points || !report.abnormal_cols.iter().any(|c| c.index == col))
            {
                report.abnormal_points.push(AbnormalPoint { row, col, value, ratio });
            }
        }
    }
}
