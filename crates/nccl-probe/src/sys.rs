//! Types of the C interface, and small system calls.

use std::ffi::{CStr, c_void};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};

/// `ncclComm_t`.
pub type Handle = *mut c_void;
/// `cudaStream_t`.
pub type Stream = *mut c_void;
/// `ncclResult_t`.
pub type Status = i32;

/// `ncclSuccess`.
pub const SUCCESS: Status = 0;
/// `ncclInvalidUsage`.
pub const INVALID_USAGE: Status = 5;
/// `ncclInProgress`.
pub const IN_PROGRESS: Status = 7;

/// `ncclUniqueId`, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UniqueId {
    /// Opaque bytes, the same on all ranks.
    pub internal: [u8; 128],
}

/// Writes one line to standard error, without buffers or locks of this process.
pub fn say(message: &str) {
    let line = format!("deepxtrace: {message}\n");
    // SAFETY: the buffer is valid for its length; a failed write has nobody to tell.
    unsafe { libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len()) };
}

/// Runs what may go wrong, so that no panic leaves this library.
pub fn guarded<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Makes panics silent; they are turned into "not recorded" by [`guarded`]. The hook belongs to this
/// library's own copy of the standard library.
pub fn silence_panics() {
    std::panic::set_hook(Box::new(|_| {}));
}

/// A lock for rare work. It spins and yields, and can be set free in a forked child.
pub struct Lock(AtomicBool);

impl Lock {
    /// A free lock.
    pub const fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Waits for the lock. Never called while a call is being recorded.
    pub fn lock(&self) -> Locked<'_> {
        self.acquire();
        Locked(self)
    }

    /// As [`Lock::lock`], to be set free by [`Lock::release`].
    pub fn acquire(&self) {
        while self.0.compare_exchange_weak(false, true, Acquire, Relaxed).is_err() {
            std::thread::yield_now();
        }
    }

    /// Sets the lock free.
    pub fn release(&self) {
        self.0.store(false, Release);
    }
}

/// The lock is held as long as this lives.
pub struct Locked<'a>(&'a Lock);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// Says each of 64 things at most once.
pub struct Once64(AtomicU64);

impl Once64 {
    /// Nothing said yet.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Whether this is the first time for `what`.
    pub fn first(&self, what: usize) -> bool {
        let bit = 1_u64 << (what % 64);
        self.0.fetch_or(bit, Relaxed) & bit == 0
    }
}

/// The loaded object that holds an address: where it begins and its file name.
pub fn object_of(address: *const c_void) -> Option<(usize, &'static CStr)> {
    // SAFETY: `Dl_info` is pointers; all null is a value of it.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for; `info` is a valid place for the answer.
    if unsafe { libc::dladdr(address, &mut info) } == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the linker's own name of a loaded object, which lives as long as the object.
    let name = unsafe { CStr::from_ptr(info.dli_fname) };
    Some((info.dli_fbase as usize, name))
}

/// A handle of an object that is loaded already, null if it is not.
pub fn loaded(name: &CStr) -> *mut c_void {
    // SAFETY: nothing is loaded and no constructor runs; `name` is C text.
    unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) }
}

/// Reads a pointer that may point anywhere, `None` where nothing is mapped. Sandboxes may refuse the
/// first way (and emulators lack it), so there is a second one.
pub fn read_pointer(address: usize) -> Option<usize> {
    let mut value = 0_usize;
    let size = size_of::<usize>();
    let local = libc::iovec { iov_base: (&raw mut value).cast(), iov_len: size };
    let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: size };
    // SAFETY: the system checks the remote address and writes at most `size` bytes to `value`.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    if usize::try_from(read) == Ok(size) {
        return Some(value);
    }
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::ENOSYS | libc::EPERM) => read_from_file(address),
        _ => None,
    }
}

/// As [`read_pointer`], by the file that holds the memory of this process.
fn read_from_file(address: usize) -> Option<usize> {
    let memory = File::open("/proc/self/mem").ok()?;
    let mut value = [0; size_of::<usize>()];
    memory.read_exact_at(&mut value, u64::try_from(address).ok()?).ok()?;
    Some(usize::from_ne_bytes(value))
}

#[cfg(test)]
mod tests {
    use super::{read_from_file, read_pointer};

    #[test]
    fn pointers_are_read_where_something_is_mapped() {
        let values = [0x1234_5678_9abc_usize, usize::MAX, 0];
        for read in [read_pointer, read_from_file] {
            for value in &values {
                assert_eq!(read(std::ptr::from_ref(value) as usize), Some(*value));
            }
            for nothing in [0, 8, usize::MAX, usize::MAX - 7, 1 << 63] {
                assert_eq!(read(nothing), None);
            }
        }
    }
}
