//! Chores of the workspace: `cargo xtask COMMAND`.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command for people")]

mod bench;
mod ci;
mod gpu;
mod instructions;
mod mpi;
mod probe;
mod shell;

use std::process::ExitCode;

const HELP: &str = "\
cargo xtask COMMAND

  ci        format, lint, test, document and build every feature alone
  mpi       tests and example with real MPI ranks; skipped where there is no MPI
  bench     figures beside their floors; `bench normal 1024` for one table,
            `bench instructions` for counts beside those kept, `bench instructions save` to keep them
  probe     the preload library of `deepxtrace nccl run`, in the release profile
  gpu       build the GPU tests and examples into target/gpu and run them; `gpu --no-run FOLDER`
";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let result = match arguments.next().as_deref() {
        Some("ci") => ci::check(),
        Some("mpi") => mpi::mpi(),
        Some("gpu") => gpu::gpu(&arguments.collect::<Vec<_>>()),
        Some("bench") => bench::bench(&arguments.collect::<Vec<_>>()),
        Some("probe") => probe::build(),
        Some("help" | "--help" | "-h") => {
            print!("{HELP}");
            Ok(())
        }
        Some(other) => Err(format!("no command {other:?}\n\n{HELP}")),
        None => Err(HELP.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
