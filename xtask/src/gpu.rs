//! `cargo xtask gpu`: GPU tests, benches and examples in one folder for a machine without Rust.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::shell::{answers, cargo, root, run};

/// A program to build: what cargo must be told, and its name in the folder.
struct Program {
    package: &'static str,
    features: &'static str,
    kind: &'static str,
    name: &'static str,
    file: &'static str,
}

const fn program(
    package: &'static str,
    features: &'static str,
    kind: &'static str,
    name: &'static str,
    file: &'static str,
) -> Program {
    Program { package, features, kind, name, file }
}

const PROGRAMS: [Program; 6] = [
    program("deepxtrace-collect", "nccl", "--test", "gpu", "gpu"),
    program("deepxtrace-collect", "cuda,mpi", "--test", "gpu_mpi", "gpu_mpi"),
    program("deepxtrace", "nccl", "--test", "gpu", "diagnose"),
    program("deepxtrace", "nccl", "--example", "cuda_counters", "cuda_counters"),
    program("deepxtrace", "nccl", "--example", "ep_emulator", "ep_emulator"),
    program("deepxtrace", "nccl", "--example", "borrowed_stream", "libborrowed_stream.so"),
];

/// The bench of the probe, with the probe itself in the same profile beside it.
const BENCH: Program = program("deepxtrace-nccl-probe", "", "--bench", "call", "probe_bench");
const PROBE: &str = "libdeepxtrace_nccl_probe.so";

/// Stand-ins for that bench: source in the probe's tests, name in the folder `stubs`.
const STUBS: [(&str, &str); 2] = [("nccl_stub.c", "libnccl.so.2"), ("cuda_stub.c", "libcuda.so.1")];

/// Scripts, by their place in the workspace.
const SCRIPTS: [&str; 5] = [
    "scenarios/launch.py",
    "scenarios/overhead.py",
    "scenarios/scenario.py",
    "scenarios/parallel.py",
    "crates/deepxtrace/examples/borrowed_stream/borrowed_stream.py",
];

const RUN: &str = include_str!("gpu.sh");

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
    make(&folder)?;
    println!(
        "{}: copy this folder to a machine with a CUDA driver, NVRTC and NCCL, and run run.sh",
        folder.display()
    );
    let script = folder.join("run.sh");
    if no_run { Ok(()) } else { run(Command::new("bash").arg(script)) }
}

fn make(folder: &Path) -> Result<(), String> {
    let stubs = folder.join("stubs");
    std::fs::create_dir_all(&stubs).map_err(|error| format!("{}: {error}", stubs.display()))?;
    let mpi = answers("mpicc", &["--version"]);
    for program in &PROGRAMS {
        if program.features.contains("mpi") && !mpi {
            println!("skipped: {}: no mpicc on this machine", program.file);
            continue;
        }
        copy(&build(program)?, &folder.join(program.file))?;
    }
    let bench = build(&BENCH)?;
    copy(&bench, &folder.join(BENCH.file))?;
    copy(&bench.with_file_name(PROBE), &folder.join(PROBE))?;
    for (source, name) in STUBS {
        let source = root().join("crates/nccl-probe/tests/c").join(source);
        let soname = format!("-Wl,-soname,{name}");
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-shared", "-fPIC", &soname]).arg(source).arg("-lpthread");
        run(gcc.arg("-o").arg(stubs.join(name)))?;
    }
    for script in SCRIPTS {
        let from = root().join(script);
        let name = from.file_name().unwrap_or_default();
        copy(&from, &folder.join(name))?;
    }
    let script = folder.join("run.sh");
    write_script(&script).map_err(|error| format!("{}: {error}", script.display()))
}

fn write_script(path: &Path) -> std::io::Result<()> {
    std::fs::write(path, RUN)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let copied = std::fs::copy(from, to);
    copied.map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))?;
    Ok(())
}

/// Builds one program for release, without debug information; where it lies.
fn build(program: &Program) -> Result<PathBuf, String> {
    let Program { package, features, kind, name, .. } = program;
    let what: &[&str] = match *kind {
        "--test" => &["test", "--no-run", "--release"],
        "--bench" => &["bench", "--no-run"],
        _ => &["build", "--release"],
    };
    let mut command = cargo(what);
    command
        .args(["--package", package, "--features", features, kind, name])
        .args(["--message-format", "json-render-diagnostics"])
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
        .stderr(Stdio::inherit());
    if *kind != "--bench" {
        // What is measured there is the device's and the driver's time: not worth the linking.
        command.env("CARGO_PROFILE_RELEASE_LTO", "off");
    }
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", output.status));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut paths = text.lines().filter(|line| names(line, name)).filter_map(built);
    paths.next_back().map(PathBuf::from).ok_or_else(|| format!("{command:?} built no program"))
}

/// Whether a message of cargo is about the target `name`.
fn names(message: &str, name: &str) -> bool {
    message.contains(&format!("\"name\":\"{name}\""))
}

/// The program in a message of cargo, or the C library of an example.
fn built(message: &str) -> Option<&str> {
    let value = |key: &str| message.split_once(key)?.1.split_once('"');
    let executable = value("\"executable\":\"").map(|(path, _)| path);
    executable.or_else(|| {
        let (path, _) = value("\"filenames\":[\"")?;
        path.ends_with(".so").then_some(path)
    })
}

#[cfg(test)]
mod tests {
    use super::{built, names};

    #[test]
    fn the_program_is_read_from_a_message_of_cargo() {
        let message = r#"{"reason":"compiler-artifact","target":{"name":"b"},"filenames":["/a/b-1"],"executable":"/a/b-1","fresh":true}"#;
        assert_eq!(built(message), Some("/a/b-1"));
        assert!(names(message, "b") && !names(message, "b-1"));
        let library = r#"{"target":{"name":"b"},"filenames":["/a/libb.so"],"executable":null}"#;
        assert_eq!(built(library), Some("/a/libb.so"));
        let other = r#"{"target":{"name":"b"},"filenames":["/a/libb.rlib"],"executable":null}"#;
        assert_eq!(built(other), None);
        assert_eq!(built("{}"), None);
    }
}
