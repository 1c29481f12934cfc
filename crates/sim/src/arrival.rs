//! When ranks arrive at Notify kernels, and how long they wait there.

use deepxtrace_counters::NotifyProbe;

use crate::config::WorkloadConfig;
use crate::effects::Effects;
use crate::random::{Purpose, Stream};

/// Computation before each Notify, ns.
const COMPUTE_NS: f64 = 8_000.0;
/// What a Notify kernel takes once all ranks are there, ns; a cached layout saves most of it.
const NOTIFY_NS: f64 = 50_000.0;
const CACHED_NOTIFY_NS: f64 = 8_400.0;

/// Where the ranks of a job are in time.
#[derive(Debug, Clone)]
pub struct Arrivals {
    /// When each rank is done with its last stage, ns after the last meeting.
    ready: Vec<f64>,
    /// Lasting bias of each rank's computation.
    bias: Vec<f64>,
    /// Ends of all meetings, ns since the job began.
    clock_ns: f64,
}

/// What the Notify kernels of a window took, ns by probe and rank, and how many there were.
#[derive(Debug, Clone)]
pub struct Waits {
    pub duration_ns: [Vec<f64>; 3],
    pub count: [i64; 3],
}

impl Arrivals {
    pub fn new(config: &WorkloadConfig, seed: u64) -> Self {
        let n = config.topology.ep_size();
        let mut stream = Stream::new(seed, Purpose::Bias, 0, 3);
        let bias = (0..n).map(|_| config.rank_bias * stream.normal()).collect();
        Self { ready: vec![0.0; n], bias, clock_ns: 0.0 }
    }

    /// Simulated time, ns since the job began.
    pub fn clock_ns(&self) -> f64 {
        self.clock_ns
    }

    /// Lets time pass without work.
    pub fn idle(&mut self, ns: f64) {
        self.clock_ns += ns;
    }

    /// Runs the rounds of a window. `stage_ns` is how long dispatch and combine take each rank.
    pub fn run(
        &mut self,
        config: &WorkloadConfig,
        effects: &Effects,
        stage_ns: [&[f64]; 2],
        (seed, window): (u64, u64),
    ) -> Waits {
        let n = self.ready.len();
        let mut waits = Waits { duration_ns: [(); 3].map(|()| vec![0.0; n]), count: [0; 3] };
        let mut stream = Stream::new(seed, Purpose::Arrivals, window, 0);
        for round in 0..config.rounds {
            let (probe, kernel_ns) = if round % 2 == 0 {
                (NotifyProbe::NotifyDispatch, NOTIFY_NS)
            } else {
                (NotifyProbe::CachedNotifyDispatch, CACHED_NOTIFY_NS)
            };
            let meetings = [
                (probe, kernel_ns, &effects.late_dispatch, stage_ns[0]),
                (
                    NotifyProbe::CachedNotifyCombine,
                    CACHED_NOTIFY_NS,
                    &effects.late_combine,
                    stage_ns[1],
                ),
            ];
            for (probe, kernel_ns, late, stage) in meetings {
                self.compute(config.arrival_jitter_ns, late, &mut stream);
                let waits_ns = &mut waits.duration_ns[probe as usize];
                self.meet(kernel_ns, waits_ns);
                waits.count[probe as usize] += 1;
                self.ready.copy_from_slice(stage);
            }
        }
        waits
    }

    fn compute(&mut self, jitter_ns: f64, late: &[f64], stream: &mut Stream) {
        for ((ready, bias), late) in self.ready.iter_mut().zip(&self.bias).zip(late) {
            *ready += COMPUTE_NS * bias.exp() + jitter_ns * stream.normal().abs() + late;
        }
    }

    /// Everyone waits for the last, then the kernel runs.
    fn meet(&mut self, kernel_ns: f64, waits_ns: &mut [f64]) {
        let last = self.ready.iter().copied().fold(0.0, f64::max);
        for (wait, ready) in waits_ns.iter_mut().zip(&self.ready) {
            *wait += last - ready + kernel_ns;
        }
        self.clock_ns += last + kernel_ns;
    }
}
