//! A part of a file as shared words.
#![allow(unsafe_code, reason = "mapping a file is a foreign call")]

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// A shared, writable mapping of whole pages of a file, read and written as atomic words.
#[derive(Debug)]
pub struct Map {
    start: NonNull<AtomicU64>,
    bytes: usize,
}

// SAFETY: the mapping is memory that every thread may use through atomics; unmapping happens once,
// on drop, when no reference is left.
unsafe impl Send for Map {}
// SAFETY: as above; all access is through `&AtomicU64`.
unsafe impl Sync for Map {}

impl Map {
    /// Maps `bytes` bytes of `file` from `offset`, which must be a multiple of the page size.
    ///
    /// `ready` asks the system to have all pages in place before this returns.
    ///
    /// # Errors
    ///
    /// When the file has fewer bytes, or the system refuses.
    pub fn new(file: &File, offset: usize, bytes: usize, ready: bool) -> io::Result<Self> {
        let length = file.metadata()?.len();
        let end = offset.checked_add(bytes).and_then(|end| u64::try_from(end).ok());
        if bytes == 0 || end.is_none_or(|end| end > length) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let flags = libc::MAP_SHARED | if ready { libc::MAP_POPULATE } else { 0 };
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping at an address of the system's choice touches no memory of ours.
        let address = unsafe {
            libc::mmap(std::ptr::null_mut(), bytes, access, flags, file.as_raw_fd(), offset)
        };
        match NonNull::new(address) {
            Some(start) if address != libc::MAP_FAILED => Ok(Self { start: start.cast(), bytes }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The mapping as words.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: `start` is page-aligned and maps `bytes` readable and writable bytes until drop;
        // any bit pattern is a valid `AtomicU64`, and other processes use atomics as well.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes / 8) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: exactly the range that `mmap` returned, unmapped once.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// What a lock on a ring file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// Held by the process that records, as long as it lives.
    Owner,
    /// Held by whoever writes the rings to the trace.
    Drainer,
}

impl Lock {
    fn range(self, kind: libc::c_int) -> libc::flock {
        // SAFETY: `flock` is plain integers; all zero is a value of it.
        let mut range: libc::flock = unsafe { std::mem::zeroed() };
        range.l_type = libc::c_short::try_from(kind).unwrap_or(libc::c_short::MAX);
        range.l_whence = libc::c_short::try_from(libc::SEEK_SET).unwrap_or(0);
        range.l_start = match self {
            Self::Owner => 0,
            Self::Drainer => 1,
        };
        range.l_len = 1;
        range
    }

    /// Takes the lock if nobody else has it; says whether it did.
    ///
    /// The owner's lock ends with the process (a child does not inherit it), or when the process
    /// closes any descriptor of the file. The drainer's lock belongs to the open file, so that it
    /// also holds between threads.
    ///
    /// # Errors
    ///
    /// When the file system has no locks.
    pub fn take(self, file: &File) -> io::Result<bool> {
        let range = self.range(libc::F_WRLCK);
        let command = match self {
            Self::Owner => libc::F_SETLK,
            Self::Drainer => libc::F_OFD_SETLK,
        };
        // SAFETY: `range` is a valid `flock` for the time of the call.
        if unsafe { libc::fcntl(file.as_raw_fd(), command, &range) } == 0 {
            return Ok(true);
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EACCES | libc::EAGAIN) => Ok(false),
            _ => Err(error),
        }
    }

    /// Whether another process holds the lock.
    ///
    /// # Errors
    ///
    /// When the file system has no locks.
    pub fn is_held_elsewhere(self, file: &File) -> io::Result<bool> {
        let mut range = self.range(libc::F_WRLCK);
        // SAFETY: `range` is a valid `flock` that the call may change.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETLK, &mut range) } != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(libc::c_int::from(range.l_type) != libc::F_UNLCK)
    }
}

/// Reserves bytes of a file so that writing to a mapping of them cannot fail for want of space.
///
/// # Errors
///
/// When there is no room, or the file system cannot reserve.
pub fn reserve(file: &File, offset: usize, bytes: usize) -> io::Result<()> {
    let number = |value| libc::off_t::try_from(value).map_err(|_| io::ErrorKind::InvalidInput);
    let (offset, bytes) = (number(offset)?, number(bytes)?);
    // SAFETY: plain integers and an open descriptor.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), offset, bytes) } {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Bytes that an ordinary user may still take on the file system of `folder`, and whether that
/// file system is memory.
///
/// # Errors
///
/// When the folder does not exist or cannot be asked.
pub fn memory_space(folder: &File) -> io::Result<(u64, bool)> {
    // SAFETY: `statfs` is plain integers; all zero is a value of it.
    let mut answer: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `answer` is a valid place for the answer.
    if unsafe { libc::fstatfs(folder.as_raw_fd(), &mut answer) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let block = u64::try_from(answer.f_bsize).unwrap_or(0);
    let memory = [libc::TMPFS_MAGIC, RAMFS_MAGIC].contains(&answer.f_type);
    Ok((answer.f_bavail.saturating_mul(block), memory))
}

/// `f_type` of ramfs.
const RAMFS_MAGIC: i64 = 0x8584_58f6;

/// Nanoseconds of one of the system's clocks.
fn clock(which: libc::clockid_t) -> i64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place for the answer.
    unsafe { libc::clock_gettime(which, &mut now) };
    now.tv_sec.wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec)
}

/// Monotonic clock of the host, nanoseconds.
#[must_use]
#[inline]
pub fn monotonic_ns() -> u64 {
    clock(libc::CLOCK_MONOTONIC).cast_unsigned()
}

/// Wall clock less monotonic clock, nanoseconds.
#[must_use]
pub fn clock_offset_ns() -> i64 {
    clock(libc::CLOCK_REALTIME).wrapping_sub(clock(libc::CLOCK_MONOTONIC))
}

/// Number of the user whose rights count.
#[must_use]
pub fn effective_user() -> u32 {
    // SAFETY: cannot fail and touches no memory.
    unsafe { libc::geteuid() }
}

/// Asks the processor to fetch the line of a word that will be written.
#[inline]
pub(crate) fn prefetch_for_writing(word: &AtomicU64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint on a valid address; it changes nothing, and does nothing on processors that do
    // not know it.
    unsafe {
        std::arch::asm!(
            "prefetchw [{0}]",
            in(reg) word,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!(
            "prfm pstl1keep, [{0}]",
            in(reg) word,
            options(nostack, preserves_flags, readonly)
        );
    }
}
