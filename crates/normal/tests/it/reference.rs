//! Findings, incidents and tracker changes against an independent implementation.
//!
//! `tests/reference` holds that implementation, what it was given, and what it said.

use deepxtrace_counters::{Layout, Snapshot, Step, Topology, Windows};
use deepxtrace_normal::{Diagnoser, Policy, WindowDiagnosis};
use serde::Deserialize;
use serde_json::Value;

/// Relative difference of two numbers that count as equal: sums and logarithms in another order.
const TOLERANCE: f64 = 1e-9;

#[derive(Deserialize)]
struct Case {
    name: String,
    ep_size: usize,
    ranks_per_node: usize,
    policy: Policy,
    timestamps_unix_ns: Vec<i64>,
    present: Vec<Vec<bool>>,
}

/// Reads the numbers that `generate.py` wrote.
struct Numbers<'a>(&'a [u8]);

impl Numbers<'_> {
    fn next(&mut self) -> i64 {
        let (mut value, mut shift) = (0_u64, 0);
        loop {
            let (&byte, rest) = self.0.split_first().expect("a number");
            self.0 = rest;
            value |= u64::from(byte & 127) << shift;
            shift += 7;
            if byte < 128 {
                return (value >> 1) as i64 ^ -((value & 1) as i64);
            }
        }
    }
}

/// The first difference of two JSON values, by path.
fn difference(path: &str, ours: &Value, theirs: &Value) -> Option<String> {
    let differ = || Some(format!("{path}: {ours} here, {theirs} in the reference"));
    match (ours, theirs) {
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().unwrap(), b.as_f64().unwrap());
            if (a - b).abs() <= TOLERANCE * b.abs().max(1e-3) { None } else { differ() }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let pairs = a.iter().zip(b).enumerate();
            pairs.filter_map(|(i, (a, b))| difference(&format!("{path}[{i}]"), a, b)).next()
        }
        (Value::Object(a), Value::Object(b)) => {
            let mut keys: Vec<&String> = a.keys().chain(b.keys()).collect();
            keys.sort();
            keys.dedup();
            let of = |map: &serde_json::Map<String, Value>, key: &str| {
                map.get(key).cloned().unwrap_or(Value::String("nothing".into()))
            };
            keys.into_iter()
                .filter_map(|key| difference(&format!("{path}.{key}"), &of(a, key), &of(b, key)))
                .next()
        }
        _ if ours == theirs => None,
        _ => differ(),
    }
}

fn diagnoses(case: &Case, numbers: &mut Numbers<'_>) -> Vec<WindowDiagnosis> {
    let topology = Topology::new(case.ep_size, case.ranks_per_node).unwrap();
    let len = case.ep_size * Layout::of(topology).vector_len();
    let mut diagnoser = Diagnoser::new(topology, case.policy).unwrap();
    let mut windows = Windows::new(topology);
    let mut counters = vec![0_i64; len];
    let mut diagnoses = Vec::new();
    for (&time, present) in case.timestamps_unix_ns.iter().zip(&case.present) {
        counters.iter_mut().for_each(|counter| *counter += numbers.next());
        let present_before = windows.next_index();
        let mut snapshot =
            Snapshot::new(topology, time, counters.clone(), Some(present.clone())).unwrap();
        match windows.advance(&mut snapshot) {
            Ok(Step::Boundary) => {}
            Ok(Step::Window(window)) => diagnoses.push(diagnoser.diagnose(window).clone()),
            Err(error) => {
                let valid: Vec<bool> =
                    snapshot.present().iter().zip(present).map(|(a, b)| *a && *b).collect();
                diagnoses.push(diagnoser.refuse(present_before, &error, &valid).clone());
            }
        }
    }
    diagnoses
}

#[test]
fn every_window_agrees_with_the_independent_implementation() {
    let mut numbers = Numbers(include_bytes!("../reference/cases.varint"));
    let mut expected = include_str!("../reference/expected.jsonl").lines();
    let mut failures = Vec::new();
    for line in include_str!("../reference/cases.json").lines() {
        let case: Case = serde_json::from_str(line).unwrap();
        for diagnosis in diagnoses(&case, &mut numbers) {
            let mut ours = serde_json::to_value(&diagnosis).unwrap();
            // Why a window is refused is ours to word.
            ours["reason"] = Value::Null;
            let theirs: Value = serde_json::from_str(expected.next().unwrap()).unwrap();
            if let Some(difference) = difference("", &ours, &theirs) {
                failures
                    .push(format!("{}, window {}{difference}", case.name, diagnosis.window_index));
            }
        }
    }
    assert!(numbers.0.is_empty() && expected.next().is_none(), "all was compared");
    assert!(failures.is_empty(), "{} windows differ:\n{}", failures.len(), failures.join("\n"));
}
