//! A trainer that embeds the diagnosis, configured by the environment alone.
//!
//! Under `torchrun` every rank joins over TCP; alone it is a group of one:
//!
//! `DEEPEP_DIAGNOSE_ENABLE=1 DEEPEP_DIAGNOSE_ASYNC=0 DEEPEP_DIAGNOSE_SYNC_STEP=10 \
//!  DEEPEP_DIAGNOSE_WARMING_TIME=0 cargo run --example trainer_loop`

#![allow(clippy::print_stdout, reason = "an example")]

use std::error::Error;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};

use deepxtrace::collect::{CounterMemory, HostCounters, HostMemory, LocalGroup, TcpGroup};
use deepxtrace::config::Mode;
use deepxtrace::counters::{Layout, NotifyProbe};
use deepxtrace::{Diagnose, SyncStep};

const STEPS: usize = 40;

fn main() -> Result<(), Box<dyn Error>> {
    // On a GPU this would be `CudaMemory`, with the stream that the kernels run on.
    let counters = Arc::new(OnceLock::new());
    let keep = Arc::clone(&counters);
    let allocate = move |len| {
        let memory = HostMemory::new(len);
        let _ = keep.set(memory.counters());
        Ok(Arc::new(memory) as Arc<dyn CounterMemory>)
    };
    let diagnose = if std::env::var_os("WORLD_SIZE").is_some() {
        Diagnose::from_env(TcpGroup::from_env()?, allocate)?
    } else {
        Diagnose::from_env(LocalGroup::new(1)?.remove(0), allocate)?
    };
    let Some(mut diagnose) = diagnose else {
        println!("DEEPEP_DIAGNOSE_ENABLE is off: the trainer runs without");
        return Ok(());
    };
    // What the dispatch and combine kernels are given, once.
    if let (Some(dispatch), Some(combine)) = (diagnose.dispatch_bundle(), diagnose.combine_bundle())
    {
        println!("dispatch counts at {:#x}", dispatch.raw()[0].address);
        println!("combine counts at {:#x}", combine.raw()[0].address);
    }
    diagnose.start()?;
    let counters = counters.get().ok_or("the counters are allocated")?.clone();
    let layout = Layout::of(diagnose.topology());
    let mut trainer = Trainer { counters, layout, launches: 0 };
    for _ in 0..STEPS {
        trainer.step();
        // In the asynchronous mode there is nothing to call.
        if diagnose.config().mode == Mode::Synchronous
            && diagnose.diagnose_normal_sync()? == SyncStep::Collected
            && let Some(window) = diagnose.last_normal()
        {
            println!("window {}: {}", window.window_index, window.state);
        }
    }
    diagnose.stop();
    println!("{:?}", diagnose.health());
    Ok(())
}

/// Stands for the program's own work, in which kernels count.
struct Trainer {
    counters: HostCounters,
    layout: Layout,
    launches: i64,
}

impl Trainer {
    fn step(&mut self) {
        self.launches += 1;
        // Kernels do this on the device.
        let place = self.layout.count(NotifyProbe::NotifyDispatch);
        if let Some(counter) = self.counters.get().get(place) {
            counter.store(self.launches, Relaxed);
        }
    }
}
