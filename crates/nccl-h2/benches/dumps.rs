//! Flight Recorder dumps of two ranks, recorded on two H200s: reading, reading and judging.
#![allow(missing_docs, clippy::unwrap_used, reason = "a bench")]

use std::hint::black_box;
use std::io::Read as _;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use deepxtrace_nccl_h2::fr::{DumpSet, Limits, Options};
use flate2::read::GzDecoder;

fn dump(rank: usize) -> Vec<u8> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/fr/healthy");
    let packed = std::fs::read(format!("{folder}/fr_rank_{rank}.pickle.gz")).unwrap();
    let mut bytes = Vec::new();
    GzDecoder::new(&packed[..]).read_to_end(&mut bytes).unwrap();
    bytes
}

fn dumps(criterion: &mut Criterion) {
    let both = [dump(0), dump(1)];
    let dumps = [(0, &both[0][..]), (1, &both[1][..])];
    let mut group = criterion.benchmark_group("dumps");
    group.sample_size(20).measurement_time(Duration::from_secs(1));
    group.warm_up_time(Duration::from_millis(300));
    group.throughput(Throughput::Bytes(both.iter().map(|bytes| bytes.len() as u64).sum()));
    group.bench_function("floor_one_pass", |bencher| {
        let sum = |bytes: &[u8]| bytes.iter().fold(0_u8, |sum, &byte| sum.wrapping_add(byte));
        bencher.iter(|| black_box(&both).iter().map(|bytes| sum(bytes)).fold(0, u8::wrapping_add));
    });
    group.bench_function("read", |bencher| {
        bencher.iter(|| black_box(DumpSet::from_memory(&dumps, &Limits::default()).unwrap()));
    });
    let set = DumpSet::from_memory(&dumps, &Limits::default()).unwrap();
    group.bench_function("judge", |bencher| {
        bencher.iter(|| black_box(set.analyze(&Options::default()).findings.len()));
    });
}

criterion_group!(benches, dumps);
criterion_main!(benches);
