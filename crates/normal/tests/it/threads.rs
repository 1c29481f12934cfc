//! The number of threads changes nothing.

use deepxtrace_normal::{Diagnoser, WindowDiagnosis};

use crate::build::{
    CombineLogicalRecv, DispatchFinal, diagnoser, healthy, healthy_window, jitter, set_cells,
    topology,
};

/// Windows large enough for more threads, with rows, columns, points and rails, and loads.
fn diagnoses(mut diagnoser: Diagnoser) -> Vec<WindowDiagnosis> {
    let topology = diagnoser.topology();
    (0..5)
        .map(|window| {
            let mut counters = healthy_window(topology);
            for probe in [DispatchFinal, CombineLogicalRecv] {
                set_cells(&mut counters, probe, |s, d| {
                    let tokens = 10.0 * (1.0 + jitter(d, s + window)) * (1 + d % 3) as f64;
                    let slow = match (s, d) {
                        (7, _) | (_, 150) => 1.7,
                        (20, 33) => 5.0,
                        (90, d) if topology.node(d) == 3 => 2.0,
                        (s, 101) if topology.node(s) == 5 => 2.0,
                        _ => 1.0,
                    };
                    (healthy(topology, s, d) * slow * tokens.sqrt(), tokens)
                });
            }
            diagnoser.diagnose(&counters).clone()
        })
        .collect()
}

#[test]
fn one_thread_and_many_give_the_same_reports() {
    let topology = topology(203, 8);
    let with = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| diagnoses(diagnoser(topology)))
    };
    let one = with(1);
    assert!(one[0].probes.get(DispatchFinal).unwrap().findings.len() > 4, "{one:?}");
    for threads in [2, 3, 8] {
        assert_eq!(with(threads), one, "{threads} threads");
    }
}
