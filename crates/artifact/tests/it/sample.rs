//! Windows to write.

use std::borrow::Cow;
use std::io::Cursor;

use deepxtrace_artifact::{Artifact, ArtifactError, LlArtifact, NormalArtifact, read_from};
use deepxtrace_counters::{CompletionProbe, LlPhase, LlWindow, NotifyProbe, Topology, Window};
use deepxtrace_ll::{LlDiagnoser, MeanRatioPolicy};
use deepxtrace_normal::{Diagnoser, Policy};
use ndarray::Array2;

/// A window in which cell `[s, d]` of the probe with number `p` has cost `1000 * (p + 1) + s * N + d`,
/// `s + 1` samples and `d` tokens; the rank `missing`, if any, is missing.
pub fn window(n: usize, ranks_per_node: usize, index: u64, missing: Option<usize>) -> Window {
    let mut window = Window::empty(Topology::new(n, ranks_per_node).unwrap());
    window.set_place(index, 1_700_000_000_000_000_000, 1_700_000_020_000_000_000);
    for (p, probe) in NotifyProbe::ALL.into_iter().enumerate() {
        window.edit_notify(probe, |delta| {
            for rank in (0..n).filter(|&rank| Some(rank) != missing) {
                delta.duration_ns[rank] = (10_000 * (p + 1) + rank) as i64;
                delta.count[rank] = (p + 2) as i64;
            }
        });
    }
    for (p, probe) in CompletionProbe::ALL.into_iter().enumerate() {
        window.edit_completion(probe, |delta| {
            for d in (0..n).filter(|&rank| Some(rank) != missing) {
                for s in 0..n {
                    delta.cost[[s, d]] = (1000 * (p + 1) + s * n + d) as i64;
                    delta.samples[[s, d]] = (s + 1) as i64;
                    delta.tokens[[s, d]] = d as i64;
                }
            }
        });
    }
    if let Some(rank) = missing {
        window.valid_mut()[rank] = false;
    }
    window
}

/// The artifact of a window, with the diagnosis that it has.
pub fn normal(window: Window) -> Artifact<'static> {
    let policy = Policy { axis_ratio: 1.5, ..Policy::default() };
    let mut diagnoser = Diagnoser::new(window.topology(), policy).unwrap();
    let diagnosis = Cow::Owned(diagnoser.diagnose(&window).clone());
    let instance = Cow::Borrowed("run-1");
    Artifact::Normal(NormalArtifact { instance, policy, window: Cow::Owned(window), diagnosis })
}

/// A low-latency artifact in which everyone waits for rank 1 in dispatch.
pub fn low_latency(n: usize, index: u64) -> Artifact<'static> {
    let topology = Topology::new(n, 8).unwrap();
    let mut waits = [Array2::from_elem((n, n), 100), Array2::from_elem((n, n), 70)];
    waits[0].column_mut(1.min(n - 1)).fill(100_000);
    let (policy, mean_policy) = (Policy::default(), MeanRatioPolicy::default());
    let mut diagnoser = LlDiagnoser::new(topology, mean_policy, policy).unwrap();
    let diagnoses = LlPhase::ALL.map(|phase| {
        Some(Cow::Owned(diagnoser.diagnose(waits[phase as usize].view()).unwrap().clone()))
    });
    let mut window = LlWindow::empty(topology);
    window.set(index, (5, 6), vec![true; n], waits).unwrap();
    Artifact::LowLatency(LlArtifact {
        instance: Cow::Borrowed("run-1"),
        policy,
        mean_policy,
        window: Cow::Owned(window),
        diagnoses,
    })
}

/// Reads bytes as a file called `a.npz`.
pub fn read_bytes(bytes: &[u8]) -> Result<Artifact<'static>, ArtifactError> {
    read_from(Cursor::new(bytes), "a.npz")
}
