//! Sixteen ranks as threads of one process: a healthy time, then rank 9 computes longer before
//! every dispatch.
//!
//! `cargo run --example local_ep16`

#![allow(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::time::Duration;

use deepxtrace::collect::{CounterMemory, HostMemory, LocalGroup};
use deepxtrace::config::Config;
use deepxtrace::counters::Topology;
use deepxtrace::{Counters, Diagnose, Report};
use deepxtrace_sim::{Fault, Workload, WorkloadConfig};

const RANKS: usize = 16;
const STEPS: usize = 60;
const FAULT_AT: usize = 30;

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let topology = Topology::new(RANKS, 8)?;
    // What the kernels of all ranks would count, a step at a time.
    let workload = Arc::new(Mutex::new(Workload::new(WorkloadConfig::new(topology), 1)?));
    let barrier = Arc::new(Barrier::new(RANKS));
    let threads: Vec<_> = LocalGroup::new(RANKS)?
        .into_iter()
        .enumerate()
        .map(|(rank, group)| {
            let (workload, barrier) = (Arc::clone(&workload), Arc::clone(&barrier));
            std::thread::spawn(move || train(rank, group, &workload, &barrier))
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a rank panicked")??;
    }
    Ok(())
}

fn train(
    rank: usize,
    group: LocalGroup,
    workload: &Mutex<Workload>,
    barrier: &Barrier,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    let config = Config {
        enabled: true,
        interval: Duration::from_millis(200),
        log_path: std::env::temp_dir().join("deepxtrace-local-ep16"),
        ..Config::default()
    };
    let memory = Arc::new(HostMemory::new(6 + 9 * RANKS));
    let counters = memory.counters();
    let mut diagnose = Diagnose::builder(group, config)
        .counters(Counters::Normal)
        .memory(move |_| Ok(memory as Arc<dyn CounterMemory>))
        .on_report(|report| {
            let Report::Normal(report) = report else { return };
            println!("window {}: {}", report.diagnosis.window_index, report.diagnosis.state);
            for incident in &report.diagnosis.incidents {
                println!("  {incident}");
            }
            for change in &report.diagnosis.tracker {
                println!("  {change}");
            }
        })
        .build()?
        .ok_or("collection is enabled")?;
    diagnose.start()?;
    for step in 0..STEPS {
        if barrier.wait().is_leader() {
            let mut workload = workload.lock().unwrap_or_else(PoisonError::into_inner);
            if step == FAULT_AT {
                workload.phase([Fault::LateBeforeDispatch { rank: 9, ns: 1_400_000 }])?;
            }
            workload.run_window();
        }
        barrier.wait();
        {
            let workload = workload.lock().unwrap_or_else(PoisonError::into_inner);
            let counted = workload.snapshot().vector(rank).unwrap_or_default();
            for (counter, value) in counters.get().iter().zip(counted) {
                counter.store(*value, Relaxed);
            }
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    diagnose.stop();
    Ok(())
}
