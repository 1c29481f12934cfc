//! `cargo xtask mpi`: the tests and the example that need real MPI ranks.

use std::path::PathBuf;
use std::process::Command;

use crate::shell::{answers, cargo, root, run};

/// What Open MPI needs to start more ranks than there are cores, as root in a container.
const LENIENT: [(&str, &str); 3] = [
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
    ("OMPI_MCA_rmaps_base_oversubscribe", "1"),
];

/// Why it cannot be run here; `None` when it can.
pub fn missing() -> Option<String> {
    let wanted = ["mpicc", "mpirun"].into_iter().find(|program| !answers(program, &["--version"]));
    wanted.map(|program| format!("no {program} on this machine"))
}

/// Builds and runs all of it. Without an MPI it says so and is content.
pub fn mpi() -> Result<(), String> {
    if let Some(reason) = missing() {
        println!("skipped: {reason}");
        return Ok(());
    }
    run(cargo(&["test", "--package", "deepxtrace-collect", "--features", "mpi", "--lib"])
        .envs(LENIENT))?;
    run(cargo(&["test", "--package", "deepxtrace", "--features", "mpi", "--test", "mpi"])
        .envs(LENIENT))?;
    let command = ["test", "--package", "deepxtrace-cli", "--features", "mpi"];
    run(cargo(&command).args(["--bin", "deepxtrace"]))?;
    run(cargo(&command).args(["--test", "it", "nccl_mpi"]).envs(LENIENT))?;
    let example = ["build", "--package", "deepxtrace", "--features", "mpi", "--example", "mpi_ep"];
    run(&mut cargo(&example))?;
    run(Command::new("mpirun").args(["-n", "8"]).arg(examples().join("mpi_ep")).envs(LENIENT))
}

/// Where cargo puts examples.
fn examples() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    target.unwrap_or_else(|| root().join("target")).join("debug/examples")
}
