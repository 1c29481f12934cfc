//! A snapshot of host counters, and a round over a group of threads and over TCP, beside the copy of
//! the same numbers.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use deepxtrace_collect::{
    Collector, CounterMemory, Enqueued, Group, HostMemory, LocalGroup, Membership, Proposal, Stop,
    TcpGroup, Until,
};

const PATIENCE: Duration = Duration::from_secs(60);
/// Elements of the vector of one of 64 ranks.
const LEN: usize = 6 + 9 * 64;

fn snapshot(c: &mut Criterion) {
    let mut group = c.benchmark_group("snapshot");
    group.sample_size(20).measurement_time(Duration::from_secs(1));
    group.warm_up_time(Duration::from_millis(300));
    for len in [LEN, 6 + 9 * 1024] {
        let (counters, mut copy) = (vec![1_i64; len], vec![0_i64; len]);
        group.bench_function(BenchmarkId::new("floor_copy", len), |b| {
            b.iter(|| copy.copy_from_slice(black_box(&counters)));
        });
        let memory = HostMemory::new(len);
        group.bench_function(BenchmarkId::new("host", len), |b| {
            b.iter(|| {
                let Enqueued::Ticket(ticket) = memory.enqueue_snapshot().unwrap() else {
                    panic!("a buffer is free");
                };
                memory.read(ticket, 0..len, &mut copy).unwrap();
                memory.release(ticket);
            });
        });
    }
}

/// The collectors of all ranks, the root's first.
fn collectors(groups: Vec<Box<dyn Group>>) -> Vec<Collector> {
    let proposal = Proposal { enabled: true, vector_len: LEN, ..Proposal::default() };
    let join = |group: Box<dyn Group>| {
        let proposal = proposal.clone();
        std::thread::spawn(move || {
            let stop = Stop::new();
            let joined = group.join(&proposal, Until::after(PATIENCE, &stop)).unwrap().unwrap();
            let memory: Arc<dyn CounterMemory> = Arc::new(HostMemory::new(LEN));
            let whole = 0..LEN;
            Collector::new(memory, joined.gather, &[whole], PATIENCE).unwrap()
        })
    };
    let threads: Vec<_> = groups.into_iter().map(join).collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

fn tcp(ranks: usize) -> Vec<Box<dyn Group>> {
    let membership = |rank| Membership::subgroup((0..ranks).collect(), rank, 0).unwrap();
    let mut root = TcpGroup::new(membership(0), "127.0.0.1", 0, "bench").unwrap();
    let port = root.listen().unwrap().port();
    let root: Box<dyn Group> = Box::new(root.with_bind(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    let other = |rank| -> Box<dyn Group> {
        Box::new(TcpGroup::new(membership(rank), "127.0.0.1", port, "bench").unwrap())
    };
    std::iter::once(root).chain((1..ranks).map(other)).collect()
}

fn rounds(c: &mut Criterion) {
    let mut group = c.benchmark_group("round");
    group.sample_size(10).measurement_time(Duration::from_secs(1));
    group.warm_up_time(Duration::from_millis(300));
    for ranks in [2, 8] {
        let local = LocalGroup::new(ranks).unwrap().into_iter();
        let local = local.map(|group| -> Box<dyn Group> { Box::new(group) }).collect();
        for (name, groups) in [("threads", local), ("tcp", tcp(ranks))] {
            let mut all = collectors(groups);
            let stop = Stop::new();
            let mut leader = all.remove(0);
            let followers: Vec<_> = all
                .into_iter()
                .map(|mut follower| {
                    let stop = stop.clone();
                    std::thread::spawn(move || {
                        while !stop.is_set() {
                            // Stopped or told goodbye: the end.
                            let _ = follower.follow(Until::after(PATIENCE, &stop));
                        }
                    })
                })
                .collect();
            group.bench_function(BenchmarkId::new(name, ranks), |b| {
                b.iter(|| {
                    let round = leader.lead(0, Until::after(PATIENCE, &stop)).unwrap();
                    assert!(round.gathered.statuses().iter().all(|status| status.is_ok()));
                });
            });
            stop.set();
            leader.goodbye();
            followers.into_iter().for_each(|follower| follower.join().unwrap());
        }
    }
}

criterion_group!(benches, snapshot, rounds);
criterion_main!(benches);
