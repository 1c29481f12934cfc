//! `cargo xtask gpu`: the GPU tests and examples in one folder that runs on a machine without Rust.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::shell::{answers, cargo, root, run};

/// What is built: package, features, kind and name.
const PROGRAMS: [(&str, &str, &str, &str); 4] = [
    ("deepxtrace-collect", "nccl", "--test", "gpu"),
    ("deepxtrace-collect", "cuda,mpi", "--test", "gpu_mpi"),
    ("deepxtrace", "nccl", "--example", "cuda_counters"),
    ("deepxtrace", "cuda", "--example", "ep_emulator"),
];

const SCRIPT: &str = include_str!("gpu.sh");

/// `cargo xtask gpu [--no-run] [FOLDER]`: builds into the folder (`target/gpu`), and runs its
/// script. Without a GPU everything says that it was skipped.
pub fn gpu(arguments: &[String]) -> Result<(), String> {
    let mut folder = root().join("target/gpu");
    let mut no_run = false;
    for argument in arguments {
        match argument.as_str() {
            "--no-run" => no_run = true,
            other if other.starts_with('-') => return Err(format!("unknown option {other}")),
            other => folder = PathBuf::from(other),
        }
    }
    let fail = |what: &Path| {
        let what = what.display().to_string();
        move |error: std::io::Error| format!("{what}: {error}")
    };
    std::fs::create_dir_all(&folder).map_err(fail(&folder))?;
    let mpi = answers("mpicc", &["--version"]);
    for (package, features, kind, name) in PROGRAMS {
        if features.contains("mpi") && !mpi {
            println!("skipped: {name}: no mpicc on this machine");
            continue;
        }
        let program = build(package, features, kind, name)?;
        let to = folder.join(name);
        std::fs::copy(&program, &to).map_err(fail(&to))?;
    }
    let script = folder.join("run.sh");
    std::fs::write(&script, SCRIPT).map_err(fail(&script))?;
    println!(
        "{}: copy this folder to a machine with a CUDA driver, NVRTC and NCCL, and run run.sh",
        folder.display()
    );
    if no_run {
        return Ok(());
    }
    run(Command::new("bash").arg(&script))
}

/// Builds one program for release, without debug information; where it lies.
fn build(package: &str, features: &str, kind: &str, name: &str) -> Result<PathBuf, String> {
    let what = if kind == "--test" { ["test", "--no-run"] } else { ["build", "--quiet"] };
    let mut command = cargo(&what);
    command
        .args(["--release", "--package", package, "--features", features, kind, name])
        .args(["--message-format", "json-render-diagnostics"])
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .stderr(Stdio::inherit());
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let path = text.lines().filter_map(executable).next_back();
    path.map(PathBuf::from).ok_or_else(|| format!("{command:?} named no executable"))
}

/// The value of `"executable"` in a message of cargo, when it is a path.
fn executable(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("\"executable\":\"")?;
    rest.split_once('"').map(|(path, _)| path)
}

#[cfg(test)]
mod tests {
    use super::executable;

    #[test]
    fn the_executable_is_read_from_a_message_of_cargo() {
        let message = r#"{"reason":"compiler-artifact","executable":"/a/b-1","fresh":true}"#;
        assert_eq!(executable(message), Some("/a/b-1"));
        assert_eq!(executable(r#"{"reason":"compiler-artifact","executable":null}"#), None);
        assert_eq!(executable("{}"), None);
    }
}
