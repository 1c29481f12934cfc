//! A device with a stream and the test kernels, through `cudarc`'s safe layer: the program's side.

use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::{CudaContext, CudaFunction, CudaStream, LaunchConfig};
use deepxtrace::collect::CudaDevice;
use deepxtrace::config::{Config, Mode};

pub type Failure = Box<dyn std::error::Error + Send + Sync>;
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

const HEADER: &str = include_str!("../../../collect/cuda/deepxtrace_probe.cuh");
const KERNELS: &str = include_str!("kernels.cu");

/// The program's side of one rank.
pub struct Gpu {
    pub context: Arc<CudaContext>,
    pub stream: Arc<CudaStream>,
    pub device: CudaDevice,
    pub add_one: CudaFunction,
    pub receive: CudaFunction,
}

impl Gpu {
    pub fn new(ordinal: usize) -> Result<Self, Failure> {
        let context = CudaContext::new(ordinal)?;
        let arch = Some("compute_80");
        let options = cudarc::nvrtc::CompileOptions { arch, ..Default::default() };
        let ptx = cudarc::nvrtc::compile_ptx_with_opts(format!("{HEADER}{KERNELS}"), options)?;
        let module = context.load_module(ptx)?;
        Ok(Self {
            stream: context.new_stream()?,
            device: CudaDevice::new(ordinal)?,
            add_one: module.load_function("add_one")?,
            receive: module.load_function("receive")?,
            context,
        })
    }

    pub fn raw_stream(&self) -> *mut c_void {
        self.stream.cu_stream().cast()
    }
}

pub fn blocks(count: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: (count, 1, 1), block_dim: (32, 1, 1), shared_mem_bytes: 0 }
}

/// Windows at once, every `interval` or every call.
pub fn config(mode: Mode, interval: Duration, log_path: &Path) -> Config {
    Config {
        enabled: true,
        mode,
        sync_step: 1,
        interval,
        warming_time: Some(Duration::ZERO),
        log_path: log_path.to_owned(),
        ..Config::default()
    }
}
