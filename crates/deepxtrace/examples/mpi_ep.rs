//! Eight MPI ranks, of which four form an EP group; one of them is slow.
//!
//! `mpirun -n 8 target/debug/examples/mpi_ep`, built with `--features mpi`.

#![allow(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use deepxtrace::collect::mpi::topology::SimpleCommunicator;
use deepxtrace::collect::mpi::traits::Communicator;
use deepxtrace::collect::mpi::{Threading, initialize_with_threading};
use deepxtrace::collect::{CounterMemory, Group, HostMemory, MpiGroup};
use deepxtrace::config::Config;
use deepxtrace::counters::Topology;
use deepxtrace::normal::Incident;
use deepxtrace::{Counters, Diagnose, Report};
use deepxtrace_sim::{Fault, Workload, WorkloadConfig};

/// The ranks of the group, in its order: not those of MPI next to each other.
const GROUP: [usize; 4] = [6, 1, 3, 4];
/// The root, and the slow one, as ranks of the group.
const ROOT: usize = 1;
const SLOW: usize = 3;
const WINDOWS: u64 = 3;
const MOST: Duration = Duration::from_secs(60);

fn main() -> Result<(), Box<dyn Error>> {
    let (universe, level) =
        initialize_with_threading(Threading::Multiple).ok_or("MPI was initialised before")?;
    println!("thread level {level:?}");
    let world = SimpleCommunicator::world();
    let rank = usize::try_from(world.rank())?;
    if usize::try_from(world.size())? < 8 {
        return Err("start it with mpirun -n 8".into());
    }
    if GROUP.contains(&rank) {
        train(MpiGroup::subgroup(&world, GROUP.to_vec(), ROOT, MOST)?)?;
    }
    // The host finalises MPI, after all that uses it is dropped.
    drop(universe);
    Ok(())
}

fn train(group: MpiGroup) -> Result<(), Box<dyn Error>> {
    let membership = group.membership().clone();
    let topology = Topology::new(membership.size(), 2)?;
    let config = Config {
        enabled: true,
        interval: Duration::from_millis(100),
        ranks_per_node: 2,
        log_path: std::env::temp_dir().join("deepxtrace-mpi-ep"),
        ..Config::default()
    };
    let counters = Arc::new(OnceLock::new());
    let keep = Arc::clone(&counters);
    let found = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&found);
    let mut diagnose = Diagnose::builder(group, config)
        .counters(Counters::Normal)
        .memory(move |len| {
            let memory = HostMemory::new(len);
            let _ = keep.set(memory.counters());
            Ok(Arc::new(memory) as Arc<dyn CounterMemory>)
        })
        .on_report(move |report| {
            let Report::Normal(report) = report else { return };
            for incident in &report.diagnosis.incidents {
                if let Incident::PreStageArrivalSkew { probe, ranks } = incident {
                    for rank in ranks {
                        let place = report.ranks.place(*rank);
                        println!(
                            "window {}: {place} is late before {probe}",
                            report.diagnosis.window_index
                        );
                        count.fetch_add(u64::from(*rank == SLOW), Relaxed);
                    }
                }
            }
        })
        .build()?
        .ok_or("collection is enabled")?;
    let counters = counters.get().ok_or("the counters are allocated")?;
    let mut workload = Workload::new(WorkloadConfig::new(topology), 1)?;
    workload.phase([Fault::LateBeforeDispatch { rank: SLOW, ns: 3_000_000 }])?;
    diagnose.start()?;
    let begin = Instant::now();
    // The root ends once it has found the slow rank often enough, the others some time after.
    let enough = Duration::from_secs(3);
    while begin.elapsed() < if membership.is_root() { MOST } else { enough } {
        let counted = workload.run_window().vector(membership.rank()).unwrap_or_default();
        for (counter, value) in counters.get().iter().zip(counted) {
            counter.store(*value, Relaxed);
        }
        std::thread::sleep(Duration::from_millis(10));
        if found.load(Relaxed) >= WINDOWS && begin.elapsed() > enough {
            break;
        }
    }
    diagnose.stop();
    if membership.is_root() && found.load(Relaxed) < WINDOWS {
        return Err("the slow rank was not found".into());
    }
    Ok(())
}
