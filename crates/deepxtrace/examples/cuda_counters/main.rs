//! Counters on a CUDA device, filled by kernels of this program, diagnosed while it runs.
//!
//! `cargo run --release --example cuda_counters --features nccl` plays sixteen ranks on the GPUs
//! there are, a thread and a stream each, with asynchronous collection; rank 9 comes late to every
//! Notify. With the argument `nccl` each GPU is one rank, and collection is synchronous over NCCL.
//! With `--any-diagnosis` behind it, it ends well whatever is found: for runs under a tool that slows
//! kernels down. Without a GPU it says that it was skipped.

#![allow(unsafe_code, clippy::print_stdout)]

use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cudarc::driver::{
    CudaContext, CudaFunction, CudaStream, DeviceRepr, LaunchConfig, PushKernelArg,
};
use deepxtrace::collect::{
    CudaDevice, CudaMemory, LocalGroup, Membership, NcclComm, NcclGroup, NcclUniqueId, Stop, Until,
};
use deepxtrace::config::{Config, Mode};
use deepxtrace::{Counters, Diagnose, RawPart, Report};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const HEADER: &str = include_str!("../../../collect/cuda/deepxtrace_probe.cuh");
const KERNELS: &str = include_str!("kernels.cu");
const RANKS: usize = 16;
const RANKS_PER_NODE: usize = 8;
const LATE_RANK: usize = 9;

fn main() -> ExitCode {
    let gpus = match CudaDevice::count() {
        Ok(0) => return skipped("no CUDA device"),
        Ok(count) => count,
        Err(error) => return skipped(&error.to_string()),
    };
    let mut arguments: Vec<_> = std::env::args().skip(1).collect();
    let given = arguments.len();
    arguments.retain(|argument| argument != "--any-diagnosis");
    let any_diagnosis = arguments.len() < given;
    let outcome = match arguments.first().map(String::as_str) {
        None | Some("local") => local(gpus, any_diagnosis),
        Some("nccl") => nccl(gpus),
        Some(other) => Err(format!("{other:?} is neither `local` nor `nccl`").into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("cuda_counters: {error}");
            ExitCode::FAILURE
        }
    }
}

fn skipped(reason: &str) -> ExitCode {
    println!("skipped: {reason}");
    ExitCode::SUCCESS
}

/// Addresses of counters that a kernel takes as a structure of pointers.
#[repr(transparent)]
struct Pointers<const N: usize>([u64; N]);

// SAFETY: the addresses lie one after the other, as in the kernel's structure.
unsafe impl<const N: usize> DeviceRepr for Pointers<N> {}

/// The program's side of one rank: a stream and the kernels.
struct Device {
    device: CudaDevice,
    stream: Arc<CudaStream>,
    notify: CudaFunction,
    receive: CudaFunction,
    scratch: u64,
    /// Keeps the scratch.
    _scratch: cudarc::driver::CudaSlice<u64>,
}

impl Device {
    fn new(ordinal: usize) -> Result<Self, Failure> {
        let context = CudaContext::new(ordinal)?;
        let arch = Some("compute_80");
        let options = cudarc::nvrtc::CompileOptions { arch, ..Default::default() };
        let ptx = cudarc::nvrtc::compile_ptx_with_opts(format!("{HEADER}{KERNELS}"), options)?;
        let module = context.load_module(ptx)?;
        let stream = context.new_stream()?;
        let buffer = stream.alloc_zeros::<u64>(3)?;
        let (scratch, _) = cudarc::driver::DevicePtr::device_ptr(&buffer, &stream);
        Ok(Self {
            device: CudaDevice::new(ordinal)?,
            notify: module.load_function("notify")?,
            receive: module.load_function("receive")?,
            scratch,
            _scratch: buffer,
            stream,
        })
    }

    /// One round as a MoE layer makes it: dispatch, then combine, each behind its Notify.
    fn round(&self, rank: usize, ranks: usize, diagnose: &Diagnose) -> Result<(), Failure> {
        let dispatch = diagnose.dispatch_bundle().ok_or("a dispatch bundle")?.raw();
        let combine = diagnose.combine_bundle().ok_or("a combine bundle")?.raw();
        let [notify, notified, _, _, cost, samples, tokens, far_cost, far_samples, far_tokens] =
            dispatch;
        let [combine_notify, combine_notified, back_cost, back_samples, back_tokens] = combine;
        // Who comes last to the meeting of all ranks does not wait there.
        let wait_ns = if rank == LATE_RANK % ranks { 2_000 } else { 60_000 };
        self.meet([notify, notified], wait_ns)?;
        let gateway = [far_cost, far_samples, far_tokens];
        self.take(rank, ranks, [cost, samples, tokens], gateway)?;
        self.meet([combine_notify, combine_notified], 60_000)?;
        let nothing = [RawPart { address: 0, len: 0 }; 3];
        self.take(rank, ranks, [back_cost, back_samples, back_tokens], nothing)
    }

    fn meet(&self, counters: [RawPart; 2], wait_ns: u64) -> Result<(), Failure> {
        let counters = Pointers(counters.map(|part| part.address));
        let mut launch = self.stream.launch_builder(&self.notify);
        launch.arg(&counters).arg(&self.scratch).arg(&wait_ns);
        // SAFETY: the arguments are those of the kernel; counters and scratch are alive.
        unsafe { launch.launch(blocks(4))? };
        Ok(())
    }

    fn take(
        &self,
        rank: usize,
        ranks: usize,
        last: [RawPart; 3],
        gateway: [RawPart; 3],
    ) -> Result<(), Failure> {
        let last = Pointers(last.map(|part| part.address));
        let gateway = Pointers(gateway.map(|part| part.address));
        let (rank, per_node) = (rank as i32, RANKS_PER_NODE as i32);
        let mut launch = self.stream.launch_builder(&self.receive);
        launch.arg(&last).arg(&gateway).arg(&rank).arg(&per_node);
        launch.arg(&30_000_u64).arg(&60_000_u64);
        // SAFETY: as above.
        unsafe { launch.launch(blocks(ranks as u32))? };
        Ok(())
    }
}

fn blocks(count: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: (count, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 }
}

fn config(mode: Mode) -> Config {
    Config {
        enabled: true,
        mode,
        sync_step: 50,
        interval: Duration::from_millis(250),
        warming_time: Some(Duration::from_millis(100)),
        log_path: std::env::temp_dir().join("deepxtrace-cuda-counters"),
        ..Config::default()
    }
}

/// Sixteen ranks, asynchronous.
fn local(gpus: usize, any_diagnosis: bool) -> Result<(), Failure> {
    let (windows, found) = (AtomicUsize::new(0).into(), AtomicUsize::new(0).into());
    let (windows, found): (Arc<AtomicUsize>, Arc<AtomicUsize>) = (windows, found);
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let ranks = LocalGroup::new(RANKS)?.into_iter().enumerate();
        let threads: Vec<_> = ranks
            .map(|(rank, group)| {
                let (windows, found) = (Arc::clone(&windows), Arc::clone(&found));
                scope.spawn(move || -> Result<(), Failure> {
                    let this = Device::new(rank * gpus / RANKS)?;
                    let stream = this.stream.cu_stream().cast();
                    // SAFETY: the stream is dropped after `diagnose`.
                    let memory = unsafe { CudaMemory::on_stream(&this.device, stream) };
                    let mut diagnose = Diagnose::builder(group, config(Mode::Asynchronous))
                        .counters(Counters::Normal)
                        .memory(memory)
                        .on_report(move |report| {
                            let Report::Normal(report) = report else { return };
                            windows.fetch_add(1, Ordering::Relaxed);
                            for incident in &report.diagnosis.incidents {
                                found.fetch_add(1, Ordering::Relaxed);
                                println!("window {}: {incident}", report.diagnosis.window_index);
                            }
                        })
                        .build()?
                        .ok_or("collection is enabled")?;
                    diagnose.start()?;
                    while begin.elapsed() < Duration::from_secs(4) {
                        for _ in 0..20 {
                            this.round(rank, RANKS, &diagnose)?;
                        }
                        this.stream.synchronize()?;
                    }
                    diagnose.stop();
                    Ok(())
                })
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| "a rank panicked")??;
        }
        Ok::<(), Failure>(())
    })?;
    let (windows, found) = (windows.load(Ordering::Relaxed), found.load(Ordering::Relaxed));
    println!("{windows} windows, {found} incidents");
    if windows > 0 && (found > 0 || any_diagnosis) {
        Ok(())
    } else {
        Err("rank 9 was not found".into())
    }
}

/// One rank a GPU, synchronous over NCCL.
fn nccl(gpus: usize) -> Result<(), Failure> {
    let id = NcclUniqueId::new()?;
    let windows = Arc::new(Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..gpus)
            .map(|rank| {
                let windows = Arc::clone(&windows);
                scope.spawn(move || -> Result<(), Failure> {
                    let this = Device::new(rank)?;
                    let stop = Stop::new();
                    let until = Until::after(Duration::from_secs(60), &stop);
                    let comm = NcclComm::new(&this.device, id, rank, gpus, until)?;
                    let membership = Membership::world(rank, gpus)?;
                    let group = NcclGroup::new(comm, &this.device, membership)?;
                    let stream = this.stream.cu_stream().cast();
                    // SAFETY: the stream is dropped after `diagnose`.
                    let memory = unsafe { CudaMemory::on_stream(&this.device, stream) };
                    let mut diagnose = Diagnose::builder(group, config(Mode::Synchronous))
                        .counters(Counters::Normal)
                        .memory(memory)
                        .on_report(move |report| {
                            let Report::Normal(report) = report else { return };
                            let diagnosis = report.diagnosis;
                            for (probe, found) in diagnosis.probes.iter() {
                                for finding in &found.findings {
                                    println!(
                                        "window {}: {probe}: {finding}",
                                        diagnosis.window_index
                                    );
                                }
                            }
                            if let Ok(mut windows) = windows.lock() {
                                windows.push(diagnosis.window_index);
                            }
                        })
                        .build()?
                        .ok_or("collection is enabled")?;
                    diagnose.start()?;
                    // Past the warm-up, five collections: the boundary and four windows.
                    std::thread::sleep(Duration::from_millis(150));
                    for _ in 0..250 {
                        this.round(rank, gpus, &diagnose)?;
                        diagnose.diagnose_normal_sync()?;
                    }
                    Ok(())
                })
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| "a rank panicked")??;
        }
        Ok::<(), Failure>(())
    })?;
    let windows = windows.lock().map_err(|_| "a callback panicked")?;
    println!("windows {windows:?}");
    if *windows == [1, 2, 3, 4] { Ok(()) } else { Err("four windows were expected".into()) }
}
