//! `normal analyze` on real and simulated snapshots.

use std::fs::File;
use std::path::PathBuf;

use deepxtrace::counters::Topology;
use deepxtrace_npz::Writer;
use deepxtrace_sim::{Fault, Workload, WorkloadConfig};
use serde_json::Value;

use crate::{Scratch, data, run};

fn five_phases() -> PathBuf {
    data("normal_five_phases_h200x2.npz")
}

/// Incidents in the words of the JSON beside the data.
fn plain(incidents: &Value) -> Vec<String> {
    let numbers = |value: &Value| {
        let numbers = value.as_array().unwrap().iter().map(|n| format!(" {n}"));
        numbers.collect::<String>()
    };
    let one = |incident: &Value| {
        let kind = incident["kind"].as_str().unwrap();
        match kind {
            "pre_stage_arrival_skew" => {
                let probe = incident["probe"].as_str().unwrap();
                format!("{kind} {probe}{}", numbers(&incident["ranks"]))
            }
            "localized_data_path_slowdown" => {
                for other in ["experts", "node_pairs", "edges"] {
                    assert_eq!(incident[other], Value::Array(vec![]), "{other}");
                }
                format!("{kind} owners{}", numbers(&incident["owners"]))
            }
            _ => kind.to_owned(),
        }
    };
    incidents.as_array().unwrap().iter().map(one).collect()
}

/// The recording of two real GPUs: every window of every phase has exactly its incidents.
#[test]
fn the_five_phases_of_real_gpus_have_their_incidents_in_every_window() {
    let phases: Value = serde_json::from_str(
        &std::fs::read_to_string(data("normal_five_phases_h200x2.json")).unwrap(),
    )
    .unwrap();
    let run = run(["normal", "analyze", "--json", five_phases().to_str().unwrap()]);
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""));
    let windows = run.json();
    assert_eq!(windows.len(), 84);
    let mut seen = 0;
    for phase in phases["phases"].as_array().unwrap() {
        let first = phase["first_window"].as_u64().unwrap();
        for index in first..first + phase["windows"].as_u64().unwrap() {
            let window = &windows[usize::try_from(index).unwrap() - 1];
            assert_eq!(window["window_index"], index);
            assert_eq!(window["state"], "diagnosed");
            let expected: Vec<_> = phase["expected_incidents"].as_array().unwrap().clone();
            assert_eq!(plain(&window["incidents"]), expected, "window {index}");
            seen += 1;
        }
    }
    assert_eq!(seen, 84);
}

#[test]
fn the_json_of_a_window_has_the_documented_keys() {
    let run = run(["normal", "analyze", "--json", five_phases().to_str().unwrap()]);
    let window = &run.json()[24];
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let documented =
        ["window_index", "state", "reason", "missing_ranks", "tracker", "probes", "incidents"];
    let mut found = keys(window);
    found.sort();
    let mut expected = documented.map(str::to_owned);
    expected.sort();
    assert_eq!(found, expected);
    let late = &window["probes"]["notify_dispatch"]["findings"][0];
    assert_eq!((&late["kind"], &late["rank"]), (&"late_rank".into(), &9.into()));
    assert!(late["ratio"].as_f64().unwrap() < 0.02 && late["excess_ns"].as_f64().unwrap() > 1e7);
    assert_eq!(window["probes"]["dispatch_final"]["status"], "ok");
    assert!(window["probes"]["dispatch_final"]["scalar"].as_f64().unwrap() > 1e5);
    assert_eq!(window["tracker"][0]["state"], "suspected");
}

#[test]
fn the_text_joins_windows_that_say_the_same() {
    let run = run(["normal", "analyze", five_phases().to_str().unwrap()]);
    let text = |line: &str| assert!(run.out.contains(line), "{line:?} is not in:\n{}", run.out);
    text(": 84 windows of 16 ranks, 8 a node\n");
    text("\nwindows 1-24     healthy\n");
    text("\nwindows 25-36    rank 9 arrives late: look at what runs before dispatch");
    text("\nwindows 49-60    the whole data path is slow");
    text("\nwindows 61-72    slow paths, tokens of ranks 0, 1, 8, 9");
    text("\n48 with incidents, 36 without\n");
    assert!(!run.out.contains('\x1b'), "no colour without a terminal");
}

#[test]
fn fail_on_findings_is_1_only_when_something_is_found() {
    let path = five_phases();
    let path = path.to_str().unwrap();
    assert_eq!(run(["normal", "analyze", "--fail-on-findings", path]).code, Some(1));
    let mut healthy = Recording::new(Topology::new(16, 8).unwrap());
    healthy.windows(3, []);
    let file = healthy.write("<i8");
    assert_eq!(run(["normal", "analyze", "--fail-on-findings", file.text()]).code, Some(0));
}

#[test]
fn thresholds_can_be_set_and_senseless_ones_are_refused() {
    let path = five_phases();
    let path = path.to_str().unwrap();
    let late = |ratio| {
        let run = run(["normal", "analyze", "--json", "--notify-ratio", ratio, path]);
        let found = |w: &Value| w["probes"]["notify_dispatch"]["status"] == "anomalous";
        run.json().iter().filter(|window| found(window)).count()
    };
    // The late rank waits 0.013x, those behind a slow adapter 0.06x.
    assert_eq!((late("0.25"), late("0.03"), late("0.001")), (24, 12, 0));
    for (flag, value, text) in [
        ("--axis-ratio", "1", "axis_ratio is 1, it must be a finite number above 1"),
        ("--notify-ratio", "nan", "notify_ratio is NaN, it must be a number above 0 and below 1"),
    ] {
        let run = run(["normal", "analyze", flag, value, path]);
        assert_eq!(run.code, Some(2));
        assert!(run.err.contains(text), "{}", run.err);
    }
}

/// Simulated snapshots, to be written as a file.
pub struct Recording {
    workload: Workload,
    topology: Topology,
    pub counters: Vec<i64>,
    pub timestamps: Vec<i64>,
    pub present: Vec<bool>,
}

impl Recording {
    pub fn new(topology: Topology) -> Self {
        let workload = Workload::new(WorkloadConfig::new(topology), 1).unwrap();
        let mut recording =
            Self { workload, topology, counters: vec![], timestamps: vec![], present: vec![] };
        recording.take();
        recording
    }

    fn take(&mut self) {
        let snapshot = self.workload.snapshot();
        self.counters.extend(snapshot.counters());
        self.timestamps.push(snapshot.timestamp_unix_ns());
        self.present.extend(snapshot.present());
    }

    pub fn windows(&mut self, count: usize, faults: impl IntoIterator<Item = Fault>) {
        self.workload.phase(faults).unwrap();
        for _ in 0..count {
            self.workload.run_window();
            self.take();
        }
    }

    /// Writes a file; `dtype` only says what the name tells.
    pub fn write(&self, name: &str) -> crate::Scratch {
        let file = crate::Scratch::new(&format!("{}.npz", name.trim_start_matches('<')), "");
        let mut writer = Writer::new(File::create(&file.path).unwrap()).level(1);
        let (n, w) = (self.topology.ep_size(), self.timestamps.len());
        let per_node = [i64::try_from(self.topology.ranks_per_node()).unwrap()];
        writer.array("counters", &[w, n, 6 + 9 * n], &self.counters[..]).unwrap();
        writer.array("timestamps_unix_ns", &[w], &self.timestamps[..]).unwrap();
        writer.array("ranks_per_node", &[], &per_node[..]).unwrap();
        writer.array("present", &[w, n], &self.present[..]).unwrap();
        writer.finish().unwrap();
        file
    }
}

#[test]
fn idle_refused_and_incomplete_windows_are_told_apart() {
    let mut recording = Recording::new(Topology::new(16, 8).unwrap());
    recording.windows(2, []);
    recording.windows(1, [Fault::Idle]);
    recording.windows(1, [Fault::Restart { rank: 3 }]);
    recording.windows(1, []);
    recording.windows(1, [Fault::MissingSnapshot { rank: 6 }]);
    recording.windows(2, []);
    let file = recording.write("states");
    let run = run(["normal", "analyze", "--json", file.text()]);
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""));
    let windows = run.json();
    let states: Vec<_> = windows.iter().map(|w| w["state"].as_str().unwrap()).collect();
    assert_eq!(
        states,
        [
            "diagnosed",
            "diagnosed",
            "idle",
            "refused",
            "diagnosed",
            "diagnosed",
            "diagnosed",
            "diagnosed"
        ]
    );
    let reason = windows[3]["reason"].as_str().unwrap();
    assert!(reason.contains("rank 3, probe notify_dispatch, counter duration_ns"), "{reason}");
    assert_eq!(windows[2]["probes"], serde_json::json!({}));
    let missing: Vec<_> = windows.iter().map(|w| w["missing_ranks"].to_string()).collect();
    assert_eq!(missing, ["[]", "[]", "[]", "[]", "[]", "[6]", "[6]", "[]"]);

    let text = crate::run(["normal", "analyze", file.text()]).out;
    assert!(text.contains("window 3         idle"), "{text}");
    assert!(text.contains("window 4         refused: a counter went back: rank 3"), "{text}");
    assert!(text.contains("no snapshot of rank 6"), "{text}");
    assert!(text.contains("0 with incidents, 6 without, 1 idle, 1 refused"), "{text}");
}

#[test]
fn one_snapshot_is_a_boundary_and_no_window() {
    let recording = Recording::new(Topology::new(2, 8).unwrap());
    let file = recording.write("boundary");
    let json = run(["normal", "analyze", "--json", file.text()]);
    assert_eq!((json.code, json.out.as_str()), (Some(0), ""));
    let text = run(["normal", "analyze", file.text()]).out;
    assert!(text.contains("0 windows of 2 ranks"), "{text}");
}

#[test]
fn one_snapshot_and_times_that_run_backwards_are_said() {
    let warned = |times: &[i64], windows: usize| {
        let file = Scratch::new("s.npz", "");
        let mut writer = Writer::new(File::create(&file.path).unwrap());
        let counters: Vec<i64> = (0..times.len() as i64).flat_map(|at| [at; 48]).collect();
        writer.array("counters", &[times.len(), 2, 24], &counters[..]).unwrap();
        writer.array("timestamps_unix_ns", &[times.len()], times).unwrap();
        writer.array("ranks_per_node", &[], &[8_i64][..]).unwrap();
        writer.finish().unwrap();
        let run = run(["normal", "analyze", "--json", file.text()]);
        assert_eq!((run.code, run.json().len()), (Some(0), windows), "{}", run.err);
        let start = format!("deepxtrace: warning: {}: ", file.text());
        run.err.strip_prefix(&start).unwrap_or(&run.err).trim_end().to_owned()
    };
    assert_eq!(warned(&[5], 0), "one snapshot, and a window is what two differ by");
    assert_eq!(
        warned(&[5, 7, 6], 2),
        "entry timestamps_unix_ns: snapshot 2 is not later than the one before; snapshots are \
         taken in the order in which they stand"
    );
    assert_eq!(warned(&[5, 6, 7], 2), "");
}

#[test]
fn a_window_in_place_of_snapshots_is_told_from_a_broken_file() {
    let folder = crate::artifact::copies(&[12]);
    let file = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let run = run(["normal", "analyze", file.to_str().unwrap()]);
    assert_eq!(run.code, Some(2));
    assert!(run.err.contains(": one window, expected a file of snapshots ("), "{}", run.err);
}
