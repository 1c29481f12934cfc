//! `deepxtrace nccl ...`: hangs of NCCL calls.

#[cfg(target_os = "linux")]
mod run;

use clap::{Args, Subcommand};

use crate::commands::Outcome;
use crate::output::Output;

/// Find missing, mismatched and stuck NCCL calls.
#[derive(Debug, Args)]
pub struct Nccl {
    #[command(subcommand)]
    command: NcclCommand,
}

#[derive(Debug, Subcommand)]
enum NcclCommand {
    #[cfg(target_os = "linux")]
    Run(run::Run),
}

impl Nccl {
    /// Runs the command.
    pub fn run(self, output: &mut Output) -> anyhow::Result<Outcome> {
        match self.command {
            #[cfg(target_os = "linux")]
            NcclCommand::Run(command) => command.run(output),
        }
    }
}
