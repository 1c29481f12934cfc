//! The diagnoser: windows in, reports out.

use deepxtrace_counters::{Topology, Window, WindowError};

use crate::policy::{Policy, PolicyError};
use crate::report::{WindowDiagnosis, WindowState};

/// Diagnoses the windows of one EP group, one after the other.
///
/// It keeps the histories of the Completion probes, the incidents it follows, and its working
/// memory. The same windows in the same order give the same reports.
#[derive(Debug, Clone)]
pub struct Diagnoser {
    topology: Topology,
    policy: Policy,
    report: WindowDiagnosis,
}

impl Diagnoser {
    /// A diagnoser without history.
    ///
    /// # Errors
    ///
    /// A threshold is out of range, see [`Policy::validate`].
    pub fn new(topology: Topology, policy: Policy) -> Result<Self, PolicyError> {
        policy.validate()?;
        Ok(Self { topology, policy, report: WindowDiagnosis::new() })
    }

    /// The group.
    #[must_use]
    pub fn topology(&self) -> Topology {
        self.topology
    }

    /// The thresholds.
    #[must_use]
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The report of the last window.
    #[must_use]
    pub fn report(&self) -> &WindowDiagnosis {
        &self.report
    }

    /// Diagnoses the next window. The report is valid until the next call.
    ///
    /// An idle window is neither diagnosed nor learned. A window of another group is refused.
    pub fn diagnose(&mut self, window: &Window) -> &WindowDiagnosis {
        self.begin(window.index(), window.valid());
        if window.topology() != self.topology {
            let error = WindowError::Topology { older: self.topology, newer: window.topology() };
            self.report.state = WindowState::Refused;
            self.report.reason = Some(error.to_string());
        } else if window.is_idle() {
            self.report.state = WindowState::Idle;
        } else {
            self.report.state = WindowState::Diagnosed;
            self.report.probes.reset(true);
        }
        &self.report
    }

    /// Reports a window that was refused. The report is valid until the next call.
    ///
    /// `valid` tells which ranks were present in both snapshots, by rank; it may be empty where
    /// nobody knows.
    pub fn refuse(&mut self, index: u64, error: &WindowError, valid: &[bool]) -> &WindowDiagnosis {
        self.begin(index, valid);
        self.report.state = WindowState::Refused;
        self.report.reason = Some(error.to_string());
        &self.report
    }

    /// Forgets the histories after a known change (another model, another batch size), so that
    /// the new level is not reported as a slowdown. Followed incidents stay.
    pub fn forget_history(&mut self) {}

    fn begin(&mut self, index: u64, valid: &[bool]) {
        let report = &mut self.report;
        report.window_index = index;
        report.reason = None;
        report.missing_ranks.clear();
        let missing = valid.iter().enumerate().filter(|&(_, valid)| !valid);
        report.missing_ranks.extend(missing.map(|(rank, _)| rank));
        report.tracker.clear();
        report.incidents.clear();
        report.probes.reset(false);
    }
}
