//! An archive of one matrix of counters, written and read, beside deflate alone.
#![allow(missing_docs, clippy::unwrap_used)]

use std::hint::black_box;
use std::io::Cursor;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use deepxtrace_npz::{Archive, Writer};

/// Costs of cells as a window has them: eight digits, each with its own noise.
fn costs(ranks: usize) -> Vec<i64> {
    let mut state = 1_u64;
    (0..ranks * ranks)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            30_000_000 + (state >> 42).cast_signed()
        })
        .collect()
}

fn archive(ranks: usize, costs: &[i64], level: u8) -> Vec<u8> {
    let mut writer = Writer::new(Cursor::new(Vec::new())).level(level);
    writer.array("cost", &[ranks, ranks], costs).unwrap();
    writer.finish().unwrap().into_inner()
}

fn npz(c: &mut Criterion) {
    let mut group = c.benchmark_group("npz");
    group.sample_size(10).measurement_time(Duration::from_secs(1));
    group.warm_up_time(Duration::from_millis(300));
    for ranks in [16, 256] {
        let costs = costs(ranks);
        group.throughput(Throughput::Bytes(size_of_val(&costs[..]) as u64));
        for level in [1, 6] {
            let name = BenchmarkId::new(format!("write_level_{level}"), ranks);
            group.bench_function(name, |b| {
                b.iter(|| black_box(archive(ranks, black_box(&costs), level).len()));
            });
        }
        let bytes = archive(ranks, &costs, 6);
        group.bench_function(BenchmarkId::new("read", ranks), |b| {
            b.iter(|| {
                let mut archive = Archive::new(Cursor::new(&bytes), "bench").unwrap();
                black_box(archive.array("cost").unwrap().into_i64().unwrap())
            });
        });
    }
}

criterion_group!(benches, npz);
criterion_main!(benches);
