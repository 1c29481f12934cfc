//! Windows made by hand.

use deepxtrace_counters::{CompletionProbe, NotifyProbe, Topology, Window};
use deepxtrace_normal::{Diagnoser, Finding, Policy, ProbeReport, WindowDiagnosis, WindowState};

pub use deepxtrace_counters::CompletionProbe::{
    CombineLogicalRecv, DispatchFinal, DispatchRdmaRecv,
};
pub use deepxtrace_counters::NotifyProbe::{
    CachedNotifyCombine, CachedNotifyDispatch, NotifyDispatch,
};

/// Samples of every cell, so that costs of a sample are exact.
pub const SAMPLES: i64 = 1_000;

pub fn topology(ep_size: usize, ranks_per_node: usize) -> Topology {
    Topology::new(ep_size, ranks_per_node).unwrap()
}

pub fn diagnoser(topology: Topology) -> Diagnoser {
    Diagnoser::new(topology, Policy::default()).unwrap()
}

/// Sets the cost of a sample of every cell of a probe; 0 for no samples. A sample has ten tokens.
pub fn set_costs(window: &mut Window, probe: CompletionProbe, cost: impl Fn(usize, usize) -> f64) {
    set_cells(window, probe, |s, d| (cost(s, d), 10.0));
}

/// Sets cost and tokens of a sample of every cell of a probe.
pub fn set_cells(
    window: &mut Window,
    probe: CompletionProbe,
    cell: impl Fn(usize, usize) -> (f64, f64),
) {
    window.edit_completion(probe, |delta| {
        for ((s, d), value) in delta.cost.indexed_iter_mut() {
            let (cost, tokens) = cell(s, d);
            *value = (cost * SAMPLES as f64).round() as i64;
            delta.samples[[s, d]] = if cost > 0.0 { SAMPLES } else { 0 };
            delta.tokens[[s, d]] = (tokens * SAMPLES as f64).round() as i64;
        }
    });
}

/// Sets the average wait of every rank in a Notify probe, over 100 launches.
pub fn set_waits(window: &mut Window, probe: NotifyProbe, average_ns: impl Fn(usize) -> i64) {
    window.edit_notify(probe, |delta| {
        for rank in 0..delta.count.len() {
            delta.count[rank] = 100;
            delta.duration_ns[rank] = 100 * average_ns(rank);
        }
    });
}

/// A value of 0.98 to 1.02 that looks random and is always the same for a cell.
pub fn jitter(s: usize, d: usize) -> f64 {
    let mixed = ((s * 1_009 + d * 9_176) as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
    0.98 + 0.04 * mixed as f64 / (1_u64 << 24) as f64
}

/// What a healthy cell costs: 1,000 in a node, 5,000 between nodes, about.
pub fn healthy(topology: Topology, s: usize, d: usize) -> f64 {
    jitter(s, d) * if topology.same_node(s, d) { 1_000.0 } else { 5_000.0 }
}

/// Whether a gateway edge can carry samples.
pub fn is_edge(topology: Topology, s: usize, d: usize) -> bool {
    !topology.same_node(s, d) && topology.local_index(s) == topology.local_index(d)
}

/// A healthy window of every probe, 1 s long.
pub fn healthy_window(topology: Topology) -> Window {
    let mut window = Window::empty(topology);
    window.set_place(1, 0, 1_000_000_000);
    for probe in NotifyProbe::ALL {
        set_waits(&mut window, probe, |rank| 100_000 + 1_000 * (rank as i64 % 5));
    }
    for probe in [DispatchFinal, CombineLogicalRecv] {
        set_costs(&mut window, probe, |s, d| healthy(topology, s, d));
    }
    set_costs(&mut window, DispatchRdmaRecv, |s, d| {
        if is_edge(topology, s, d) { 8_000.0 * jitter(s, d) } else { 0.0 }
    });
    window
}

/// The report of a diagnosed window's probe.
pub fn report(
    diagnosis: &WindowDiagnosis,
    probe: impl Into<deepxtrace_counters::Probe>,
) -> &ProbeReport {
    assert_eq!(diagnosis.state, WindowState::Diagnosed, "{:?}", diagnosis.reason);
    diagnosis.probes.get(probe).unwrap()
}

/// The only finding of a probe.
pub fn only(diagnosis: &WindowDiagnosis, probe: impl Into<deepxtrace_counters::Probe>) -> &Finding {
    let findings = &report(diagnosis, probe).findings;
    assert_eq!(findings.len(), 1, "{findings:?}");
    &findings[0]
}

/// Whether two numbers are the same but for rounding.
#[track_caller]
pub fn assert_close(ours: f64, expected: f64) {
    let error = (ours - expected).abs();
    assert!(error <= 1e-9 * expected.abs().max(1e-3), "{ours} instead of {expected}");
}
