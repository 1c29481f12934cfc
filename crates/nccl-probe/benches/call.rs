//! What one recorded call costs over a stand-in for NCCL that does nothing, beside the call without
//! the probe: back to back, and 50 us apart; with and without the driver's word on graph capture.
//!
//! Calls come in bursts that the rings hold, with pauses in which they are written out: nothing is
//! dropped, which would be cheaper than recording.
#![cfg(target_os = "linux")]
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, reason = "a benchmark")]
#![allow(unsafe_code, reason = "it calls C")]

use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};

type Reduce = unsafe extern "C" fn(usize, usize, usize, i32, i32, *mut c_void, usize) -> i32;
type Init = unsafe extern "C" fn(*mut *mut c_void, i32, [u8; 128], i32) -> i32;

const BURST: u64 = 50_000;
const PAUSE: Duration = Duration::from_millis(150);

/// Names a folder with the stand-ins, for a machine without this repository: see `cargo xtask gpu`.
const STUBS: &str = "DEEPXTRACE_BENCH_STUBS";

/// The stand-in `output`, compiled from `source` unless it is there.
fn gcc(folder: &Path, source: &str, output: &str) -> PathBuf {
    if let Some(stubs) = std::env::var_os(STUBS) {
        return Path::new(&stubs).join(output);
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
    let path = folder.join(output);
    let soname = format!("-Wl,-soname,{output}");
    let mut gcc = Command::new("gcc");
    gcc.args(["-O2", "-shared", "-fPIC", &soname, "-o"]).arg(&path).arg(source).arg("-lpthread");
    assert!(gcc.status().expect("gcc").success());
    path
}

fn open(path: &Path) -> *mut c_void {
    let name = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: libraries built here and by cargo.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    assert!(!handle.is_null(), "{}", path.display());
    handle
}

fn function(handle: *mut c_void, name: &str) -> *mut c_void {
    let name = CString::new(name).unwrap();
    // SAFETY: an open handle and C text.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
    assert!(!found.is_null());
    found
}

/// One way to call, with a communicator made the same way.
struct Way {
    reduce: Reduce,
    comm: *mut c_void,
}

impl Way {
    fn new(handle: *mut c_void) -> Self {
        // SAFETY: the functions of these names have these types.
        let (init, reduce) = unsafe {
            (
                std::mem::transmute::<*mut c_void, Init>(function(handle, "ncclCommInitRank")),
                std::mem::transmute::<*mut c_void, Reduce>(function(handle, "ncclAllReduce")),
            )
        };
        let mut comm = std::ptr::null_mut();
        // SAFETY: the stand-in takes any id.
        assert_eq!(unsafe { init(&mut comm, 2, [7; 128], 0) }, 0);
        Self { reduce, comm }
    }

    #[inline]
    fn call(&self) {
        // SAFETY: the stand-in does not look at the buffers.
        unsafe { (self.reduce)(1, 2, 3, 7, 0, self.comm, 4) };
    }

    /// In whole bursts, however few calls are asked for: the first of them find nothing in the
    /// caches.
    fn back_to_back(&self, calls: u64) -> Duration {
        let bursts = calls.div_ceil(BURST);
        let mut spent = Duration::ZERO;
        for _ in 0..bursts {
            let start = Instant::now();
            (0..BURST).for_each(|_| self.call());
            spent += start.elapsed();
            std::thread::sleep(PAUSE);
        }
        spent.mul_f64(calls as f64 / (bursts * BURST) as f64)
    }

    /// The time includes one reading of the clock, with and without the probe.
    fn apart(&self, calls: u64) -> Duration {
        let mut spent = Duration::ZERO;
        for _ in 0..calls {
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_micros(50) {}
            let start = Instant::now();
            self.call();
            spent += start.elapsed();
        }
        spent
    }
}

fn bench(criterion: &mut Criterion) {
    let folder = tempfile::tempdir().unwrap();
    let stub = open(&gcc(folder.path(), "nccl_stub.c", "libnccl.so.2"));
    // SAFETY: no other thread runs yet.
    unsafe {
        std::env::set_var("DEEPXTRACE_TRACE_DIR", folder.path().join("trace"));
        std::env::set_var("DEEPXTRACE_TRACE_MAX_BYTES", "67108864");
        std::env::set_var("RANK", "0");
    }
    let own = std::env::current_exe().unwrap();
    let probe = open(&own.with_file_name("libdeepxtrace_nccl_probe.so"));
    let mut group = criterion.benchmark_group("ncclAllReduce");
    group.sample_size(10).warm_up_time(Duration::from_millis(300));
    group.measurement_time(Duration::from_millis(500));
    let mut measure = |name: &str, way: &Way| {
        group.bench_function(format!("{name}/back to back"), |bencher| {
            bencher.iter_custom(|calls| way.back_to_back(calls));
        });
        group.bench_function(format!("{name}/50 us apart"), |bencher| {
            bencher.iter_custom(|calls| way.apart(calls));
        });
    };
    measure("plain", &Way::new(stub));
    measure("probe", &Way::new(probe));
    open(&gcc(folder.path(), "cuda_stub.c", "libcuda.so.1"));
    measure("probe and capture query", &Way::new(probe));
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
