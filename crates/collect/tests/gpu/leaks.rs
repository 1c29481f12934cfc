//! That nothing grows.

use std::sync::Arc;
use std::time::{Duration, Instant};

use deepxtrace_collect::{Background, CounterMemory, EveryInterval};

use crate::support::{Gpu, Tested, alone, require, snapshot};

const LEN: usize = 6 + 9 * 256;

/// Resident host memory, bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    line.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0) * 1024
}

fn entries(folder: &str) -> usize {
    std::fs::read_dir(folder).map_or(0, Iterator::count)
}

/// Start, some rounds, stop, for as long as `DEEPXTRACE_GPU_LEAK_SECONDS` says (30 by default).
pub fn start_stop() -> Tested {
    let seconds = std::env::var("DEEPXTRACE_GPU_LEAK_SECONDS");
    let seconds = seconds.ok().and_then(|text| text.parse().ok()).unwrap_or(30);
    let gpu = Gpu::new(0)?;
    let cycle = || -> Tested {
        let memory = gpu.memory(LEN)?;
        gpu.set(&memory, 1)?;
        let interval = Duration::from_millis(1);
        let schedule = EveryInterval::new(Instant::now(), interval, interval);
        let mut background =
            Background::start(alone(Arc::clone(&memory))?, Box::new(schedule), |_| {})?;
        std::thread::sleep(Duration::from_millis(10));
        require!(background.stop(Duration::from_secs(5)), "the background did not stop");
        require!(snapshot(&memory)? == vec![1; LEN], "wrong values");
        memory.clear_producer_stream();
        require!(memory.len() == LEN, "wrong length");
        Ok(())
    };
    (0..100).try_for_each(|_| cycle())?;
    let before = (gpu.context.mem_get_info()?.0, resident());
    let handles = (entries("/proc/self/fd"), entries("/proc/self/task"));
    let (begin, mut cycles) = (Instant::now(), 0_u64);
    while begin.elapsed() < Duration::from_secs(seconds) {
        cycle()?;
        cycles += 1;
    }
    let after = (gpu.context.mem_get_info()?.0, resident());
    let device = before.0.saturating_sub(after.0);
    let host = after.1.saturating_sub(before.1);
    println!(
        "figure: {cycles} starts and stops in {seconds} s: device memory grew by {device} bytes, \
         resident host memory by {host} bytes"
    );
    require!(device == 0, "device memory grew by {device} bytes in {cycles} cycles");
    require!(host < 4 << 20, "host memory grew by {host} bytes in {cycles} cycles");
    let now = (entries("/proc/self/fd"), entries("/proc/self/task"));
    require!(now == handles, "file handles and threads went from {handles:?} to {now:?}");
    Ok(())
}
