//! One call into a ring, and a ring into a trace, beside writing the bytes of that trace.
#![cfg(target_os = "linux")]
#![allow(missing_docs, clippy::unwrap_used)]

use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use deepxtrace_nccl_ring::{Api, Call, Drainer, Identity, RingFile, Writer};
use tempfile::TempDir;

/// Calls that the ring holds.
const BURST: u64 = 1 << 13;

/// A process that records: its ring, and the folder of its trace.
struct Process {
    file: RingFile,
    writer: Writer,
    drainer: Drainer,
    next: u64,
    trace: TempDir,
    _rings: TempDir,
}

impl Process {
    fn new() -> Self {
        let rings = tempfile::tempdir_in("/dev/shm").unwrap();
        let trace = tempfile::tempdir().unwrap();
        let identity = Identity {
            run_id: "bench".to_owned(),
            hostname: "node0".to_owned(),
            folder: trace.path().to_owned(),
            stem: "rank_0_pid_1".to_owned(),
            rank: 0,
            local_rank: 0,
            world_size: 8,
            pid: 1,
        };
        let file = RingFile::create(rings.path(), BURST as usize, 1 << 26, &identity).unwrap();
        let writer = Writer::new(file.add_ring().unwrap().1);
        let drainer = Drainer::new(&file, true);
        Self { file, writer, drainer, next: 0, trace, _rings: rings }
    }

    /// Records calls, and says how many there was room for.
    fn record(&mut self, calls: u64) -> u64 {
        let recorded = (self.next..self.next + calls).filter(|&number| {
            let call = Call {
                enter_ns: 1_000 + 10 * number,
                call_seq: number,
                comm_seq: number,
                count: 1 << 20,
                hash: 0x518b_16c8_a38e_05c5,
                members: (0, 8),
                datatype: 7,
                op: 0,
                ..Call::new(Api::AllReduce)
            };
            let room = self.writer.begin(&call);
            if room {
                self.writer.finish(1_005 + 10 * number, 0);
            }
            room
        });
        let recorded = recorded.count() as u64;
        self.next += calls;
        recorded
    }

    fn drain(&mut self) {
        self.drainer.drain(&self.file).unwrap();
    }

    /// Bytes of the trace that is there now.
    fn bytes(&self) -> u64 {
        let files = std::fs::read_dir(self.trace.path()).unwrap();
        files.map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
    }
}

/// Time of some work on a full ring, for each of `calls` calls in whole bursts.
fn bursts(calls: u64, mut work: impl FnMut() -> Duration) -> Duration {
    let bursts = calls.div_ceil(BURST);
    let spent: Duration = (0..bursts).map(|_| work()).sum();
    spent.mul_f64(calls as f64 / (bursts * BURST) as f64)
}

fn ring(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ring");
    group.sample_size(10).measurement_time(Duration::from_secs(1));
    group.warm_up_time(Duration::from_millis(300));
    group.throughput(Throughput::Elements(1));
    let mut process = Process::new();
    group.bench_function("record_a_call", |bencher| {
        bencher.iter_custom(|calls| {
            bursts(calls, || {
                let start = Instant::now();
                let recorded = process.record(BURST);
                let spent = start.elapsed();
                assert_eq!(recorded, BURST, "dropping is cheaper than recording");
                process.drain();
                spent
            })
        });
    });
    group.bench_function("drain_a_call", |bencher| {
        bencher.iter_custom(|calls| {
            bursts(calls, || {
                process.record(BURST);
                let start = Instant::now();
                process.drain();
                start.elapsed()
            })
        });
    });
    // Two lines a call: what the file system alone takes for them.
    let mut one = Process::new();
    one.record(BURST);
    one.drain();
    let bytes = vec![b'x'; usize::try_from(one.bytes()).unwrap()];
    let path = one.trace.path().join("floor");
    group.bench_function("floor_write_its_lines", |bencher| {
        bencher.iter_custom(|calls| {
            bursts(calls, || {
                let start = Instant::now();
                std::fs::write(&path, &bytes).unwrap();
                start.elapsed()
            })
        });
    });
}

criterion_group!(benches, ring);
criterion_main!(benches);
