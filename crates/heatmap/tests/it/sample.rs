//! Windows to draw.

use std::borrow::Cow;

use deepxtrace_artifact::NormalArtifact;
use deepxtrace_counters::{CompletionProbe, NotifyProbe, Topology, Window};
use deepxtrace_normal::{Diagnoser, Policy};

/// The rank whose sends cost 1.8 times as much, and that arrives late; in groups of four or more.
pub const SLOW: usize = 2;

/// A window in which intra-node samples cost about 20,000 cycles and others 60,000; with `missing`
/// a rank that is not there.
pub fn window(n: usize, ranks_per_node: usize, missing: Option<usize>) -> Window {
    let topology = Topology::new(n, ranks_per_node).unwrap();
    let mut window = Window::empty(topology);
    window.set_place(12, 1_700_000_000_000_000_000, 1_700_000_020_000_000_000);
    // Noise of up to 2 %, the same every time.
    let noise = |a: usize, b: usize| 1.0 + ((a * 31 + b * 17) % 41) as f64 / 2_000.0;
    for probe in NotifyProbe::ALL {
        window.edit_notify(probe, |delta| {
            for rank in (0..n).filter(|&rank| Some(rank) != missing) {
                let wait = if rank == SLOW && n >= 4 { 1_000.0 } else { 40_000.0 };
                delta.count[rank] = 100;
                delta.duration_ns[rank] = (100.0 * wait * noise(rank, 1)) as i64;
            }
        });
    }
    for probe in CompletionProbe::ALL {
        let gateway = probe == CompletionProbe::DispatchRdmaRecv;
        window.edit_completion(probe, |delta| {
            for s in 0..n {
                for d in (0..n).filter(|&rank| Some(rank) != missing) {
                    let same = topology.same_node(s, d);
                    let rail = topology.local_index(s) == topology.local_index(d);
                    if gateway && (same || !rail) {
                        continue;
                    }
                    let base = if same { 20_000.0 } else { 60_000.0 };
                    let factor = if s == SLOW && n >= 4 { 1.8 } else { 1.0 };
                    delta.samples[[s, d]] = 10;
                    delta.tokens[[s, d]] = 100;
                    delta.cost[[s, d]] = (10.0 * base * factor * noise(s, d)) as i64;
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
pub fn artifact(window: Window) -> NormalArtifact<'static> {
    let policy = Policy::default();
    let mut diagnoser = Diagnoser::new(window.topology(), policy).unwrap();
    let diagnosis = Cow::Owned(diagnoser.diagnose(&window).clone());
    let instance = Cow::Borrowed("3f2b8c1e-9d4a-4c57-8f0b-6a1d2e3f4a5b");
    NormalArtifact { instance, policy, window: Cow::Owned(window), diagnosis }
}
