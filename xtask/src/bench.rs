//! `cargo xtask bench`: the figures of the workspace, each beside its floor, in one run.

use std::process::Command;

use crate::shell::{answers, cargo, root, run};

/// What is counted in instructions: kind, EP size.
const COUNTED: [(&str, &str); 4] =
    [("normal", "16"), ("normal", "64"), ("normal", "256"), ("ll", "256")];
/// One run repeats this often more than the other.
const MORE: u64 = 4;

/// Builds in release and prints every table.
pub fn bench(arguments: &[String]) -> Result<(), String> {
    run(&mut cargo(&["build", "--release", "--quiet", "--package", "deepxtrace-bench"]))?;
    let program = root().join("target/release/deepxtrace-bench");
    if !arguments.is_empty() {
        return run(Command::new(&program).args(arguments));
    }
    for table in ["normal", "ll", "nccl"] {
        run(Command::new(&program).arg(table))?;
    }
    instructions(&program)
}

/// Instructions of one window, as a difference of two runs: the same on a noisy machine.
fn instructions(program: &std::path::Path) -> Result<(), String> {
    if !answers("valgrind", &["--version"]) {
        println!("skipped: instruction counts (no valgrind on this machine)");
        return Ok(());
    }
    println!("Instructions of one window (callgrind)\n\n| what | EP | instructions | a cell |");
    println!("|---|---|---|---|");
    for (kind, ranks) in COUNTED {
        let count = |repeats: u64| callgrind(program, kind, ranks, repeats);
        let each = count(1 + MORE)?.saturating_sub(count(1)?) / MORE;
        let cells = ranks.parse::<u64>().unwrap_or(1).pow(2);
        println!("| {kind} | {ranks} | {each} | {} |", each / cells);
    }
    Ok(())
}

fn callgrind(
    program: &std::path::Path,
    kind: &str,
    ranks: &str,
    repeats: u64,
) -> Result<u64, String> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["repeat", kind, ranks, &repeats.to_string()])
        .output()
        .map_err(|error| format!("valgrind: {error}"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    text.lines()
        .find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
        .ok_or_else(|| format!("valgrind gave no count for {kind} {ranks}:\n{text}"))
}
