//! Whether the counters of one snapshot are of one moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use deepxtrace_collect::{CounterMemory, CudaMemory, Enqueued};

use crate::support::{Failure, Gpu, Tested, finish, require};

/// Lock-step increments of all counters.
const INCREMENTS: usize = 100_000;
/// Counters of an EP group of 4,096 ranks: a copy takes as long as it ever will.
const LEN: usize = 6 + 9 * 4096;

/// Each increment is a kernel of its own.
pub fn ordered() -> Tested {
    let gpu = Gpu::new(0)?;
    let memory = gpu.memory(LEN)?;
    let seen = watch(&memory, || {
        for i in 0..INCREMENTS {
            // Not too far ahead of the device, so that snapshots are spread over the run.
            if i % 500 == 499 {
                gpu.stream.synchronize()?;
            }
            gpu.launch("add_one", (72, 512), Some((memory.address(), LEN)), &[])?;
        }
        Ok(gpu.stream.synchronize()?)
    })?;
    let torn = seen.iter().filter(|(low, high)| low != high).count();
    println!(
        "figure: ordered snapshots during {INCREMENTS} increments: {} snapshots, {torn} torn",
        seen.len()
    );
    require!(seen.len() > 100, "only {} snapshots", seen.len());
    require!(torn == 0, "{torn} of {} ordered snapshots were torn", seen.len());
    require!(seen.windows(2).all(|pair| pair[0].0 <= pair[1].0), "snapshots went back");
    let last = crate::support::snapshot(&memory)?;
    require!(last == vec![INCREMENTS as i64; LEN], "increments were lost");
    Ok(())
}

/// The same increments, a thousand a kernel: with order a snapshot sees whole kernels, without it
/// what happens to be there.
pub fn unordered() -> Tested {
    let gpu = Gpu::new(0)?;
    let memory = Arc::new(CudaMemory::new(&gpu.device, LEN)?);
    require!(!memory.is_ordered(), "without a stream the memory calls itself ordered");
    let run = || {
        for _ in 0..INCREMENTS / 1000 {
            gpu.launch("add_many", (1, 1024), Some((memory.address(), LEN)), &[1000])?;
        }
        Ok(gpu.stream.synchronize()?)
    };
    let seen = watch(&memory, run)?;
    let torn = seen.iter().filter(|(low, high)| low != high).count();
    println!("figure: unordered snapshots: {} snapshots, {torn} torn", seen.len());
    require!(torn > 0, "none of {} unordered snapshots was torn", seen.len());

    // SAFETY: the stream outlives the memory.
    unsafe { memory.set_producer_stream(gpu.raw_stream())? };
    require!(memory.is_ordered(), "with a stream the memory calls itself unordered");
    let seen = watch(&memory, run)?;
    let torn = seen.iter().filter(|(low, high)| low != high).count();
    println!("figure: ordered snapshots of the same kernels: {}, {torn} torn", seen.len());
    require!(torn == 0, "{torn} of {} ordered snapshots were torn", seen.len());
    require!(seen.iter().all(|(low, _)| low % 1000 == 0), "a snapshot holds half of a kernel");
    Ok(())
}

/// Takes snapshots on another thread while `work` runs; the lowest and highest counter of each.
fn watch(memory: &CudaMemory, work: impl FnOnce() -> Tested) -> Result<Vec<(i64, i64)>, Failure> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| -> Result<_, String> {
            let mut seen = Vec::new();
            while !done.load(Ordering::Relaxed) {
                let Enqueued::Ticket(ticket) =
                    memory.enqueue_snapshot().map_err(|error| error.to_string())?
                else {
                    continue;
                };
                let values = finish(memory, ticket).map_err(|error| error.to_string())?;
                memory.release(ticket);
                let low = values.iter().copied().min().unwrap_or(0);
                seen.push((low, values.iter().copied().max().unwrap_or(0)));
            }
            Ok(seen)
        });
        let outcome = work();
        done.store(true, Ordering::Relaxed);
        let seen = watcher.join().map_err(|_| "the watcher panicked")??;
        outcome?;
        Ok(seen)
    })
}
