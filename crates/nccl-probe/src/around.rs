//! Calls on a communicator and groups: find the original, record, call on.

use std::ffi::c_void;

use deepxtrace_nccl_ring::Api;

use crate::comms::{self, Birth, Comm};
use crate::library::Library;
use crate::local::Local;
use crate::recorder::{Recorder, Shape, current};
use crate::sys::{Handle, IN_PROGRESS, INVALID_USAGE, SUCCESS, Status, guarded};
use crate::{capture, create, pending};

/// Which library a function of this probe stands for.
pub trait Origin {
    /// The library that a call belongs to.
    fn library(comm: Option<&Comm>, caller: usize) -> Option<&'static Library>;
}

/// Called by name: the library of the communicator, or the one that the caller was linked to.
pub struct Direct;

/// Handed out by the wrapper of `dlsym` for the library with this number.
pub struct Bound<const N: usize>;

impl Origin for Direct {
    #[inline]
    fn library(comm: Option<&Comm>, caller: usize) -> Option<&'static Library> {
        match comm.and_then(Comm::library) {
            Some(library) => Some(library),
            None => guarded(|| Library::for_caller(caller)).flatten(),
        }
    }
}

impl<const N: usize> Origin for Bound<N> {
    #[inline]
    fn library(_: Option<&Comm>, _: usize) -> Option<&'static Library> {
        Library::numbered(N)
    }
}

/// The original of a function; said once where there is none.
pub fn original(library: Option<&'static Library>, api: Api) -> Option<*mut c_void> {
    let found = library.and_then(|library| library.function(api));
    if found.is_none() {
        guarded(|| match library {
            Some(library) => library.say_missing(api as usize, api.name()),
            None => say_no_library(api.name()),
        });
    }
    found
}

/// Says once that there is no NCCL at all.
pub fn say_no_library(name: &str) {
    static SAID: crate::sys::Once64 = crate::sys::Once64::new();
    if SAID.first(0) {
        crate::sys::say(&format!("no libnccl.so.2 for {name}: the call returns ncclInvalidUsage"));
    }
}

/// Records a call on a communicator around the original.
///
/// # Safety
///
/// `call` must call the function that it is given as the one that `shape` names.
#[inline]
pub unsafe fn on_comm<O: Origin>(
    shape: &Shape,
    call: impl FnOnce(*mut c_void) -> Status,
) -> Status {
    let comm = known::<O>(shape.comm);
    let Some(real) = original(O::library(comm, 0), shape.api) else { return INVALID_USAGE };
    around(comm, shape, real, call)
}

/// Records a call of `real` with nothing else to it.
#[inline]
fn around(
    comm: Option<&Comm>,
    shape: &Shape,
    real: *mut c_void,
    call: impl FnOnce(*mut c_void) -> Status,
) -> Status {
    let mut call = Some(call);
    let done = Local::with(|local| {
        let recorder = current(local)?;
        let call = call.take()?;
        let recorded = recorder.begin(local, comm, shape);
        local.inside.set(true);
        let result = call(real);
        local.inside.set(false);
        if recorded {
            recorder.end(result);
        }
        Some(result)
    });
    match (done.flatten(), call) {
        (Some(result), _) => result,
        (None, Some(call)) => call(real),
        (None, None) => INVALID_USAGE,
    }
}

/// The communicator with this handle, made known if it is new.
#[inline]
pub fn known<O: Origin>(handle: Handle) -> Option<&'static Comm> {
    match comms::find(handle) {
        Some(comm) => Some(comm),
        None => adopt::<O>(handle),
    }
}

/// A communicator that this probe did not see begin: promised earlier, or made out of sight.
#[cold]
fn adopt<O: Origin>(handle: Handle) -> Option<&'static Comm> {
    let nested = Local::with(|local| local.inside.get()).unwrap_or(true);
    if handle.is_null() || nested {
        return None;
    }
    guarded(|| {
        capture::look_for_driver();
        if let Some(promised) = pending::take_delivered(handle) {
            return Some(create::deliver(&promised, handle, SUCCESS));
        }
        let library = O::library(None, 0)?;
        let members = create::ask_members(library, handle);
        Some(comms::insert(handle, library, Birth { hash: None, members }))
    })
    .flatten()
}

/// Records the end of a communicator. Its entry is dropped before the library can give the handle
/// to another one.
///
/// # Safety
///
/// As for [`on_comm`].
pub unsafe fn ending<O: Origin>(
    shape: &Shape,
    last: bool,
    call: impl FnOnce(*mut c_void) -> Status,
) -> Status {
    let comm = comms::find(shape.comm);
    let Some(real) = original(O::library(comm, 0), shape.api) else { return INVALID_USAGE };
    around(comm, shape, real, |real| {
        if let Some(comm) = comm.filter(|_| last) {
            comms::remove(comm);
        }
        call(real)
    })
}

/// Records `ncclGroupStart`.
///
/// # Safety
///
/// As for [`on_comm`].
pub unsafe fn group_start<O: Origin>(
    caller: usize,
    call: impl FnOnce(*mut c_void) -> Status,
) -> Status {
    let Some(real) = original(O::library(None, caller), Api::GroupStart) else {
        return INVALID_USAGE;
    };
    let nested = Local::with(|local| {
        let nested = local.inside.get();
        if !nested {
            if local.depth.get() == 0
                && let Some(recorder) = current(local)
            {
                recorder.open_group();
            }
            local.depth.set(local.depth.get().saturating_add(1));
        }
        nested
    });
    let result = around(None, &Shape::new(Api::GroupStart, std::ptr::null_mut()), real, call);
    if result != SUCCESS && nested == Some(false) {
        Local::with(|local| local.depth.set(local.depth.get().saturating_sub(1)));
    }
    result
}

/// Records `ncclGroupEnd` or `ncclGroupSimulateEnd`. The outermost delivers the communicators that
/// the group creates.
///
/// # Safety
///
/// As for [`on_comm`].
pub unsafe fn group_end<O: Origin>(
    api: Api,
    caller: usize,
    call: impl FnOnce(*mut c_void) -> Status,
) -> Status {
    let Some(real) = original(O::library(None, caller), api) else { return INVALID_USAGE };
    let nested = Local::with(|local| local.inside.get()).unwrap_or(true);
    let result = around(None, &Shape::new(api, std::ptr::null_mut()), real, call);
    if nested {
        return result;
    }
    let outermost = Local::with(|local| {
        let depth = local.depth.get();
        local.depth.set(depth.saturating_sub(1));
        (depth <= 1).then(|| local.number())
    });
    if let Some(thread) = outermost.flatten() {
        guarded(|| close_group(thread, result));
    }
    result
}

fn close_group(thread: usize, result: Status) {
    for promised in pending::take_group(thread) {
        if result == IN_PROGRESS {
            pending::add(pending::Pending { thread: 0, ..promised });
            continue;
        }
        // The library has written the variable by now, so it is there to be read.
        let handle = crate::sys::read_pointer(promised.place).filter(|_| result == SUCCESS);
        match handle {
            Some(handle) if handle != 0 => {
                create::deliver(&promised, handle as Handle, result);
            }
            _ => create::note(&promised, result, promised.birth.members),
        }
    }
}

/// Runs `work` with the recorder of this thread, if it has one.
pub fn with_recorder<T>(work: impl FnOnce(&Local, &Recorder) -> T) -> Option<T> {
    Local::with(|local| current(local).map(|recorder| work(local, recorder))).flatten()
}
