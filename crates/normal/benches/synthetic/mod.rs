//! Healthy counters of any size, the same on every machine.

use deepxtrace_counters::{CompletionProbe, Layout, NotifyProbe, Snapshot};

/// A small generator of even numbers in 0 to 1 (an LCG; the same on every machine).
pub struct Random(pub u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// About normal, of variance 1.
    fn normal(&mut self) -> f64 {
        ((0..4).map(|_| self.next()).sum::<f64>() - 2.0) * 3_f64.sqrt()
    }
}

/// Adds a healthy window to the counters: 4 % noise, inter-node cells 5x, costs that grow with
/// tokens, experts of different heat.
pub fn advance(snapshot: &mut Snapshot, random: &mut Random) {
    let topology = snapshot.topology();
    let layout = Layout::of(topology);
    let heat: Vec<f64> = (0..topology.ep_size()).map(|_| 1.0 + 3.0 * random.next()).collect();
    for destination in 0..topology.ep_size() {
        let vector = snapshot.vector_mut(destination).unwrap();
        for probe in NotifyProbe::ALL {
            vector[layout.duration_ns(probe)] +=
                (25_600_000.0 * (0.9 + 0.2 * random.next())) as i64;
            vector[layout.count(probe)] += 256;
        }
        for probe in CompletionProbe::ALL {
            let (cost, samples) = (layout.cost(probe).start, layout.samples(probe).start);
            let tokens = layout.tokens(probe).start;
            for source in 0..topology.ep_size() {
                let inter = !topology.same_node(source, destination);
                let same = topology.local_index(source) == topology.local_index(destination);
                if probe == CompletionProbe::DispatchRdmaRecv && !(inter && same) {
                    continue;
                }
                let expert =
                    if probe == CompletionProbe::CombineLogicalRecv { source } else { destination };
                let load = heat[expert] * (0.9 + 0.2 * random.next());
                let level = if inter { 10_000.0 } else { 2_000.0 };
                let noise = (0.04 * random.normal()).exp();
                vector[cost + source] += (512.0 * level * load.sqrt() * noise) as i64;
                vector[samples + source] += 512;
                vector[tokens + source] += (512.0 * 16.0 * load) as i64;
            }
        }
    }
}
