//! Competing traffic on the path between the nodes: peer copies by the copy engines.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use cudarc::driver::sys;

use crate::Failure;
use crate::gpu::{World, zeroed};

/// Bytes of one copy.
const BYTES: usize = 4 << 20;
/// Copies that are enqueued at a time on a stream.
const BATCH: usize = 16;

/// A buffer on each GPU for each direction.
pub struct Copies {
    /// `[direction][GPU of the node that it comes from]`: from, to.
    buffers: [Vec<[u64; 2]>; 2],
}

impl Copies {
    pub fn new(world: &World) -> Result<Self, Failure> {
        let on = |gpu: usize| -> Result<u64, Failure> {
            world.gpus[gpu].context.bind_to_thread()?;
            zeroed(BYTES)
        };
        let pairs = |direction| -> Result<Vec<_>, Failure> {
            let from = world.gpus_of(direction);
            from.map(|gpu| Ok([on(gpu)?, on(world.across(gpu))?])).collect()
        };
        Ok(Self { buffers: [pairs(0)?, pairs(1)?] })
    }

    /// Copies from one GPU in one direction on `streams` streams until `stop` is set; bytes a second.
    pub fn run(
        &self,
        world: &World,
        gpu: usize,
        direction: usize,
        streams: usize,
        stop: &AtomicBool,
    ) -> Result<f64, Failure> {
        let context = &world.gpus[gpu].context;
        context.bind_to_thread()?;
        let streams: Vec<_> =
            (0..streams).map(|_| context.new_stream()).collect::<Result<_, _>>()?;
        let [from, to] = self.buffers[direction][gpu - world.gpus_of(direction).start];
        let (begin, mut copies) = (Instant::now(), 0_usize);
        let mut before = Vec::new();
        while !stop.load(Ordering::Relaxed) {
            let mut events = Vec::new();
            for stream in &streams {
                for _ in 0..BATCH {
                    // SAFETY: both buffers have that many bytes and live as long as the process.
                    let result =
                        unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, BYTES, stream.cu_stream()) };
                    result.result()?;
                }
                events.push(stream.record_event(None)?);
                copies += BATCH;
            }
            // One batch is under way while the next is enqueued.
            for event in std::mem::replace(&mut before, events) {
                event.synchronize()?;
            }
        }
        for stream in &streams {
            stream.synchronize()?;
        }
        Ok((copies * BYTES) as f64 / begin.elapsed().as_secs_f64())
    }
}
