//! Which tokens go where.

use deepxtrace_counters::Topology;

use crate::config::WorkloadConfig;
use crate::random::{Purpose, Stream};

/// How likely a token is sent to each rank and node: hot experts draw more.
#[derive(Debug, Clone)]
pub struct Routing {
    /// Probability that a token has at least one of its experts on the rank.
    pub to_rank: Vec<f64>,
    /// The same for each node.
    pub to_node: Vec<f64>,
}

impl Routing {
    pub fn new(config: &WorkloadConfig, seed: u64) -> Self {
        let n = config.topology.ep_size();
        let mut stream = Stream::new(seed, Purpose::Experts, 0, 0);
        let mut share = vec![0.0; n];
        let experts = config.experts as usize;
        for expert in 0..experts {
            share[expert * n / experts] += (config.expert_skew * stream.normal()).exp();
        }
        let all: f64 = share.iter().sum();
        share.iter_mut().for_each(|share| *share /= all);
        // A token picks top_k different experts; with shares this small that is close to drawing
        // top_k times.
        let reached = |share: f64| 1.0 - (1.0 - share).max(0.0).powf(f64::from(config.top_k));
        let node_share =
            |node| config.topology.ranks_of(node).map(|rank| share[rank]).sum::<f64>().min(1.0);
        Self {
            to_rank: share.iter().map(|&share| reached(share)).collect(),
            to_node: (0..config.topology.nodes()).map(|node| reached(node_share(node))).collect(),
        }
    }

    /// Tokens a sample that cost exactly the base: those of an average pair.
    pub fn usual_load(&self, config: &WorkloadConfig) -> f64 {
        let mean = self.to_rank.iter().sum::<f64>() / self.to_rank.len() as f64;
        (f64::from(config.tokens) * mean / f64::from(config.channels)).max(f64::MIN_POSITIVE)
    }
}

/// The tokens that each owner sent to each expert rank in a window, `[owner, expert rank]`.
pub fn fill_tokens(
    config: &WorkloadConfig,
    routing: &Routing,
    without_tokens: &[bool],
    (seed, window): (u64, u64),
    tokens: &mut [u32],
) {
    let n = config.topology.ep_size();
    let sent = f64::from(config.tokens) * f64::from(config.rounds);
    for (owner, row) in tokens.chunks_exact_mut(n).enumerate() {
        let mut stream = Stream::new(seed, Purpose::Tokens, window, owner);
        for (rank, tokens) in row.iter_mut().enumerate() {
            let drawn = draw(sent, routing.to_rank[rank], &mut stream);
            *tokens = if without_tokens[owner] || without_tokens[rank] { 0 } else { drawn };
        }
    }
}

/// Turns an `n` by `n` matrix over, in squares that fit the cache.
pub fn transpose(matrix: &[u32], n: usize, out: &mut [u32]) {
    const SIDE: usize = 32;
    for top in (0..n).step_by(SIDE) {
        for left in (0..n).step_by(SIDE) {
            for row in top..(top + SIDE).min(n) {
                for column in left..(left + SIDE).min(n) {
                    out[column * n + row] = matrix[row * n + column];
                }
            }
        }
    }
}

/// The tokens that one owner sent to one node in a window.
pub fn node_tokens(
    config: &WorkloadConfig,
    routing: &Routing,
    node: usize,
    stream: &mut Stream,
) -> u32 {
    draw(f64::from(config.tokens) * f64::from(config.rounds), routing.to_node[node], stream)
}

/// How many of `count` tokens take a way of this probability: the normal approximation of the
/// binomial distribution.
fn draw(count: f64, probability: f64, stream: &mut Stream) -> u32 {
    let spread = (count * probability * (1.0 - probability)).max(0.0).sqrt();
    let tokens = count * probability + spread * stream.normal();
    // The cast keeps the value in range.
    tokens.round().clamp(0.0, count) as u32
}

/// The node of every rank, so that inner loops need no division.
pub fn nodes_of(topology: Topology) -> Vec<usize> {
    (0..topology.ep_size()).map(|rank| topology.node(rank)).collect()
}
