//! One wait matrix: the mean-ratio rule and the topology-aware rule, beside one pass over the matrix.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use deepxtrace_counters::Topology;
use deepxtrace_ll::{LlDiagnoser, MeanRatioPolicy, MeanRatioRule, Policy};
use ndarray::Array2;

/// Waits of 1,000 to 1,500 cycles in a node and of 20,000 to 30,000 between nodes.
fn waits(topology: Topology) -> Array2<i64> {
    let mut state = 1_u64;
    Array2::from_shape_fn((topology.ep_size(), topology.ep_size()), |(i, j)| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let level = if topology.same_node(i, j) { 1_000 } else { 20_000 };
        level + level * ((state >> 40) % 512) as i64 / 1_024
    })
}

fn matrix(c: &mut Criterion) {
    let mut group = c.benchmark_group("ll");
    group.sample_size(20).measurement_time(Duration::from_secs(1));
    group.warm_up_time(Duration::from_millis(300));
    for ep_size in [16, 256, 1024] {
        let topology = Topology::new(ep_size, 8).unwrap();
        let waits = waits(topology);
        group.throughput(Throughput::Bytes(8 * (ep_size * ep_size) as u64));
        let mut mean = MeanRatioRule::new(MeanRatioPolicy::default()).unwrap();
        let mut both =
            LlDiagnoser::new(topology, MeanRatioPolicy::default(), Policy::default()).unwrap();
        assert!(mean.diagnose(waits.view()).is_empty());
        assert!(both.diagnose(waits.view()).unwrap().topology.findings.is_empty());

        group.bench_function(BenchmarkId::new("floor_one_pass", ep_size), |b| {
            b.iter(|| {
                let cells = black_box(&waits).as_slice().unwrap();
                black_box(cells.iter().fold(0_i64, |sum, &cell| sum.wrapping_add(cell)))
            });
        });
        group.bench_function(BenchmarkId::new("floor_one_pass_f64", ep_size), |b| {
            b.iter(|| {
                let cells = black_box(&waits).as_slice().unwrap();
                let lanes = cells.chunks_exact(8).fold([0.0; 8], |mut sums, chunk| {
                    sums.iter_mut().zip(chunk).for_each(|(sum, &cell)| *sum += cell as f64);
                    sums
                });
                black_box(lanes)
            });
        });
        group.bench_function(BenchmarkId::new("mean_ratio", ep_size), |b| {
            b.iter(|| black_box(mean.diagnose(black_box(waits.view())).is_empty()));
        });
        group.bench_function(BenchmarkId::new("both_rules", ep_size), |b| {
            b.iter(|| both.diagnose(black_box(waits.view())).unwrap().topology.findings.len());
        });
    }
}

criterion_group!(benches, matrix);
criterion_main!(benches);
