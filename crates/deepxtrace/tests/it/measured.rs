//! Windows of the EP emulator, measured on two H200s: the diagnoses of the five phases, again.

use std::fs::File;

use deepxtrace::counters::{Layout, Snapshot, Step, Topology, Windows};
use deepxtrace::normal::{Diagnoser, Incident, Policy};
use deepxtrace_npz::Archive;
use serde::Deserialize;

/// One phase of the recording, in order.
#[derive(Deserialize)]
struct Phase {
    phase: String,
    windows: usize,
    incidents: Vec<Expected>,
}

/// What every window of a phase says, and nothing else.
#[derive(Deserialize, PartialEq, Debug)]
struct Expected {
    kind: String,
    #[serde(default)]
    probe: Option<String>,
    #[serde(default)]
    ranks: Vec<usize>,
    #[serde(default)]
    owners: Vec<usize>,
}

fn said(incident: &Incident) -> Expected {
    let (ranks, owners) = match incident {
        Incident::PreStageArrivalSkew { ranks, .. } => (ranks.clone(), Vec::new()),
        Incident::LocalizedDataPathSlowdown { owners, .. } => (Vec::new(), owners.clone()),
        _ => (Vec::new(), Vec::new()),
    };
    let probe = incident.probe().map(|probe| probe.name().to_owned());
    Expected { kind: incident.kind().name().to_owned(), probe, ranks, owners }
}

#[test]
fn windows_measured_on_two_gpus_are_diagnosed_as_on_the_day() {
    check("five_phases_emulator_h200x2");
}

/// The late rank has popular experts: its dispatch takes 27 us longer than the others', its own
/// computation 1,500 us.
#[test]
fn a_rank_with_many_tokens_that_computes_longer_is_still_late_by_itself() {
    check("five_phases_emulator_h200x2_seed1");
}

/// Rank 14 has by far the most tokens; by a straight line of cost over load it is 1.33x slow.
#[test]
fn the_receiver_with_the_most_tokens_is_not_a_slow_column() {
    check("five_phases_emulator_h200x2_seed2");
}

/// Diagnoses the windows of a recording in `tests/data` and compares the incidents.
fn check(name: &str) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/");
    let path = format!("{folder}{name}.npz");
    let mut archive = Archive::new(File::open(&path).unwrap(), &path).unwrap();
    let array = archive.array("counters").unwrap();
    let shape = array.shape().to_vec();
    let counters = array.into_i64().unwrap();
    let per_node = archive.array("ranks_per_node").unwrap().into_i64().unwrap()[0];
    let times = archive.array("timestamps_unix_ns").unwrap().into_i64().unwrap();
    let text = std::fs::read_to_string(format!("{folder}{name}.json"));
    let phases: Vec<Phase> = serde_json::from_str(&text.unwrap()).unwrap();

    let topology = Topology::new(shape[1], usize::try_from(per_node).unwrap()).unwrap();
    assert_eq!(shape[2], Layout::of(topology).vector_len());
    let mut windows = Windows::new(topology);
    let mut diagnoser = Diagnoser::new(topology, Policy::default()).unwrap();
    let mut expected = phases.iter().flat_map(|phase| (0..phase.windows).map(move |_| phase));
    for (vectors, &time) in counters.chunks_exact(shape[1] * shape[2]).zip(&times) {
        let mut snapshot = Snapshot::new(topology, time, vectors.to_vec(), None).unwrap();
        let Step::Window(window) = windows.advance(&mut snapshot).unwrap() else { continue };
        let phase = expected.next().unwrap();
        let diagnosis = diagnoser.diagnose(window);
        let incidents: Vec<Expected> = diagnosis.incidents.iter().map(said).collect();
        assert_eq!(incidents, phase.incidents, "window {}, {}", window.index(), phase.phase);
    }
    assert!(expected.next().is_none(), "the recording is shorter than its description");
    assert!(phases.len() >= 6);
}
