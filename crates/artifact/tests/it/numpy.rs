//! NumPy reads what this crate writes, and this crate reads what NumPy writes.
//!
//! Python is `DEEPXTRACE_PYTHON`, else `python3`; without a NumPy there the tests say so and pass.

use std::path::{Path, PathBuf};
use std::process::Command;

use deepxtrace_artifact::{Artifact, Store, read};
use deepxtrace_counters::{CompletionProbe, NotifyProbe};

use crate::sample::{low_latency, normal, window};

fn python() -> Option<PathBuf> {
    let python = std::env::var_os("DEEPXTRACE_PYTHON").unwrap_or_else(|| "python3".into());
    let found = Command::new(&python).args(["-c", "import numpy"]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return Some(python.into());
    }
    assert!(
        std::env::var_os("CI").is_none(),
        "CI needs NumPy: DEEPXTRACE_PYTHON must name a Python that has it"
    );
    eprintln!("skipped: no NumPy in {python:?}; DEEPXTRACE_PYTHON may name a Python that has it");
    None
}

/// Runs a script of `tests/data` with two arguments; gives what it prints.
fn run(python: &Path, script: &str, arguments: [&Path; 2]) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(script);
    let output = Command::new(python).arg(script).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn numpy_reads_every_array_with_the_documented_type_and_shape() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let store = Store::new(folder.path(), 128);
    let normal = store.write(&normal(window(11, 4, 7, Some(2)))).unwrap();
    let low_latency = store.write(&low_latency(11, 9)).unwrap();
    let report = run(&python, "check_documented.py", [&normal, &low_latency]);
    // 10 common keys; 3 * 3 and 3 * 4 of the probes and the diagnosis; 2 matrices and 3 texts.
    assert_eq!(
        report,
        "normal_window: 32 arrays as documented\nll_window: 15 arrays as documented\n"
    );
}

#[test]
fn a_window_that_numpy_wrote_is_read() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (normal, low_latency) = (folder.path().join("n.npz"), folder.path().join("l.npz"));
    run(&python, "write_windows.py", [&normal, &low_latency]);

    // The values stand in write_windows.py.
    let Artifact::Normal(found) = read(&normal).unwrap() else { panic!("a Normal window") };
    assert_eq!((&*found.instance, found.window.index()), ("numpy", 12));
    assert_eq!(found.window.topology().ep_size(), 3);
    assert_eq!(found.window.topology().ranks_per_node(), 2);
    assert_eq!((found.window.begin_unix_ns(), found.window.end_unix_ns()), (-5, 1_000));
    assert_eq!(found.window.valid(), [true, true, false]);
    assert_eq!(found.policy.point_ratio, 4.0);
    let notify = found.window.notify(NotifyProbe::CachedNotifyCombine);
    assert_eq!((&notify.duration_ns[..], &notify.count[..]), (&[302, 303, 0][..], &[3, 0, 0][..]));
    let combine = found.window.completion(CompletionProbe::CombineLogicalRecv);
    let costs: Vec<_> = combine.cost.iter().copied().collect();
    assert_eq!(costs, [2000, 2001, 0, 2010, 2011, 0, 2020, 2021, 0]);
    assert_eq!(combine.samples[[2, 1]], i64::MAX);
    assert_eq!(
        found.diagnosis.reason.as_deref(),
        Some("rank 1: a counter went back \u{2192} reset")
    );

    let Artifact::LowLatency(found) = read(&low_latency).unwrap() else { panic!("low latency") };
    assert_eq!(found.window.wait(deepxtrace_counters::LlPhase::Combine)[[0, 1]], 21);
}
