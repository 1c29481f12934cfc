//! What can be set.

use std::path::PathBuf;

use clap::Parser;

/// Sixteen logical ranks on one GPU or more run dispatch and combine rounds in the five phases of
/// the published validation, and beyond; deepxtrace collects and diagnoses them.
///
/// A node is one GPU with eight ranks, or several that share them evenly; the link between the GPUs is
/// the path between the nodes, and between the GPUs of a node.
#[derive(Debug, Clone, Parser)]
#[command(version)]
pub struct Options {
    /// GPUs to use: 1 for both nodes on one, or an even number that divides the ranks (default: 2 where
    /// there are two)
    #[arg(long)]
    pub gpus: Option<usize>,
    /// Ranks a node
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=8))]
    pub ranks_per_node: u32,
    /// Tokens a rank sends in a round; a multiple of the channels
    #[arg(long, default_value_t = 4096)]
    pub tokens: usize,
    /// Experts a token goes to
    #[arg(long, default_value_t = 8)]
    pub top_k: usize,
    /// Experts in all; a multiple of the ranks
    #[arg(long, default_value_t = 128)]
    pub experts: usize,
    /// Skew of the experts' popularity: the n-th most popular is chosen with weight n^-skew
    #[arg(long, default_value_t = 0.4)]
    pub skew: f64,
    /// The skew of the phase `strong_skew`
    #[arg(long, default_value_t = 1.2)]
    pub strong_skew: f64,
    /// Routing draws that the rounds take in turn
    #[arg(long, default_value_t = 4)]
    pub draws: usize,
    /// Channels a rank splits its tokens into; each is one sample
    #[arg(long, default_value_t = 4)]
    pub channels: usize,
    /// Warps that serve one flow within a node
    #[arg(long, default_value_t = 2)]
    pub warps_per_flow: usize,
    /// Warps that serve one flow across the link in dispatch
    #[arg(long, default_value_t = 8)]
    pub crossing_warps: usize,
    /// Warps that serve one flow across the link in combine
    #[arg(long, default_value_t = 2)]
    pub combine_crossing_warps: usize,
    /// Rows a flag in dispatch
    #[arg(long, default_value_t = 16)]
    pub dispatch_chunk: usize,
    /// Rows a flag in combine
    #[arg(long, default_value_t = 8)]
    pub combine_chunk: usize,
    /// Bytes a token in dispatch; a multiple of 16
    #[arg(long, default_value_t = 2048)]
    pub dispatch_bytes: usize,
    /// Bytes a row in combine; a multiple of 16, not above the dispatch bytes
    #[arg(long, default_value_t = 1024)]
    pub combine_bytes: usize,
    /// Chunks of a channel that may be under way to a gateway of dispatch; 0: no limit, and room for
    /// all
    #[arg(long, default_value_t = 0)]
    pub credits: usize,
    /// Add up in the gateways of combine what the ranks of a node have for a token
    #[arg(long)]
    pub sums: bool,
    /// Rounds a window
    #[arg(long, default_value_t = 128)]
    pub rounds: usize,
    /// Windows a phase; a baseline has twice as many
    #[arg(long, default_value_t = 12)]
    pub windows: usize,
    /// What the late rank computes longer, microseconds
    #[arg(long, default_value_t = 1500)]
    pub late_us: u64,
    /// The late rank
    #[arg(long, default_value_t = 9)]
    pub late_rank: usize,
    /// Competing peer copies at a time in each direction
    #[arg(long, default_value_t = 2)]
    pub pressure: usize,
    /// Repeated stores of a chunk over the link in dispatch, for pressure on single paths
    #[arg(long, default_value_t = 5)]
    pub extra_dispatch: i32,
    /// The same in combine
    #[arg(long, default_value_t = 8)]
    pub extra_combine: i32,
    /// Up to so many microseconds of additional computation, drawn anew for every rank and round
    #[arg(long, default_value_t = 20)]
    pub jitter_us: u64,
    /// Rounds before the first snapshot
    #[arg(long, default_value_t = 200)]
    pub warm_up: usize,
    /// How often the phases are run
    #[arg(long, default_value_t = 1)]
    pub runs: usize,
    /// Run only these phases, after the baseline (default: the five)
    #[arg(long, value_delimiter = ',')]
    pub phases: Vec<String>,
    /// End well whatever the diagnoses are: for runs under a checking tool
    #[arg(long)]
    pub any_diagnosis: bool,
    /// Run the phases beyond the five too
    #[arg(long)]
    pub beyond: bool,
    /// Seed of the routing
    #[arg(long, default_value_t = 6)]
    pub seed: u64,
    /// Write an artifact of every window (needs --out)
    #[arg(long, requires = "out")]
    pub artifacts: bool,
    /// Write the details of every window into the log
    #[arg(long)]
    pub log_details: bool,
    /// Folder for the snapshots, logs and artifacts (default: none are written)
    #[arg(long)]
    pub out: Option<PathBuf>,
}

impl Options {
    /// Ranks of the group: two nodes.
    pub fn ranks(&self) -> usize {
        2 * self.ranks_per_node as usize
    }

    /// Tokens a channel.
    pub fn cap(&self) -> usize {
        self.tokens / self.channels
    }

    /// What cannot be, in words.
    pub fn check(&self) -> Result<(), String> {
        let multiple = |of: usize, value: usize| value > 0 && of > 0 && value.is_multiple_of(of);
        let checks = [
            (multiple(self.channels, self.tokens), "--tokens must be a multiple of --channels"),
            (self.tokens <= 1 << 20, "--tokens must not be above 1048576"),
            (multiple(self.ranks(), self.experts), "--experts must be a multiple of the ranks"),
            ((1..=self.experts).contains(&self.top_k), "--top-k must be in 1..=experts"),
            (multiple(16, self.dispatch_bytes), "--dispatch-bytes must be a multiple of 16"),
            (multiple(16, self.combine_bytes), "--combine-bytes must be a multiple of 16"),
            (
                self.combine_bytes <= self.dispatch_bytes,
                "--combine-bytes is above --dispatch-bytes",
            ),
            (self.dispatch_chunk > 0 && self.combine_chunk > 0, "a chunk has at least one row"),
            (
                self.warps_per_flow * self.crossing_warps * self.combine_crossing_warps > 0,
                "a flow has at least one warp",
            ),
            (self.cap() < 1 << 16, "a channel has 65536 tokens or more: use more channels"),
            (
                self.credits == 0 || self.cap().div_ceil(self.dispatch_chunk.max(1)) < 1 << 12,
                "--credits needs fewer than 4096 chunks a channel: use a larger --dispatch-chunk",
            ),
            (self.draws > 0 && self.rounds > 0 && self.windows > 0, "a count is 0"),
            (self.late_rank < self.ranks(), "--late-rank is no rank"),
            (
                self.gpus.is_none_or(|gpus| {
                    gpus == 1 || gpus.is_multiple_of(2) && multiple(gpus, self.ranks())
                }),
                "--gpus must be 1, or even and a divisor of the ranks",
            ),
        ];
        match checks.iter().find(|(fine, _)| !fine) {
            Some((_, text)) => Err((*text).to_owned()),
            None => Ok(()),
        }
    }
}
