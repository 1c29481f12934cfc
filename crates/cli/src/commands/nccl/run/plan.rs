//! What a run is given: its folder, its name, the probe, the environment of the job.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// File name of the probe.
pub const PROBE: &str = "libdeepxtrace_nccl_probe.so";
/// Variable that names the probe.
pub const PROBE_VARIABLE: &str = "DEEPXTRACE_PROBE";

/// Variables by which frameworks are told which NCCL to load by name.
const SHIMS: [&str; 2] = ["VLLM_NCCL_SO_PATH", "SGLANG_NCCL_SO_PATH"];

/// Variables that hold the number of the node, the first that is set counts.
const NODE: [&str; 4] = ["NODE_RANK", "GROUP_RANK", "SLURM_NODEID", "OMPI_COMM_WORLD_RANK"];

/// Reads a variable of the environment.
pub type Variables<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Number of this node: from the environment, else from torchrun's own options in the command.
pub fn node(variables: Variables<'_>, command: &[OsString]) -> Option<u64> {
    let text = |value: OsString| value.to_str().and_then(|text| text.trim().parse().ok());
    if let Some(node) = NODE.iter().find_map(|name| variables(name)) {
        return text(node);
    }
    let words: Vec<&str> = command.iter().filter_map(|word| word.to_str()).collect();
    for (place, word) in words.iter().enumerate() {
        for option in ["--node-rank", "--node_rank"] {
            let value = match word.strip_prefix(option) {
                Some("") => words.get(place + 1).copied(),
                Some(rest) => rest.strip_prefix('='),
                None => None,
            };
            if let Some(value) = value {
                return value.parse().ok();
            }
        }
    }
    None
}

/// The probe: the file named, else the one that the variable names, else one beside the program.
pub fn find_probe(
    named: Option<&Path>,
    variables: Variables<'_>,
    program: &Path,
) -> anyhow::Result<PathBuf> {
    let named = named.map(Path::to_owned).or_else(|| variables(PROBE_VARIABLE).map(PathBuf::from));
    if let Some(named) = named {
        return named.canonicalize().with_context(|| format!("probe {}", named.display()));
    }
    let beside = program.parent().unwrap_or(Path::new("."));
    // Installed beside it or in a lib folder; in a build folder, of either profile.
    let places = ["", "../lib", "deps", "../release", "../debug"];
    for place in places {
        let candidate = beside.join(place).join(PROBE);
        if let Ok(found) = candidate.canonicalize() {
            return Ok(found);
        }
    }
    bail!(
        "no {PROBE} beside {}: build it with `cargo xtask probe`, or name it with --probe",
        program.display()
    )
}

/// What is added to the environment of the job.
pub fn environment(
    probe: &Path,
    folder: &Path,
    run_id: &str,
    wrap_dlsym: bool,
    variables: Variables<'_>,
) -> Vec<(OsString, OsString)> {
    let mut preload = probe.as_os_str().to_owned();
    if let Some(others) = variables("LD_PRELOAD").filter(|others| !others.is_empty()) {
        preload.push(":");
        preload.push(others);
    }
    let mut set: Vec<(OsString, OsString)> = vec![
        ("LD_PRELOAD".into(), preload),
        ("DEEPXTRACE_TRACE_DIR".into(), folder.as_os_str().to_owned()),
        ("DEEPXTRACE_RUN_ID".into(), run_id.into()),
    ];
    // The library that the framework was told to load stays the one behind the probe.
    let mut named = SHIMS.iter().filter_map(|name| variables(name));
    let meant = named.find(|path| !path.is_empty() && Path::new(path) != probe);
    if let (Some(meant), None) = (meant, variables("DEEPXTRACE_NCCL_LIBRARY")) {
        set.push(("DEEPXTRACE_NCCL_LIBRARY".into(), meant));
    }
    set.extend(SHIMS.map(|name| (name.into(), probe.as_os_str().to_owned())));
    if wrap_dlsym {
        set.push(("DEEPXTRACE_WRAP_DLSYM".into(), "1".into()));
    }
    set
}

/// Name of the run where the user gives none: the same on all nodes of a Slurm job, else by time.
pub fn run_id(variables: Variables<'_>, unix_s: u64, pid: u32) -> String {
    let set = |name: &str| variables(name).and_then(|value| value.into_string().ok());
    match (set("SLURM_JOB_ID"), set("SLURM_STEP_ID")) {
        (Some(job), Some(step)) => format!("slurm-{job}-{step}"),
        (Some(job), None) => format!("slurm-{job}"),
        (None, _) => format!("run-{unix_s}-{pid}"),
    }
}

/// Checks that a run's name is the name of a folder and nothing else.
pub fn check_run_id(id: &str) -> anyhow::Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if id.is_empty() || id.starts_with('.') || !id.chars().all(plain) {
        bail!("run id {id:?}: letters, digits, '-', '_' and '.' only, and no '.' first");
    }
    Ok(())
}

/// What to start: the program and its arguments.
pub fn command(words: &[OsString]) -> anyhow::Result<(&OsStr, &[OsString])> {
    match words.split_first() {
        Some((program, arguments)) => Ok((program, arguments)),
        None => bail!("no command: deepxtrace nccl run [options] -- COMMAND..."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<'a>(set: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<OsString> + 'a {
        |name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into())
    }

    fn words(text: &str) -> Vec<OsString> {
        text.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_node_is_told_by_the_launcher_or_by_the_command() {
        let none = words("torchrun train.py");
        assert_eq!(node(&with(&[]), &none), None);
        for name in NODE {
            assert_eq!(node(&with(&[(name, "3")]), &none), Some(3));
        }
        let both = [("SLURM_NODEID", "1"), ("NODE_RANK", "2")];
        assert_eq!(node(&with(&both), &none), Some(2));
        for text in ["torchrun --node_rank=4 x", "torchrun --node-rank 4 x"] {
            assert_eq!(node(&with(&[]), &words(text)), Some(4));
        }
        assert_eq!(node(&with(&[]), &words("torchrun --node_rank")), None);
    }

    #[test]
    fn other_preloads_stay_behind_the_probe() {
        let old = [("LD_PRELOAD", "/a.so:/b.so")];
        let set = environment(Path::new("/p.so"), Path::new("/t"), "r", false, &with(&old));
        assert!(set.contains(&("LD_PRELOAD".into(), "/p.so:/a.so:/b.so".into())));
        assert!(set.contains(&("DEEPXTRACE_TRACE_DIR".into(), "/t".into())));
        assert!(!set.iter().any(|(name, _)| name == "DEEPXTRACE_WRAP_DLSYM"));
    }

    #[test]
    fn a_library_that_a_framework_was_told_to_load_stays_in_use() {
        let set = environment(
            Path::new("/p.so"),
            Path::new("/t"),
            "r",
            true,
            &with(&[("VLLM_NCCL_SO_PATH", "/own/libnccl.so.2")]),
        );
        for pair in [
            ("DEEPXTRACE_NCCL_LIBRARY", "/own/libnccl.so.2"),
            ("VLLM_NCCL_SO_PATH", "/p.so"),
            ("SGLANG_NCCL_SO_PATH", "/p.so"),
            ("DEEPXTRACE_WRAP_DLSYM", "1"),
        ] {
            assert!(set.contains(&(pair.0.into(), pair.1.into())), "{pair:?}");
        }
        // Run within a run: the probe is not behind itself.
        let again = with(&[("VLLM_NCCL_SO_PATH", "/p.so")]);
        let set = environment(Path::new("/p.so"), Path::new("/t"), "r", true, &again);
        assert!(!set.iter().any(|(name, _)| name == "DEEPXTRACE_NCCL_LIBRARY"));
    }

    #[test]
    fn a_run_is_named_by_its_job_or_by_the_time() {
        assert_eq!(run_id(&with(&[]), 1_700_000_000, 7), "run-1700000000-7");
        assert_eq!(run_id(&with(&[("SLURM_JOB_ID", "12")]), 0, 7), "slurm-12");
        let step = [("SLURM_JOB_ID", "12"), ("SLURM_STEP_ID", "0")];
        assert_eq!(run_id(&with(&step), 0, 7), "slurm-12-0");
        for bad in ["", "a/b", "..", ".x", "a b"] {
            assert!(check_run_id(bad).is_err(), "{bad}");
        }
        assert!(check_run_id("run-1.2_x").is_ok());
    }
}
