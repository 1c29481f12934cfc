//! What the process and the device hold at a moment.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use libloading::os::unix::Library;

use crate::support::{Failure, Gpu};

/// Counts the bytes that Rust code has allocated and not given back.
struct Counting;

static LIVE: AtomicI64 = AtomicI64::new(0);

#[global_allocator]
static ALLOCATOR: Counting = Counting;

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as i64, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as i64, Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// What the process and the device hold.
#[derive(Debug, Clone, Copy)]
pub struct Held {
    /// Of the whole device, other processes included, bytes.
    pub device: i64,
    /// Resident host memory of the process, bytes.
    pub resident: i64,
    /// Of it what `malloc` has given out, to Rust code and to all libraries, bytes; 0 where the C
    /// library does not tell.
    pub heap: i64,
    /// Of that what Rust code holds, bytes.
    pub live: i64,
    pub handles: i64,
    pub threads: i64,
}

impl Held {
    pub fn now(gpu: &Gpu) -> Result<Self, Failure> {
        let (free, total) = gpu.context.mem_get_info()?;
        let status = std::fs::read_to_string("/proc/self/status")?;
        let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
        let kib: i64 = line.split_whitespace().nth(1).unwrap_or_default().parse()?;
        let entries = |folder| std::fs::read_dir(folder).map_or(0, Iterator::count) as i64;
        Ok(Self {
            device: (total - free) as i64,
            resident: kib * 1024,
            heap: heap(),
            live: LIVE.load(Relaxed),
            handles: entries("/proc/self/fd"),
            threads: entries("/proc/self/task"),
        })
    }
}

/// `struct mallinfo2` of glibc.
#[repr(C)]
struct MallocInfo {
    arena: usize,
    free_chunks: usize,
    fast_chunks: usize,
    mapped_chunks: usize,
    mapped: usize,
    max: usize,
    fast: usize,
    given_out: usize,
    free: usize,
    releasable: usize,
}

/// What `malloc` has given out and not got back, in all of its arenas, bytes.
fn heap() -> i64 {
    let program = Library::this();
    // SAFETY: where glibc has it, since 2.33, it has this type.
    let Ok(ask) = (unsafe { program.get::<unsafe extern "C" fn() -> MallocInfo>(b"mallinfo2\0") })
    else {
        return 0;
    };
    // SAFETY: it only counts.
    let info = unsafe { ask() };
    (info.given_out + info.mapped) as i64
}
