//! The commands, one file each.

mod artifact;
mod demo;
mod heatmap;
mod ll;
mod nccl;
mod normal;
mod policy;
mod report;

use clap::Subcommand;

use crate::output::Output;

/// What a command that ran to its end has to say to the shell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Exit code 0.
    Done,
    /// Something was found and `--fail-on-findings` was given: exit code 1.
    Found,
    /// The exit code of another program that was run.
    Exit(u8),
}

/// The first word after `deepxtrace`.
#[derive(Debug, Subcommand)]
pub enum Command {
    Demo(demo::Demo),
    Normal(normal::Normal),
    Ll(ll::Ll),
    Nccl(nccl::Nccl),
    Artifact(artifact::ArtifactCommand),
    Heatmap(heatmap::Heatmap),
    Report(report::Report),
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    ///
    /// Bad usage or unreadable input: what, where and why, in one line.
    pub fn run(self, output: &mut Output) -> anyhow::Result<Outcome> {
        match self {
            Self::Demo(command) => command.run(output),
            Self::Normal(command) => command.run(output),
            Self::Ll(command) => command.run(output),
            Self::Nccl(command) => command.run(output),
            Self::Artifact(command) => command.run(output),
            Self::Heatmap(command) => command.run(output),
            Self::Report(command) => command.run(output),
        }
    }
}
