//! Both rules on one matrix.

use deepxtrace_counters::Topology;
use deepxtrace_normal::{Policy, PolicyError};
use ndarray::ArrayView2;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::mean_ratio::{MeanRatioPolicy, MeanRatioReport, MeanRatioRule};
use crate::topology_rule::{TopologyReport, TopologyRule};

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

/// Why the topology-aware rule cannot be asked.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
#[non_exhaustive]
pub enum LlRuleError {
    /// A threshold is out of range.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// The matrix does not fit the group.
    #[error(transparent)]
    Shape(#[from] ShapeError),
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
    policy: Policy,
    mean: MeanRatioRule,
    rule: TopologyRule,
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
        let mean = MeanRatioRule::new(mean_policy)?;
        policy.validate()?;
        Ok(Self {
            topology,
            policy,
            mean,
            rule: TopologyRule::new(topology),
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
        self.report.shape = fit(matrix, self.topology)?;
        self.report.mean_ratio.clone_from(self.mean.diagnose(matrix));
        self.rule.diagnose(matrix, &self.policy, &mut self.report.topology);
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
    Ok(MeanRatioRule::new(*policy)?.diagnose(matrix).clone())
}

/// The topology-aware rule on `matrix` `[waiter, awaited]`. Of `policy`, the axis and the point
/// ratio are used.
///
/// # Errors
///
/// - [`LlRuleError::Policy`]: a threshold is out of range, see [`Policy::validate`]
/// - [`LlRuleError::Shape`]: the matrix is not `[N, N]` for the group
pub fn topology_rule(
    matrix: ArrayView2<'_, i64>,
    topology: Topology,
    policy: &Policy,
) -> Result<TopologyReport, LlRuleError> {
    policy.validate()?;
    fit(matrix, topology)?;
    let mut report = TopologyReport::default();
    TopologyRule::new(topology).diagnose(matrix, policy, &mut report);
    Ok(report)
}

fn fit(matrix: ArrayView2<'_, i64>, topology: Topology) -> Result<[usize; 2], ShapeError> {
    let ((rows, cols), ep_size) = (matrix.dim(), topology.ep_size());
    if rows == ep_size && cols == ep_size {
        Ok([rows, cols])
    } else {
        Err(ShapeError { rows, cols, ep_size })
    }
}
