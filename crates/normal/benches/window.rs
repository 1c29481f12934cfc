//! One window: difference, six probes, correlation, beside one pass over the same memory.
//!
//! `cargo bench -p deepxtrace-normal -- EP64` runs one size.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use deepxtrace_counters::{Snapshot, Topology, Window};
use deepxtrace_normal::{Diagnoser, Policy};
use synthetic::{Random, advance};

mod synthetic;

fn window(c: &mut Criterion) {
    let mut group = c.benchmark_group("normal");
    group.sample_size(20).measurement_time(Duration::from_secs(1));
    group.warm_up_time(Duration::from_millis(300));
    for ep_size in [16, 64, 256, 1024] {
        let topology = Topology::new(ep_size, 8).unwrap();
        let mut random = Random(1);
        let older = Snapshot::zeros(topology, 0);
        let mut newer = older.clone();
        advance(&mut newer, &mut random);
        let bytes = size_of_val(newer.counters());
        group.throughput(Throughput::Bytes(bytes as u64));
        if ep_size > 256 {
            group.sample_size(10);
        }
        let mut window = Window::empty(topology);
        let mut diagnoser = Diagnoser::new(topology, Policy::default()).unwrap();
        window.difference(1, &older, &newer).unwrap();
        let report = diagnoser.diagnose(&window);
        assert!(!report.has_findings(), "{report:?}");

        group.bench_function(BenchmarkId::new("floor_one_pass", format!("EP{ep_size}")), |b| {
            b.iter(|| {
                let pairs = older.counters().iter().zip(newer.counters());
                black_box(pairs.fold(0_i64, |sum, (a, b)| sum.wrapping_add(b.wrapping_sub(*a))))
            });
        });
        group.bench_function(BenchmarkId::new("difference", format!("EP{ep_size}")), |b| {
            b.iter(|| window.difference(1, &older, black_box(&newer)).unwrap());
        });
        group.bench_function(BenchmarkId::new("diagnose", format!("EP{ep_size}")), |b| {
            b.iter(|| black_box(diagnoser.diagnose(black_box(&window)).has_findings()));
        });
        group.bench_function(BenchmarkId::new("window", format!("EP{ep_size}")), |b| {
            b.iter(|| {
                window.difference(1, &older, black_box(&newer)).unwrap();
                black_box(diagnoser.diagnose(&window).has_findings())
            });
        });
    }
}

criterion_group!(benches, window);
criterion_main!(benches);
