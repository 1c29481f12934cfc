//! Recordings of two-GPU jobs by this project's own probe: one folder a scenario of `scenarios/`.

use std::path::Path;

use deepxtrace_nccl_h2::{Config, Finding, Settings};

use crate::support::{analyze, unpack};

/// Timeouts shorter than the eight seconds for which these jobs hung.
fn config() -> Config {
    let settings = Settings {
        collective_timeout_s: Some(3.0),
        delayed_enter_threshold_s: Some(2.0),
        ..Settings::default()
    };
    settings.resolve().unwrap()
}

fn found(folder: &Path, scenario: &str) -> Vec<Finding> {
    analyze(&folder.join(scenario), config(), 0.0)
}

/// Scenario, and the findings that it must give: kind and confidence.
const EXPECTED: &[(&str, &[(&str, &str)])] = &[
    ("healthy", &[]),
    ("split", &[]),
    ("premul", &[]),
    ("graph", &[]),
    ("shim", &[]),
    ("handle", &[]),
    ("api", &[("collective_signature_mismatch", "confirmed")]),
    ("count", &[("collective_signature_mismatch", "confirmed")]),
    ("datatype", &[("collective_signature_mismatch", "confirmed")]),
    ("root", &[("collective_signature_mismatch", "confirmed")]),
    ("reduction", &[("collective_signature_mismatch", "confirmed")]),
    ("missing", &[("collective_missing_enter", "observed")]),
    ("delayed", &[("delayed_collective_enter", "suspected")]),
    ("killed", &[("collective_missing_enter", "observed")]),
    ("lone_send", &[("comm_init_missing_enter", "observed")]),
    ("p2p_count", &[("p2p_call_mismatch", "confirmed")]),
    ("loader", &[("root_blocker", "observed")]),
    ("opposite", &[("communicator_deadlock", "suspected")]),
];

/// As above, for sequences that shift against each other. With two ranks, "one left a call out" and
/// "the other made one more" are equally short: both are told, and nobody is accused.
const SHIFTED: &[(&str, &[(&str, &str)])] = &[
    ("skipped", &[("sequence_divergence", "unknown")]),
    ("extra", &[("sequence_divergence", "unknown")]),
];

/// Tensor, pipeline and data groups at once. The mismatch is in two calls in a row, after which both
/// ranks make the same calls again.
const GROUPS: &[(&str, &[(&str, &str)])] = &[
    ("healthy", &[]),
    ("mismatch", &[("collective_signature_mismatch", "confirmed")]),
    ("missing", &[("collective_missing_enter", "observed")]),
];

#[test]
fn each_scenario_gives_what_was_done_and_nothing_else() {
    check("real/h200x2_probe.tar.gz", EXPECTED);
}

#[test]
fn a_shifted_sequence_gives_the_one_call_that_differs() {
    check("real/h200x2_probe.tar.gz", SHIFTED);
}

#[test]
fn each_fault_in_one_of_several_groups_is_found_and_nothing_else() {
    check("real/h200x2_groups.tar.gz", GROUPS);
}

fn check(archive: &str, scenarios: &[(&str, &[(&str, &str)])]) {
    let folder = tempfile::tempdir().unwrap();
    unpack(archive, folder.path());
    let mut wrong = Vec::new();
    for (scenario, expected) in scenarios {
        let found = found(folder.path(), scenario);
        let told: Vec<(&str, &str)> = found
            .iter()
            .map(|finding| (finding.hang_type.as_str(), finding.confidence().as_str()))
            .collect();
        if told != *expected {
            wrong.push(format!("{scenario}: {told:?} instead of {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
