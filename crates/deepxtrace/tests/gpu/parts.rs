//! What each part of a start and stop leaves behind, so that a growth can be told whose it is.

use std::ffi::{c_int, c_void};
use std::time::Instant;

use cudarc::driver::sys;
use deepxtrace::collect::{CounterMemory, CudaMemory, Enqueued, NcclComm};
use libloading::os::unix::Library;

use crate::Options;
use crate::held::Held;
use crate::leaks::{asynchronous, communicator, synchronous};
use crate::support::{Failure, Gpu, Tested, require};

const LEN: usize = 2310;
const BYTES: usize = LEN * 8;

/// Most bytes of `malloc` that a cycle of a judged part may leave. Single blocks that are kept for
/// later come and go: 19 were seen over 159 cycles, 1 over 611.
const MOST_HEAP: f64 = 64.0;

/// Every part for a fifth of `--seconds`: how much more the process holds after it, per cycle. No part
/// may leave memory of the device or [`MOST_HEAP`]; NCCL's own empty groups (of which 2.28 keeps 176
/// bytes) and communicators (a few cycles only) are printed and not judged. Nothing else may come to
/// the GPU meanwhile.
pub fn each(options: &Options) -> Tested {
    let gpu = Gpu::new(options.device)?;
    let folder = tempfile::tempdir()?;
    let run = |name: &str, judged: bool, part: &mut dyn FnMut() -> Tested| {
        let (heap, device) = measure(options, &gpu, name, part)?;
        require!(!judged || heap < MOST_HEAP, "{name}: {heap:.1} bytes a cycle are left");
        require!(
            !judged || device <= 0.0,
            "{name}: {device:.1} bytes of the device a cycle are left"
        );
        Ok(())
    };
    run("thread that enters the context", true, &mut || thread(&gpu))?;
    run("stream", true, &mut stream)?;
    run("event", true, &mut event)?;
    run("pinned memory", true, &mut pinned)?;
    run("device memory", true, &mut device)?;
    run("counters", true, &mut || CudaMemory::new(&gpu.device, LEN).map(drop).map_err(Into::into))?;
    run("counters and snapshots", true, &mut || snapshots(&gpu))?;
    run("asynchronous Diagnose", true, &mut || asynchronous(&gpu, folder.path()))?;
    let comm = match communicator(&gpu) {
        Ok(comm) => comm,
        Err(error) => {
            println!("skipped: the parts with NCCL: {error}");
            return Ok(());
        }
    };
    let (nccl, raw) = (Nccl::load()?, comm.raw().expose_provenance());
    // SAFETY: the communicator lives until the end.
    run("borrowed communicator", true, &mut || unsafe {
        Ok(NcclComm::borrow(comm.raw()).map(drop)?)
    })?;
    run("synchronous Diagnose over NCCL", true, &mut || synchronous(&gpu, &comm, folder.path()))?;
    run("empty group of NCCL", false, &mut || nccl.group(|| 0))?;
    run("group of NCCL that sends to itself", true, &mut || nccl.to_itself(&gpu, raw))?;
    run("the same on a thread of its own", true, &mut || nccl.on_a_thread(&gpu, raw))?;
    run("communicator of NCCL", false, &mut || communicator(&gpu).map(drop))
}

/// Bytes of `malloc` and of the device that a cycle leaves behind.
fn measure(
    options: &Options,
    gpu: &Gpu,
    name: &str,
    part: &mut dyn FnMut() -> Tested,
) -> Result<(f64, f64), Failure> {
    let time = options.time / 5;
    let mut turn = |time| -> Result<f64, Failure> {
        let (begin, mut cycles) = (Instant::now(), 0);
        while begin.elapsed() < time {
            part()?;
            cycles += 1;
        }
        Ok(f64::from(cycles))
    };
    turn(time / 4)?;
    let before = Held::now(gpu)?;
    let cycles = turn(time)?;
    let after = Held::now(gpu)?;
    let a_cycle = |held: fn(&Held) -> i64| (held(&after) - held(&before)) as f64 / cycles;
    let (heap, device) = (a_cycle(|held| held.heap), a_cycle(|held| held.device));
    println!(
        "figure: {name}: {cycles} cycles; a cycle leaves {heap:.1} B of malloc, {:.1} B of Rust, \
         {:.1} B resident, {device:.1} B on the device",
        a_cycle(|held| held.live),
        a_cycle(|held| held.resident),
    );
    Ok((heap, device))
}

fn check(result: sys::CUresult) -> Tested {
    require!(result == sys::CUresult::CUDA_SUCCESS, "{result:?}");
    Ok(())
}

fn thread(gpu: &Gpu) -> Tested {
    let context = gpu.context.cu_ctx() as usize;
    let entered = std::thread::spawn(move || -> Tested {
        let mut mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        let mut popped = std::ptr::null_mut();
        // SAFETY: the context is alive.
        unsafe {
            check(sys::cuThreadExchangeStreamCaptureMode(&raw mut mode))?;
            check(sys::cuCtxPushCurrent_v2(std::ptr::with_exposed_provenance_mut(context)))?;
            check(sys::cuCtxPopCurrent_v2(&raw mut popped))
        }
    });
    entered.join().map_err(|_| "panicked")?
}

fn stream() -> Tested {
    let mut stream = std::ptr::null_mut();
    // SAFETY: the test's context is current.
    unsafe {
        check(sys::cuStreamCreate(&raw mut stream, 1))?;
        check(sys::cuStreamDestroy_v2(stream))
    }
}

fn event() -> Tested {
    let mut event = std::ptr::null_mut();
    // SAFETY: as above.
    unsafe {
        check(sys::cuEventCreate(&raw mut event, 2))?;
        check(sys::cuEventDestroy_v2(event))
    }
}

fn pinned() -> Tested {
    let mut memory = std::ptr::null_mut();
    // SAFETY: as above.
    unsafe {
        check(sys::cuMemHostAlloc(&raw mut memory, BYTES, sys::CU_MEMHOSTALLOC_PORTABLE))?;
        check(sys::cuMemFreeHost(memory))
    }
}

fn device() -> Tested {
    let mut address = 0;
    // SAFETY: as above.
    unsafe {
        check(sys::cuMemAlloc_v2(&raw mut address, BYTES))?;
        check(sys::cuMemFree_v2(address))
    }
}

fn snapshots(gpu: &Gpu) -> Tested {
    let memory = CudaMemory::new(&gpu.device, LEN)?;
    // SAFETY: the stream outlives the memory.
    unsafe { memory.set_producer_stream(gpu.raw_stream())? };
    let mut values = vec![1; LEN];
    for _ in 0..3 {
        let Enqueued::Ticket(ticket) = memory.enqueue_snapshot()? else {
            return Err("no snapshot".into());
        };
        gpu.stream.synchronize()?;
        memory.read(ticket, 0..LEN, &mut values)?;
        memory.release(ticket);
    }
    require!(values == vec![0; LEN], "wrong values");
    Ok(())
}

type Transfer =
    unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, *mut c_void, *mut c_void) -> c_int;

/// NCCL itself.
struct Nccl {
    start: unsafe extern "C" fn() -> c_int,
    end: unsafe extern "C" fn() -> c_int,
    state: unsafe extern "C" fn(*mut c_void, *mut c_int) -> c_int,
    send: Transfer,
    recv: Transfer,
}

impl Nccl {
    fn load() -> Result<Self, Failure> {
        // SAFETY: the library is loaded already and stays so; the types are those of its header.
        unsafe {
            let library = Library::new("libnccl.so.2")?;
            let nccl = Self {
                start: *library.get(b"ncclGroupStart\0")?,
                end: *library.get(b"ncclGroupEnd\0")?,
                state: *library.get(b"ncclCommGetAsyncError\0")?,
                send: *library.get(b"ncclSend\0")?,
                recv: *library.get(b"ncclRecv\0")?,
            };
            std::mem::forget(library);
            Ok(nccl)
        }
    }

    fn group(&self, work: impl FnOnce() -> c_int) -> Tested {
        // SAFETY: the group is ended on the same thread.
        let results = unsafe { [(self.start)(), work(), (self.end)()] };
        // 7: in progress.
        require!(results.iter().all(|&result| result == 0 || result == 7), "{results:?}");
        Ok(())
    }

    fn on_a_thread(&self, gpu: &Gpu, comm: usize) -> Tested {
        std::thread::scope(|scope| {
            let sent = scope.spawn(|| {
                gpu.context.bind_to_thread()?;
                self.to_itself(gpu, comm)
            });
            sent.join().map_err(|_| "panicked")?
        })
    }

    /// Eight numbers, from the only rank to itself.
    fn to_itself(&self, gpu: &Gpu, comm: usize) -> Tested {
        let memory = gpu.stream.alloc_zeros::<i64>(16)?;
        let (address, _) = cudarc::driver::DevicePtr::device_ptr(&memory, &gpu.stream);
        let at = |place: usize| std::ptr::without_provenance_mut(address as usize + place);
        let comm: *mut c_void = std::ptr::with_exposed_provenance_mut(comm);
        let stream = gpu.raw_stream();
        // SAFETY: both addresses are of eight numbers each that live until the wait below.
        self.group(|| unsafe {
            (self.send)(at(0), 8, 4, 0, comm, stream) | (self.recv)(at(64), 8, 4, 0, comm, stream)
        })?;
        let mut state = 7;
        while state == 7 {
            // SAFETY: the communicator is alive.
            require!(unsafe { (self.state)(comm, &raw mut state) } == 0, "no state");
        }
        require!(state == 0, "{state}");
        Ok(gpu.stream.synchronize()?)
    }
}
