//! `deepxtrace demo`.

use std::io::Write as _;
use std::path::PathBuf;

use clap::Args;

use crate::commands::Outcome;
use crate::output::Output;

/// Diagnose a simulated job of 16 ranks in five phases; needs no GPU.
#[derive(Debug, Args)]
pub struct Demo {
    /// Write the log into this folder (made if absent) in place of a temporary one
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Seed of the simulated job
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object a phase
    #[arg(long)]
    json: bool,
}

impl Demo {
    /// Runs the command.
    pub fn run(self, output: &mut Output) -> anyhow::Result<Outcome> {
        let Self { out, seed, json } = self;
        writeln!(output, "seed {seed}, json {json}, log in {out:?}")?;
        Ok(Outcome::Done)
    }
}
