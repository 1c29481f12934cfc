//! The GPUs: memory, tables, kernels.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUresult};
use cudarc::driver::{
    CudaContext, CudaFunction, CudaModule, CudaStream, DeviceRepr, DriverError, LaunchConfig,
    PushKernelArg,
};

use crate::Failure;
use crate::options::Options;
use crate::routing::Routing;

const HEADER: &str = include_str!("../../../collect/cuda/deepxtrace_probe.cuh");
const KERNELS: &str = include_str!("kernels.cu");
/// Most ranks; as in the kernels.
const MAX_RANKS: usize = 16;
/// Threads a block of the dispatch and combine kernels.
const THREADS: u32 = 512;
/// When a kernel that waits gives up.
const TIMEOUT_NS: u64 = 3_000_000_000;

/// The structure of `kernels.cu`, field by field.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct Emulation {
    slab: [u64; MAX_RANKS],
    rows: u64,
    row_count: u64,
    crossing: u64,
    cross_count: u64,
    members: u64,
    timeout_ns: u64,
    at_input: u64,
    at_dispatch: u64,
    at_gateway: u64,
    at_combine_gateway: u64,
    at_combine: u64,
    at_scratch: u64,
    at_abort: u64,
    at_barrier: u64,
    at_dispatch_flags: u64,
    at_gateway_flags: u64,
    at_combine_gateway_flags: u64,
    at_combine_flags: u64,
    at_sums: u64,
    at_sum_flags: u64,
    at_credits: u64,
    pub rank: i32,
    ranks: i32,
    ranks_per_node: i32,
    nodes: i32,
    tokens: i32,
    channels: i32,
    cap: i32,
    warps_per_flow: i32,
    crossing_warps: i32,
    combine_crossing_warps: i32,
    dispatch_chunk: i32,
    combine_chunk: i32,
    dispatch_vectors: i32,
    combine_vectors: i32,
    pub extra_dispatch: i32,
    pub extra_combine: i32,
    credits: i32,
    sums: i32,
}

// SAFETY: plain words in C's layout, the same as in the kernels.
unsafe impl DeviceRepr for Emulation {}

/// Pointers that a kernel takes as a structure.
#[derive(Debug, Clone, Copy)]
#[repr(transparent)]
pub struct Pointers<const N: usize>(pub [u64; N]);

// SAFETY: as above.
unsafe impl<const N: usize> DeviceRepr for Pointers<N> {}

/// The tables of one draw on one GPU.
#[derive(Debug, Clone, Copy)]
struct Tables {
    rows: u64,
    row_count: u64,
    crossing: u64,
    cross_count: u64,
    members: u64,
}

/// One GPU: a node, both, or a part of one.
pub struct Gpu {
    pub context: Arc<CudaContext>,
    module: Arc<CudaModule>,
    /// `[set][draw]`: the usual skew and the strong one.
    tables: [Vec<Tables>; 2],
}

/// The kernels of one rank.
pub struct Kernels {
    pub fill_input: CudaFunction,
    pub compute: CudaFunction,
    pub notify: CudaFunction,
    pub dispatch: CudaFunction,
    pub combine: CudaFunction,
    pub verify: CudaFunction,
}

/// All of it.
pub struct World {
    pub gpus: Vec<Gpu>,
    template: Emulation,
    blocks: u32,
    /// Shared memory that a block takes for no other reason than to have a multiprocessor of its own.
    alone: u32,
}

fn check(what: &str, result: CUresult) -> Result<(), Failure> {
    result.result().map_err(|error| format!("{what}: {error}").into())
}

/// Device memory that lives as long as the process.
fn allocate(bytes: usize) -> Result<u64, Failure> {
    let mut address = 0;
    // SAFETY: a context is current; the driver writes one address.
    check("cuMemAlloc", unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes.max(1)) })?;
    // SAFETY: the allocation has that many bytes.
    check("cuMemsetD8", unsafe { sys::cuMemsetD8_v2(address, 0, bytes.max(1)) })?;
    Ok(address)
}

fn upload(words: &[u32]) -> Result<u64, Failure> {
    let bytes = size_of_val(words);
    let address = allocate(bytes)?;
    // SAFETY: both sides have that many bytes.
    let result = unsafe { sys::cuMemcpyHtoD_v2(address, words.as_ptr().cast::<c_void>(), bytes) };
    check("cuMemcpyHtoD", result)?;
    Ok(address)
}

impl World {
    pub fn new(
        options: &Options,
        count: usize,
        draws: &[Vec<Routing>; 2],
    ) -> Result<Self, Failure> {
        let contexts: Vec<_> =
            (0..count).map(CudaContext::new).collect::<Result<_, DriverError>>()?;
        let (mut template, slab_bytes) = places(options);
        let alone = fits(options, &contexts[0], count)?;
        let mut gpus = Vec::new();
        for context in &contexts {
            context.bind_to_thread()?;
            for peer in contexts.iter().filter(|peer| peer.ordinal() != context.ordinal()) {
                // SAFETY: both contexts are alive.
                let result = unsafe { sys::cuCtxEnablePeerAccess(peer.cu_ctx(), 0) };
                if result != CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED {
                    check("cuCtxEnablePeerAccess", result)?;
                }
            }
            let arch = Some("compute_80");
            let compile = cudarc::nvrtc::CompileOptions { arch, ..Default::default() };
            let source = format!("{HEADER}{KERNELS}");
            let ptx = cudarc::nvrtc::compile_ptx_with_opts(source, compile)?;
            let module = context.load_module(ptx)?;
            let load = |set: &Vec<Routing>| -> Result<Vec<Tables>, Failure> {
                let tables = |draw: &Routing| {
                    Ok(Tables {
                        rows: upload(&draw.rows)?,
                        row_count: upload(&draw.row_count)?,
                        crossing: upload(&draw.crossing)?,
                        cross_count: upload(&draw.cross_count)?,
                        members: upload(&draw.members)?,
                    })
                };
                set.iter().map(tables).collect()
            };
            let tables = [load(&draws[0])?, load(&draws[1])?];
            gpus.push(Gpu { context: Arc::clone(context), module, tables });
        }
        let ranks = options.ranks();
        for rank in 0..ranks {
            gpus[rank * count / ranks].context.bind_to_thread()?;
            template.slab[rank] = allocate(slab_bytes)?;
        }
        Ok(Self { gpus, template, blocks: blocks(options), alone })
    }

    /// The GPU of a rank.
    pub fn gpu(&self, rank: usize) -> &Gpu {
        &self.gpus[rank * self.gpus.len() / self.template.ranks as usize]
    }

    /// The GPUs of a node.
    pub fn gpus_of(&self, node: usize) -> std::ops::Range<usize> {
        match self.gpus.len() {
            1 => 0..1,
            count => node * count / 2..(node + 1) * count / 2,
        }
    }

    /// The GPU in the same place of the other node.
    pub fn across(&self, gpu: usize) -> usize {
        (gpu + self.gpus.len() / 2) % self.gpus.len()
    }

    /// The ranks of a GPU.
    pub fn ranks_of(&self, gpu: usize) -> std::ops::Range<usize> {
        let each = self.template.ranks as usize / self.gpus.len();
        gpu * each..(gpu + 1) * each
    }

    /// Whether a kernel has waited in vain; no kernel of `rank` may run.
    pub fn aborted(&self, rank: usize) -> Result<bool, Failure> {
        let mut flag = 0_u32;
        let from = self.template.slab[rank] + self.template.at_abort;
        // SAFETY: both sides have four bytes.
        let result = unsafe { sys::cuMemcpyDtoH_v2((&raw mut flag).cast(), from, 4) };
        check("cuMemcpyDtoH", result)?;
        Ok(flag != 0)
    }

    /// The parameter of the kernels for one rank and draw.
    pub fn emulation(&self, rank: usize, set: usize, draw: usize) -> Emulation {
        let tables = &self.gpu(rank).tables[set];
        let tables = tables[draw % tables.len()];
        Emulation {
            rank: rank as i32,
            rows: tables.rows,
            row_count: tables.row_count,
            crossing: tables.crossing,
            cross_count: tables.cross_count,
            members: tables.members,
            ..self.template
        }
    }

    /// The same without any work: a launch of it loads and prepares a kernel.
    pub fn idle(&self, rank: usize) -> Emulation {
        Emulation { channels: 0, ranks: 0, tokens: 0, ..self.emulation(rank, 0, 0) }
    }

    pub fn big_grid(&self) -> LaunchConfig {
        LaunchConfig { shared_mem_bytes: self.alone, ..grid(self.blocks, THREADS) }
    }

    /// The shared memory of a block of the dispatch and combine kernels.
    pub fn alone(&self) -> u32 {
        self.alone
    }
}

impl Gpu {
    pub fn kernels(&self, shared: u32) -> Result<Kernels, Failure> {
        let load = |name| self.module.load_function(name);
        let large = |name| -> Result<CudaFunction, DriverError> {
            let function = load(name)?;
            let attribute =
                sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            function.set_attribute(attribute, shared as i32)?;
            Ok(function)
        };
        Ok(Kernels {
            fill_input: load("fill_input")?,
            compute: load("compute")?,
            notify: load("notify")?,
            dispatch: large("dispatch")?,
            combine: large("combine")?,
            verify: load("verify")?,
        })
    }
}

pub fn grid(blocks: u32, threads: u32) -> LaunchConfig {
    LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: 0 }
}

pub fn compute(stream: &CudaStream, kernels: &Kernels, ns: u64) -> Result<(), Failure> {
    let mut launch = stream.launch_builder(&kernels.compute);
    launch.arg(&ns);
    // SAFETY: the argument is that of the kernel.
    unsafe { launch.launch(grid(1, 32))? };
    Ok(())
}

/// Device memory of the calling thread's context, zeroed, for the life of the process.
pub fn zeroed(bytes: usize) -> Result<u64, Failure> {
    allocate(bytes)
}

/// All blocks of all ranks of a GPU must be resident at the same time: they wait for each other.
/// Where each can have a multiprocessor of its own, the shared memory that makes it so: what crosses
/// the link then does not hold up what does not.
fn fits(options: &Options, context: &CudaContext, count: usize) -> Result<u32, Failure> {
    let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
    let each = context.attribute(attribute)? as usize;
    let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
    let shared = context.attribute(attribute)? as u32;
    let blocks = blocks(options) as usize * options.ranks() / count;
    match blocks {
        few if few <= each => Ok(shared / 2 + 8192),
        some if some <= 2 * each => Ok(0),
        many => {
            let room = 2 * each;
            Err(format!("{many} blocks a GPU, but {room} fit at a time: use fewer warps").into())
        }
    }
}

/// Blocks of the dispatch and combine kernels: a warp for every role of the larger one, and whole
/// blocks for every kind of role.
fn blocks(options: &Options) -> u32 {
    let (ranks, channels, flows) = (options.ranks(), options.channels, options.warps_per_flow);
    let per_node = options.ranks_per_node as usize;
    let whole = |warps: usize| warps.div_ceil(THREADS as usize / 32) as u32;
    let near = whole(per_node * channels * flows);
    let dispatch = whole(ranks * channels)
        + whole(channels)
        + whole(channels * options.crossing_warps)
        + 2 * near;
    let combine = whole(ranks * channels)
        + whole(per_node * channels * options.combine_crossing_warps)
        + whole(ranks * channels * flows);
    dispatch.max(combine)
}

/// Where everything stands in a slab, and its size.
fn places(options: &Options) -> (Emulation, usize) {
    let (ranks, per_node) = (options.ranks(), options.ranks_per_node as usize);
    let nodes = ranks / per_node;
    let (tokens, channels, cap) = (options.tokens, options.channels, options.cap());
    let mut next = 0;
    let mut place = |bytes: usize| {
        let at = next;
        next += bytes.next_multiple_of(4096);
        at as u64
    };
    let flags = 4 * channels * cap.div_ceil(options.dispatch_chunk.min(options.combine_chunk));
    let pressers = (per_node * channels * options.combine_crossing_warps)
        .max(channels * options.crossing_warps);
    let emulation = Emulation {
        slab: [0; MAX_RANKS],
        rows: 0,
        row_count: 0,
        crossing: 0,
        cross_count: 0,
        members: 0,
        timeout_ns: TIMEOUT_NS,
        at_input: place(tokens * options.dispatch_bytes),
        at_dispatch: place(ranks * tokens * options.dispatch_bytes),
        at_gateway: place(nodes * tokens * options.dispatch_bytes),
        at_combine_gateway: place(ranks * tokens * options.combine_bytes),
        at_combine: place(ranks * tokens * options.combine_bytes),
        at_scratch: place(
            pressers * options.dispatch_chunk.max(options.combine_chunk) * options.dispatch_bytes,
        ),
        at_abort: place(4),
        at_barrier: place(2 * MAX_RANKS * 4),
        at_dispatch_flags: place(ranks * flags),
        at_gateway_flags: place(nodes * flags),
        at_combine_gateway_flags: place(ranks * flags),
        at_combine_flags: place(ranks * flags),
        at_sums: place(nodes * tokens * options.combine_bytes),
        at_sum_flags: place(nodes * flags),
        at_credits: place(4 * ranks * channels * options.warps_per_flow),
        rank: 0,
        ranks: ranks as i32,
        ranks_per_node: per_node as i32,
        nodes: nodes as i32,
        tokens: tokens as i32,
        channels: channels as i32,
        cap: cap as i32,
        warps_per_flow: options.warps_per_flow as i32,
        crossing_warps: options.crossing_warps as i32,
        combine_crossing_warps: options.combine_crossing_warps as i32,
        dispatch_chunk: options.dispatch_chunk as i32,
        combine_chunk: options.combine_chunk as i32,
        dispatch_vectors: (options.dispatch_bytes / 16) as i32,
        combine_vectors: (options.combine_bytes / 16) as i32,
        extra_dispatch: 0,
        extra_combine: 0,
        credits: options.credits as i32,
        sums: i32::from(options.sums),
    };
    (emulation, next)
}
