//! The Completion probes: where data arrives slowly.

use deepxtrace_counters::{CompletionDelta, CompletionProbe, Topology, Window};
use ndarray::{CowArray, Ix2};

use crate::dense::{self, DenseSolver};
use crate::finding::{self, Against, Finding};
use crate::gateway::GatewaySolver;
use crate::history::History;
use crate::outlier::{Outlier, Place, RailSide, Thresholds};
use crate::policy::Policy;
use crate::report::{Level, ProbeReport, ProbeStatus};

/// Everything that one window says about a matrix before history: made by a solver.
struct Solved<'a> {
    scalar: f64,
    /// Median `ln` load of each class.
    load: [Option<f64>; 2],
    outliers: &'a [Outlier],
}

/// A probe whose matrix has intra-node and inter-node cells.
#[derive(Debug, Clone)]
pub(crate) struct DenseProbe {
    probe: CompletionProbe,
    history: History,
}

impl DenseProbe {
    pub(crate) fn new(probe: CompletionProbe) -> Self {
        Self { probe, history: History::default() }
    }

    pub(crate) fn forget_history(&mut self) {
        self.history = History::default();
    }

    /// Fills the report. The solver may have worked for another probe before.
    pub(crate) fn diagnose(
        &mut self,
        solver: &mut DenseSolver,
        window: &Window,
        policy: &Policy,
        report: &mut ProbeReport,
    ) {
        let cells = fill(solver, window, self.probe);
        let load =
            if policy.load_adjust { solver.adjust_load(self.history.x0()) } else { [None; 2] };
        let side = match self.probe {
            CompletionProbe::CombineLogicalRecv => RailSide::Destination,
            _ => RailSide::Source,
        };
        solver.solve(thresholds(policy), Some(side));
        let Some(scalar) = solver.scalar().filter(|_| cells >= dense::MIN_CELLS) else { return };
        let cost = &window.completion(self.probe).cost;
        let excess = |place: Option<Place>, ratio: f64| {
            let weight = |s, d| cost[[s, d]] as f64 * (1.0 - 1.0 / ratio);
            match place {
                Some(place) => solver.sum_over(place, weight),
                None => solver.sum_over_all(weight),
            }
        };
        let solved = Solved { scalar, load, outliers: solver.outliers() };
        conclude(&solved, &mut self.history, policy, excess, dense_finding, report);
    }
}

/// Fills the solver from one probe of a window; returns the number of valid cells.
fn fill(solver: &mut DenseSolver, window: &Window, probe: CompletionProbe) -> usize {
    let valid = window.valid();
    // Borrowed as they are, unless somebody gave a window another memory order.
    let (cost, samples, tokens) = standard(window.completion(probe));
    let (Some(cost), Some(samples), Some(tokens)) =
        (cost.as_slice(), samples.as_slice(), tokens.as_slice())
    else {
        return 0;
    };
    let n = window.topology().ep_size();
    solver.fill(|source, destination| {
        let at = source * n + destination;
        let there = valid[source] && valid[destination];
        if there { cell(cost[at], samples[at], tokens[at]) } else { (f64::NAN, f64::NAN) }
    })
}

/// The probe whose matrix has the edges between gateways.
#[derive(Debug, Clone)]
pub(crate) struct GatewayProbe {
    solver: GatewaySolver,
    history: History,
}

impl GatewayProbe {
    pub(crate) fn new(topology: Topology) -> Self {
        Self { solver: GatewaySolver::new(topology), history: History::default() }
    }

    pub(crate) fn forget_history(&mut self) {
        self.history = History::default();
    }

    /// Fills the report.
    pub(crate) fn diagnose(&mut self, window: &Window, policy: &Policy, report: &mut ProbeReport) {
        let topology = window.topology();
        if topology.nodes() == 1 {
            report.status = ProbeStatus::NotApplicable;
            return;
        }
        let solver = &mut self.solver;
        let delta = window.completion(CompletionProbe::DispatchRdmaRecv);
        fill_gateway(solver, topology, delta, window.valid());
        let x0 = self.history.x0()[0];
        let load = if policy.load_adjust { solver.adjust_load(x0) } else { None };
        solver.solve(thresholds(policy));
        let Some(scalar) = solver.scalar() else { return };
        let excess = |place: Option<Place>, ratio: f64| {
            let weight = |s, d| delta.cost[[s, d]] as f64 * (1.0 - 1.0 / ratio);
            match place {
                Some(place) => solver.sum_over(place, weight),
                None => solver.sum_over_all(weight),
            }
        };
        let solved = Solved { scalar, load: [load, None], outliers: solver.outliers() };
        conclude(&solved, &mut self.history, policy, excess, gateway_finding, report);
    }
}

/// Cells of the gateway matrix that are looked at together.
const SPARSE: usize = 8;

/// Inter-node cells with samples; any that a window holds, whatever its local indices.
fn fill_gateway(
    solver: &mut GatewaySolver,
    topology: Topology,
    delta: &CompletionDelta,
    valid: &[bool],
) {
    solver.clear();
    let (cost, samples, tokens) = standard(delta);
    let (Some(cost), Some(samples), Some(tokens)) =
        (cost.as_slice(), samples.as_slice(), tokens.as_slice())
    else {
        return;
    };
    let n = topology.ep_size();
    for (source, row) in samples.chunks_exact(n).enumerate().filter(|&(source, _)| valid[source]) {
        let own = topology.ranks_of(topology.node(source));
        for (first, counts) in (0..).step_by(SPARSE).zip(row.chunks(SPARSE)) {
            // Most cells are on no rail, and 0.
            if counts.iter().fold(0, |bits, &count| bits | count) == 0 {
                continue;
            }
            for (destination, &count) in (first..).zip(counts) {
                if count > 0 && valid[destination] && !own.contains(&destination) {
                    let at = source * n + destination;
                    let (value, load) = cell(cost[at], count, tokens[at]);
                    if !value.is_nan() {
                        solver.push(source, destination, value, load);
                    }
                }
            }
        }
    }
}

fn standard(
    delta: &CompletionDelta,
) -> (CowArray<'_, i64, Ix2>, CowArray<'_, i64, Ix2>, CowArray<'_, i64, Ix2>) {
    let CompletionDelta { cost, samples, tokens } = delta;
    (cost.as_standard_layout(), samples.as_standard_layout(), tokens.as_standard_layout())
}

/// Cost and tokens a sample, NaN where there is none.
#[inline]
fn cell(cost: i64, samples: i64, tokens: i64) -> (f64, f64) {
    if cost <= 0 || samples <= 0 {
        return (f64::NAN, f64::NAN);
    }
    let samples = samples as f64;
    let load = if tokens > 0 { tokens as f64 / samples } else { f64::NAN };
    (cost as f64 / samples, load)
}

fn thresholds(policy: &Policy) -> Thresholds {
    Thresholds { axis_ratio: policy.axis_ratio, point_ratio: policy.point_ratio }
}

/// Compares with the history, lists the findings, learns.
fn conclude(
    solved: &Solved<'_>,
    history: &mut History,
    policy: &Policy,
    excess: impl Fn(Option<Place>, f64) -> f64,
    describe: impl Fn(&Outlier, f64) -> Finding,
    report: &mut ProbeReport,
) {
    let mut level = Level { scalar: Some(solved.scalar), ..Level::default() };
    for outlier in solved.outliers {
        report.findings.push(describe(outlier, excess(Some(outlier.place), outlier.ratio)));
    }
    let mut global = false;
    if let Some(comparison) = history.compare(solved.scalar) {
        level.global_ratio = Some(comparison.recent);
        level.best_ratio = Some(comparison.best);
        if comparison.best >= policy.global_ratio {
            let recent = comparison.recent >= policy.global_ratio;
            report.findings.push(Finding::Global {
                ratio: comparison.best,
                against: if recent { Against::Recent } else { Against::Best },
                excess_cycles: excess(None, comparison.best),
            });
            global = true;
        }
    }
    finding::sort(&mut report.findings);
    report.status = if report.findings.is_empty() {
        history.learn(solved.scalar, solved.load);
        ProbeStatus::Ok
    } else {
        level.level_shift = history.reject(global && report.findings.len() == 1);
        ProbeStatus::Anomalous
    };
    report.level = Some(level);
}

fn dense_finding(outlier: &Outlier, excess_cycles: f64) -> Finding {
    let &Outlier { place, ratio, score } = outlier;
    match place {
        Place::Row { rank, path } => Finding::SourceRow { rank, path, ratio, score, excess_cycles },
        Place::Column { rank, path } => {
            Finding::DestinationColumn { rank, path, ratio, score, excess_cycles }
        }
        Place::Rail { local_index, src_node, dst_node } => {
            Finding::Rail { local_index, src_node, dst_node, ratio, score, excess_cycles }
        }
        Place::Point { src, dst } => Finding::Point { src, dst, ratio, score, excess_cycles },
        Place::Block { src_node, dst_node } => {
            Finding::NodeBlock { src_node, dst_node, ratio, score, excess_cycles }
        }
    }
}

fn gateway_finding(outlier: &Outlier, excess_cycles: f64) -> Finding {
    match dense_finding(outlier, excess_cycles) {
        Finding::SourceRow { rank, path, ratio, score, excess_cycles } => {
            Finding::SourceGateway { rank, path, ratio, score, excess_cycles }
        }
        Finding::DestinationColumn { rank, path, ratio, score, excess_cycles } => {
            Finding::DestinationGateway { rank, path, ratio, score, excess_cycles }
        }
        Finding::Point { src, dst, ratio, score, excess_cycles } => {
            Finding::GatewayEdge { src, dst, ratio, score, excess_cycles }
        }
        other => other,
    }
}
