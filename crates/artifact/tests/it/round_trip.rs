//! What is written is read back, and the same window gives the same bytes.

use std::borrow::Cow;

use deepxtrace_artifact::{Artifact, Reason};
use proptest::prelude::*;

use crate::sample::{low_latency, normal, read_bytes, window};

#[test]
fn a_window_is_read_back_whole() {
    for (n, node, missing) in [(1, 8, None), (2, 1, Some(0)), (11, 4, Some(10)), (16, 8, None)] {
        let artifact = normal(window(n, node, 7, missing));
        let bytes = artifact.to_bytes().unwrap();
        assert_eq!(read_bytes(&bytes).unwrap(), artifact, "EP {n}");
    }
}

#[test]
fn a_low_latency_window_is_read_back_whole_and_has_its_own_kind() {
    let artifact = low_latency(16, 3);
    assert_eq!(artifact.name().unwrap().to_string(), "ll_window_run-1_000003.npz");
    let found = read_bytes(&artifact.to_bytes().unwrap()).unwrap();
    assert_eq!(found, artifact);
    let Artifact::LowLatency(found) = found else { panic!("a low-latency window") };
    // The diagnosis is in the file, not computed when it is read.
    let [Some(dispatch), Some(combine)] = found.diagnoses else { panic!("two diagnoses") };
    assert_eq!(dispatch.mean_ratio.abnormal_cols[0].index, 1);
    assert!(combine.mean_ratio.abnormal_cols.is_empty());
}

#[test]
fn an_idle_low_latency_window_has_no_diagnosis() {
    let Artifact::LowLatency(mut artifact) = low_latency(4, 1) else { panic!() };
    artifact.diagnoses = [None, None];
    let artifact = Artifact::LowLatency(artifact);
    assert_eq!(read_bytes(&artifact.to_bytes().unwrap()).unwrap(), artifact);
}

#[test]
fn the_same_window_gives_the_same_bytes_at_any_time() {
    let artifact = normal(window(8, 8, 1, None));
    let first = artifact.to_bytes().unwrap();
    // Archives carry times in steps of two seconds: none may be that of the clock.
    std::thread::sleep(std::time::Duration::from_millis(2100));
    assert_eq!(artifact.to_bytes().unwrap(), first);
}

#[test]
fn extreme_counters_and_times_are_exact() {
    let mut window = window(2, 2, i64::MAX as u64, None);
    window.set_place(i64::MAX as u64, i64::MIN, i64::MAX);
    window.edit_completion(deepxtrace_counters::CompletionProbe::DispatchFinal, |delta| {
        delta.cost[[0, 1]] = i64::MAX;
        delta.samples[[0, 1]] = 1;
        delta.tokens[[1, 0]] = i64::MAX - 1;
    });
    let artifact = normal(window);
    assert_eq!(read_bytes(&artifact.to_bytes().unwrap()).unwrap(), artifact);
}

#[test]
fn what_no_file_can_hold_is_refused_when_it_is_written() {
    let Artifact::Normal(mut artifact) = normal(window(2, 2, 1, None)) else { panic!() };
    artifact.window.to_mut().set_place(i64::MAX as u64 + 1, 0, 0);
    let error = Artifact::Normal(artifact.clone()).to_bytes().unwrap_err();
    let text = "window_index: 9223372036854775808 is above 9223372036854775807";
    assert_eq!(error.to_string(), text);
    artifact.instance = Cow::Borrowed("../other");
    let error = Artifact::Normal(artifact).to_bytes().unwrap_err();
    assert!(matches!(error, Reason::Instance(_)), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_counters_are_read_back(
        n in 1_usize..6,
        node in 1_usize..5,
        index in 0..i64::MAX as u64,
        values in prop::collection::vec(prop_oneof![0..1000_i64, 0..=i64::MAX], 25),
    ) {
        let mut window = window(n, node, index, None);
        for probe in deepxtrace_counters::CompletionProbe::ALL {
            window.edit_completion(probe, |delta| {
                delta.cost.iter_mut().zip(&values).for_each(|(cell, value)| *cell = *value);
                delta.samples.iter_mut().zip(values.iter().rev()).for_each(|(a, b)| *a = *b);
            });
        }
        let artifact = normal(window);
        prop_assert_eq!(read_bytes(&artifact.to_bytes().unwrap()).unwrap(), artifact);
    }
}
