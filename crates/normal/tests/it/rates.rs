//! How often healthy windows are accused, and how often slow rows and columns are found.

use deepxtrace_counters::{CompletionProbe, Window};
use deepxtrace_normal::Finding;

use crate::build::{
    CombineLogicalRecv, DispatchFinal, DispatchRdmaRecv, diagnoser, is_edge, set_costs, topology,
};

/// Normal values by the transform of Box and Muller, from a xorshift generator.
struct Noise(u64);

impl Noise {
    fn unit(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn factors(&mut self, share: f64) -> Vec<f64> {
        let mut normal = || {
            let radius = (-2.0 * self.unit().max(1e-300).ln()).sqrt();
            radius * (std::f64::consts::TAU * self.unit()).cos()
        };
        (0..16 * 16).map(|_| (share * normal()).exp()).collect()
    }
}

/// A window of EP16 on two nodes with the given noise, and slower cells of dispatch.
fn window(noise: &mut Noise, share: f64, slow: impl Fn(usize, usize) -> f64) -> Window {
    let topology = topology(16, 8);
    let mut window = Window::empty(topology);
    for probe in CompletionProbe::ALL {
        let factors = noise.factors(share);
        set_costs(&mut window, probe, |s, d| {
            let level = match probe {
                DispatchRdmaRecv if !is_edge(topology, s, d) => 0.0,
                _ if topology.same_node(s, d) => 2_000.0,
                _ => 10_000.0,
            };
            level * factors[s * 16 + d] * if probe == DispatchFinal { slow(s, d) } else { 1.0 }
        });
    }
    window
}

#[test]
fn a_thousand_healthy_windows_at_4_percent_noise_have_no_finding() {
    let mut noise = Noise(88_172_645_463_325_252);
    let mut diagnoser = diagnoser(topology(16, 8));
    for i in 0..1_000 {
        let window = window(&mut noise, 0.04, |_, _| 1.0);
        let diagnosis = diagnoser.diagnose(&window);
        assert!(!diagnosis.has_findings(), "window {i}: {diagnosis:?}");
        assert!(diagnosis.probes.get(CombineLogicalRecv).is_some());
    }
}

#[test]
fn a_row_or_column_of_1_6x_is_found_at_15_percent_noise_in_over_nine_of_ten_windows() {
    let mut noise = Noise(88_172_645_463_325_252);
    for row in [true, false] {
        let (mut found, mut others) = (0, 0);
        for i in 0..500 {
            let slow = i % 16;
            let window =
                window(
                    &mut noise,
                    0.15,
                    |s, d| {
                        if (if row { s } else { d }) == slow { 1.6 } else { 1.0 }
                    },
                );
            let mut diagnoser = diagnoser(topology(16, 8));
            let diagnosis = diagnoser.diagnose(&window);
            let findings = &diagnosis.probes.get(DispatchFinal).unwrap().findings;
            let hits = findings.iter().filter(|finding| match **finding {
                Finding::SourceRow { rank, .. } => row && rank == slow,
                Finding::DestinationColumn { rank, .. } => !row && rank == slow,
                _ => false,
            });
            let hits = hits.count();
            found += hits;
            others += findings.len() - hits;
        }
        assert!(found > 450, "found {found} of 500, row: {row}");
        assert!(others < 25, "{others} other findings in 500 windows, row: {row}");
    }
}
