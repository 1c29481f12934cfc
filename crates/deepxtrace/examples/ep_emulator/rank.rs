//! One logical rank: its stream, its rounds, its probes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::{CudaStream, PushKernelArg};

use crate::Failure;
use crate::gpu::{Emulation, Kernels, Pointers, World, compute, grid, zeroed};
use crate::options::Options;
use crate::phases::Phase;
use crate::routing::Random;

/// Computation before each stage, ns.
const COMPUTE_NS: u64 = 8_000;
/// Blocks of a Notify: one meets the other ranks, the others count.
const NOTIFY_BLOCKS: u32 = 5;

/// Addresses of the counters that the kernels of a rank add to.
#[derive(Debug, Clone, Copy)]
pub struct Counters {
    pub notify_dispatch: Pointers<2>,
    pub cached_notify_dispatch: Pointers<2>,
    pub cached_notify_combine: Pointers<2>,
    pub dispatch_final: Pointers<3>,
    pub dispatch_rdma_recv: Pointers<3>,
    pub combine_logical_recv: Pointers<3>,
}

/// One rank.
pub struct Rank<'a> {
    world: &'a World,
    options: &'a Options,
    rank: usize,
    pub stream: Arc<CudaStream>,
    kernels: Kernels,
    counters: Counters,
    /// One scratch for each Notify probe, though launches of one stream could share one.
    scratch: u64,
    counted: u64,
    wrong: u64,
    round: u32,
    random: Random,
}

impl<'a> Rank<'a> {
    pub fn new(
        world: &'a World,
        options: &'a Options,
        rank: usize,
        stream: Arc<CudaStream>,
        counters: Counters,
    ) -> Result<Self, Failure> {
        let gpu = world.gpu(rank);
        gpu.context.bind_to_thread()?;
        let kernels = gpu.kernels(world.alone())?;
        let rank = Self {
            world,
            options,
            rank,
            kernels,
            counters,
            scratch: zeroed(3 * 24)?,
            counted: zeroed(64)?,
            wrong: zeroed(8)?,
            round: 0,
            random: Random(options.seed ^ (rank as u64) << 32),
            stream,
        };
        rank.prepare()?;
        Ok(rank)
    }

    /// Loads every kernel with a launch that does nothing: a kernel that is loaded while others
    /// wait for it would wait for them.
    fn prepare(&self) -> Result<(), Failure> {
        let (idle, off) = (self.world.idle(self.rank), Pointers([0; 3]));
        self.notify(&idle, 0, false, Pointers([0; 2]), 0)?;
        self.dispatch(&idle, off, off)?;
        self.combine(&idle, off)?;
        self.verify(&idle, 0)?;
        compute(&self.stream, &self.kernels, 1000)?;
        let emulation = self.world.emulation(self.rank, 0, 0);
        let mut launch = self.stream.launch_builder(&self.kernels.fill_input);
        launch.arg(&emulation);
        // SAFETY: the argument is that of the kernel.
        unsafe { launch.launch(grid(64, 256))? };
        self.stream.synchronize()?;
        Ok(())
    }

    /// Enqueues one round.
    pub fn enqueue(&mut self, phase: &Phase, window: usize, probed: bool) -> Result<(), Failure> {
        self.round += 1;
        // Odd rounds take a new draw, even ones the one before again, with a cached layout.
        let (pair, cached) = ((self.round - 1) / 2, self.round.is_multiple_of(2));
        let set = usize::from(phase.strong_skew);
        let mut emulation = self.world.emulation(self.rank, set, pair as usize);
        (emulation.extra_dispatch, emulation.extra_combine) = phase.extra.of(self.rank, window);
        let late = self.rank == self.options.late_rank;
        let counters = if probed { self.counters } else { Counters::OFF };

        self.think(if late { phase.late_dispatch_us } else { 0 })?;
        let notify =
            if cached { counters.cached_notify_dispatch } else { counters.notify_dispatch };
        self.notify(&emulation, 0, !cached, notify, usize::from(cached))?;
        self.dispatch(&emulation, counters.dispatch_final, counters.dispatch_rdma_recv)?;
        self.think(if late { phase.late_combine_us } else { 0 })?;
        self.notify(&emulation, 1, false, counters.cached_notify_combine, 2)?;
        self.combine(&emulation, counters.combine_logical_recv)
    }

    /// The computation before a stage.
    fn think(&mut self, longer_us: u64) -> Result<(), Failure> {
        let jitter = match self.options.jitter_us {
            0 => 0,
            most => self.random.next() % (most * 1000),
        };
        compute(&self.stream, &self.kernels, COMPUTE_NS + jitter + 1000 * longer_us)
    }

    fn notify(
        &self,
        emulation: &Emulation,
        stage: i32,
        layout: bool,
        counters: Pointers<2>,
        scratch: usize,
    ) -> Result<(), Failure> {
        let (layout, scratch) = (i32::from(layout), self.scratch + 24 * scratch as u64);
        let mut launch = self.stream.launch_builder(&self.kernels.notify);
        launch.arg(emulation).arg(&self.round).arg(&stage).arg(&layout).arg(&self.counted);
        launch.arg(&counters).arg(&scratch);
        // SAFETY: the arguments are those of the kernel.
        unsafe { launch.launch(grid(NOTIFY_BLOCKS, 128))? };
        Ok(())
    }

    fn dispatch(
        &self,
        emulation: &Emulation,
        last: Pointers<3>,
        gateway: Pointers<3>,
    ) -> Result<(), Failure> {
        let mut launch = self.stream.launch_builder(&self.kernels.dispatch);
        launch.arg(emulation).arg(&self.round).arg(&last).arg(&gateway);
        // SAFETY: the arguments are those of the kernel.
        unsafe { launch.launch(self.world.big_grid())? };
        Ok(())
    }

    fn combine(&self, emulation: &Emulation, counters: Pointers<3>) -> Result<(), Failure> {
        let mut launch = self.stream.launch_builder(&self.kernels.combine);
        launch.arg(emulation).arg(&self.round).arg(&counters);
        // SAFETY: the arguments are those of the kernel.
        unsafe { launch.launch(self.world.big_grid())? };
        Ok(())
    }

    fn verify(&self, emulation: &Emulation, combine: i32) -> Result<(), Failure> {
        let mut launch = self.stream.launch_builder(&self.kernels.verify);
        launch.arg(emulation).arg(&combine).arg(&self.wrong);
        // SAFETY: the arguments are those of the kernel.
        unsafe { launch.launch(grid(64, 256))? };
        Ok(())
    }

    /// After a round: how many 16-byte vectors of what was received are not what was sent.
    pub fn wrong(&self) -> Result<u64, Failure> {
        self.world.gpu(self.rank).context.bind_to_thread()?;
        let pair = (self.round - 1) / 2;
        let emulation = self.world.emulation(self.rank, 0, pair as usize);
        self.verify(&emulation, 0)?;
        self.verify(&emulation, 1)?;
        self.stream.synchronize()?;
        let mut wrong = 0_u64;
        // SAFETY: both sides have eight bytes, and the kernels have ended.
        let result =
            unsafe { cudarc::driver::sys::cuMemcpyDtoH_v2((&raw mut wrong).cast(), self.wrong, 8) };
        result.result()?;
        Ok(wrong)
    }
}

impl Counters {
    /// Null pointers: the probes do nothing.
    const OFF: Self = Self {
        notify_dispatch: Pointers([0; 2]),
        cached_notify_dispatch: Pointers([0; 2]),
        cached_notify_combine: Pointers([0; 2]),
        dispatch_final: Pointers([0; 3]),
        dispatch_rdma_recv: Pointers([0; 3]),
        combine_logical_recv: Pointers([0; 3]),
    };
}

/// Rounds that are enqueued before the oldest of them must have ended.
const AHEAD: usize = 16;

/// The ranks of one GPU. One thread enqueues for all of them: threads that launch and wait on one
/// context at the same time hold each other up.
pub struct Launcher<'a> {
    pub ranks: Vec<Rank<'a>>,
}

impl Launcher<'_> {
    /// The rounds of one window, enqueued and waited for; the host's time to enqueue a round.
    pub fn window(
        &mut self,
        phase: &Phase,
        window: usize,
        rounds: usize,
        probed: bool,
    ) -> Result<Duration, Failure> {
        let Some(first) = self.ranks.first() else { return Ok(Duration::ZERO) };
        first.world.gpu(first.rank).context.bind_to_thread()?;
        let (mut before, mut busy) = (Vec::new(), Duration::ZERO);
        for round in 0..rounds {
            let begin = Instant::now();
            for rank in &mut self.ranks {
                rank.enqueue(phase, window, probed)?;
            }
            busy += begin.elapsed();
            if round % AHEAD == AHEAD - 1 {
                let events = self.ranks.iter().map(|rank| rank.stream.record_event(None));
                let events: Vec<_> = events.collect::<Result<_, _>>()?;
                for event in std::mem::replace(&mut before, events) {
                    event.synchronize()?;
                }
            }
        }
        for rank in &self.ranks {
            rank.stream.synchronize()?;
        }
        for rank in &self.ranks {
            if rank.world.aborted(rank.rank)? {
                return Err("a kernel waited for more than three seconds".into());
            }
        }
        Ok(busy / rounds.max(1) as u32)
    }

    /// Whether every rank has received what was sent.
    pub fn verify(&self) -> Result<(), Failure> {
        for rank in &self.ranks {
            let wrong = rank.wrong()?;
            if wrong > 0 {
                let (round, rank) = (rank.round, rank.rank);
                return Err(format!("round {round}, rank {rank}: {wrong} vectors are wrong").into());
            }
        }
        Ok(())
    }
}
