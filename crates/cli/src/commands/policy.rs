//! Flags for the thresholds, the same in every command.

use clap::Args;
use deepxtrace::normal::Policy;

/// Thresholds; the defaults are those of a job without settings.
#[derive(Debug, Clone, Copy, Args)]
#[command(next_help_heading = "Thresholds")]
pub struct PolicyArgs {
    /// A rank that waits at most this share of what the others wait is late
    #[arg(long, value_name = "RATIO", default_value_t = Policy::default().notify_ratio)]
    notify_ratio: f64,
    /// Hide late ranks that cost each peer a smaller share of the window
    #[arg(long, value_name = "SHARE", default_value_t = Policy::default().notify_min_share)]
    notify_min_share: f64,
    /// Smallest ratio of a row, column, rail, gateway or node block
    #[arg(long, value_name = "RATIO", default_value_t = Policy::default().axis_ratio)]
    axis_ratio: f64,
    /// Smallest ratio of a single path
    #[arg(long, value_name = "RATIO", default_value_t = Policy::default().point_ratio)]
    point_ratio: f64,
    /// Smallest ratio of a global slowdown
    #[arg(long, value_name = "RATIO", default_value_t = Policy::default().global_ratio)]
    global_ratio: f64,
    /// Compare costs as they are, not at equal load
    #[arg(long)]
    no_load_adjust: bool,
}

impl PolicyArgs {
    /// The policy; whether it makes sense is checked where it is used.
    pub fn policy(&self) -> Policy {
        Policy {
            notify_ratio: self.notify_ratio,
            axis_ratio: self.axis_ratio,
            point_ratio: self.point_ratio,
            global_ratio: self.global_ratio,
            load_adjust: !self.no_load_adjust,
            notify_min_share: self.notify_min_share,
        }
    }
}
