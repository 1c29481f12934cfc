//! `deepxtrace nccl ...`: hangs of NCCL calls.

mod analyze;
mod dumps;
mod kept;
mod left;
mod live;
mod mixed;
mod ras;
mod replay;
#[cfg(target_os = "linux")]
mod run;
mod settings;
#[cfg(feature = "mpi")]
mod spread;
#[cfg(feature = "mpi")]
mod spread_watch;
mod warnings;
mod watch;

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
    Analyze(analyze::Analyze),
    Watch(watch::Watch),
    Replay(replay::Replay),
    Ras(ras::Ras),
    #[cfg(target_os = "linux")]
    Run(run::Run),
}

impl Nccl {
    /// Runs the command.
    pub fn run(self, output: &mut Output) -> anyhow::Result<Outcome> {
        match self.command {
            NcclCommand::Analyze(command) => command.run(output),
            NcclCommand::Watch(command) => command.run(output),
            NcclCommand::Replay(command) => command.run(output),
            NcclCommand::Ras(command) => command.run(output),
            #[cfg(target_os = "linux")]
            NcclCommand::Run(command) => command.run(output),
        }
    }
}
