//! Both rules on one matrix.

use deepxtrace_counters::Topology;
use deepxtrace_normal::{Policy, PolicyError};
use ndarray::ArrayView2;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::mean_ratio::{MeanRatio, MeanRatioPolicy, MeanRatioReport};
use crate::topology_rule::TopologyReport;

/// A matrix that does not fit its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("wait matrix is {rows} x {cols}, EP size {ep_size} needs {ep_size} x {ep_size}")]
pub struct ShapeError {
    /// Rows found.
    pub rows: usize,
    /// Columns found.
    pub cols: usize,
    /// Ranks of the group.
    pub ep_size: usize,
}

/// What both rules found in one matrix; as JSON, the object of `ll analyze --json`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct LlDiagnosis {
    /// Shape of the matrix, `[waiters, awaited]`.
    pub shape: [usize; 2],
    /// The mean-ratio rule.
    pub mean_ratio: MeanRatioReport,
    /// The topology-aware rule.
    pub topology: TopologyReport,
}

/// Diagnoses wait matrices of one EP group, with memory that is kept between matrices.
#[derive(Debug, Clone)]
pub struct LlDiagnoser {
    topology: Topology,
    mean_policy: MeanRatioPolicy,
    #[expect(dead_code, reason = "read by the topology-aware rule")]
    policy: Policy,
    mean: MeanRatio,
    report: LlDiagnosis,
}

impl LlDiagnoser {
    /// A diagnoser for one group. Of `policy`, the axis and the point ratio are used.
    ///
    /// # Errors
    ///
    /// A threshold is out of range, see [`MeanRatioPolicy::validate`] and [`Policy::validate`].
    pub fn new(
        topology: Topology,
        mean_policy: MeanRatioPolicy,
        policy: Policy,
    ) -> Result<Self, PolicyError> {
        mean_policy.validate()?;
        policy.validate()?;
        Ok(Self {
            topology,
            mean_policy,
            policy,
            mean: MeanRatio::default(),
            report: LlDiagnosis::default(),
        })
    }

    /// Diagnoses `matrix` `[waiter, awaited]` by both rules. The report is valid until the next
    /// call.
    ///
    /// # Errors
    ///
    /// The matrix is not `[N, N]` for the group.
    pub fn diagnose(&mut self, matrix: ArrayView2<'_, i64>) -> Result<&LlDiagnosis, ShapeError> {
        let ((rows, cols), ep_size) = (matrix.dim(), self.topology.ep_size());
        if rows != ep_size || cols != ep_size {
            return Err(ShapeError { rows, cols, ep_size });
        }
        self.report.shape = [rows, cols];
        self.mean.diagnose(matrix, &self.mean_policy, &mut self.report.mean_ratio);
        self.report.topology.findings.clear();
        Ok(&self.report)
    }
}

/// The mean-ratio rule on `matrix` `[waiter, awaited]`, of any shape.
///
/// # Errors
///
/// A threshold is out of range, see [`MeanRatioPolicy::validate`].
pub fn mean_ratio(
    matrix: ArrayView2<'_, i64>,
    policy: &MeanRatioPolicy,
) -> Result<MeanRatioReport, PolicyError> {
    policy.validate()?;
    let mut report = MeanRatioReport::default();
    MeanRatio::default().diagnose(matrix, policy, &mut report);
    Ok(report)
}
