use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use deepxtrace::collect::LocalGroup;
use deepxtrace::counters::{Layout, NotifyProbe};
use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, Recorder, SharedString,
    Unit,
};

use super::{build, every_step};

type Values = Arc<Mutex<BTreeMap<String, f64>>>;

/// Keeps the last value of every figure.
#[derive(Default)]
struct Keep(Values);

/// One figure, by name and labels.
struct One(String, Values);

impl One {
    fn change(&self, change: impl FnOnce(&mut f64)) {
        change(self.1.lock().unwrap().entry(self.0.clone()).or_default());
    }
}

impl CounterFn for One {
    fn increment(&self, value: u64) {
        self.change(|sum| *sum += value as f64);
    }
    fn absolute(&self, value: u64) {
        self.change(|sum| *sum = value as f64);
    }
}

impl GaugeFn for One {
    fn increment(&self, value: f64) {
        self.change(|now| *now += value);
    }
    fn decrement(&self, value: f64) {
        self.change(|now| *now -= value);
    }
    fn set(&self, value: f64) {
        self.change(|now| *now = value);
    }
}

impl Keep {
    fn one(&self, key: &Key) -> Arc<One> {
        let labels = key.labels().map(|label| format!(" {}={}", label.key(), label.value()));
        let name = format!("{}{}", key.name(), labels.collect::<String>());
        Arc::new(One(name, Arc::clone(&self.0)))
    }
}

impl Recorder for Keep {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.one(key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.one(key))
    }
    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[test]
fn every_window_is_recorded_under_the_documented_names() {
    let recorder = Keep::default();
    metrics::with_local_recorder(&recorder, || {
        let folder = tempfile::tempdir().unwrap();
        let group = LocalGroup::new(1).unwrap().remove(0);
        let mut rank = build(group, every_step(folder.path()), |builder| builder).unwrap().unwrap();
        rank.diagnose.start().unwrap();
        let count = Layout::new(1).unwrap().count(NotifyProbe::NotifyDispatch);
        for launches in [5, 6, 7] {
            rank.set(count, launches);
            rank.diagnose.diagnose_normal_sync().unwrap();
            rank.diagnose.diagnose_ll_sync().unwrap();
        }
        // Back to 0: refused.
        rank.set(count, 0);
        rank.diagnose.diagnose_normal_sync().unwrap();
    });
    let seen = recorder.0.lock().unwrap();
    let is = |name: &str, value: f64| assert_eq!(seen.get(name), Some(&value), "{name}: {seen:?}");
    is("deepxtrace_windows_total mode=normal state=diagnosed", 2.0);
    is("deepxtrace_windows_total mode=normal state=refused", 1.0);
    is("deepxtrace_windows_total mode=low_latency state=idle", 2.0);
    is("deepxtrace_window_index mode=normal", 3.0);
    is("deepxtrace_missing_ranks mode=normal", 0.0);
    is("deepxtrace_findings mode=normal probe=notify_dispatch", 0.0);
    is("deepxtrace_incidents kind=pre_stage_arrival_skew", 0.0);
    assert!(seen.keys().any(|name| name.starts_with("deepxtrace_window_seconds ")));
    // Nothing is recorded under another name than the documented ones.
    let documented = include_str!("../../src/metrics.rs");
    for name in seen.keys() {
        let name = name.split(' ').next().unwrap();
        assert!(documented.contains(&format!("//! | `{name}` |")), "{name}");
    }
}
