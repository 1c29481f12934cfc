//! The collector as a program sees it: snapshots in order, groups of threads and of TCP
//! connections, the thread in the background.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

/// The thread in the background: intervals, stop, failures.
mod background;
/// Snapshots of host memory stand in the order of its queue.
mod host;
/// Rounds, the same over every transport of this process.
mod rounds;
/// What only TCP can suffer: strangers, half frames, lost and returning ranks.
mod tcp;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use deepxtrace_collect::{
    Collector, CounterMemory, Group, HostMemory, Joined, LocalGroup, Membership, Proposal, Stop,
    TcpGroup, Until,
};

/// Long enough for a loaded machine; nothing waits so long when all is well.
const PATIENCE: Duration = Duration::from_secs(60);

fn proposal(vector_len: usize) -> Proposal {
    Proposal { enabled: true, vector_len, ..Proposal::default() }
}

/// The TCP groups of all ranks of one job in this process; the root listens already.
fn tcp_groups(global_ranks: &[usize], root: usize, secret: &str) -> Vec<TcpGroup> {
    let membership = |own| Membership::subgroup(global_ranks.to_vec(), own, root).unwrap();
    let mut first = TcpGroup::new(membership(global_ranks[root]), "127.0.0.1", 0, secret).unwrap();
    let port = first.listen().unwrap().port();
    let mut first = Some(first.with_bind(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    let group = |(rank, own): (usize, &usize)| {
        first
            .take_if(|_| rank == root)
            .unwrap_or_else(|| TcpGroup::new(membership(*own), "127.0.0.1", port, secret).unwrap())
    };
    global_ranks.iter().enumerate().map(group).collect()
}

/// All groups join at the same time; the results are in rank order.
fn join_all<G: Group + 'static>(
    groups: Vec<G>,
    proposals: Vec<Proposal>,
) -> Vec<Result<Option<Joined>, deepxtrace_collect::JoinError>> {
    let threads: Vec<_> = groups
        .into_iter()
        .zip(proposals)
        .map(|(group, proposal)| {
            std::thread::spawn(move || {
                let stop = Stop::new();
                Box::new(group).join(&proposal, Until::after(PATIENCE, &stop))
            })
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// Every rank's memory and collector, each with one channel over all counters.
fn collectors<G: Group + 'static>(
    groups: Vec<G>,
    len: usize,
    timeout: Duration,
) -> Vec<(Arc<HostMemory>, Collector)> {
    let proposals = vec![proposal(len); groups.len()];
    join_all(groups, proposals)
        .into_iter()
        .map(|joined| {
            let memory = Arc::new(HostMemory::new(len));
            let counters: Arc<dyn CounterMemory> = memory.clone();
            let gather = joined.unwrap().unwrap().gather;
            let whole = 0..len;
            let collector = Collector::new(counters, gather, &[whole], timeout).unwrap();
            (memory, collector)
        })
        .collect()
}

fn local_groups(size: usize) -> Vec<LocalGroup> {
    LocalGroup::new(size).unwrap()
}

/// Sets every counter of `memory` to `value` plus its place.
fn count(memory: &HostMemory, value: i64) {
    for (i, counter) in (0..).zip(memory.counters().get()) {
        counter.store(value + i, std::sync::atomic::Ordering::Relaxed);
    }
}

fn counted(len: usize, value: i64) -> Vec<i64> {
    (0..).take(len).map(|i| value + i).collect()
}
