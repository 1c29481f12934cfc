//! The Notify probes: who enters a synchronising kernel late.
//!
//! All ranks leave the kernel together, so a rank that waits much less than the others came last.

use deepxtrace_counters::NotifyDelta;

use crate::finding::{self, Finding};
use crate::policy::Policy;
use crate::report::{ProbeReport, ProbeStatus};
use crate::select::LeaveOneOut;

/// Averages by rank, and memory for their medians.
#[derive(Debug, Clone)]
pub(crate) struct Notify {
    averages: Vec<f64>,
    buffer: Vec<f64>,
}

impl Notify {
    pub(crate) fn new(ranks: usize) -> Self {
        Self { averages: Vec::with_capacity(ranks), buffer: Vec::with_capacity(ranks) }
    }

    /// Fills the report of one probe. A rank is valid when its snapshots arrived and it has
    /// launches.
    pub(crate) fn diagnose(
        &mut self,
        delta: &NotifyDelta,
        valid: &[bool],
        window_ns: i64,
        policy: &Policy,
        report: &mut ProbeReport,
    ) {
        self.averages.clear();
        let counters = delta.duration_ns.iter().zip(&delta.count).zip(valid);
        self.averages.extend(counters.map(|((&duration, &count), &valid)| {
            let there = valid && count > 0 && duration >= 0;
            if there { duration as f64 / count as f64 } else { f64::NAN }
        }));
        self.buffer.clear();
        self.buffer.extend(self.averages.iter().filter(|average| !average.is_nan()));
        let Some(others) = LeaveOneOut::new(&mut self.buffer) else {
            report.status = ProbeStatus::Insufficient;
            return;
        };
        let least_ns = policy.notify_min_share * window_ns as f64;
        for (rank, (&average, &count)) in self.averages.iter().zip(&delta.count).enumerate() {
            if average.is_nan() {
                continue;
            }
            let median = others.without(average);
            let ratio = average / median;
            let excess_ns = (median - average) * count as f64;
            if median > 0.0 && ratio <= policy.notify_ratio && excess_ns >= least_ns {
                report.findings.push(Finding::LateRank {
                    rank,
                    ratio,
                    excess_ns,
                    explained_by: None,
                });
            }
        }
        finding::sort(&mut report.findings);
        report.status =
            if report.findings.is_empty() { ProbeStatus::Ok } else { ProbeStatus::Anomalous };
    }
}
