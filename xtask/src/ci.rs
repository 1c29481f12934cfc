//! `cargo xtask ci`: everything that must hold before a change lands.

use std::time::Instant;

use crate::shell::{answers, cargo, root, run};
use crate::{bench, mpi};

/// Features that need more than a Rust toolchain, with the reason to skip them.
const NEEDS_MPI: &str = "mpi";

/// Runs every step in turn, stops at the first that fails, and tells what was skipped and why.
fn run_steps() -> Result<Vec<String>, String> {
    let mut skipped = Vec::new();
    step("format", || run(&mut cargo(&["fmt", "--all", "--check"])))?;
    step("clippy", || {
        run(&mut cargo(&["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"]))
    })?;
    step("tests", || run(&mut cargo(&["test", "--workspace"])))?;
    step("tests of metrics", || {
        let only =
            ["test", "-p", "deepxtrace", "--features", "metrics", "--test", "it", "metrics::"];
        run(&mut cargo(&only))
    })?;
    step("the same results on any number of threads", || {
        let only = ["--features", "rayon", "--test", "it", "threads::"];
        run(cargo(&["test", "-p", "deepxtrace-normal"]).args(only))
    })?;
    if answers("valgrind", &["--version"]) {
        step("instruction counts", || bench::bench(&["instructions".to_owned()]))?;
    } else {
        skipped.push("instruction counts: no valgrind on this machine".to_owned());
    }
    step("lint of the GPU code", || {
        let packages = ["--package", "deepxtrace-collect", "--package", "deepxtrace"];
        let features = ["--features", "deepxtrace-collect/nccl,deepxtrace/nccl", "--all-targets"];
        run(cargo(&["clippy"]).args(packages).args(features).args(["--", "--deny", "warnings"]))
    })?;
    step("GPU tests, which say that they were skipped where there is no GPU", || {
        let only = ["--package", "deepxtrace-collect", "--features", "nccl", "--lib"];
        run(cargo(&["test"]).args(only).args(["--test", "gpu"]))
    })?;
    step("docs", || {
        run(cargo(&["doc", "--workspace", "--no-deps", "--document-private-items"])
            .env("RUSTDOCFLAGS", "--deny warnings"))
    })?;
    if root().join("fuzz/Cargo.toml").exists() {
        step("fuzz targets compile", || {
            run(cargo(&["check", "--quiet", "--manifest-path", "fuzz/Cargo.toml"])
                .env("CARGO_TARGET_DIR", root().join("target/fuzz")))
        })?;
    }
    let mpi = mpi::missing();
    match &mpi {
        Some(reason) => skipped.push(format!("real MPI ranks: {reason}")),
        None => step("real MPI ranks", mpi::mpi)?,
    }
    for (package, feature) in features()? {
        if let (NEEDS_MPI, Some(reason)) = (feature.as_str(), &mpi) {
            skipped.push(format!("feature {feature} of {package}: {reason}"));
            continue;
        }
        step(&format!("build {package} with only {feature}"), || {
            run(&mut cargo(&[
                "clippy",
                "--package",
                &package,
                "--no-default-features",
                "--features",
                &feature,
                "--",
                "--deny",
                "warnings",
            ]))
        })?;
    }
    Ok(skipped)
}

/// `cargo xtask ci`.
pub fn check() -> Result<(), String> {
    let skipped = run_steps()?;
    for line in &skipped {
        println!("skipped: {line}");
    }
    println!("all checks passed, {} skipped", skipped.len());
    Ok(())
}

fn step(name: &str, work: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    println!("== {name}");
    let start = Instant::now();
    work().map_err(|error| format!("{name} failed: {error}"))?;
    println!("== {name}: done in {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

/// Every feature of every member but `default`, read from the manifests, in order.
fn features() -> Result<Vec<(String, String)>, String> {
    let mut found = Vec::new();
    let folder = root().join("crates");
    let entries = std::fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut manifests: Vec<_> =
        entries.filter_map(|entry| Some(entry.ok()?.path().join("Cargo.toml"))).collect();
    manifests.sort();
    for manifest in manifests {
        let text = std::fs::read_to_string(&manifest)
            .map_err(|error| format!("{}: {error}", manifest.display()))?;
        found.extend(features_of(&text));
    }
    Ok(found)
}

fn features_of(manifest: &str) -> Vec<(String, String)> {
    let value = |line: &str| Some(line.split_once('=')?.1.trim().trim_matches('"').to_owned());
    let package = manifest.lines().find(|line| line.starts_with("name")).and_then(value);
    let Some(package) = package else { return Vec::new() };
    manifest
        .lines()
        .skip_while(|line| line.trim() != "[features]")
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| Some(line.split_once('=')?.0.trim().to_owned()))
        .filter(|name| {
            name != "default" && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
        })
        .map(|feature| (package.clone(), feature))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::features_of;

    #[test]
    fn features_are_read_from_a_manifest() {
        let manifest = "[package]\nname = \"a\"\n[features]\ndefault = [\"x\"]\nx = []\n# y = []\nz-1 = [\n  \"x\",\n]\n[dependencies]\nq = \"1\"\n";
        let expected = [("a".to_owned(), "x".to_owned()), ("a".to_owned(), "z-1".to_owned())];
        assert_eq!(features_of(manifest), expected);
    }
}
