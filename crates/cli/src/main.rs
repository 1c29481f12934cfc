//! The command `deepxtrace`: finds the rank, stage or path that makes a distributed GPU job slow.
//!
//! Each command is a file under `commands`. Text for people and `--json` go to standard output,
//! errors to standard error, one line each. Exit codes: 0 done, 1 something was found and
//! `--fail-on-findings` was given, 2 bad usage or unreadable input.

#![forbid(unsafe_code)]

mod commands;
mod input;
#[cfg(feature = "mpi")]
mod mpi;
mod output;
mod text;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;

use crate::commands::{Command, Outcome};
use crate::output::{Output, is_broken_pipe, one_line};

/// Exit code when something was found and the user asked to be told.
const FOUND: u8 = 1;
/// Exit code of bad usage and of input that cannot be read; clap uses it too.
const UNUSABLE: u8 = 2;

/// Find the rank, stage or path that makes a distributed GPU job slow or hang.
#[derive(Debug, Parser)]
#[command(name = "deepxtrace", version, about, propagate_version = true, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut output = Output::standard();
    let result = arguments
        .command
        .run(&mut output)
        .and_then(|outcome| output.flush().map(|()| outcome).map_err(anyhow::Error::from));
    match result {
        Ok(Outcome::Done) => ExitCode::SUCCESS,
        Ok(Outcome::Found) => ExitCode::from(FOUND),
        Ok(Outcome::Exit(code)) => ExitCode::from(code),
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            // Nothing is left to tell when standard error is closed as well.
            let _ = writeln!(std::io::stderr(), "deepxtrace: {}", one_line(&error));
            ExitCode::from(UNUSABLE)
        }
    }
}
