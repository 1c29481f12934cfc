//! The job: rank threads with counters of their own, and the library in each of them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use deepxtrace::collect::{HostMemory, HostQueue, LocalGroup};
use deepxtrace::config::{Config, Mode};
use deepxtrace::counters::{Layout, Topology};
use deepxtrace::normal::WindowDiagnosis;
use deepxtrace::{Counters, Diagnose, SyncStep};
use deepxtrace_sim::{Phase, Workload, WorkloadConfig};

/// Ranks of the job, and how many share a node.
const RANKS: usize = 16;
const RANKS_PER_NODE: usize = 8;
/// How often a rank adds to its counters in a window.
const STEPS: i64 = 8;
/// Longest time that a rank waits for the others.
const TIMEOUT: Duration = Duration::from_secs(30);

/// What one rank counts in one window.
type Increment = Vec<i64>;

/// Runs all phases with so many windows each, and gives their diagnoses in order. The root's log is
/// written into `log_path`, and so are the windows if `artifacts`.
pub fn run(
    phases: &[Phase],
    windows: usize,
    seed: u64,
    log_path: &Path,
    artifacts: bool,
) -> anyhow::Result<Vec<WindowDiagnosis>> {
    let workload = workload(seed)?;
    let config = &Config {
        enabled: true,
        mode: Mode::Synchronous,
        warming_time: Some(Duration::ZERO),
        log_path: log_path.to_owned(),
        artifact_path: artifacts.then(|| log_path.to_owned()),
        artifact_keep: phases.len() * windows,
        ranks_per_node: RANKS_PER_NODE,
        ..Config::default()
    };
    let (senders, receivers): (Vec<_>, Vec<_>) =
        (0..RANKS).map(|_| sync_channel::<Increment>(1)).unzip();
    let members = LocalGroup::new(RANKS)?.into_iter().zip(receivers);
    thread::scope(|scope| {
        let ranks: Vec<_> = members
            .map(|(group, increments)| {
                scope.spawn(move || Rank::join(group, config.clone())?.run(&increments))
            })
            .collect();
        let simulated = simulate(workload, phases, windows, &senders);
        // Without more to come the ranks end.
        drop(senders);
        let mut diagnoses = Vec::new();
        let mut failed = simulated.err();
        for rank in ranks {
            match rank.join().unwrap_or_else(|_| Err(anyhow!("a rank's thread panicked"))) {
                // Only the root has any.
                Ok(found) => diagnoses.extend(found),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(diagnoses), Err)
    })
}

fn workload(seed: u64) -> anyhow::Result<Workload> {
    let topology = Topology::new(RANKS, RANKS_PER_NODE)?;
    Ok(Workload::new(WorkloadConfig::new(topology), seed)?)
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
            let after = workload.run_window().counters().chunks_exact(length);
            let pairs = after.zip(before.counters().chunks_exact(length));
            for ((new, old), sender) in pairs.zip(senders) {
                let increment = new.iter().zip(old).map(|(new, old)| new - old).collect();
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

/// One rank: counters in its memory, an in-order queue that stands for its GPU's stream, and the
/// library.
struct Rank {
    memory: Arc<HostMemory>,
    queue: HostQueue,
    diagnose: Diagnose,
}

impl Rank {
    fn join(group: LocalGroup, config: Config) -> anyhow::Result<Self> {
        let queue = HostQueue::new()?;
        let memory = HostMemory::with_queue(Layout::new(RANKS)?.vector_len(), &queue);
        let memory = Arc::new(memory);
        let shared = Arc::clone(&memory);
        let mut diagnose = Diagnose::builder(group, config)
            .counters(Counters::Normal)
            .memory(move |_| Ok(shared))
            .round_timeout(TIMEOUT)
            .join_timeout(TIMEOUT)
            .build()?
            .context("collection is not enabled")?;
        diagnose.start()?;
        Ok(Self { memory, queue, diagnose })
    }

    /// Works until there is no more to do; the root gives the diagnosis of every window.
    fn run(mut self, increments: &Receiver<Increment>) -> anyhow::Result<Vec<WindowDiagnosis>> {
        let mut diagnoses = Vec::new();
        // Before any work: the boundary.
        self.collect()?;
        while let Ok(increment) = increments.recv() {
            let counters = self.memory.counters();
            self.queue.run(move || {
                for step in 0..STEPS {
                    for (counter, sum) in counters.get().iter().zip(&increment) {
                        let part = sum / STEPS + if step == 0 { sum % STEPS } else { 0 };
                        counter.fetch_add(part, Ordering::Relaxed);
                    }
                }
            });
            self.collect()?;
            diagnoses.extend(self.diagnose.last_normal().cloned());
        }
        Ok(diagnoses)
    }

    fn collect(&mut self) -> anyhow::Result<()> {
        match self.diagnose.diagnose_normal_now()? {
            SyncStep::Collected => Ok(()),
            other => {
                bail!("rank {} was not collected: {other:?}", self.diagnose.membership().rank())
            }
        }
    }
}
