//! The dynamic linker's own `dlsym`, and this library's wrapper of it.
//!
//! The wrapper is exported, so every `dlsym` of the process passes here. Unless it is switched on
//! and the name begins with `nccl`, it jumps on without leaving a trace on the stack: the linker
//! finds out who asks by the return address, which `RTLD_NEXT` depends on.

use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::AtomicPtr;
use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use deepxtrace_nccl_ring::Api;

use crate::library::Library;
use crate::sys::guarded;

type Find = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;

/// The linker's `dlsym`, null until asked for.
pub(crate) static REAL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
/// 1 where names that begin with `nccl` are answered by this library.
pub(crate) static WRAPPING: AtomicU8 = AtomicU8::new(0);

/// Variable that switches the wrapper on.
pub(crate) const VARIABLE: &str = "DEEPXTRACE_WRAP_DLSYM";

/// Versions under which C libraries of Linux export `dlsym`.
const VERSIONS: [&CStr; 3] = [c"GLIBC_2.34", c"GLIBC_2.17", c"GLIBC_2.2.5"];

/// Finds the linker's `dlsym`.
pub(crate) extern "C" fn real() -> *mut c_void {
    let known = REAL.load(Acquire);
    if !known.is_null() {
        return known;
    }
    for version in VERSIONS {
        // SAFETY: C texts; `RTLD_NEXT` looks behind this library, so not at its own wrapper.
        let found = unsafe { libc::dlvsym(libc::RTLD_NEXT, c"dlsym".as_ptr(), version.as_ptr()) };
        if !found.is_null() {
            REAL.store(found, Release);
            return found;
        }
    }
    nothing as *mut c_void
}

unsafe extern "C" fn nothing(_: *mut c_void, _: *const c_char) -> *mut c_void {
    std::ptr::null_mut()
}

/// Address of a function as the linker gives it, null if there is none.
pub(crate) fn find(handle: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: `real` is the linker's function or `nothing`, both of this type.
    let real = unsafe { std::mem::transmute::<*mut c_void, Find>(real()) };
    // SAFETY: `handle` came from the linker or is one of its constants; `name` is C text.
    unsafe { real(handle, name.as_ptr()) }
}

/// Switches the wrapper on if the environment asks for it.
pub(crate) fn read_environment() {
    let wanted = std::env::var_os(VARIABLE).is_some_and(|value| value == "1");
    WRAPPING.store(u8::from(wanted), Relaxed);
}

/// `dlsym(handle, "nccl...")` while the wrapper is on: the function of this library that records and
/// calls what the linker found; NULL where the linker finds nothing.
///
/// # Safety
///
/// As for `dlsym`; `name` is C text.
pub(crate) unsafe extern "C" fn wrapped(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: the caller passes C text, of which the wrapper has read four characters.
    let name = unsafe { CStr::from_ptr(name) };
    let found = find(handle, name);
    if found.is_null() {
        return found;
    }
    let bound = guarded(|| {
        let api = Api::from_name(name.to_bytes())?;
        let library = Library::of_address(found)?;
        Some(crate::exports::bound(api, library.ordinal()))
    });
    bound.flatten().map_or(found, <*const c_void>::cast_mut)
}
