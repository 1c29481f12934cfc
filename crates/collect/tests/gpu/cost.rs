//! What collection costs the program.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::sys::{self, CUresult};
use deepxtrace_collect::{Background, CounterMemory, Enqueued, EveryInterval, Trigger};

use crate::support::{Gpu, Tested, alone, figure, finish, median_us, require, ticket};

/// EP16: the vector that DeepEP's counters need there.
const LEN: usize = 150;

/// Counts the allocations of each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// The producer's calls allocate nothing, and return while the device is busy for half a second.
pub fn no_allocation() -> Tested {
    let gpu = Gpu::new(0)?;
    let memory = gpu.memory(LEN)?;
    let trigger = Trigger::new(Arc::clone(&memory) as Arc<dyn CounterMemory>);
    let warm = ticket(memory.enqueue_snapshot()?)?;
    finish(&memory, warm)?;
    memory.release(warm);

    gpu.launch("spin", (1, 1), None, &[500_000_000])?;
    let allocations = ALLOCATIONS.get();
    let start = Instant::now();
    let first = memory.enqueue_snapshot()?;
    let second = memory.enqueue_snapshot()?;
    let third = memory.enqueue_snapshot()?;
    let idle = trigger.snapshot_if_due();
    let time = start.elapsed();
    let allocated = ALLOCATIONS.get() - allocations;
    require!(allocated == 0, "{allocated} allocations on the producer's side");
    require!(time < Duration::from_millis(20), "the producer waited {time:?}");
    require!(!idle, "a snapshot was due");
    let third_skipped = matches!(third, Enqueued::Skipped(_));
    require!(third_skipped, "a third buffer was found");
    for enqueued in [first, second] {
        let ticket = ticket(enqueued)?;
        finish(&memory, ticket)?;
        memory.release(ticket);
    }
    Ok(())
}

/// The host time of an enqueue beside the bare calls, one after the other in turns.
pub fn enqueue() -> Tested {
    const TURNS: usize = 4000;
    let gpu = Gpu::new(0)?;
    let memory = gpu.memory(LEN)?;
    let bare = gpu.memory(LEN)?;
    let event = gpu.context.new_event(None)?;
    let to = gpu.stream.alloc_zeros::<i64>(LEN)?;
    let (to, _sync) = cudarc::driver::DevicePtr::device_ptr(&to, &gpu.stream);
    let (mut ours, mut theirs, mut nothing_due) = (Vec::new(), Vec::new(), Vec::new());
    let trigger = Trigger::new(Arc::clone(&memory) as Arc<dyn CounterMemory>);
    for turn in 0..TURNS + 200 {
        let start = Instant::now();
        let enqueued = memory.enqueue_snapshot()?;
        let own = start.elapsed();
        let ticket = ticket(enqueued)?;
        gpu.stream.synchronize()?;
        memory.release(ticket);

        let start = Instant::now();
        // SAFETY: both buffers hold that many bytes; stream and event are alive.
        let results = unsafe {
            [
                sys::cuMemcpyDtoDAsync_v2(to, bare.address(), 8 * LEN, gpu.stream.cu_stream()),
                sys::cuEventRecord(event.cu_event(), gpu.stream.cu_stream()),
            ]
        };
        let their = start.elapsed();
        require!(results == [CUresult::CUDA_SUCCESS; 2], "the bare calls failed");
        gpu.stream.synchronize()?;

        let start = Instant::now();
        trigger.snapshot_if_due();
        let idle = start.elapsed();
        if turn >= 200 {
            ours.push(own);
            theirs.push(their);
            nothing_due.push(idle);
        }
    }
    let (ours, theirs) = (median_us(&mut ours), median_us(&mut theirs));
    figure("enqueue of a snapshot, median", ours, "us");
    figure("bare copy and event record, median", theirs, "us");
    let more = ours - theirs;
    figure("enqueue minus bare", more, "us");
    figure(
        "snapshot_if_due with nothing due, median (clock included)",
        median_us(&mut nothing_due),
        "us",
    );
    require!(more < 1.0, "an enqueue costs {more:.2} us more than the bare calls");
    Ok(())
}

/// Steps of 2 ms with a collection every 100 ms, and without, in turns.
pub fn step() -> Tested {
    const ROUNDS: usize = 24;
    const STEPS: usize = 100;
    let gpu = Gpu::new(0)?;
    let memory = gpu.memory(LEN)?;
    let out = gpu.stream.alloc_zeros::<f32>(1)?;
    let (out, _sync) = cudarc::driver::DevicePtr::device_ptr(&out, &gpu.stream);
    let work = gpu.function("work")?;
    let config = cudarc::driver::LaunchConfig {
        grid_dim: (132, 1, 1),
        block_dim: (256, 1, 1),
        shared_mem_bytes: 0,
    };
    let step = |turns: i32| -> Result<Duration, crate::support::Failure> {
        let start = Instant::now();
        for _ in 0..20 {
            let mut launch = gpu.stream.launch_builder(&work);
            cudarc::driver::PushKernelArg::arg(&mut launch, &out);
            cudarc::driver::PushKernelArg::arg(&mut launch, &turns);
            // SAFETY: the arguments are those of the kernel.
            unsafe { launch.launch(config)? };
        }
        gpu.stream.synchronize()?;
        Ok(start.elapsed())
    };
    // How many turns take 100 us.
    let mut turns = 20_000;
    for _ in 0..5 {
        (0..5).try_for_each(|_| step(turns).map(drop))?;
        turns = (f64::from(turns) * 2e-3 / step(turns)?.as_secs_f64()) as i32;
    }
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let collecting = round % 2 == 0;
        let background = if collecting {
            let interval = Duration::from_millis(100);
            let schedule = EveryInterval::new(Instant::now(), Duration::from_millis(5), interval);
            Some(Background::start(alone(Arc::clone(&memory))?, Box::new(schedule), |_| {})?)
        } else {
            None
        };
        let times = if collecting { &mut with } else { &mut without };
        (0..5).try_for_each(|_| step(turns).map(drop))?;
        for _ in 0..STEPS {
            times.push(step(turns)?);
        }
        drop(background);
    }
    let (with, without) = (median_us(&mut with), median_us(&mut without));
    let percent = (with / without - 1.0) * 100.0;
    figure("step without collection, median", without, "us");
    figure("step with collection every 100 ms, median", with, "us");
    figure("difference", percent, "%");
    require!(percent < 0.1, "a step takes {percent:.3} % longer with collection");
    Ok(())
}
