use std::path::Path;
use std::time::{Duration, Instant};

use cudarc::driver::PushKernelArg;
use deepxtrace::collect::{
    CudaMemory, Group, LocalGroup, Membership, NcclComm, NcclGroup, NcclUniqueId, Stop, Until,
};
use deepxtrace::config::Mode;
use deepxtrace::{Diagnose, SyncStep};

use crate::Options;
use crate::held::Held;
use crate::support::{Gpu, Tested, blocks, config, require};

/// Start, rounds, stop and drop, in turns asynchronous and synchronous over NCCL, for the time
/// that `--seconds` says. The device's memory is compared by its lowest in the first and the last
/// quarter, so other processes may come and go in between; nothing may be left of 1000 bytes a
/// start and more.
pub fn start_stop(options: &Options) -> Tested {
    let gpu = Gpu::new(options.device)?;
    let folder = tempfile::tempdir()?;
    let comm = communicator(&gpu);
    if let Err(error) = &comm {
        println!("without NCCL: {error}");
    }
    let comm = comm.ok();
    let cycle = || -> Tested {
        asynchronous(&gpu, folder.path())?;
        comm.as_ref().map_or(Ok(()), |comm| synchronous(&gpu, comm, folder.path()))
    };
    (0..100).try_for_each(|_| cycle())?;
    let (begin, mut cycles) = (Instant::now(), 0_i64);
    let mut samples = vec![Held::now(&gpu)?];
    let print = |held: &Held, cycles| {
        let Held { device, resident, heap, live, handles, threads } = held;
        println!(
            "{:4.0} s, {cycles} starts: device {device} B, resident {resident} B, malloc {heap} B, \
             live {live} B, {handles} handles, {threads} threads",
            begin.elapsed().as_secs_f64()
        );
    };
    print(&samples[0], 0);
    let pause = (options.time / 40).clamp(Duration::from_millis(200), Duration::from_secs(10));
    let (mut next, mut printed) = (begin + pause, 0);
    while begin.elapsed() < options.time {
        cycle()?;
        cycles += 1;
        if Instant::now() >= next {
            next += pause;
            samples.push(Held::now(&gpu)?);
            printed += 1;
            if printed % 4 == 0 {
                print(&samples[samples.len() - 1], cycles);
            }
        }
    }
    samples.push(Held::now(&gpu)?);
    print(&samples[samples.len() - 1], cycles);
    judge(&samples, cycles)
}

fn judge(samples: &[Held], cycles: i64) -> Tested {
    let quarter = samples.len().div_ceil(4);
    let (first, last) = (&samples[..quarter], &samples[samples.len() - quarter..]);
    let lowest = |part: &[Held], what: fn(&Held) -> i64| part.iter().map(what).min().unwrap_or(0);
    let grown = |what: fn(&Held) -> i64| lowest(last, what) - lowest(first, what);
    let (device, resident) = (grown(|held| held.device), grown(|held| held.resident));
    let (heap, live) = (grown(|held| held.heap), grown(|held| held.live));
    println!(
        "figure: {cycles} starts and stops of each kind: device memory grew by {device} B, \
         resident memory by {resident} B, what malloc gave out by {heap} B, Rust's own by {live} B"
    );
    require!(device <= 0, "device memory grew by {device} bytes in {cycles} cycles");
    require!(live < 64 << 10, "Rust's memory grew by {live} bytes in {cycles} cycles");
    require!(resident < 4 << 20, "host memory grew by {resident} bytes in {cycles} cycles");
    let (handles, threads) = (grown(|held| held.handles), grown(|held| held.threads));
    require!(handles <= 0 && threads <= 0, "{handles} handles and {threads} threads more");
    Ok(())
}

pub fn communicator(gpu: &Gpu) -> Result<NcclComm, crate::support::Failure> {
    let stop = Stop::new();
    let until = Until::after(Duration::from_secs(60), &stop);
    Ok(NcclComm::new(&gpu.device, NcclUniqueId::new()?, 0, 1, until)?)
}

pub fn build(
    gpu: &Gpu,
    group: impl Group + 'static,
    mode: Mode,
    folder: &Path,
) -> Result<Diagnose, crate::support::Failure> {
    let config = config(mode, Duration::from_millis(1), folder);
    // SAFETY: the stream lives until the end of the test.
    let memory = unsafe { CudaMemory::on_stream(&gpu.device, gpu.raw_stream()) };
    let built = Diagnose::builder(group, config).memory(memory).build()?;
    Ok(built.ok_or("collection is enabled")?)
}

/// One launch that adds 1 to every counter.
pub fn add(gpu: &Gpu, diagnose: &Diagnose) -> Tested {
    let (address, len) = (diagnose.memory().address(), diagnose.memory().len() as i32);
    let mut launch = gpu.stream.launch_builder(&gpu.add_one);
    launch.arg(&address).arg(&len);
    // SAFETY: the arguments are those of the kernel; the counters are alive.
    unsafe { launch.launch(blocks(1))? };
    Ok(())
}

pub fn asynchronous(gpu: &Gpu, folder: &Path) -> Tested {
    let group = LocalGroup::new(1)?.pop().ok_or("a group of one")?;
    let mut diagnose = build(gpu, group, Mode::Asynchronous, folder)?;
    diagnose.start()?;
    for _ in 0..5 {
        add(gpu, &diagnose)?;
        std::thread::sleep(Duration::from_millis(2));
    }
    require!(diagnose.stop(), "the background did not stop");
    gpu.stream.synchronize()?;
    Ok(())
}

pub fn synchronous(gpu: &Gpu, comm: &NcclComm, folder: &Path) -> Tested {
    // SAFETY: communicator and stream live until the end of the test, and only this group uses
    // them.
    let group = unsafe {
        let borrowed = NcclComm::borrow(comm.raw())?;
        NcclGroup::on_stream(borrowed, &gpu.device, gpu.raw_stream(), Membership::world(0, 1)?)?
    };
    let mut diagnose = build(gpu, group, Mode::Synchronous, folder)?;
    diagnose.start()?;
    for _ in 0..3 {
        add(gpu, &diagnose)?;
        require!(diagnose.diagnose_normal_sync()? == SyncStep::Collected, "not collected");
        require!(diagnose.diagnose_ll_sync()? == SyncStep::Collected, "not collected");
    }
    Ok(())
}
