//! What a snapshot holds: the work before it on the stream, and nothing after it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cudarc::driver::{LaunchConfig, PushKernelArg};
use deepxtrace_collect::{Background, CounterMemory, Event, EveryInterval, Stop, Until};

use crate::support::{Gpu, Tested, alone, finish, require, snapshot, ticket};

const LEN: usize = 150;
const SPIN_NS: i64 = 200_000_000;

pub fn both_sides() -> Tested {
    let gpu = Gpu::new(0)?;
    let memory = gpu.memory(LEN)?;
    require!(snapshot(&memory)? == vec![0; LEN], "the counters do not begin at 0");
    gpu.set(&memory, 1)?;
    let before = ticket(memory.enqueue_snapshot()?)?;
    gpu.launch("spin_then_set", (1, 256), Some((memory.address(), LEN)), &[2, SPIN_NS])?;
    let after = ticket(memory.enqueue_snapshot()?)?;
    gpu.set(&memory, 3)?;

    require!(finish(&memory, before)? == vec![1; LEN], "before the kernel: not the old values");
    require!(!memory.is_ready(after)?, "the second snapshot did not wait for the kernel");
    require!(finish(&memory, after)? == vec![2; LEN], "after the kernel: not its values");
    memory.release(before);
    memory.release(after);
    require!(snapshot(&memory)? == vec![3; LEN], "the last values are not those at the end");
    let mut part = [0; 3];
    let again = ticket(memory.enqueue_snapshot()?)?;
    finish(&memory, again)?;
    gpu.launch("set_ramp", (8, 256), Some((memory.address(), LEN)), &[100])?;
    memory.read(again, 5..8, &mut part)?;
    require!(part == [3; 3], "a ready snapshot changed");
    memory.release(again);
    let ramp = ticket(memory.enqueue_snapshot()?)?;
    finish(&memory, ramp)?;
    memory.read(ramp, 5..8, &mut part)?;
    memory.release(ramp);
    require!(part == [105, 106, 107], "a part of the counters is not that part: {part:?}");
    Ok(())
}

pub fn synchronous() -> Tested {
    let gpu = Gpu::new(0)?;
    let memory = gpu.memory(LEN)?;
    let mut collector = alone(Arc::clone(&memory))?;
    let stop = Stop::new();
    for step in 1..=5 {
        gpu.launch("spin_then_set", (1, 256), Some((memory.address(), LEN)), &[step, 20_000_000])?;
        let round = collector.lead(0, Until::after(Duration::from_secs(20), &stop))?;
        let vector = round.gathered.vector(0).ok_or("no vector")?;
        require!(vector == [step; LEN], "step {step}: {:?}", &vector[..2]);
    }
    Ok(())
}

pub fn asynchronous() -> Tested {
    let gpu = Gpu::new(0)?;
    let memory = gpu.memory(LEN)?;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (sink, mixed) = (Arc::clone(&seen), Arc::new(AtomicUsize::new(0)));
    let torn = Arc::clone(&mixed);
    let schedule =
        EveryInterval::new(Instant::now(), Duration::from_millis(1), Duration::from_millis(5));
    let mut background =
        Background::start(alone(Arc::clone(&memory))?, Box::new(schedule), move |event| {
            if let Event::Round(round) = event
                && let Some(vector) = round.gathered.vector(0)
            {
                if vector.iter().any(|value| *value != vector[0]) {
                    torn.fetch_add(1, Ordering::Relaxed);
                }
                sink.lock().unwrap().push(vector[0]);
            }
        })?;
    for step in 1..=40 {
        gpu.launch("spin_then_set", (1, 256), Some((memory.address(), LEN)), &[step, 20_000_000])?;
        if step % 4 == 0 {
            gpu.stream.synchronize()?;
        }
    }
    std::thread::sleep(Duration::from_millis(50));
    let stopped = background.stop(Duration::from_secs(5));
    require!(stopped, "the background did not stop");
    let seen = seen.lock().unwrap();
    require!(mixed.load(Ordering::Relaxed) == 0, "a snapshot held half of a kernel");
    require!(seen.len() > 10, "only {} rounds", seen.len());
    require!(seen.is_sorted(), "a later snapshot holds older values");
    require!(seen.last() == Some(&40), "the last values were not seen");
    Ok(())
}

pub fn probes() -> Tested {
    let gpu = Gpu::new(0)?;
    let memory = gpu.memory(2 + 12 + 3)?;
    let at = |element: u64| memory.address() + 8 * element;
    // Duration, count; cost, samples, tokens of four sources; three words of scratch.
    let (notify, completion) = ([at(0), at(1)], [at(2), at(6), at(10)]);
    let scratch = at(14);
    let function = gpu.function("probed")?;
    let config = LaunchConfig { grid_dim: (4, 1, 1), block_dim: (64, 1, 1), shared_mem_bytes: 0 };
    for (notify, completion) in [(notify, completion), (notify, completion), ([0; 2], [0; 3])] {
        let (notify, completion) = (Words(notify), Words(completion));
        let mut launch = gpu.stream.launch_builder(&function);
        launch.arg(&notify).arg(&scratch).arg(&completion).arg(&1_000_000_u64);
        // SAFETY: the arguments have the layout of the kernel's; the counters are alive.
        unsafe { launch.launch(config)? };
    }
    let values = snapshot(&memory)?;
    // Two launches whose last block takes 4 ms; the third was told to count nothing.
    let (duration, count) = (values[0], values[1]);
    require!(count == 2, "{count} Notify launches");
    require!((8_000_000..12_000_000).contains(&duration), "Notify took {duration} ns");
    require!(values[6..10] == [2; 4], "samples {:?}", &values[6..10]);
    require!(values[10..14] == [20, 22, 24, 26], "tokens {:?}", &values[10..14]);
    require!(values[2..6].is_sorted() && values[2] > 0, "costs {:?}", &values[2..6]);
    require!(values[14..] == [0; 3], "the scratch was not left zeroed: {:?}", &values[14..]);
    Ok(())
}

/// Words that a kernel takes as a structure.
#[repr(transparent)]
struct Words<const N: usize>([u64; N]);

// SAFETY: the words lie one after the other, as in the kernel's structure of pointers.
unsafe impl<const N: usize> cudarc::driver::DeviceRepr for Words<N> {}

pub fn two_devices() -> Tested {
    let gpus = [Gpu::new(0)?, Gpu::new(1)?];
    let memories = [gpus[0].memory(LEN)?, gpus[1].memory(LEN)?];
    for (i, (gpu, memory)) in gpus.iter().zip(&memories).enumerate() {
        gpu.context.bind_to_thread()?;
        gpu.launch(
            "spin_then_set",
            (1, 256),
            Some((memory.address(), LEN)),
            &[10 + i as i64, SPIN_NS],
        )?;
    }
    let tickets =
        [ticket(memories[0].enqueue_snapshot()?)?, ticket(memories[1].enqueue_snapshot()?)?];
    for (i, (memory, ticket)) in memories.iter().zip(tickets).enumerate() {
        let values = finish(memory, ticket)?;
        memory.release(ticket);
        require!(values == vec![10 + i as i64; LEN], "device {i} has {:?}", &values[..2]);
    }
    let [a, b] = memories.map(|memory| memory.identity());
    require!(a.uuid != b.uuid && a.uuid.starts_with("GPU-"), "UUIDs {} and {}", a.uuid, b.uuid);
    println!("figure: device: {} {} on {}, NICs {:?}", a.device, a.uuid, a.host, a.nics);
    Ok(())
}
