//! `deepxtrace ll ...`: low-latency wait matrices.

use std::io::Write as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use deepxtrace::counters::Topology;
use deepxtrace::ll::{LlDiagnoser, LlDiagnosis, MeanRatioPolicy};
use deepxtrace::normal::Policy;
use serde::Serialize;

use crate::commands::Outcome;
use crate::input::skipped::Skipped;
use crate::input::waits::{self, Source, Waits};
use crate::output::Output;
use crate::text;

/// Diagnose wait matrices of the low-latency mode.
#[derive(Debug, Args)]
pub struct Ll {
    #[command(subcommand)]
    command: LlCommand,
}

#[derive(Debug, Subcommand)]
enum LlCommand {
    Analyze(Analyze),
}

impl Ll {
    /// Runs the command.
    pub fn run(self, output: &mut Output) -> anyhow::Result<Outcome> {
        match self.command {
            LlCommand::Analyze(command) => command.run(output),
        }
    }
}

/// Diagnose wait matrices: who is waited for, who waits, which path is slow.
///
/// A file is a .npy or .npz of integers, plain numbers in text, or a log. Row i of a matrix is how
/// long rank i waited for each rank. Of a log, the newest complete matrix of each phase is taken.
/// A file among several that cannot be used is named, and the others are diagnosed.
#[derive(Debug, Args)]
struct Analyze {
    /// The files
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// One JSON object a matrix
    #[arg(long)]
    json: bool,
    /// Exit with 1 when a matrix has a finding
    #[arg(long)]
    fail_on_findings: bool,
    /// Ranks on a node
    #[arg(long, value_name = "R", default_value_t = 8)]
    ranks_per_node: usize,
    #[command(flatten)]
    thresholds: Thresholds,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Thresholds")]
struct Thresholds {
    /// Mean rule: a column above this ratio is abnormal
    #[arg(long, value_name = "RATIO", default_value_t = MeanRatioPolicy::default().threshold_col)]
    threshold_col: f64,
    /// Mean rule: a row above this ratio is abnormal
    #[arg(long, value_name = "RATIO", default_value_t = MeanRatioPolicy::default().threshold_row)]
    threshold_row: f64,
    /// Mean rule: a cell above this ratio is abnormal
    #[arg(long, value_name = "RATIO", default_value_t = MeanRatioPolicy::default().threshold_point)]
    threshold_point: f64,
    /// Mean rule: compare cells with the mean of those that are not 0
    #[arg(long)]
    excluding_zeros: bool,
    /// Mean rule: also list the cells of abnormal rows and columns
    #[arg(long)]
    keep_points: bool,
    /// Topology rule: smallest ratio of a row, column or node block
    #[arg(long, value_name = "RATIO", default_value_t = Policy::default().axis_ratio)]
    axis_ratio: f64,
    /// Topology rule: smallest ratio of a single path
    #[arg(long, value_name = "RATIO", default_value_t = Policy::default().point_ratio)]
    point_ratio: f64,
}

impl Thresholds {
    fn mean_policy(&self) -> MeanRatioPolicy {
        MeanRatioPolicy {
            threshold_col: self.threshold_col,
            threshold_row: self.threshold_row,
            threshold_point: self.threshold_point,
            excluding_zeros: self.excluding_zeros,
            keep_points: self.keep_points,
        }
    }

    fn policy(&self) -> Policy {
        Policy { axis_ratio: self.axis_ratio, point_ratio: self.point_ratio, ..Policy::default() }
    }
}

/// The object of `--json`.
#[derive(Serialize)]
struct MatrixJson<'a> {
    source: &'a Source,
    #[serde(flatten)]
    diagnosis: &'a LlDiagnosis,
}

impl Analyze {
    fn run(self, output: &mut Output) -> anyhow::Result<Outcome> {
        let (mean_policy, policy) = (self.thresholds.mean_policy(), self.thresholds.policy());
        let mut found = false;
        let mut skipped = Skipped::default();
        for file in &self.files {
            let read = match &self.files[..] {
                [_] => waits::read(file)?,
                _ => skipped.take(waits::read(file)).unwrap_or_default(),
            };
            for Waits { source, matrix } in read {
                let topology = Topology::new(matrix.nrows(), self.ranks_per_node)?;
                let mut diagnoser = LlDiagnoser::new(topology, mean_policy, policy)?;
                let diagnosis = diagnoser.diagnose(matrix.view())?;
                found |= !diagnosis.mean_ratio.is_empty();
                found |= !diagnosis.topology.findings.is_empty();
                if self.json {
                    serde_json::to_writer(
                        &mut *output,
                        &MatrixJson { source: &source, diagnosis },
                    )?;
                    writeln!(output)?;
                } else {
                    text::ll::matrix(output, &source, topology, diagnosis)?;
                }
            }
        }
        skipped.finish()?;
        Ok(if found && self.fail_on_findings { Outcome::Found } else { Outcome::Done })
    }
}
