//! What the simulated counters must look like, whatever the diagnosis makes of them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod detection;
mod faults;
mod healthy;

use deepxtrace_counters::{CompletionProbe, Step, Topology, Window, WindowError, Windows};
use deepxtrace_sim::{Fault, Workload, WorkloadConfig};

/// A job and its windows.
struct Job {
    workload: Workload,
    windows: Windows,
}

impl Job {
    fn new(config: WorkloadConfig, seed: u64) -> Self {
        let workload = Workload::new(config, seed).unwrap();
        let mut windows = Windows::new(config.topology);
        windows.advance(&mut workload.snapshot().clone()).unwrap();
        Self { workload, windows }
    }

    fn ep16(seed: u64) -> Self {
        Self::new(WorkloadConfig::new(Topology::new(16, 8).unwrap()), seed)
    }

    fn try_next(&mut self) -> Result<Window, WindowError> {
        let mut snapshot = self.workload.run_window().clone();
        match self.windows.advance(&mut snapshot)? {
            Step::Window(window) => Ok(window.clone()),
            Step::Boundary => panic!("the boundary was taken before"),
        }
    }

    fn next(&mut self, faults: impl IntoIterator<Item = Fault>) -> Window {
        self.workload.phase(faults).unwrap();
        self.try_next().unwrap()
    }
}

/// The average cost of a sample of one cell.
fn average(window: &Window, probe: CompletionProbe, src: usize, dst: usize) -> f64 {
    let delta = window.completion(probe);
    delta.cost[[src, dst]] as f64 / delta.samples[[src, dst]] as f64
}

/// A job without noise, biases and skew: its costs are the bases.
fn exact(topology: Topology) -> WorkloadConfig {
    WorkloadConfig {
        expert_skew: 0.0,
        dispatch_load_exponent: 0.0,
        combine_load_exponent: 0.0,
        cell_noise: 0.0,
        rank_bias: 0.0,
        arrival_jitter_ns: 0.0,
        ..WorkloadConfig::new(topology)
    }
}
