//! The diagnoser: windows in, reports out.

use deepxtrace_counters::{CompletionProbe, NotifyProbe, Topology, Window, WindowError};

use crate::completion::{DenseProbe, GatewayProbe};
use crate::correlate;
use crate::dense::DenseSolver;
use crate::notify::Notify;
use crate::parallel;
use crate::policy::{Policy, PolicyError};
use crate::report::{WindowDiagnosis, WindowState};
use crate::scope::Zone;
use crate::stage::StageTimes;
use crate::tracker::Tracker;

/// One for each dense probe where these may be solved at the same time.
const SOLVERS: usize = if cfg!(feature = "rayon") { 2 } else { 1 };

/// Diagnoses the windows of one EP group, one after the other.
///
/// It keeps the histories of the Completion probes, the incidents it follows, and its working
/// memory. The same windows in the same order give the same reports.
#[derive(Debug, Clone)]
pub struct Diagnoser {
    topology: Topology,
    policy: Policy,
    tracker: Tracker,
    notify: Notify,
    solvers: [DenseSolver; SOLVERS],
    dispatch: DenseProbe,
    gateway: GatewayProbe,
    combine: DenseProbe,
    stage_times: StageTimes,
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
            tracker: Tracker::default(),
            notify: Notify::new(ranks),
            solvers: std::array::from_fn(|_| DenseSolver::new(topology)),
            dispatch: DenseProbe::new(CompletionProbe::DispatchFinal),
            gateway: GatewayProbe::new(topology),
            combine: DenseProbe::new(CompletionProbe::CombineLogicalRecv),
            stage_times: StageTimes::new(topology),
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
            self.correlate(window);
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
        self.dispatch.forget_history();
        self.gateway.forget_history();
        self.combine.forget_history();
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
        let Self { topology, policy, report, solvers, dispatch, gateway, combine, .. } = self;
        let [dispatch_report, gateway_report, combine_report] = report.probes.completion_mut();
        match &mut solvers[..] {
            [first, second] => {
                let dispatch = || {
                    dispatch.diagnose(first, window, policy, dispatch_report);
                    gateway.diagnose(window, policy, gateway_report);
                };
                let combine = || combine.diagnose(second, window, policy, combine_report);
                parallel::both(topology.ep_size() * topology.ep_size(), dispatch, combine);
            }
            solvers => {
                // One solver serves one after the other.
                for solver in solvers {
                    dispatch.diagnose(solver, window, policy, dispatch_report);
                    gateway.diagnose(window, policy, gateway_report);
                    combine.diagnose(solver, window, policy, combine_report);
                }
            }
        }
    }

    fn correlate(&mut self, window: &Window) {
        let (topology, report) = (self.topology, &mut self.report);
        correlate::explain(&mut report.probes, window, &mut self.stage_times);
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
