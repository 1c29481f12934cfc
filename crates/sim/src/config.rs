//! The job to simulate.

use deepxtrace_counters::Topology;
use thiserror::Error;

/// A mixture-of-experts job. The fields are free to set; [`Workload::new`](crate::Workload::new)
/// checks them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WorkloadConfig {
    /// The EP group.
    pub topology: Topology,
    /// Tokens of a rank in a round (4,096).
    pub tokens: u32,
    /// Experts that a token is sent to (8).
    pub top_k: u32,
    /// Experts in all, spread evenly over the ranks (128, or one a rank in larger groups).
    pub experts: u32,
    /// Rounds of dispatch and combine in a window (128); every other one has a cached layout.
    pub rounds: u32,
    /// Channels: samples that a pair of ranks counts in a round (4).
    pub channels: u32,
    /// How unequally popular experts are: standard deviation of the logarithm (0.4).
    pub expert_skew: f64,
    /// How the cost of a dispatch sample grows with its tokens: 0 not at all, 1 in proportion (0.1;
    /// measured on two H200s: next to nothing).
    pub dispatch_load_exponent: f64,
    /// The same in combine (0.9, as measured there).
    pub combine_load_exponent: f64,
    /// Noise of each cell in each window: standard deviation of the logarithm (0.04).
    pub cell_noise: f64,
    /// Lasting differences between ranks: standard deviation of the logarithm (0.005).
    pub rank_bias: f64,
    /// Jitter of each arrival at a Notify kernel, ns (2,000).
    pub arrival_jitter_ns: f64,
}

impl WorkloadConfig {
    /// The default job on this group.
    #[must_use]
    pub fn new(topology: Topology) -> Self {
        Self {
            topology,
            tokens: 4096,
            top_k: 8,
            experts: u32::try_from(topology.ep_size()).unwrap_or(u32::MAX).max(128),
            rounds: 128,
            channels: 4,
            expert_skew: 0.4,
            dispatch_load_exponent: 0.1,
            combine_load_exponent: 0.9,
            cell_noise: 0.04,
            rank_bias: 0.005,
            arrival_jitter_ns: 2_000.0,
        }
    }

    pub(crate) fn validate(&self) -> Result<(), ConfigError> {
        let count = |name, value: u32, most: u32| {
            let allowed = Allowed { least: 1.0, most: f64::from(most) };
            (name, f64::from(value), allowed)
        };
        let share = |name, value, most| (name, value, Allowed { least: 0.0, most });
        for (name, value, allowed) in [
            count("tokens", self.tokens, 1 << 20),
            count("top_k", self.top_k, 64),
            count("experts", self.experts, 1 << 16),
            count("rounds", self.rounds, 1 << 16),
            count("channels", self.channels, 1 << 10),
            share("expert_skew", self.expert_skew, 4.0),
            share("dispatch_load_exponent", self.dispatch_load_exponent, 1.0),
            share("combine_load_exponent", self.combine_load_exponent, 1.0),
            share("cell_noise", self.cell_noise, 1.0),
            share("rank_bias", self.rank_bias, 1.0),
            share("arrival_jitter_ns", self.arrival_jitter_ns, 1e9),
        ] {
            if !(allowed.least..=allowed.most).contains(&value) {
                let Allowed { least, most } = allowed;
                return Err(ConfigError { name, value, least, most });
            }
        }
        Ok(())
    }
}

struct Allowed {
    least: f64,
    most: f64,
}

/// A field of a [`WorkloadConfig`] that is out of range.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
#[error("{name} is {value}, it must be from {least} to {most}")]
pub struct ConfigError {
    /// The field.
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// The least that is allowed.
    pub least: f64,
    /// The most that is allowed.
    pub most: f64,
}
