//! Two snapshots become a window, in Normal and in low-latency mode.
//!
//! `cargo bench -p deepxtrace-counters -- EP64` runs one size.
#![allow(missing_docs, clippy::unwrap_used)]

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use deepxtrace_counters::{LlWindows, Snapshot, Step, Topology, Window, Windows};

fn difference(c: &mut Criterion) {
    let mut group = c.benchmark_group("counters");
    group.sample_size(20).measurement_time(Duration::from_secs(1));
    group.warm_up_time(Duration::from_millis(300));
    for ep_size in [16, 64, 256] {
        let topology = Topology::new(ep_size, 8).unwrap();
        let older = Snapshot::zeros(topology, 0);
        let mut newer = Snapshot::zeros(topology, 1_000_000_000);
        (1..).zip(newer.counters_mut()).for_each(|(value, counter)| *counter = value);
        group.throughput(Throughput::Bytes(2 * size_of_val(newer.counters()) as u64));

        group.bench_function(BenchmarkId::new("floor_one_pass", format!("EP{ep_size}")), |b| {
            b.iter(|| {
                let pairs = older.counters().iter().zip(black_box(&newer).counters());
                black_box(pairs.fold(0_i64, |sum, (a, b)| sum.wrapping_add(b.wrapping_sub(*a))))
            });
        });
        let mut window = Window::empty(topology);
        group.bench_function(BenchmarkId::new("difference", format!("EP{ep_size}")), |b| {
            b.iter(|| window.difference(1, &older, black_box(&newer)).unwrap());
        });
        let mut windows = Windows::new(topology);
        let mut buffer = newer.clone();
        group.bench_function(BenchmarkId::new("windows", format!("EP{ep_size}")), |b| {
            b.iter(|| {
                // The buffer comes back with the counters before: healthy ones never go back.
                buffer.counters_mut().copy_from_slice(newer.counters());
                black_box(matches!(windows.advance(&mut buffer).unwrap(), Step::Window(_)))
            });
        });
        let waits = vec![7; 2 * ep_size * ep_size];
        let present = vec![true; ep_size];
        let mut windows = LlWindows::new(topology);
        group.bench_function(BenchmarkId::new("ll_windows", format!("EP{ep_size}")), |b| {
            b.iter(|| {
                let step = windows.advance(1, black_box(&waits), &present).unwrap();
                black_box(matches!(step, Step::Window(_)))
            });
        });
    }
}

criterion_group!(benches, difference);
criterion_main!(benches);
