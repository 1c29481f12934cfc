//! What goes wrong, and that the program goes on.

use std::process::Command;
use std::sync::Arc;

use cudarc::driver::sys;
use deepxtrace_collect::{CounterMemory, CudaDevice, CudaMemory, DeviceError};

use crate::support::{Failure, Gpu, Tested, alone, require, snapshot, ticket};

const LEN: usize = 150;

fn current() -> sys::CUcontext {
    let mut context = std::ptr::null_mut();
    // SAFETY: the driver writes one handle.
    let _ = unsafe { sys::cuCtxGetCurrent(&raw mut context) };
    context
}

/// Every call on threads without a context, and with the context of another device.
pub fn contexts() -> Tested {
    let gpu = Gpu::new(0)?;
    let memory = gpu.memory(LEN)?;
    gpu.set(&memory, 4)?;
    let all_calls = |before: usize| -> Result<(), String> {
        let fail = |error: Failure| error.to_string();
        let here = |what: &str| match current().addr() {
            now if now == before => Ok(()),
            now => Err(format!("{what} left context {now:#x} current, {before:#x} was")),
        };
        let device = CudaDevice::new(0).map_err(|error| error.to_string())?;
        here("a device")?;
        let own = CudaMemory::new(&device, LEN).map_err(|error| error.to_string())?;
        here("a memory")?;
        let values = snapshot(&memory).map_err(fail)?;
        here("a snapshot")?;
        drop((own, device));
        here("dropping")?;
        if values == vec![4; LEN] { Ok(()) } else { Err("wrong values".to_owned()) }
    };
    // A thread without a context.
    std::thread::scope(|scope| scope.spawn(|| all_calls(0)).join()).map_err(|_| "panicked")??;
    // A thread on which the program has made the context of another device current.
    if CudaDevice::count()? > 1 {
        let other = cudarc::driver::CudaContext::new(1)?;
        other.bind_to_thread()?;
        let before = current().addr();
        require!(before != gpu.context.cu_ctx().addr(), "both devices have one context");
        all_calls(before)?;
        require!(CudaDevice::current()?.ordinal() == 1, "the current device is not device 1");
    }
    gpu.context.bind_to_thread()?;
    require!(CudaDevice::current()?.ordinal() == 0, "the current device is not device 0");
    Ok(())
}

pub fn drops() -> Tested {
    // The device handle first, then a snapshot under way, then the stream.
    let gpu = Gpu::new(0)?;
    let device = CudaDevice::new(0)?;
    let memory = CudaMemory::new(&device, LEN)?;
    drop(device);
    // SAFETY: the stream outlives the memory.
    unsafe { memory.set_producer_stream(gpu.raw_stream())? };
    gpu.launch("spin", (1, 1), None, &[100_000_000])?;
    let _under_way = ticket(memory.enqueue_snapshot()?)?;
    drop(memory);
    gpu.stream.synchronize()?;

    // Released before it is ready; the buffer comes back when the device is done with it.
    let memory = gpu.memory(LEN)?;
    gpu.launch("spin", (1, 1), None, &[100_000_000])?;
    let (a, b) = (ticket(memory.enqueue_snapshot()?)?, ticket(memory.enqueue_snapshot()?)?);
    memory.release(a);
    memory.release(b);
    memory.release(b);
    require!(
        matches!(memory.enqueue_snapshot()?, deepxtrace_collect::Enqueued::Skipped(_)),
        "a buffer that the device still writes to was handed out"
    );
    gpu.stream.synchronize()?;
    require!(snapshot(&memory)? == vec![0; LEN], "the buffer did not come back");
    require!(memory.is_ready(a).is_err(), "an old ticket was taken");
    require!(memory.staged_address(a).is_none(), "an old ticket has an address");

    // The stream goes before the memory, which was told so.
    let Gpu { context, stream, .. } = gpu;
    memory.clear_producer_stream();
    drop((stream, context));
    require!(snapshot(&memory)? == vec![0; LEN], "an unordered snapshot failed");
    let collector = alone(Arc::clone(&memory))?;
    drop(memory);
    drop(collector);
    Ok(())
}

pub fn out_of_memory() -> Tested {
    let device = CudaDevice::new(0)?;
    for len in [1 << 38, usize::MAX / 8, usize::MAX] {
        match CudaMemory::new(&device, len) {
            Err(DeviceError::OutOfMemory { .. }) => {}
            other => return Err(format!("{len} counters: {other:?}").into()),
        }
    }
    let memory = CudaMemory::new(&device, LEN)?;
    require!(snapshot(&memory)? == vec![0; LEN], "nothing works afterwards");
    require!(CudaMemory::new(&device, 0)?.is_empty(), "no counters are some");
    Ok(())
}

pub fn foreign_stream() -> Tested {
    let (gpu, other) = (Gpu::new(0)?, Gpu::new(1)?);
    let memory = CudaMemory::new(&gpu.device, LEN)?;
    // SAFETY: the stream is alive; that it is of another device is what is tested.
    let refused = unsafe { memory.set_producer_stream(other.raw_stream()) };
    require!(matches!(refused, Err(DeviceError::Unavailable { .. })), "{refused:?}");
    require!(!memory.is_ordered(), "the foreign stream was taken");
    Ok(())
}

fn run_child(role: &str, environment: &[(&str, &str)]) -> Tested {
    let output = Command::new(std::env::current_exe()?)
        .arg(format!("child:{role}"))
        .envs(environment.iter().copied())
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    require!(output.status.success(), "{}: {text}{errors}", output.status);
    Ok(())
}

pub fn no_device() -> Tested {
    run_child("no-device", &[("CUDA_VISIBLE_DEVICES", "")])
}

pub fn child_no_device() -> Tested {
    require!(CudaDevice::count()? == 0, "there are devices");
    for error in [CudaDevice::new(0).err(), CudaDevice::current().err()] {
        let Some(error @ DeviceError::Unavailable { .. }) = error else {
            return Err(format!("{error:?}").into());
        };
        println!("{error}");
    }
    Ok(())
}

pub fn sticky() -> Tested {
    run_child("fault", &[])
}

pub fn child_fault() -> Tested {
    let gpu = Gpu::new(0)?;
    let memory = gpu.memory(LEN)?;
    require!(snapshot(&memory)? == vec![0; LEN], "wrong before the fault");
    gpu.launch("fault", (1, 1), None, &[])?;
    let mut errors = Vec::new();
    for _ in 0..5 {
        match memory.enqueue_snapshot() {
            Ok(deepxtrace_collect::Enqueued::Ticket(ticket)) => {
                errors.extend(crate::support::finish(&memory, ticket).err());
                memory.release(ticket);
            }
            Ok(other) => return Err(format!("{other:?} after a kernel fault").into()),
            Err(error) => errors.push(error.into()),
        }
    }
    require!(errors.len() >= 4, "after a kernel fault only {errors:?}");
    println!("{errors:?}");
    require!(CudaMemory::new(&gpu.device, LEN).is_err(), "memory after a fault");
    drop(memory);
    // `Gpu` itself is left alone: `cudarc` panics when it gives back what was lost.
    std::mem::forget(gpu);
    Ok(())
}
