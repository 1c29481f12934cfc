//! One window of a simulated job: its bytes, and its way into a folder and back.
//!
//! `cargo bench -p deepxtrace-artifact -- EP64` runs one size.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::borrow::Cow;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use deepxtrace_artifact::{Artifact, NormalArtifact, Store, read};
use deepxtrace_counters::{Step, Topology, Windows};
use deepxtrace_normal::{Diagnoser, Policy};
use deepxtrace_sim::{Workload, WorkloadConfig};

fn artifact(ep_size: usize) -> Artifact<'static> {
    let topology = Topology::new(ep_size, 8).unwrap();
    let mut workload = Workload::new(WorkloadConfig::new(topology), 1).unwrap();
    let mut windows = Windows::new(topology);
    windows.advance(&mut workload.snapshot().clone()).unwrap();
    let mut snapshot = workload.run_window().clone();
    let Step::Window(window) = windows.advance(&mut snapshot).unwrap() else { panic!("a window") };
    let policy = Policy::default();
    let mut diagnoser = Diagnoser::new(topology, policy).unwrap();
    Artifact::Normal(NormalArtifact {
        instance: Cow::Borrowed("bench"),
        policy,
        diagnosis: Cow::Owned(diagnoser.diagnose(window).clone()),
        window: Cow::Owned(window.clone()),
    })
}

fn files(c: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let mut group = c.benchmark_group("artifact");
    group.sample_size(10).measurement_time(Duration::from_secs(1));
    group.warm_up_time(Duration::from_millis(300));
    for ep_size in [16, 64, 256] {
        let artifact = artifact(ep_size);
        group.bench_function(BenchmarkId::new("to_bytes", format!("EP{ep_size}")), |b| {
            b.iter(|| black_box(artifact.to_bytes().unwrap().len()));
        });
        let store = Store::new(folder.path(), 128);
        group.bench_function(BenchmarkId::new("write", format!("EP{ep_size}")), |b| {
            b.iter(|| black_box(store.write(&artifact).unwrap()));
        });
        let path = store.write(&artifact).unwrap();
        group.bench_function(BenchmarkId::new("read", format!("EP{ep_size}")), |b| {
            b.iter(|| black_box(read(&path).unwrap()));
        });
    }
}

criterion_group!(benches, files);
criterion_main!(benches);
