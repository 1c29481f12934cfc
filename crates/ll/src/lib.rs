//! Diagnosis of low-latency wait matrices: who is waited for, who waits, and which path is slow.
//!
//! `W[i, j]` is how long rank `i` (the waiter) waited for rank `j` (the awaited), in cycles. Two
//! rules read it. The *mean-ratio rule* ([`mean_ratio()`]) gives what the Python original gives. The
//! *topology-aware rule* ([`topology_rule()`]) compares every wait with its peers on the same kind of path; its steps
//! are those of the Normal mode, which is why this crate stands on `deepxtrace-normal`.
//! [`LlDiagnoser`] runs both and keeps its memory between matrices.
//!
//! Means are taken in `f64`, so that sums of large waits do not overflow.
//!
//! ```
//! use deepxtrace_ll::{MeanRatioPolicy, mean_ratio};
//! use ndarray::Array2;
//!
//! let mut waits = Array2::from_elem((8, 8), 1_000_i64);
//! waits.column_mut(3).fill(100_000); // everyone waits for rank 3
//! let report = mean_ratio(waits.view(), &MeanRatioPolicy::default())?;
//! assert_eq!(report.abnormal_cols.len(), 1);
//! assert_eq!(report.abnormal_cols[0].index, 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod diagnoser;
mod mean_ratio;
mod topology_rule;

pub use deepxtrace_normal::{PathScope, Policy, PolicyError};
pub use diagnoser::{LlDiagnoser, LlDiagnosis, LlRuleError, ShapeError, mean_ratio, topology_rule};
pub use mean_ratio::{
    AbnormalAxis, AbnormalPoint, MeanRatioPolicy, MeanRatioReport, MeanRatioRule,
};
pub use topology_rule::{Arrival, LlFinding, TopologyReport};
