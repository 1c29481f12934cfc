//! Stream captures of the program while collection runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode};
use deepxtrace_collect::{
    Background, Collector, CounterMemory, CudaMemory, DeviceError, Enqueued, Event, EveryInterval,
    SkipReason, Status, Trigger,
};

use crate::support::{Failure, Gpu, Tested, alone, require, snapshot, ticket};

const LEN: usize = 150;
const CAPTURES: usize = 1000;
const MODES: [(&str, CUstreamCaptureMode); 2] = [
    ("global", CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL),
    ("relaxed", CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED),
];

/// What the background saw.
#[derive(Default)]
struct Tally {
    taken: AtomicUsize,
    capturing: AtomicUsize,
    other: AtomicUsize,
    device_errors: AtomicUsize,
}

fn start(collector: Collector, tally: &Arc<Tally>) -> Result<Background, Failure> {
    let interval = Duration::from_millis(10);
    let schedule = EveryInterval::new(Instant::now(), interval, interval);
    let tally = Arc::clone(tally);
    Ok(Background::start(collector, Box::new(schedule), move |event| {
        let Event::Round(round) = event else { return };
        let counter = match round.gathered.statuses().first() {
            Some(Status::Ok) => &tally.taken,
            Some(Status::Skipped(SkipReason::Capturing)) => &tally.capturing,
            Some(Status::Skipped(SkipReason::DeviceError)) => &tally.device_errors,
            _ => &tally.other,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    })?)
}

/// Captures and launches graphs of ten increments; how often that failed.
fn capture_all(
    gpu: &Gpu,
    memory: &CudaMemory,
    mode: CUstreamCaptureMode,
    mut between: impl FnMut(),
) -> Result<usize, Failure> {
    let mut invalidated = 0;
    for _ in 0..CAPTURES {
        between();
        std::thread::sleep(Duration::from_micros(500));
        gpu.stream.begin_capture(mode)?;
        std::thread::sleep(Duration::from_micros(200));
        for _ in 0..10 {
            gpu.launch("add_one", (1, 256), Some((memory.address(), LEN)), &[])?;
        }
        let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        match gpu.stream.end_capture(flags) {
            Ok(Some(graph)) => {
                graph.launch()?;
                gpu.stream.synchronize()?;
            }
            Ok(None) | Err(_) => invalidated += 1,
        }
    }
    Ok(invalidated)
}

pub fn untriggered() -> Tested {
    for (name, mode) in MODES {
        let gpu = Gpu::new(0)?;
        let memory = gpu.memory(LEN)?;
        let tally = Arc::new(Tally::default());
        let mut background = start(alone(Arc::clone(&memory))?, &tally)?;
        let begin = Instant::now();
        let invalidated = capture_all(&gpu, &memory, mode, || {})?;
        let seconds = begin.elapsed().as_secs_f64();
        background.stop(Duration::from_secs(5));
        drop(background);
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        let lost = count(&tally.device_errors);
        println!(
            "figure: {name} captures: {CAPTURES} in {seconds:.2} s, {invalidated} invalidated; \
             rounds: {} taken, {} skipped for capture, {lost} copies in a graph, {} other",
            count(&tally.taken),
            count(&tally.capturing),
            count(&tally.other),
        );
        require!(invalidated == 0, "{invalidated} {name} captures were invalidated");
        require!(count(&tally.taken) + count(&tally.capturing) > 10, "hardly any rounds");
        let values = snapshot(&memory)?;
        require!(values == vec![10 * CAPTURES as i64; LEN], "graphs did not do their work");
    }
    Ok(())
}

pub fn triggered() -> Tested {
    for (name, mode) in MODES {
        let gpu = Gpu::new(0)?;
        let memory = gpu.memory(LEN)?;
        let trigger = Trigger::new(Arc::clone(&memory) as Arc<dyn CounterMemory>);
        let collector = alone(Arc::clone(&memory))?.with_trigger(trigger.clone());
        let tally = Arc::new(Tally::default());
        let mut background = start(collector, &tally)?;
        let invalidated = capture_all(&gpu, &memory, mode, || {
            trigger.snapshot_if_due();
        })?;
        background.stop(Duration::from_secs(5));
        drop(background);
        let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
        println!("figure: triggered, {name} captures: {} rounds taken", count(&tally.taken));
        require!(invalidated == 0, "{invalidated} {name} captures were invalidated");
        require!(count(&tally.taken) > 3, "only {} rounds", count(&tally.taken));
        let bad = count(&tally.capturing) + count(&tally.device_errors);
        require!(bad == 0, "{bad} triggered snapshots met a capture");
    }
    Ok(())
}

/// The race that cannot be closed from another thread: a capture begins between the look at the
/// stream and the copy.
pub fn lost_to_a_graph() -> Tested {
    let gpu = Gpu::new(0)?;
    let memory = gpu.memory(LEN)?;
    gpu.set(&memory, 5)?;
    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    // While the stream is captured, a snapshot is skipped and leaves the buffers free.
    gpu.stream.begin_capture(mode)?;
    for _ in 0..5 {
        let enqueued = memory.enqueue_snapshot()?;
        require!(
            enqueued == Enqueued::Skipped(SkipReason::Capturing),
            "during a capture: {enqueued:?}"
        );
    }
    gpu.launch("add_one", (1, 256), Some((memory.address(), LEN)), &[])?;
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    let graph = gpu.stream.end_capture(flags)?.ok_or("no graph")?;
    graph.launch()?;
    require!(snapshot(&memory)? == vec![6; LEN], "the graph did not run once");

    // Another thread takes snapshots without a pause while this one
    // captures; every snapshot is whole, skipped, or reported as lost.
    let done = std::sync::atomic::AtomicBool::new(false);
    let (whole, skipped, lost) = std::thread::scope(|scope| {
        let racer = scope.spawn(|| -> Result<_, String> {
            let (mut whole, mut skipped, mut lost) = (0, 0, 0);
            while !done.load(Ordering::Relaxed) {
                let Enqueued::Ticket(ticket) =
                    memory.enqueue_snapshot().map_err(|error| error.to_string())?
                else {
                    skipped += 1;
                    continue;
                };
                match crate::support::finish(&memory, ticket) {
                    Ok(values) if values.iter().all(|value| *value == values[0]) => whole += 1,
                    Ok(_) => return Err("a torn snapshot".to_owned()),
                    Err(error) if is_captured(&*error) => lost += 1,
                    Err(error) => return Err(error.to_string()),
                }
                memory.release(ticket);
            }
            Ok((whole, skipped, lost))
        });
        let captured = capture_all(&gpu, &memory, mode, || {});
        done.store(true, Ordering::Relaxed);
        let tally = racer.join().map_err(|_| "the racer panicked")?;
        require_none(captured?)?;
        Ok::<_, Failure>(tally?)
    })?;
    println!("figure: racing captures: {whole} whole, {skipped} skipped, {lost} lost to a graph");
    require!(whole > 0 && skipped > 0, "no race: {whole} whole, {skipped} skipped");
    let again = ticket(memory.enqueue_snapshot()?)?;
    memory.release(again);
    Ok(())
}

fn require_none(invalidated: usize) -> Tested {
    require!(invalidated == 0, "{invalidated} captures were invalidated");
    Ok(())
}

fn is_captured(error: &(dyn std::error::Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(DeviceError::Call { code: 907, .. }))
}
