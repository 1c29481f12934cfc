//! Records the calls of one thread.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering::Relaxed;

use deepxtrace_nccl_ring::layout::flag;
use deepxtrace_nccl_ring::{Api, Call, Class, Writer, monotonic_ns};

use crate::capture::is_capturing;
use crate::comms::Comm;
use crate::local::Local;
use crate::session::Session;
use crate::sys::{Handle, Stream, guarded, say};

/// The arguments of a call that are recorded.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// The function.
    pub api: Api,
    /// The communicator, null for none.
    pub comm: Handle,
    /// The stream, `None` for a function that has none.
    pub stream: Option<Stream>,
    /// Elements.
    pub count: usize,
    /// `ncclDataType_t`, -1 for none.
    pub datatype: i32,
    /// `ncclRedOp_t`, -1 for none.
    pub op: i32,
    /// Root, -1 for none.
    pub root: i32,
    /// Peer, -1 for none.
    pub peer: i32,
}

impl Shape {
    /// A function on a communicator, with no other arguments.
    pub const fn new(api: Api, comm: Handle) -> Self {
        Self { api, comm, stream: None, count: 0, datatype: -1, op: -1, root: -1, peer: -1 }
    }
}

/// Records the calls of the thread that it belongs to.
pub struct Recorder {
    session: &'static Session,
    writer: RefCell<Option<Writer>>,
    group: Cell<u64>,
    group_ops: Cell<u32>,
    /// What the driver said of a stream in the group that is open.
    captured: Cell<Option<(Stream, bool)>>,
}

/// Gives a thread's ring back when the thread ends.
struct Guard(Cell<*const Recorder>);

impl Drop for Guard {
    fn drop(&mut self) {
        let recorder = self.0.replace(std::ptr::null());
        Local::with(|local| local.recorder.set(std::ptr::null()));
        if recorder.is_null() {
            return;
        }
        // SAFETY: made by `Box::into_raw` in `attach`, for this thread, and no longer reachable.
        let recorder = unsafe { Box::from_raw(recorder.cast_mut()) };
        let ours = Session::begun().is_some_and(|now| std::ptr::eq(now, recorder.session));
        match recorder.writer.into_inner() {
            Some(writer) if ours => recorder.session.give_back(writer),
            // A forked child: the ring is the parent's.
            other => std::mem::forget(other),
        }
    }
}

thread_local! {
    static GUARD: Guard = const { Guard(Cell::new(std::ptr::null())) };
}

/// The recorder of this thread; `None` where the process is not recorded, or the thread is inside
/// NCCL already: one call of the user is one event.
#[inline]
pub fn current(local: &Local) -> Option<&Recorder> {
    if Session::is_off() || local.inside.get() {
        return None;
    }
    // SAFETY: null, or a box that lives until this thread ends.
    match unsafe { local.recorder.get().as_ref() } {
        Some(recorder) => Some(recorder),
        None => attach(local),
    }
}

#[cold]
fn attach(local: &Local) -> Option<&Recorder> {
    let made = guarded(|| {
        let session = Session::current()?;
        let writer = session.writer();
        if let Err(error) = &writer {
            let limit = format!("a thread's NCCL calls are not recorded: no ring: {error}");
            say(&limit);
        }
        let recorder = Recorder {
            session,
            writer: RefCell::new(writer.ok()),
            group: Cell::new(0),
            group_ops: Cell::new(0),
            captured: Cell::new(None),
        };
        Some(Box::into_raw(Box::new(recorder)).cast_const())
    });
    let recorder = made.flatten()?;
    // Where the thread is ending already, the ring stays taken.
    let _ = GUARD.try_with(|guard| guard.0.set(recorder));
    local.recorder.set(recorder);
    // SAFETY: just made; freed when the thread ends.
    unsafe { recorder.as_ref() }
}

impl Recorder {
    /// Begins a new group; called for the outermost `ncclGroupStart`.
    pub fn open_group(&self) {
        self.group.set(self.session.groups.fetch_add(1, Relaxed) + 1);
        self.group_ops.set(0);
        self.captured.set(None);
    }

    /// Whether calls on this stream go into a graph. Asked once in a group: the calls of a group are
    /// launched together.
    #[inline]
    fn is_captured(&self, local: &Local, stream: Stream) -> bool {
        if local.depth.get() == 0 {
            return is_capturing(stream);
        }
        match self.captured.get() {
            Some((asked, captured)) if asked == stream => captured,
            _ => {
                let captured = is_capturing(stream);
                self.captured.set(Some((stream, captured)));
                captured
            }
        }
    }

    /// Number of the group that the thread is in, and the next place in it.
    fn place(&self, local: &Local, counts: bool) -> (u64, u32) {
        if local.depth.get() == 0 {
            return (0, 0);
        }
        let place = self.group_ops.get();
        if counts {
            self.group_ops.set(place.wrapping_add(1));
        }
        (self.group.get(), place)
    }

    /// Number of the next call of the process.
    pub fn next_call(&self) -> u64 {
        self.session.calls.fetch_add(1, Relaxed)
    }

    /// Records that a call begins; false if it could not be recorded.
    #[inline]
    pub fn begin(&self, local: &Local, comm: Option<&Comm>, shape: &Shape) -> bool {
        let mut call = Call::new(shape.api);
        let class = shape.api.class();
        if let Some(stream) = shape.stream {
            call.stream = stream as u64;
            call.flags = if self.is_captured(local, stream) { flag::CAPTURED } else { 0 };
        }
        call.count = shape.count as u64;
        call.datatype = shape.datatype;
        call.op = shape.op;
        call.root = shape.root;
        call.peer = shape.peer;
        call.call_seq = self.next_call();
        if class == Class::End {
            call.flags |= flag::NO_ENTER;
        }
        if let Some(comm) = comm {
            if let Some(hash) = comm.hash() {
                call.hash = hash;
                call.flags |= flag::HASH;
            }
            call.members = comm.members();
            number(&mut call, comm, class);
        }
        let takes_place = !matches!(class, Class::Group | Class::Reduction | Class::End);
        (call.group, call.group_op_index) = self.place(local, takes_place);
        call.enter_ns = monotonic_ns();
        self.write(|writer| writer.begin(&call))
    }

    /// Records that the call begun last has returned.
    #[inline]
    pub fn end(&self, result: i32) {
        let now = monotonic_ns();
        self.write(|writer| {
            writer.finish(now, result);
            true
        });
    }

    /// Records a creation that begins.
    pub fn begin_creation(&self, local: &Local, call: &Call, excluded: &[i32]) -> bool {
        let mut call = *call;
        (call.group, call.group_op_index) = self.place(local, true);
        call.enter_ns = monotonic_ns();
        self.write(|writer| {
            if excluded.is_empty() {
                writer.begin(&call)
            } else {
                writer.begin_shrink(&call, excluded)
            }
        })
    }

    /// Uses the thread's ring; false where there is none, which counts as a dropped call.
    #[inline]
    pub fn write(&self, work: impl FnOnce(&mut Writer) -> bool) -> bool {
        // Taken already only in a signal handler that interrupts the line below.
        let Ok(mut writer) = self.writer.try_borrow_mut() else { return false };
        match writer.as_mut() {
            Some(writer) => work(writer),
            None => {
                self.session.file.count_dropped(2);
                false
            }
        }
    }
}

/// Numbers a call on its communicator.
#[inline]
fn number(call: &mut Call, comm: &Comm, class: Class) {
    match class {
        // A collective of nothing consumes no place in NCCL's order.
        Class::Collective if call.count == 0 => call.comm_seq = comm.collectives.load(Relaxed),
        Class::Collective => call.comm_seq = comm.collectives.fetch_add(1, Relaxed),
        Class::PointToPoint => {
            call.comm_seq = comm.point_to_point.fetch_add(1, Relaxed);
            call.p2p = comm.next_to(call.peer, call.api == Api::Recv);
        }
        _ => {}
    }
}
