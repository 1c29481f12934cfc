//! A recording of real GPUs: the incidents of its five phases.

use std::path::Path;

use deepxtrace_counters::{Layout, Snapshot, Step, Topology, Windows};
use deepxtrace_normal::{Diagnoser, Incident, Policy, WindowDiagnosis};

const SNAPSHOTS: usize = 85;

fn data(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The diagnoses of the 84 windows, one diagnoser all the way.
fn diagnoses() -> Vec<WindowDiagnosis> {
    let topology = Topology::new(16, 8).unwrap();
    let bytes = data("five_phases_h200x2.i64");
    let counters: Vec<i64> =
        bytes.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap())).collect();
    let each = 16 * Layout::of(topology).vector_len();
    assert_eq!(counters.len(), SNAPSHOTS * each);

    let mut diagnoser = Diagnoser::new(topology, Policy::default()).unwrap();
    let mut windows = Windows::new(topology);
    let mut diagnoses = Vec::new();
    for (i, counters) in counters.chunks_exact(each).enumerate() {
        let mut snapshot = Snapshot::new(topology, i as i64, counters.to_vec(), None).unwrap();
        if let Step::Window(window) = windows.advance(&mut snapshot).unwrap() {
            diagnoses.push(diagnoser.diagnose(window).clone());
        }
    }
    diagnoses
}

/// An incident in the words of the recording's JSON.
fn summary(incident: &Incident) -> String {
    let list = |ranks: &[usize]| ranks.iter().map(|rank| format!(" {rank}")).collect::<String>();
    match incident {
        Incident::PreStageArrivalSkew { probe, ranks } => {
            format!("pre_stage_arrival_skew {probe}{}", list(ranks))
        }
        Incident::LocalizedDataPathSlowdown { owners, .. } => {
            format!("localized_data_path_slowdown owners{}", list(owners))
        }
        other => other.kind().to_string(),
    }
}

#[test]
fn every_window_of_the_recording_has_the_incidents_of_its_phase_and_no_other() {
    let diagnoses = diagnoses();
    let about: serde_json::Value =
        serde_json::from_slice(&data("five_phases_h200x2.json")).unwrap();
    let mut seen = 0;
    for phase in about["phases"].as_array().unwrap() {
        let expected: Vec<&str> = phase["expected_incidents"]
            .as_array()
            .unwrap()
            .iter()
            .map(|i| i.as_str().unwrap())
            .collect();
        let first = phase["first_window"].as_u64().unwrap();
        for index in first..first + phase["windows"].as_u64().unwrap() {
            let diagnosis = &diagnoses[index as usize - 1];
            assert_eq!(diagnosis.window_index, index);
            let found: Vec<String> = diagnosis.incidents.iter().map(summary).collect();
            assert_eq!(found, expected, "window {index}, phase {}", phase["phase"]);
            seen += 1;
        }
    }
    assert_eq!(seen, SNAPSHOTS - 1);
}
