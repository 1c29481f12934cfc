//! What it costs to move tokens from one rank to another.

use crate::config::WorkloadConfig;
use crate::effects::{INTER, INTRA, MatrixEffects};
use crate::fault::Stage;
use crate::random::{Purpose, Stream};

/// Cycles of the receiving GPU that a usual sample costs, intra-node and inter-node.
const DISPATCH_CYCLES: [f64; 2] = [240_000.0, 480_000.0];
const COMBINE_CYCLES: [f64; 2] = [190_000.0, 500_000.0];
const GATEWAY_CYCLES: f64 = 460_000.0;

/// The usual costs of one matrix, as logarithms of cycles a sample.
#[derive(Debug, Clone)]
pub struct Costs {
    base: [f64; 2],
    /// Lasting bias of each source.
    source: Vec<f64>,
    /// Lasting bias of each destination.
    destination: Vec<f64>,
}

impl Costs {
    pub fn dispatch(config: &WorkloadConfig, seed: u64) -> Self {
        Self::new(DISPATCH_CYCLES, config, Stream::new(seed, Purpose::Bias, 0, 0))
    }

    pub fn gateway(config: &WorkloadConfig, seed: u64) -> Self {
        let base = [GATEWAY_CYCLES; 2];
        Self::new(base, config, Stream::new(seed, Purpose::Bias, 0, 1))
    }

    pub fn combine(config: &WorkloadConfig, seed: u64) -> Self {
        Self::new(COMBINE_CYCLES, config, Stream::new(seed, Purpose::Bias, 0, 2))
    }

    fn new(base: [f64; 2], config: &WorkloadConfig, mut stream: Stream) -> Self {
        let n = config.topology.ep_size();
        let mut biases = || (0..n).map(|_| config.rank_bias * stream.normal()).collect();
        Self { base: base.map(f64::ln), source: biases(), destination: biases() }
    }

    /// An inter-node sample of a gateway edge, without noise and load.
    pub fn edge(&self, src: usize, dst: usize) -> f64 {
        self.base[INTER] + self.source[src] + self.destination[dst]
    }

    /// The samples of all sources at one destination, without noise and load, into `out`.
    pub fn column(
        &self,
        stage: Stage,
        effects: &MatrixEffects,
        node_of: &[usize],
        dst: usize,
        out: &mut [f64],
    ) {
        let nodes = node_of.last().map_or(1, |last| last + 1);
        let dst_node = node_of[dst];
        for (src, cost) in out.iter_mut().enumerate() {
            let src_node = node_of[src];
            let class = if src_node == dst_node { INTRA } else { INTER };
            *cost = self.base[class]
                + self.source[src]
                + self.destination[dst]
                + effects.row[class][src]
                + effects.column[class][dst]
                + effects.block[src_node * nodes + dst_node];
            if class == INTER {
                *cost += match stage {
                    Stage::Dispatch => effects.segment[src * nodes + dst_node],
                    Stage::Combine => effects.segment[dst * nodes + src_node],
                };
            }
        }
        for &(src, point_dst, effect) in &effects.points {
            if point_dst == dst {
                out[src] += effect;
            }
        }
    }
}

/// What a window's samples of one cell add to the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    pub cost: i64,
    pub samples: i64,
    pub tokens: i64,
}

/// How samples follow from tokens, and costs from both.
#[derive(Debug, Clone, Copy)]
pub struct Sampling {
    noise: f64,
    exponent: f64,
    usual_load: f64,
    samples: u32,
}

impl Sampling {
    pub fn new(config: &WorkloadConfig, stage: Stage, usual_load: f64) -> Self {
        Self {
            noise: config.cell_noise,
            exponent: match stage {
                Stage::Dispatch => config.dispatch_load_exponent,
                Stage::Combine => config.combine_load_exponent,
            },
            usual_load: usual_load.ln(),
            samples: config.rounds * config.channels,
        }
    }

    /// The counters of a cell whose usual sample costs `exp(cost)` cycles.
    pub fn cell(&self, cost: f64, tokens: u32, stream: &mut Stream) -> Cell {
        let noise = self.noise * stream.normal();
        // A channel without a token gives no sample.
        let samples = self.samples.min(tokens);
        if samples == 0 {
            return Cell { cost: 0, samples: 0, tokens: 0 };
        }
        let mut cost = cost + noise;
        if self.exponent > 0.0 {
            let load = f64::from(tokens) / f64::from(samples);
            cost += self.exponent * (load.ln() - self.usual_load);
        }
        Cell {
            // The cast keeps the value in range.
            cost: (cost.exp() * f64::from(samples)).round() as i64,
            samples: i64::from(samples),
            tokens: i64::from(tokens),
        }
    }
}
