//! The NCCL libraries of the process, and which of them a call belongs to.

use std::ffi::{CStr, CString, c_void};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicUsize};

use deepxtrace_nccl_ring::Api;

use crate::find::find;
use crate::local::Local;
use crate::sys::{Lock, Once64, loaded, object_of, say};

/// Most copies of NCCL that are kept apart.
pub const MAX_LIBRARIES: usize = 4;
/// A function that every NCCL has.
const EVERYWHERE: &CStr = c"ncclGroupStart";
/// The name that NCCL is loaded by.
const NAME: &CStr = c"libnccl.so.2";
/// Variable that names the NCCL of callers that load this library in its place.
pub const VARIABLE: &str = "DEEPXTRACE_NCCL_LIBRARY";

/// Functions passed through that the table of a library has room for.
pub const MAX_PASSED: usize = 64;
const RECORDED: usize = 38;

/// One loaded NCCL.
pub struct Library {
    base: usize,
    ordinal: usize,
    handle: *mut c_void,
    recorded: [AtomicPtr<c_void>; RECORDED],
    passed: [AtomicPtr<c_void>; MAX_PASSED],
    missing: Once64,
}

// SAFETY: the handle is only passed to the dynamic linker, which may be called from any thread.
unsafe impl Sync for Library {}
// SAFETY: as above.
unsafe impl Send for Library {}

static LIBRARIES: [AtomicPtr<Library>; MAX_LIBRARIES] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_LIBRARIES];
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// The library that stands behind this one in the global scope, once found.
static GLOBAL: AtomicPtr<Library> = AtomicPtr::new(std::ptr::null_mut());
/// Guards the making of libraries.
pub static LOCK: Lock = Lock::new();

impl Library {
    /// Its number, from 0.
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// Address of a recorded function, `None` if this library does not have it.
    #[inline]
    pub fn function(&self, api: Api) -> Option<*mut c_void> {
        let place = self.recorded.get(api as usize)?;
        let known = place.load(Relaxed);
        if known.is_null() { self.look_up(place, api.c_name()) } else { Some(known) }
    }

    /// Address of a function that is passed through.
    pub fn passed(&self, number: usize, name: &CStr) -> Option<*mut c_void> {
        let place = self.passed.get(number)?;
        let known = place.load(Relaxed);
        if known.is_null() { self.look_up(place, name) } else { Some(known) }
    }

    /// A null is never kept.
    #[cold]
    fn look_up(&self, place: &AtomicPtr<c_void>, name: &CStr) -> Option<*mut c_void> {
        let found = self.find(name)?;
        place.store(found, Relaxed);
        Some(found)
    }

    /// Address of any function of this library.
    pub fn find(&self, name: &CStr) -> Option<*mut c_void> {
        let found = find(self.handle, name);
        (!found.is_null() && !is_ours(found)).then_some(found)
    }

    /// The library that holds an address, `None` for this probe's own.
    pub fn of_address(address: *const c_void) -> Option<&'static Self> {
        let (base, name) = object_of(address)?;
        if is_ours(address) {
            return None;
        }
        if let Some(known) = known(base) {
            return Some(known);
        }
        let _locked = LOCK.lock();
        if let Some(known) = known(base) {
            return Some(known);
        }
        let ordinal = COUNT.load(Acquire);
        let place = LIBRARIES.get(ordinal)?;
        let handle = loaded(name);
        let made = Box::new(Self {
            base,
            ordinal,
            // A program that has NCCL inside is behind this library in the global scope.
            handle: if handle.is_null() { libc::RTLD_NEXT } else { handle },
            recorded: [const { AtomicPtr::new(std::ptr::null_mut()) }; RECORDED],
            passed: [const { AtomicPtr::new(std::ptr::null_mut()) }; MAX_PASSED],
            missing: Once64::new(),
        });
        let made = Box::leak(made);
        place.store(made, Release);
        COUNT.store(ordinal + 1, Release);
        Some(made)
    }

    /// The library with this number.
    #[inline]
    pub fn numbered(ordinal: usize) -> Option<&'static Self> {
        let library = LIBRARIES.get(ordinal)?.load(Acquire);
        // SAFETY: null, or a leaked box.
        unsafe { library.as_ref() }
    }

    /// The library that code at `caller` reaches with a plain call, 0 where the caller is unknown.
    ///
    /// As the linker would have bound it without this probe: the next in the global scope; else the
    /// one that the caller's own object was linked to. Then the one that the variable names, one
    /// that is loaded, and at last one that can be loaded.
    pub fn for_caller(caller: usize) -> Option<&'static Self> {
        let global = GLOBAL.load(Acquire);
        // SAFETY: null, or a leaked box.
        if let Some(library) = unsafe { global.as_ref() } {
            // A caller that is given this probe in the place of a library of its own may mean another.
            if shim_target().is_none() {
                return Some(library);
            }
        }
        if let Some(library) = Local::with(|local| local.library_of(caller)).flatten() {
            return Some(library);
        }
        let library = Self::search(caller)?;
        if caller != 0 {
            Local::with(|local| local.remember(caller, library));
        }
        Some(library)
    }

    #[cold]
    fn search(caller: usize) -> Option<&'static Self> {
        let own = linked_to(caller);
        if own.is_none()
            && let Some(target) = shim_target()
            && let Some(library) = open(target)
        {
            return Some(library);
        }
        if let Some(library) = Self::of_address(find(libc::RTLD_NEXT, EVERYWHERE)) {
            GLOBAL.store(std::ptr::from_ref(library).cast_mut(), Release);
            return Some(library);
        }
        own.or_else(|| in_handle(loaded(NAME))).or_else(|| open(NAME))
    }

    /// Says once that this library lacks a function.
    pub fn say_missing(&self, what: usize, name: &str) {
        if self.missing.first(what) {
            let file = object_of(self.base as *const c_void).map_or(c"?", |(_, file)| file);
            say(&format!(
                "{} has no {name}: the call returns ncclInvalidUsage",
                file.to_string_lossy()
            ));
        }
    }
}

/// Whether an address is in this probe.
fn is_ours(address: *const c_void) -> bool {
    let own = object_of(is_ours as *const c_void).map(|(base, _)| base);
    object_of(address).map(|(base, _)| base) == own
}

fn known(base: usize) -> Option<&'static Library> {
    (0..COUNT.load(Acquire)).filter_map(Library::numbered).find(|library| library.base == base)
}

/// The library that a handle leads to.
fn in_handle(handle: *mut c_void) -> Option<&'static Library> {
    if handle.is_null() {
        return None;
    }
    Library::of_address(find(handle, EVERYWHERE))
}

/// Loads a library. It stays loaded.
fn open(name: &CStr) -> Option<&'static Library> {
    // SAFETY: the user named the file, or it is the NCCL that the program itself would have loaded.
    in_handle(unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) })
}

/// The library that the object of a caller was linked to, which `dlsym` on that object finds.
fn linked_to(caller: usize) -> Option<&'static Library> {
    let (_, name) = object_of(caller as *const c_void)?;
    in_handle(loaded(name))
}

/// What the variable names, asked once.
fn shim_target() -> Option<&'static CStr> {
    static ASKED: std::sync::OnceLock<Option<CString>> = std::sync::OnceLock::new();
    let asked = ASKED.get_or_init(|| {
        let value = std::env::var_os(VARIABLE).filter(|value| !value.is_empty())?;
        CString::new(value.into_encoded_bytes()).ok()
    });
    asked.as_deref()
}
