//! Gather of CUDA counters over MPI: `mpirun -n 2` of this program, one GPU a rank where there are
//! as many. Without a GPU it says that it was skipped, and passes.

#![allow(unsafe_code, missing_docs, clippy::print_stdout, clippy::unwrap_used)]
#![allow(dead_code, reason = "the support is shared with the other GPU tests")]

#[path = "../gpu/support.rs"]
mod support;

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use deepxtrace_collect::mpi::topology::Communicator;
use deepxtrace_collect::{
    Background, Collector, CounterMemory, CudaDevice, CudaMemory, Event, EveryInterval, Group,
    Membership, MpiGroup, Proposal, Stop, Until, mpi,
};
use support::{Failure, Gpu, Tested, require};

const LEN: usize = 150;
const PATIENCE: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let count = match CudaDevice::count() {
        Ok(count) if count > 0 => count,
        Ok(_) => return skipped("no CUDA device"),
        Err(error) => return skipped(&error.to_string()),
    };
    let Some((_universe, _)) = mpi::initialize_with_threading(mpi::Threading::Multiple) else {
        return skipped("MPI is initialised already");
    };
    let world = mpi::topology::SimpleCommunicator::world();
    let (rank, size) = (world.rank() as usize, world.size() as usize);
    let outcome = run(&world, rank % count, rank, size);
    match &outcome {
        Ok(()) => println!("rank {rank} of {size}: ok"),
        Err(error) => println!("rank {rank} of {size}: {error}"),
    }
    let failed = usize::from(outcome.is_err());
    println!("{} passed, {failed} failed", 1 - failed);
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn skipped(reason: &str) -> ExitCode {
    println!("test gpu_mpi ... skipped ({reason})");
    println!("0 passed, 0 failed, 1 skipped");
    ExitCode::SUCCESS
}

fn run(world: &impl Communicator, device: usize, rank: usize, size: usize) -> Tested {
    let gpu = Gpu::new(device)?;
    let forward: Vec<usize> = (0..size).collect();
    let backward: Vec<usize> = (0..size).rev().collect();
    for (ranks, root) in [(forward.clone(), 0), (forward, size - 1), (backward, 0)] {
        let group = MpiGroup::subgroup(world, ranks, root, PATIENCE)?;
        let membership = Group::membership(&group).clone();
        synchronous(&gpu, group, &membership)?;
    }
    let group = MpiGroup::new(world, PATIENCE)?;
    asynchronous(&gpu, group, rank)
}

fn collector(group: MpiGroup, memory: &Arc<CudaMemory>) -> Result<Collector, Failure> {
    let proposal = Proposal {
        enabled: true,
        vector_len: LEN,
        identity: memory.identity(),
        ..Proposal::default()
    };
    let stop = Stop::new();
    let joined = Box::new(group).join(&proposal, Until::after(PATIENCE, &stop))?;
    let gather = joined.ok_or("enabled")?.gather;
    let memory = Arc::clone(memory) as Arc<dyn CounterMemory>;
    let whole = std::slice::from_ref(&(0..LEN)).to_vec();
    Ok(Collector::new(memory, gather, &whole, PATIENCE)?)
}

/// Five steps with other values each; the root compares all of them.
fn synchronous(gpu: &Gpu, group: MpiGroup, membership: &Membership) -> Tested {
    let memory = gpu.memory(LEN)?;
    let mut collector = collector(group, &memory)?;
    let stop = Stop::new();
    let base = |rank: usize, step: i64| 1_000_000 * rank as i64 + 1000 * step;
    for step in 1..=5 {
        let own = base(membership.rank(), step);
        gpu.launch("set_ramp", (8, 256), Some((memory.address(), LEN)), &[own])?;
        let until = Until::after(PATIENCE, &stop);
        if !membership.is_root() {
            collector.follow_step(0, until)?.ok_or("no request came")?;
            continue;
        }
        let round = collector.lead(0, until)?;
        for rank in 0..membership.size() {
            let vector = round.gathered.vector(rank).ok_or("a vector is missing")?;
            let wanted: Vec<i64> = (0..LEN as i64).map(|i| base(rank, step) + i).collect();
            require!(vector == wanted, "step {step}: rank {rank} differs");
        }
    }
    Ok(())
}

/// Rounds on background threads while kernels add to all counters in lock step.
fn asynchronous(gpu: &Gpu, group: MpiGroup, rank: usize) -> Tested {
    let memory = gpu.memory(LEN)?;
    let collector = collector(group, &memory)?;
    let interval = Duration::from_millis(20);
    let schedule = EveryInterval::new(Instant::now(), interval, interval);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let mut background = Background::start(collector, Box::new(schedule), move |event| {
        let Event::Round(round) = event else { return };
        let statuses = round.gathered.statuses();
        let whole = (0..statuses.len()).all(|rank| {
            let vector = round.gathered.vector(rank);
            vector.is_some_and(|vector| vector.iter().all(|value| *value == vector[0]))
        });
        sink.lock().unwrap().push(whole);
    })?;
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(2) {
        for _ in 0..200 {
            gpu.launch("add_one", (1, 256), Some((memory.address(), LEN)), &[])?;
        }
        gpu.stream.synchronize()?;
    }
    let stopped = background.stop(Duration::from_secs(5));
    require!(stopped, "the background did not stop");
    if rank == 0 {
        let seen = seen.lock().unwrap();
        let whole = seen.iter().filter(|whole| **whole).count();
        println!("figure: rounds over MPI in 2 s: {}, {whole} whole", seen.len());
        // The last round may have been cut short by the other rank's end.
        require!(seen.len() > 20 && whole + 1 >= seen.len(), "{whole} of {} whole", seen.len());
    }
    Ok(())
}
