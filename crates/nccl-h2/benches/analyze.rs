//! Parsing lines, taking events in, and reading a folder, apart from each other.

#![allow(missing_docs, clippy::unwrap_used, reason = "a bench")]

use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use deepxtrace_nccl_h2::{Analyzer, Config, Event, Moment, RunFolder, TraceReader};
use deepxtrace_sim::nccl::{Job, write_folder};

/// The lines of a job, in the order in which its ranks wrote them.
fn lines(job: &Job) -> Vec<String> {
    let mut lines = Vec::new();
    job.run(|_, event| lines.push((event.header.timestamp_unix_ns, to_json(event))));
    lines.sort();
    lines.into_iter().map(|(_, line)| line).collect()
}

fn to_json(event: &Event<'_>) -> String {
    serde_json::to_string(event).unwrap()
}

fn analyze(criterion: &mut Criterion) {
    let jobs = [
        ("all_reduce", Job::all_reduces(8, 1000)),
        ("ring", Job::ring(8, 500)),
        ("ring_without_index", Job::ring(8, 500).with_index(false)),
    ];
    for (name, job) in jobs {
        let lines = lines(&job);
        let events: Vec<Event<'_>> = lines.iter().map(|line| Event::parse(line).unwrap()).collect();
        let mut group = criterion.benchmark_group(name);
        group.sample_size(20).measurement_time(Duration::from_secs(1));
        group.warm_up_time(Duration::from_millis(300));
        group.throughput(Throughput::Elements(lines.len() as u64));
        group.bench_function("parse", |bencher| {
            bencher.iter(|| {
                for line in &lines {
                    black_box(Event::parse(line).unwrap());
                }
            });
        });
        group.bench_function("ingest", |bencher| {
            bencher.iter_batched_ref(
                || Analyzer::new(job.run_id(), Config::default()),
                |analyzer| {
                    for event in &events {
                        let at = event.header.timestamp_unix_ns;
                        analyzer.ingest(event, Moment { monotonic_ns: at, unix_ns: at });
                    }
                },
                BatchSize::LargeInput,
            );
        });
        let folder = tempfile::tempdir().unwrap();
        write_folder(&job, folder.path()).unwrap();
        let files = RunFolder::find(folder.path(), None).unwrap().files().unwrap();
        group.bench_function("read_a_folder", |bencher| {
            bencher.iter(|| TraceReader::new(files.clone()).read(1, |_, _| {}, |_| {}).lines());
        });
        group.finish();
    }
}

criterion_group!(benches, analyze);
criterion_main!(benches);
