//! Sixteen logical ranks on one GPU or more, in the five phases of the published validation.
//!
//! `cargo run --release --example ep_emulator --features cuda -- --help`
//!
//! A node is one GPU, or several, and the link between the GPUs is the path between the nodes. The kernels are
//! real: barriers, token copies through local and peer memory, gateways, completion flags. They
//! fill the counters through `deepxtrace_probe.cuh`; what collects and diagnoses them is
//! deepxtrace as any program uses it.

#![allow(unsafe_code, clippy::print_stdout, clippy::print_stderr, clippy::unwrap_used)]

mod collection;
mod gpu;
mod options;
mod phases;
mod pressure;
mod rank;
mod report;
mod routing;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::Parser;
use collection::Collection;
use cudarc::driver::CudaStream;
use deepxtrace::collect::CudaDevice;
use gpu::World;
use options::Options;
use phases::{Phase, phases};
use pressure::Copies;
use rank::{Counters, Launcher, Rank};
use report::Record;
use routing::{Random, Routing};

/// Anything that ends the emulation.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    let options = Options::parse();
    // SAFETY: no other thread runs yet, and the driver is not loaded. Kernels of many streams wait
    // for each other: each stream needs a queue of its own, and no kernel may be loaded late.
    unsafe {
        std::env::set_var("CUDA_DEVICE_MAX_CONNECTIONS", "32");
        std::env::set_var("CUDA_MODULE_LOADING", "EAGER");
    }
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("ep_emulator: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all phases came out as expected; on a machine without a GPU there is nothing to run.
fn run(options: &Options) -> Result<bool, Failure> {
    options.check()?;
    let available = match CudaDevice::count() {
        Ok(count) if count > 0 => count,
        Ok(_) => return skipped("no CUDA device"),
        Err(error) => return skipped(&error.to_string()),
    };
    let count = options.gpus.unwrap_or(available.min(2));
    if count > available {
        return Err(format!("--gpus {count}, but there are {available}").into());
    }
    let mut random = Random(options.seed);
    let draws = [options.skew, options.strong_skew].map(|skew| {
        (0..options.draws).map(|_| Routing::draw(options, skew, &mut random)).collect()
    });
    let world = World::new(options, count, &draws)?;
    let copies = Copies::new(&world)?;
    println!("{} ranks on {count} GPUs: {}", options.ranks(), world.gpus[0].context.name()?);
    let mut fine = true;
    for number in 1..=options.runs {
        let record = one_run(options, &world, &copies, number)?;
        fine &= record.finish(options, number)?;
    }
    Ok(fine || options.any_diagnosis)
}

fn skipped(reason: &str) -> Result<bool, Failure> {
    println!("skipped: {reason}");
    Ok(true)
}

/// All phases once: a thread a rank for deepxtrace, and a thread a GPU that launches.
fn one_run(
    options: &Options,
    world: &World,
    copies: &Copies,
    number: usize,
) -> Result<Record, Failure> {
    let phases = phases(options);
    let gpus = world.gpus.len();
    let record = Arc::new(Mutex::new(Record::new(options)?));
    let (counters, streams) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let shared = Shared {
        options,
        world,
        copies,
        phases: &phases,
        barrier: Barrier::new(options.ranks() + gpus),
        launchers: Barrier::new(gpus),
        stop: AtomicBool::new(false),
        record: &record,
        places: &counters,
        streams: &streams,
    };
    let starts = Collection::all(options, world, number, &record)?;
    std::thread::scope(|scope| {
        for (rank, start) in starts.into_iter().enumerate() {
            let shared = &shared;
            scope.spawn(move || or_exit(&format!("rank {rank}"), shared.collect(rank, start)));
        }
        for gpu in 0..gpus {
            let shared = &shared;
            scope.spawn(move || or_exit(&format!("GPU {gpu}"), shared.launch(gpu)));
        }
    });
    let record = Arc::into_inner(record).ok_or("the record is still in use")?;
    Ok(record.into_inner().map_err(|_| "the record was left in disorder")?)
}

/// The other threads wait for one that failed at the barrier: there is no way on.
fn or_exit(who: &str, outcome: Result<(), Failure>) {
    if let Err(error) = outcome {
        eprintln!("ep_emulator: {who}: {error}");
        std::process::exit(1);
    }
}

struct Shared<'a> {
    options: &'a Options,
    world: &'a World,
    copies: &'a Copies,
    phases: &'a [Phase],
    /// All threads.
    barrier: Barrier,
    /// Those that launch.
    launchers: Barrier,
    stop: AtomicBool,
    record: &'a Mutex<Record>,
    /// Where each rank counts.
    places: &'a Mutex<Vec<(usize, Counters)>>,
    streams: &'a Mutex<Vec<(usize, Arc<CudaStream>)>>,
}

impl Shared<'_> {
    fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What deepxtrace does on one rank.
    fn collect(&self, rank: usize, start: collection::Start) -> Result<(), Failure> {
        self.world.gpu(rank).context.bind_to_thread()?;
        let mut collection = start.join()?;
        Self::lock(self.places).push((rank, collection.counters()?));
        Self::lock(self.streams).push((rank, collection.stream()));
        self.barrier.wait(); // all ranks have met
        let windows: usize = self.phases.iter().map(|phase| phase.windows).sum();
        for _ in 0..=windows {
            self.barrier.wait(); // the window has ended
            collection.step()?;
            self.barrier.wait(); // it was collected
        }
        collection.stop()
    }

    /// What the GPU is given to do.
    fn launch(&self, gpu: usize) -> Result<(), Failure> {
        self.world.gpus[gpu].context.bind_to_thread()?;
        self.barrier.wait(); // all ranks have met
        let mut ranks = Vec::new();
        for rank in self.world.ranks_of(gpu) {
            let of = |(known, _): &&(usize, Counters)| *known == rank;
            let counters = Self::lock(self.places).iter().find(of).ok_or("counters")?.1;
            let of = |(known, _): &&(usize, Arc<CudaStream>)| *known == rank;
            let stream = Self::lock(self.streams).iter().find(of).ok_or("stream")?.1.clone();
            ranks.push(Rank::new(self.world, self.options, rank, stream, counters)?);
        }
        let mut launcher = Launcher { ranks };
        self.launchers.wait();
        // The first rounds: what arrives must be what was sent.
        for _ in 0..4 {
            launcher.window(&self.phases[0], 0, 1, false)?;
            launcher.verify()?;
            self.launchers.wait();
        }
        launcher.window(&self.phases[0], 0, self.options.warm_up, true)?;
        self.barrier.wait(); // the boundary
        self.barrier.wait();
        for phase in self.phases {
            self.phase(gpu, phase, &mut launcher)?;
        }
        Ok(())
    }

    fn phase(&self, gpu: usize, phase: &Phase, launcher: &mut Launcher<'_>) -> Result<(), Failure> {
        self.launchers.wait();
        self.stop.store(false, Ordering::Relaxed);
        if gpu == 0 {
            Self::lock(self.record).begin(phase);
        }
        self.launchers.wait();
        std::thread::scope(|scope| {
            let directions = (0..2).filter(|&direction| {
                phase.copies[direction] > 0 && self.world.gpus_of(direction).contains(&gpu)
            });
            let pressures: Vec<_> = directions
                .map(|direction| {
                    let streams = phase.copies[direction];
                    let (copies, world, stop) = (self.copies, self.world, &self.stop);
                    scope.spawn(move || {
                        (direction, copies.run(world, gpu, direction, streams, stop))
                    })
                })
                .collect();
            if phase.copies != [0, 0] {
                // Until the copies are under way.
                std::thread::sleep(Duration::from_millis(20));
            }
            self.launchers.wait();
            let (mut working, mut busy) = (Duration::ZERO, Duration::ZERO);
            for window in 0..phase.windows {
                let begin = Instant::now();
                busy += launcher.window(phase, window, self.options.rounds, true)?;
                working += begin.elapsed();
                self.barrier.wait(); // the window has ended
                self.barrier.wait(); // it was collected
            }
            self.launchers.wait();
            self.stop.store(true, Ordering::Relaxed);
            for pressure in pressures {
                let (direction, rate) = pressure.join().map_err(|_| "the copies panicked")?;
                println!(
                    "{}: competing copies from node {direction}, GPU {gpu}: {:.0} GB/s",
                    phase.name,
                    rate? / 1e9
                );
            }
            if gpu == 0 {
                let rounds = (phase.windows * self.options.rounds) as f64;
                let busy = busy.as_secs_f64() * 1e6 / phase.windows as f64;
                Self::lock(self.record).end(working.as_secs_f64() * 1e3 / rounds, busy);
            }
            Ok(())
        })
    }
}
