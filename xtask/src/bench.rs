//! `cargo xtask bench`: the figures of the workspace, each beside its floor, in one run.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::instructions;
use crate::shell::{cargo, root, run};

/// Builds in release and prints every table, or does one thing of the program's own.
pub fn bench(arguments: &[String]) -> Result<(), String> {
    match arguments {
        [] => {
            let program = build()?;
            for table in ["normal", "ll", "nccl", "dumps"] {
                run(Command::new(&program).arg(table))?;
            }
            instructions::compare(&program)
        }
        [only] if only == "instructions" => instructions::compare(&build()?),
        [first, second] if first == "instructions" && second == "save" => {
            instructions::save(&build()?)
        }
        _ => run(Command::new(build()?).args(arguments)),
    }
}

/// The program that measures, built in the release profile.
fn build() -> Result<PathBuf, String> {
    run(&mut cargo(&["build", "--release", "--quiet", "--package", "deepxtrace-bench"]))?;
    let folder =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    Ok(Path::new(&folder).join("release/deepxtrace-bench"))
}
