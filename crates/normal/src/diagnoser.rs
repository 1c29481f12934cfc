//! The diagnoser: windows in, reports out.

use deepxtrace_counters::{CompletionProbe, NotifyProbe, Topology, Window, WindowError};

use crate::completion::{diagnose_dense, diagnose_gateway};
use crate::correlate;
use crate::dense::DenseSolver;
use crate::gateway::GatewaySolver;
use crate::history::History;
use crate::notify::Notify;
use crate::policy::{Policy, PolicyError};
use crate::report::{WindowDiagnosis, WindowState};
use crate::scope::Zone;
use crate::tracker::Tracker;

/// Diagnoses the windows of one EP group, one after the other.
///
/// It keeps the histories of the Completion probes, the incidents it follows, and its working
/// memory. The same windows in the same order give the same reports.
#[derive(Debug, Clone)]
pub struct Diagnoser {
    topology: Topology,
    policy: Policy,
    histories: [History; 3],
    tracker: Tracker,
    notify: Notify,
    dense: DenseSolver,
    gateway: GatewaySolver,
    /// Destination columns that explain a late rank, of dispatch and of combine.
    slow_columns: [Vec<bool>; 2],
    zones: Vec<Zone>,
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
        let ranks = topology.ep_size();
        Ok(Self {
            topology,
            policy,
            histories: Default::default(),
            tracker: Tracker::default(),
            notify: Notify::new(ranks),
            dense: DenseSolver::new(topology),
            gateway: GatewaySolver::new(topology),
            slow_columns: [vec![false; ranks], vec![false; ranks]],
            zones: Vec::new(),
            report: WindowDiagnosis::new(ranks),
        })
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
    /// An idle window is neither diagnosed nor learned. A window of another group, or one
    /// whose matrices do not fit it, is refused.
    pub fn diagnose(&mut self, window: &Window) -> &WindowDiagnosis {
        self.begin(window.index(), window.valid());
        if let Some(reason) = self.misfit(window) {
            self.report.state = WindowState::Refused;
            self.report.reason = Some(reason);
        } else if window.is_idle() {
            self.report.state = WindowState::Idle;
        } else {
            self.report.state = WindowState::Diagnosed;
            self.report.probes.reset(true);
            self.notify(window);
            self.complete(window);
            self.correlate();
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
    pub fn forget_history(&mut self) {
        self.histories = Default::default();
    }

    /// Why a window that was made by hand is not one of this group.
    fn misfit(&self, window: &Window) -> Option<String> {
        if window.topology() != self.topology {
            let error = WindowError::Topology { older: self.topology, newer: window.topology() };
            return Some(error.to_string());
        }
        let n = self.topology.ep_size();
        let vectors = NotifyProbe::ALL.into_iter().find_map(|probe| {
            let delta = window.notify(probe);
            let lengths = [delta.duration_ns.len(), delta.count.len()];
            let wrong = lengths.into_iter().find(|&length| length != n)?;
            Some(format!("{probe} has {wrong} ranks, the group has {n}"))
        });
        vectors.or_else(|| {
            CompletionProbe::ALL.into_iter().find_map(|probe| {
                let delta = window.completion(probe);
                let shapes = [delta.cost.dim(), delta.samples.dim(), delta.tokens.dim()];
                let (rows, columns) = shapes.into_iter().find(|&shape| shape != (n, n))?;
                Some(format!("{probe} has a {rows} x {columns} matrix, the group has {n} ranks"))
            })
        })
    }

    fn notify(&mut self, window: &Window) {
        for probe in NotifyProbe::ALL {
            let report = self.report.probes.get_mut(probe);
            let (delta, valid) = (window.notify(probe), window.valid());
            self.notify.diagnose(delta, valid, window.duration_ns(), &self.policy, report);
        }
    }

    fn complete(&mut self, window: &Window) {
        for probe in CompletionProbe::ALL {
            let (history, policy) = (&mut self.histories[probe as usize], &self.policy);
            let report = self.report.probes.get_mut(probe);
            let slow = match probe {
                CompletionProbe::DispatchFinal => &mut self.slow_columns[0],
                CompletionProbe::CombineLogicalRecv => &mut self.slow_columns[1],
                CompletionProbe::DispatchRdmaRecv => {
                    diagnose_gateway(&mut self.gateway, history, window, policy, report);
                    continue;
                }
            };
            diagnose_dense(&mut self.dense, history, probe, window, policy, report);
            slow.copy_from_slice(self.dense.slow_columns());
            correlate::mark_slow(self.topology, probe, &report.findings, slow);
        }
    }

    fn correlate(&mut self) {
        let (topology, report) = (self.topology, &mut self.report);
        let slow = |probe| match probe {
            CompletionProbe::DispatchFinal => &self.slow_columns[0],
            _ => &self.slow_columns[1],
        };
        correlate::explain(&mut report.probes, |probe, rank| slow(probe)[rank]);
        correlate::incidents(topology, &report.probes, &mut report.incidents, &mut self.zones);
        self.tracker.observe(topology, &report.incidents, &self.zones, &mut report.tracker);
    }

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
