//! The JSON form, key by key.

use deepxtrace_counters::Window;
use deepxtrace_normal::{Finding, PathScope, Policy, WindowDiagnosis};

use crate::build::{
    CombineLogicalRecv, DispatchFinal, NotifyDispatch, diagnoser, healthy, healthy_window,
    set_costs, set_waits, topology,
};

fn anomalous() -> WindowDiagnosis {
    let topology = topology(16, 8);
    let mut window = healthy_window(topology);
    window.set_place(12, 0, 1_000_000_000);
    window.valid_mut()[15] = false;
    set_waits(&mut window, NotifyDispatch, |rank| if rank == 9 { 5_000 } else { 100_000 });
    for (probe, row) in [(DispatchFinal, true), (CombineLogicalRecv, false)] {
        set_costs(&mut window, probe, |s, d| {
            let hit = if row { s == 3 } else { d == 3 };
            healthy(topology, s, d) * if hit { 2.0 } else { 1.0 }
        });
    }
    diagnoser(topology).diagnose(&window).clone()
}

/// The keys of the objects in `text`, in order, without those inside lists.
fn keys(text: &str) -> Vec<String> {
    let (mut keys, mut depth, mut lists) = (Vec::new(), 0, 0);
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}', '[', ']', '"']) {
        let (mark, after) = (rest.as_bytes()[at], &rest[at + 1..]);
        rest = after;
        match mark {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b'[' => lists += 1,
            b']' => lists -= 1,
            _ => {
                let end = after.find('"').unwrap();
                rest = &after[end + 1..];
                if lists == 0 && rest.starts_with(':') {
                    keys.push(format!("{depth}{}", &after[..end]));
                }
            }
        }
    }
    keys
}

#[test]
fn the_keys_stand_in_the_order_of_the_contract() {
    let text = serde_json::to_string(&anomalous()).unwrap();
    let top =
        ["window_index", "state", "reason", "missing_ranks", "tracker", "probes", "incidents"];
    let found = keys(&text);
    let at = |depth: char| {
        found
            .iter()
            .filter(move |key| key.starts_with(depth))
            .map(|key| &key[1..])
            .collect::<Vec<_>>()
    };
    assert_eq!(at('1'), top);
    assert_eq!(
        at('2'),
        [
            "notify_dispatch",
            "cached_notify_dispatch",
            "cached_notify_combine",
            "dispatch_final",
            "dispatch_rdma_recv",
            "combine_logical_recv"
        ]
    );
    let notify = ["status", "findings"];
    let completion = ["status", "scalar", "global_ratio", "best_ratio", "findings"];
    let expected: Vec<_> =
        [&notify[..]; 3].concat().into_iter().chain([&completion[..]; 3].concat()).collect();
    assert_eq!(at('3'), expected);
}

#[test]
fn the_values_are_those_of_the_contract() {
    let json = serde_json::to_value(anomalous()).unwrap();
    assert_eq!(json["window_index"], 12);
    assert_eq!(json["state"], "diagnosed");
    assert!(json["reason"].is_null());
    assert_eq!(json["missing_ranks"], serde_json::json!([15]));
    assert_eq!(json["tracker"][0]["state"], "suspected");
    assert_eq!(json["tracker"][0]["kind"], "localized_data_path_slowdown");
    let late = &json["probes"]["notify_dispatch"]["findings"][0];
    assert_eq!((&late["kind"], &late["rank"]), (&"late_rank".into(), &9.into()));
    assert!(late["ratio"].is_f64() && late["excess_ns"].is_f64());
    assert!(late.get("explained_by").is_none());
    let dispatch = &json["probes"]["dispatch_final"];
    assert_eq!(dispatch["status"], "anomalous");
    assert!(dispatch["scalar"].is_f64() && dispatch["global_ratio"].is_null());
    assert!(dispatch.get("level_shift").is_none());
    let row = &dispatch["findings"][0];
    assert_eq!((&row["kind"], &row["path"]), (&"source_row".into(), &"all".into()));
    let incident = &json["incidents"][0];
    assert_eq!(incident["kind"], "localized_data_path_slowdown");
    assert_eq!(incident["owners"], serde_json::json!([3]));
    assert_eq!(
        incident["evidence"],
        serde_json::json!([
            {"probe": "dispatch_final", "index": 0},
            {"probe": "combine_logical_recv", "index": 0}
        ])
    );
}

#[test]
fn a_report_survives_a_round_trip() {
    let topology = topology(16, 8);
    let idle = diagnoser(topology).diagnose(&Window::empty(topology)).clone();
    let text = serde_json::to_string(&idle).unwrap();
    assert_eq!(
        text,
        r#"{"window_index":0,"state":"idle","reason":null,"missing_ranks":[],"tracker":[],"probes":{},"incidents":[]}"#
    );
    assert_eq!(serde_json::from_str::<WindowDiagnosis>(&text).unwrap(), idle);

    let text = serde_json::to_string(&anomalous()).unwrap();
    let read: WindowDiagnosis = serde_json::from_str(&text).unwrap();
    // Text to number may be off by the last digit; written again it is the same.
    assert_eq!(serde_json::to_string(&read).unwrap(), text);
    assert_eq!(read.incidents, anomalous().incidents);
}

#[test]
fn half_a_report_is_refused_with_what_is_missing() {
    let text = serde_json::to_string(&anomalous()).unwrap();
    let error = |text: &str| serde_json::from_str::<WindowDiagnosis>(text).unwrap_err().to_string();
    let renamed = text.replace("\"dispatch_final\":{", "\"notify_dispatch\":{");
    assert!(error(&renamed).contains("probe notify_dispatch"), "{}", error(&renamed));
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["probes"].as_object_mut().unwrap().remove("dispatch_rdma_recv");
    assert!(error(&json.to_string()).contains("probe dispatch_rdma_recv is missing"));
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json["probes"]["dispatch_final"].as_object_mut().unwrap().remove("scalar");
    assert!(error(&json.to_string()).contains("probe dispatch_final"));
}

#[test]
fn every_finding_reads_as_a_sentence() {
    let rail = Finding::Rail {
        local_index: 2,
        src_node: 1,
        dst_node: 3,
        ratio: 1.5,
        score: 7.04,
        excess_cycles: 1.0,
    };
    assert_eq!(rail.to_string(), "rail of local index 2, node 1 -> 3: 1.50x, score 7.0");
    let row = Finding::SourceRow {
        rank: 4,
        path: PathScope::InterNode,
        ratio: 1.634,
        score: 9.0,
        excess_cycles: 1.0,
    };
    assert_eq!(row.to_string(), "source rank 4, inter-node paths: 1.63x, score 9.0");
    let diagnosis = anomalous();
    let incidents: Vec<String> = diagnosis.incidents.iter().map(ToString::to_string).collect();
    assert_eq!(incidents, ["localized_data_path_slowdown owners 3"]);
    assert_eq!(diagnosis.tracker[0].to_string(), "localized_data_path_slowdown suspected");
}

#[test]
fn a_policy_is_checked_and_read_with_defaults() {
    let policy: Policy = serde_json::from_str(r#"{"axis_ratio":1.5}"#).unwrap();
    assert_eq!(policy, Policy { axis_ratio: 1.5, ..Policy::default() });
    assert!(serde_json::from_str::<Policy>(r#"{"axis":1.5}"#).is_err());
    policy.validate().unwrap();
    for (policy, message) in [
        (
            Policy { notify_ratio: 1.0, ..policy },
            "notify_ratio is 1, it must be a number above 0 and below 1",
        ),
        (
            Policy { axis_ratio: 1.0, ..policy },
            "axis_ratio is 1, it must be a finite number above 1",
        ),
        (
            Policy { point_ratio: f64::NAN, ..policy },
            "point_ratio is NaN, it must be a finite number above 1",
        ),
        (
            Policy { global_ratio: f64::INFINITY, ..policy },
            "global_ratio is inf, it must be a finite number above 1",
        ),
        (
            Policy { notify_min_share: -0.1, ..policy },
            "notify_min_share is -0.1, it must be a number from 0 to 1",
        ),
    ] {
        assert_eq!(policy.validate().unwrap_err().to_string(), message);
        assert!(deepxtrace_normal::Diagnoser::new(topology(2, 8), policy).is_err());
    }
}
