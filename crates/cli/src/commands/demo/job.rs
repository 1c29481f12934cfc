//! The job: rank threads, their counters, and the collector.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use deepxtrace::counters::{Layout, Snapshot, Step, Topology, Windows};
use deepxtrace::normal::{Diagnoser, Policy, WindowDiagnosis};
use deepxtrace_collect::{Collector, Group, HostMemory, LocalGroup, Proposal, Round, Stop, Until};
use deepxtrace_sim::{Phase, Workload, WorkloadConfig};

/// Ranks of the job, and how many share a node.
const RANKS: usize = 16;
const RANKS_PER_NODE: usize = 8;
/// Noise of the costs, as it was measured on real GPUs: 0.7 to 1.3 % from window to window.
const CELL_NOISE: f64 = 0.01;
/// How unequally popular the experts are.
const EXPERT_SKEW: f64 = 0.3;
/// How often a rank adds to its counters in a window.
const STEPS: i64 = 8;
/// Longest time that a rank waits for the others.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A window as it was diagnosed.
pub struct Window<'a> {
    /// Number of the phase.
    pub phase: usize,
    /// Name of this run.
    pub instance: &'a str,
    /// Ranks.
    pub ep_size: usize,
    /// When the root asked for the snapshot that ends the window, ns since 1970.
    pub asked_unix_ns: i64,
    /// The diagnosis.
    pub report: &'a WindowDiagnosis,
}

/// What one rank counts in one window.
struct Increment {
    counters: Vec<i64>,
    /// End of the window in simulated time, ns since 1970.
    end_unix_ns: i64,
}

/// Runs all phases with so many windows each; `each` sees every window.
pub fn run(
    phases: &[Phase],
    windows: usize,
    seed: u64,
    each: impl FnMut(Window<'_>) -> anyhow::Result<()> + Send,
) -> anyhow::Result<()> {
    let topology = Topology::new(RANKS, RANKS_PER_NODE)?;
    let config = WorkloadConfig {
        cell_noise: CELL_NOISE,
        expert_skew: EXPERT_SKEW,
        ..WorkloadConfig::new(topology)
    };
    let workload = Workload::new(config, seed)?;
    let start_unix_ns = workload.snapshot().timestamp_unix_ns();
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..RANKS).map(|_| sync_channel::<Increment>(1)).unzip();
    let stop = &Stop::new();
    let mut members = LocalGroup::new(RANKS)?.into_iter().zip(receivers);
    let root = members.next().context("a group has a root")?;
    thread::scope(|scope| {
        let others: Vec<_> = members
            .map(|(group, increments)| {
                scope.spawn(move || Rank::join(group, increments, stop)?.follow(stop))
            })
            .collect();
        let root = scope.spawn(move || {
            let (group, increments) = root;
            let root = Rank::join(group, increments, stop)?;
            lead(root, topology, start_unix_ns, windows, stop, each)
        });
        let simulated = simulate(workload, phases, windows, &senders);
        drop(senders);
        let mut results = vec![simulated];
        results.push(root.join().unwrap_or_else(|_| Err(anyhow!("the root's thread panicked"))));
        for rank in others {
            results.push(rank.join().unwrap_or_else(|_| Err(anyhow!("a rank's thread panicked"))));
        }
        results.into_iter().collect()
    })
}

/// Sends every rank what it counts, window by window.
fn simulate(
    mut workload: Workload,
    phases: &[Phase],
    windows: usize,
    senders: &[SyncSender<Increment>],
) -> anyhow::Result<()> {
    let mut before = workload.snapshot().clone();
    let length = Layout::of(before.topology()).vector_len();
    for phase in phases {
        workload.phase(phase.faults.iter().cloned())?;
        for _ in 0..windows {
            let after = workload.run_window();
            let vectors = after.counters().chunks_exact(length);
            let pairs = vectors.zip(before.counters().chunks_exact(length));
            for ((new, old), sender) in pairs.zip(senders) {
                let counters = new.iter().zip(old).map(|(new, old)| new - old).collect();
                let increment = Increment { counters, end_unix_ns: after.timestamp_unix_ns() };
                if sender.send(increment).is_err() {
                    // The rank has given up and tells why itself.
                    return Ok(());
                }
            }
            workload.snapshot_into(&mut before);
        }
    }
    Ok(())
}

/// One rank: counters in its memory, and its part in the collection.
struct Rank {
    memory: Arc<HostMemory>,
    collector: Collector,
    increments: Receiver<Increment>,
    instance: String,
}

impl Rank {
    fn join(
        group: LocalGroup,
        increments: Receiver<Increment>,
        stop: &Stop,
    ) -> anyhow::Result<Self> {
        let vector_len = Layout::new(RANKS)?.vector_len();
        let proposal = Proposal { enabled: true, vector_len, ..Proposal::default() };
        let joined = Box::new(group).join(&proposal, Until::after(TIMEOUT, stop))?;
        let joined = joined.context("the ranks did not agree to collect")?;
        let memory = Arc::new(HostMemory::new(vector_len));
        let all = 0..vector_len;
        let collector =
            Collector::new(memory.clone(), joined.gather, std::slice::from_ref(&all), TIMEOUT)?;
        Ok(Self { memory, collector, increments, instance: joined.instance.to_string() })
    }

    /// Does the work of one window: `None` when the job is over.
    fn work(&self) -> Option<i64> {
        let increment = self.increments.recv().ok()?;
        let counters = self.memory.counters();
        for step in 0..STEPS {
            for (counter, sum) in counters.get().iter().zip(&increment.counters) {
                let part = sum / STEPS + if step == 0 { sum % STEPS } else { 0 };
                counter.fetch_add(part, Ordering::Relaxed);
            }
        }
        Some(increment.end_unix_ns)
    }

    /// The part of every rank but the root.
    fn follow(mut self, stop: &Stop) -> anyhow::Result<()> {
        loop {
            // The first round is before any work: its snapshot is the boundary.
            let until = Until::after(TIMEOUT, stop);
            match self.collector.follow_step(0, until)? {
                Some(answered) if answered.skipped.is_none() => {}
                _ => bail!("a rank could not take part in a round"),
            }
            if self.work().is_none() {
                return Ok(());
            }
        }
    }
}

/// The part of the root: it leads the rounds and diagnoses what comes in.
fn lead(
    mut root: Rank,
    topology: Topology,
    start_unix_ns: i64,
    windows: usize,
    stop: &Stop,
    mut each: impl FnMut(Window<'_>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut snapshot = Snapshot::zeros(topology, 0);
    let mut differences = Windows::new(topology);
    let mut diagnoser = Diagnoser::new(topology, Policy::default())?;
    let mut end_unix_ns = start_unix_ns;
    for done in 0.. {
        let round = root.collector.lead(0, Until::after(TIMEOUT, stop))?;
        let asked_unix_ns = round.asked_unix_ns;
        fill(&round, end_unix_ns, &mut snapshot);
        if let Step::Window(window) = differences.advance(&mut snapshot)? {
            let report = diagnoser.diagnose(window);
            let phase = (done - 1) / windows;
            let (instance, ep_size) = (root.instance.as_str(), topology.ep_size());
            each(Window { phase, instance, ep_size, asked_unix_ns, report })?;
        }
        match root.work() {
            Some(end) => end_unix_ns = end,
            None => break,
        }
    }
    Ok(())
}

/// The snapshot that a round gathered.
fn fill(round: &Round<'_>, timestamp_unix_ns: i64, snapshot: &mut Snapshot) {
    snapshot.set_timestamp_unix_ns(timestamp_unix_ns);
    snapshot.counters_mut().copy_from_slice(round.gathered.vectors());
    for (rank, status) in round.gathered.statuses().iter().enumerate() {
        snapshot.set_present(rank, status.is_ok());
    }
}
