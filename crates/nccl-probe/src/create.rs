//! Creating communicators: names that all members agree on, and who they are.

use std::ffi::c_void;
use std::sync::atomic::Ordering::Relaxed;

use deepxtrace_nccl_ring::layout::flag;
use deepxtrace_nccl_ring::{Api, Call, fnv1a, grow_hash, monotonic_ns, shrink_hash, split_hash};

use crate::around::{Origin, original, with_recorder};
use crate::capture;
use crate::comms::{self, Birth, Comm};
use crate::library::Library;
use crate::local::Local;
use crate::pending::{self, Pending};
use crate::recorder::current;
use crate::sys::{Handle, IN_PROGRESS, INVALID_USAGE, SUCCESS, Status, UniqueId, guarded};

/// `NCCL_SPLIT_NOCOLOR`.
const NO_COLOR: i32 = -1;

/// A creation that begins.
#[derive(Debug, Clone, Copy)]
pub struct Creation<'a> {
    call: Call,
    birth: Birth,
    excluded: &'a [i32],
    /// Whether a communicator comes out of it for this rank.
    member: bool,
}

impl<'a> Creation<'a> {
    fn new(api: Api, birth: Birth) -> Self {
        let mut call = Call::new(api);
        call.members = birth.members;
        call.comm_seq = 0;
        if let Some(hash) = birth.hash {
            call.hash = hash;
            call.flags |= flag::HASH;
        }
        Self { call, birth, excluded: &[], member: true }
    }

    /// By unique ids: one, or several for `ncclCommInitRankScalable`.
    pub fn from_ids(api: Api, ids: &[UniqueId], rank: i32, nranks: i32) -> Self {
        let pieces: Vec<&[u8]> = ids.iter().map(|id| &id.internal[..]).collect();
        let hash = (!ids.is_empty()).then(|| fnv1a(&pieces));
        Self::new(api, Birth { hash, members: (rank, nranks) })
    }

    fn with_parent(mut self, parent: Option<u64>, ordinal: u64) -> Self {
        self.call.flags |= flag::PARENT;
        self.call.count = ordinal;
        self.call.stream = u64::MAX;
        self.call.comm_seq = 0;
        if let Some(parent) = parent {
            self.call.flags |= flag::PARENT_HASH;
            self.call.comm_seq = parent;
        }
        self
    }

    /// `ncclCommSplit`.
    pub fn split(parent: Option<&Comm>, color: i32) -> Self {
        let ordinal = parent.map_or(0, |parent| parent.splits.fetch_add(1, Relaxed));
        let hash = parent.and_then(Comm::hash);
        let child = hash.filter(|_| color != NO_COLOR);
        let birth =
            Birth { hash: child.map(|hash| split_hash(hash, ordinal, color)), members: (-1, -1) };
        let mut made = Self::new(Api::CommSplit, birth).with_parent(hash, ordinal);
        made.call.stream = i64::from(color).cast_unsigned();
        made.member = color != NO_COLOR;
        made
    }

    /// `ncclCommShrink`.
    pub fn shrink(parent: Option<&Comm>, excluded: &'a [i32]) -> Self {
        let ordinal = parent.map_or(0, |parent| parent.shrinks.fetch_add(1, Relaxed));
        let hash = parent.and_then(Comm::hash);
        let birth = Birth {
            hash: hash.map(|hash| shrink_hash(hash, ordinal, excluded)),
            members: (-1, -1),
        };
        Self { excluded, ..Self::new(Api::CommShrink, birth).with_parent(hash, ordinal) }
    }

    /// `ncclCommGrow`: old ranks have a parent, new ranks and one old rank an id.
    pub fn grow(parent: Option<&Comm>, id: Option<&UniqueId>, rank: i32, nranks: i32) -> Self {
        let joined = id.map(|id| fnv1a(&[&id.internal]));
        let Some(parent) = parent else {
            let birth = Birth { hash: joined, members: (rank, nranks) };
            let made = Self::new(Api::CommGrow, birth);
            return made.with_joined(joined);
        };
        let ordinal = parent.grows.fetch_add(1, Relaxed);
        let birth = Birth {
            hash: parent.hash().map(|hash| grow_hash(hash, ordinal)),
            members: (-1, nranks),
        };
        Self::new(Api::CommGrow, birth).with_parent(parent.hash(), ordinal).with_joined(joined)
    }

    fn with_joined(mut self, joined: Option<u64>) -> Self {
        if let Some(joined) = joined {
            self.call.flags |= flag::JOINED;
            self.call.stream = joined;
        }
        self
    }
}

/// Records a creation around the original.
///
/// # Safety
///
/// `place` is where the original writes the new handle, or null; `call` must call the function that
/// it is given as the one that `creation` names.
pub unsafe fn creating<O: Origin>(
    mut creation: Creation<'_>,
    parent: Option<&Comm>,
    caller: usize,
    place: *mut Handle,
    call: impl FnOnce(*mut c_void) -> Status,
) -> Status {
    let library = O::library(parent, caller);
    let Some(real) = original(library, creation.call.api) else { return INVALID_USAGE };
    let Some(library) = library else { return INVALID_USAGE };
    if Local::with(|local| local.inside.get()).unwrap_or(true) {
        return call(real);
    }
    guarded(capture::look_for_driver);
    let recorded = with_recorder(|local, recorder| {
        creation.call.call_seq = recorder.next_call();
        recorder.begin_creation(local, &creation.call, creation.excluded)
    });
    let recorded = recorded == Some(true);
    Local::with(|local| local.inside.set(true));
    let result = call(real);
    Local::with(|local| local.inside.set(false));
    guarded(capture::look_for_driver);
    // SAFETY: the original has just written through this pointer, or left it alone.
    let handle = unsafe { place.as_ref() }.map_or(std::ptr::null_mut(), |handle| *handle);
    guarded(|| settle(&creation, library, place as usize, handle, result, recorded));
    result
}

/// After a creation has returned: the communicator is here, is promised, or does not come.
fn settle(
    creation: &Creation<'_>,
    library: &'static Library,
    place: usize,
    handle: Handle,
    result: Status,
    recorded: bool,
) {
    let thread = Local::with(|local| (local.depth.get() > 0).then(|| local.number())).flatten();
    let promised = creation.member
        && place != 0
        && matches!(result, SUCCESS | IN_PROGRESS)
        && (thread.is_some() || result == IN_PROGRESS);
    let mut birth = creation.birth;
    if promised {
        let call = recorded.then_some(creation.call);
        pending::add(Pending { place, library, birth, call, thread: thread.unwrap_or(0) });
    } else if result == SUCCESS && creation.member && !handle.is_null() {
        if birth.members.0 < 0 || birth.members.1 < 0 {
            birth.members = ask_members(library, handle);
        }
        comms::insert(handle, library, birth);
    }
    if !recorded {
        return;
    }
    finish(|writer| {
        if promised {
            writer.defer();
        }
        writer.finish_creation(monotonic_ns(), result, birth.members);
        true
    });
}

/// Writes to this thread's ring, also where the thread has been switched off since.
fn finish(work: impl FnOnce(&mut deepxtrace_nccl_ring::Writer) -> bool) {
    Local::with(|local| current(local).map(|recorder| recorder.write(work)));
}

/// A promised communicator is here: it is known from now on.
pub fn deliver(promised: &Pending, handle: Handle, result: Status) -> &'static Comm {
    let mut birth = promised.birth;
    if birth.members.0 < 0 || birth.members.1 < 0 {
        birth.members = ask_members(promised.library, handle);
    }
    note(promised, result, birth.members);
    comms::insert(handle, promised.library, birth)
}

/// Records the end of a creation that had returned before.
pub fn note(promised: &Pending, result: Status, members: (i32, i32)) {
    if let Some(mut call) = promised.call {
        call.enter_ns = monotonic_ns();
        call.members = members;
        // The ranks that a shrink leaves out were told when it began.
        call.p2p = 0;
        finish(|writer| {
            writer.note(&call, result);
            true
        });
    }
}

/// Asks a library for rank and size of its communicator, -1 where it does not say.
pub fn ask_members(library: &Library, handle: Handle) -> (i32, i32) {
    let ask = |name| {
        type Ask = unsafe extern "C-unwind" fn(Handle, *mut i32) -> Status;
        let Some(address) = library.find(name) else { return -1 };
        // SAFETY: both functions asked for have this type.
        let function = unsafe { std::mem::transmute::<*mut c_void, Ask>(address) };
        let mut value = -1;
        // SAFETY: the library made this handle, or is about to be called with it by the program.
        if unsafe { function(handle, &mut value) } == SUCCESS { value } else { -1 }
    };
    (ask(c"ncclCommUserRank"), ask(c"ncclCommCount"))
}

/// Records `ncclCommInitAll`: one call that makes a communicator with all its ranks in this process.
///
/// # Safety
///
/// As for [`creating`]; `places` is where the original writes `ranks` handles.
pub unsafe fn creating_all<O: Origin>(
    caller: usize,
    places: *mut Handle,
    ranks: i32,
    call: impl FnOnce(*mut c_void) -> Status,
) -> Status {
    let count = usize::try_from(ranks).unwrap_or(0);
    let hash = guarded(own_hash);
    let first = Creation::new(Api::CommInitAll, Birth { hash, members: (0, ranks) });
    // SAFETY: the caller passes room for `ranks` handles; the first of them, if there is one.
    let place = if count == 0 { std::ptr::null_mut() } else { places };
    // SAFETY: as promised by the caller.
    let result = unsafe { creating::<O>(first, None, caller, place, call) };
    if result == SUCCESS && !places.is_null() {
        // SAFETY: the original has written `ranks` handles.
        let handles = unsafe { std::slice::from_raw_parts(places, count) };
        guarded(|| rest_of_all(handles, hash, ranks));
    }
    result
}

/// The second and later communicators of `ncclCommInitAll`, each with a `comm_init` of its own.
fn rest_of_all(handles: &[Handle], hash: Option<u64>, ranks: i32) {
    let library = handles.first().and_then(|first| comms::find(*first)).and_then(Comm::library);
    let Some(library) = library else { return };
    for (rank, handle) in (0..).zip(handles).skip(1) {
        let birth = Birth { hash, members: (rank, ranks) };
        let creation = Creation::new(Api::CommInitAll, birth);
        let call =
            with_recorder(|_, recorder| Call { call_seq: recorder.next_call(), ..creation.call });
        let promised = Pending { place: 0, library, birth, call, thread: 0 };
        deliver(&promised, *handle, SUCCESS);
    }
}

/// A hash that no other process or call has.
fn own_hash() -> u64 {
    static COUNTER: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let host = crate::config::hostname();
    let numbers = [u64::from(std::process::id()), monotonic_ns(), COUNTER.fetch_add(1, Relaxed)];
    let numbers = numbers.map(u64::to_le_bytes).concat();
    fnv1a(&[host.as_bytes(), &numbers])
}
