//! The mean-ratio rule, compatible with the Python original.

use deepxtrace_normal::PolicyError;
use ndarray::ArrayView2;
use serde::{Deserialize, Serialize};

/// Added to every denominator.
const EPSILON: f64 = 1e-8;

/// Rows that are added to the column sums at once, so that these are read and written less often.
const TOGETHER: usize = 4;

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
#[derive(Debug, Clone)]
pub struct MeanRatioRule {
    policy: MeanRatioPolicy,
    /// Sums of columns, exact where they fit.
    column_sums: Vec<i64>,
    /// For each row its exact sum, and all bits of its cells: no cell is larger.
    row_sums: Vec<(i64, i64)>,
    columns: Vec<f64>,
    rows: Vec<f64>,
    report: MeanRatioReport,
}

impl MeanRatioRule {
    /// The rule with these thresholds.
    ///
    /// # Errors
    ///
    /// A threshold is out of range, see [`MeanRatioPolicy::validate`].
    pub fn new(policy: MeanRatioPolicy) -> Result<Self, PolicyError> {
        policy.validate()?;
        Ok(Self {
            policy,
            column_sums: Vec::new(),
            row_sums: Vec::new(),
            columns: Vec::new(),
            rows: Vec::new(),
            report: MeanRatioReport::default(),
        })
    }

    /// The report of the last matrix.
    #[must_use]
    pub fn report(&self) -> &MeanRatioReport {
        &self.report
    }

    /// Diagnoses `matrix` `[waiter, awaited]`, of any shape. The report is valid until the next
    /// call.
    pub fn diagnose(&mut self, matrix: ArrayView2<'_, i64>) -> &MeanRatioReport {
        let report = &mut self.report;
        report.abnormal_cols.clear();
        report.abnormal_rows.clear();
        report.abnormal_points.clear();
        if !matrix.is_empty() {
            if !self.exact_means(matrix) {
                self.rounded_means(matrix);
            }
            let (policy, report) = (&self.policy, &mut self.report);
            outliers(&self.columns, policy.threshold_col, &mut report.abnormal_cols);
            outliers(&self.rows, policy.threshold_row, &mut report.abnormal_rows);
            self.points(matrix);
        }
        &self.report
    }

    /// Takes the means from sums in 64 bits. Says whether that was possible: no cell is negative,
    /// no sum can overflow, and the rows lie in memory as they are.
    fn exact_means(&mut self, matrix: ArrayView2<'_, i64>) -> bool {
        let (waiters, awaited) = matrix.dim();
        let Some(cells) = matrix.as_slice() else { return false };
        self.column_sums.clear();
        self.column_sums.resize(awaited, 0);
        self.row_sums.clear();
        let whole = waiters - waiters % TOGETHER;
        let (whole, rest) = cells.split_at(whole * awaited);
        for rows in whole.chunks_exact(TOGETHER * awaited) {
            let rows = std::array::from_fn::<_, TOGETHER, _>(|row| &rows[row * awaited..]);
            self.row_sums.extend(add_rows(rows, &mut self.column_sums));
        }
        for row in rest.chunks_exact(awaited) {
            self.row_sums.extend(add_rows([row], &mut self.column_sums));
        }
        let all_bits = self.row_sums.iter().fold(0, |all, (_, bits)| all | bits);
        let most = i64::try_from(waiters.max(awaited)).ok().and_then(|n| n.checked_mul(all_bits));
        if all_bits < 0 || most.is_none() {
            return false;
        }
        self.columns.clear();
        self.columns.extend(self.column_sums.iter().map(|&sum| sum as f64 / waiters as f64));
        self.rows.clear();
        self.rows.extend(self.row_sums.iter().map(|&(sum, _)| sum as f64 / awaited as f64));
        true
    }

    /// Takes the means from sums of rounded values, which do not overflow.
    fn rounded_means(&mut self, matrix: ArrayView2<'_, i64>) {
        let (waiters, awaited) = matrix.dim();
        self.columns.clear();
        self.columns.resize(awaited, 0.0);
        self.rows.clear();
        self.row_sums.clear();
        for row in matrix.rows() {
            let mut sum = 0.0;
            for (column, &cell) in self.columns.iter_mut().zip(row) {
                *column += cell as f64;
                sum += cell as f64;
            }
            self.rows.push(sum / awaited as f64);
            self.row_sums.push((0, i64::MAX));
        }
        self.columns.iter_mut().for_each(|sum| *sum /= waiters as f64);
    }

    fn points(&mut self, matrix: ArrayView2<'_, i64>) {
        let Self { policy, report, .. } = self;
        let awaited = matrix.ncols();
        let total = self.rows.iter().sum::<f64>() * awaited as f64;
        let cells = if policy.excluding_zeros {
            matrix.iter().filter(|&&cell| cell != 0).count()
        } else {
            matrix.len()
        };
        let mean = if cells == 0 { 1.0 } else { total / cells as f64 + EPSILON };
        for (row, (cells, &(_, bits))) in matrix.rows().into_iter().zip(&self.row_sums).enumerate()
        {
            let hidden = || report.abnormal_rows.iter().any(|axis| axis.index == row);
            // No cell of the row is above its bits.
            if bits as f64 / mean <= policy.threshold_point || !policy.keep_points && hidden() {
                continue;
            }
            for (col, &value) in cells.iter().enumerate() {
                let ratio = value as f64 / mean;
                let hidden = || report.abnormal_cols.iter().any(|axis| axis.index == col);
                if ratio > policy.threshold_point && (policy.keep_points || !hidden()) {
                    report.abnormal_points.push(AbnormalPoint { row, col, value, ratio });
                }
            }
        }
    }
}

/// Adds rows, each at least as long as `columns`, to the sums of the columns. Gives the sum and all
/// bits of each row.
fn add_rows<const ROWS: usize>(rows: [&[i64]; ROWS], columns: &mut [i64]) -> [(i64, i64); ROWS] {
    let rows = rows.map(|row| &row[..columns.len()]);
    let mut found = [(0_i64, 0_i64); ROWS];
    for (at, column) in columns.iter_mut().enumerate() {
        for (row, (sum, bits)) in rows.iter().zip(&mut found) {
            let cell = row[at];
            *column = column.wrapping_add(cell);
            *sum = sum.wrapping_add(cell);
            *bits |= cell;
        }
    }
    found
}

/// Adds those means to `found` that are above `threshold` times the mean of all.
fn outliers(means: &[f64], threshold: f64, found: &mut Vec<AbnormalAxis>) {
    let all = means.iter().sum::<f64>() / means.len() as f64 + EPSILON;
    for (index, &mean) in means.iter().enumerate() {
        let ratio = mean / all;
        if ratio > threshold {
            found.push(AbnormalAxis { index, mean, ratio });
        }
    }
}
