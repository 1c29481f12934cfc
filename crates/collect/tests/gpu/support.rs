//! A device with a stream and the test kernels, through `cudarc`'s safe layer: the program's side.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::{
    CudaContext, CudaFunction, CudaModule, CudaStream, LaunchConfig, PushKernelArg,
};
use deepxtrace_collect::{
    Collector, CounterMemory, CudaDevice, CudaMemory, Enqueued, Group, LocalGroup, Membership,
    Proposal, Stop, Ticket, Until,
};

pub type Failure = Box<dyn std::error::Error>;
pub type Tested = Result<(), Failure>;

/// Refuses with a text when the condition does not hold.
macro_rules! require {
    ($condition:expr, $($text:tt)*) => {
        let holds: bool = $condition;
        if !holds {
            return Err(format!($($text)*).into());
        }
    };
}
pub(crate) use require;

const HEADER: &str = include_str!("../../cuda/deepxtrace_probe.cuh");
const KERNELS: &str = include_str!("kernels.cu");

/// The program's side of one device.
pub struct Gpu {
    pub context: Arc<CudaContext>,
    pub stream: Arc<CudaStream>,
    pub device: CudaDevice,
    module: Arc<CudaModule>,
}

impl Gpu {
    pub fn new(ordinal: usize) -> Result<Self, Failure> {
        let context = CudaContext::new(ordinal)?;
        let options = cudarc::nvrtc::CompileOptions {
            arch: Some("compute_80"),
            ..cudarc::nvrtc::CompileOptions::default()
        };
        let ptx = cudarc::nvrtc::compile_ptx_with_opts(format!("{HEADER}{KERNELS}"), options)?;
        let module = context.load_module(ptx)?;
        let stream = context.new_stream()?;
        Ok(Self { stream, device: CudaDevice::new(ordinal)?, module, context })
    }

    /// Counters whose snapshots stand in the order of the stream.
    pub fn memory(&self, len: usize) -> Result<Arc<CudaMemory>, Failure> {
        let memory = CudaMemory::new(&self.device, len)?;
        // SAFETY: the stream outlives the memory in every test.
        unsafe { memory.set_producer_stream(self.raw_stream())? };
        Ok(Arc::new(memory))
    }

    pub fn raw_stream(&self) -> *mut c_void {
        self.stream.cu_stream().cast()
    }

    pub fn function(&self, name: &str) -> Result<CudaFunction, Failure> {
        Ok(self.module.load_function(name)?)
    }

    /// Launches a kernel that takes a vector of counters and up to two numbers.
    pub fn launch(
        &self,
        name: &str,
        (blocks, threads): (u32, u32),
        counters: Option<(u64, usize)>,
        numbers: &[i64],
    ) -> Tested {
        let function = self.function(name)?;
        let config = LaunchConfig {
            grid_dim: (blocks, 1, 1),
            block_dim: (threads, 1, 1),
            shared_mem_bytes: 0,
        };
        let mut launch = self.stream.launch_builder(&function);
        let (address, len) = counters.map_or((0, 0), |(address, len)| (address, len as i32));
        if counters.is_some() {
            launch.arg(&address).arg(&len);
        }
        for number in numbers {
            launch.arg(number);
        }
        // SAFETY: the arguments are those of the kernel, and the counters are alive.
        unsafe { launch.launch(config)? };
        Ok(())
    }

    pub fn set(&self, memory: &CudaMemory, value: i64) -> Tested {
        self.launch("set_all", (8, 256), Some((memory.address(), memory.len())), &[value])
    }
}

/// Takes a snapshot of all counters, waiting for it.
pub fn snapshot(memory: &CudaMemory) -> Result<Vec<i64>, Failure> {
    let ticket = ticket(memory.enqueue_snapshot()?)?;
    let values = finish(memory, ticket)?;
    memory.release(ticket);
    Ok(values)
}

pub fn ticket(enqueued: Enqueued) -> Result<Ticket, Failure> {
    match enqueued {
        Enqueued::Ticket(ticket) => Ok(ticket),
        Enqueued::Skipped(reason) => Err(format!("no snapshot: {}", reason.text()).into()),
    }
}

pub fn finish(memory: &CudaMemory, ticket: Ticket) -> Result<Vec<i64>, Failure> {
    let stop = Stop::new();
    let in_time = memory.wait_ready(ticket, Until::after(Duration::from_secs(20), &stop))?;
    require!(in_time, "the snapshot was not ready within 20 s");
    let mut values = vec![0; memory.len()];
    memory.read(ticket, 0..memory.len(), &mut values)?;
    Ok(values)
}

/// A collector of a group of one.
pub fn alone(memory: Arc<CudaMemory>) -> Result<Collector, Failure> {
    let group = LocalGroup::new(1)?.pop().ok_or("a group of one")?;
    let stop = Stop::new();
    let proposal = Proposal {
        enabled: true,
        vector_len: memory.len(),
        identity: memory.identity(),
        ..Proposal::default()
    };
    let until = Until::after(Duration::from_secs(20), &stop);
    let joined = Box::new(group).join(&proposal, until)?.ok_or("enabled")?;
    let len = memory.len();
    let whole = std::slice::from_ref(&(0..len)).to_vec();
    Ok(Collector::new(memory, joined.gather, &whole, Duration::from_secs(20))?)
}

/// The membership of a group in which EP rank and global rank are the same.
pub fn membership(rank: usize, size: usize, root: usize) -> Result<Membership, Failure> {
    Ok(Membership::subgroup((0..size).collect(), rank, root)?)
}

/// The middle of some times, in microseconds.
pub fn median_us(times: &mut [Duration]) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
}

/// Says a measured figure in the form that the report is made from.
pub fn figure(name: &str, value: f64, unit: &str) {
    println!("figure: {name}: {value:.3} {unit}");
}
