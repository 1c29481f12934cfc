//! The few MPI calls that the gather needs, none of which waits.
//!
//! Buffers that MPI may still read or write are owned here and outlive the operation: when an
//! operation cannot be ended, its buffer is leaked rather than freed.

#![allow(unsafe_code, reason = "a foreign interface; every block says why it is sound")]

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::os::raw::c_int;
use std::sync::mpsc::{RecvTimeoutError, SendError, channel};
use std::time::{Duration, Instant};

use mpi::Threading;
use mpi::ffi;

use crate::group::JoinError;
use crate::stop::{Backoff, Until};

/// Tag of the creation of a communicator, to tell ours from the host's.
const CREATE_TAG: c_int = 0x4458;
/// How long an operation that is dropped may take to end.
const END: Duration = Duration::from_millis(20);

/// An MPI call that failed, in MPI's words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MpiError {
    pub(super) call: &'static str,
    pub(super) reason: String,
}

impl From<MpiError> for JoinError {
    fn from(error: MpiError) -> Self {
        Self::Transport { what: error.call.to_owned(), reason: error.reason }
    }
}

fn check(call: &'static str, code: c_int) -> Result<(), MpiError> {
    const SUCCESS: c_int = 0;
    if code == SUCCESS {
        return Ok(());
    }
    let mut text = [0_u8; ffi::MPI_MAX_ERROR_STRING as usize + 1];
    let mut length = 0;
    // SAFETY: the buffer is as long as MPI demands, plus one.
    let result =
        unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast::<c_char>(), &raw mut length) };
    let length = usize::try_from(length).unwrap_or(0).min(text.len());
    let text = text.get(..length).unwrap_or_default();
    let reason = match result {
        SUCCESS => String::from_utf8_lossy(text).into_owned(),
        _ => format!("error {code}"),
    };
    Err(MpiError { call, reason })
}

/// Whether MPI calls are allowed: initialised and not yet finalised.
pub(super) fn is_alive() -> bool {
    mpi::is_initialized() && !mpi::is_finalized()
}

/// Whether any thread may call MPI at any time.
pub(super) fn any_thread_may_call() -> bool {
    is_alive() && mpi::environment::threading_support() == Threading::Multiple
}

/// A communicator of somebody else's.
#[derive(Clone, Copy)]
pub(super) struct Borrowed(pub(super) ffi::MPI_Comm);

// SAFETY: a handle is a plain value for the whole process; which thread may use it is a question of
// the thread level, which is looked at before another thread does.
unsafe impl Send for Borrowed {}

/// A communicator of our own, freed when dropped.
pub(super) struct Duplicate(ffi::MPI_Comm);

// SAFETY: as for `Borrowed`.
unsafe impl Send for Duplicate {}

impl Borrowed {
    pub(super) fn size(self) -> Result<usize, MpiError> {
        let mut size = 0;
        // SAFETY: the caller of the constructor vouches for the handle; `size` is written.
        check("MPI_Comm_size", unsafe { ffi::MPI_Comm_size(self.0, &raw mut size) })?;
        Ok(usize::try_from(size).unwrap_or(0))
    }

    pub(super) fn rank(self) -> Result<usize, MpiError> {
        let mut rank = 0;
        // SAFETY: as in `size`.
        check("MPI_Comm_rank", unsafe { ffi::MPI_Comm_rank(self.0, &raw mut rank) })?;
        Ok(usize::try_from(rank).unwrap_or(0))
    }

    /// A communicator of the given ranks, in this order, of which each rank calls it. Where MPI
    /// allows calls from other threads the wait for the others is bounded.
    pub(super) fn duplicate(
        self,
        ranks: &[usize],
        until: Until<'_>,
    ) -> Result<Duplicate, JoinError> {
        let ranks: Vec<c_int> =
            ranks.iter().filter_map(|&rank| c_int::try_from(rank).ok()).collect();
        if !any_thread_may_call() {
            return Ok(self.create(&ranks)?);
        }
        let (send, receive) = channel();
        std::thread::Builder::new()
            .name("deepxtrace-mpi".to_owned())
            .spawn(move || {
                let whole = self;
                // When nobody waits any more, the other ranks may already be using it.
                if let Err(SendError(Ok(late))) = send.send(whole.create(&ranks)) {
                    late.keep();
                }
            })
            .map_err(|error| JoinError::Transport {
                what: "starting a thread".to_owned(),
                reason: error.to_string(),
            })?;
        loop {
            match receive.recv_timeout(Duration::from_millis(20).min(until.remaining())) {
                Ok(result) => return Ok(result?),
                Err(RecvTimeoutError::Timeout) if !until.is_over() => {}
                Err(_) if until.stop().is_set() => return Err(JoinError::Stopped),
                Err(_) => {
                    return Err(JoinError::Transport {
                        what: "making a communicator of the group".to_owned(),
                        reason: "not all of its ranks came in time".to_owned(),
                    });
                }
            }
        }
    }

    fn create(self, ranks: &[c_int]) -> Result<Duplicate, MpiError> {
        let mut all = MaybeUninit::uninit();
        // SAFETY: the handle is valid, the group is written when the call succeeds.
        check("MPI_Comm_group", unsafe { ffi::MPI_Comm_group(self.0, all.as_mut_ptr()) })?;
        // SAFETY: written by the call that succeeded.
        let mut all = unsafe { all.assume_init() };
        let count = c_int::try_from(ranks.len()).unwrap_or(c_int::MAX);
        let mut chosen = MaybeUninit::uninit();
        // SAFETY: `ranks` has `count` elements, `chosen` is written when the call succeeds.
        let result =
            unsafe { ffi::MPI_Group_incl(all, count, ranks.as_ptr(), chosen.as_mut_ptr()) };
        // SAFETY: the group is ours and not used again.
        unsafe { ffi::MPI_Group_free(&raw mut all) };
        check("MPI_Group_incl", result)?;
        // SAFETY: written by the call that succeeded.
        let mut chosen = unsafe { chosen.assume_init() };
        // SAFETY: a constant of the MPI library.
        let mut made = unsafe { ffi::RSMPI_COMM_NULL };
        // SAFETY: all handles are valid, `made` is written. It is collective over the chosen ranks
        // alone.
        let result =
            unsafe { ffi::MPI_Comm_create_group(self.0, chosen, CREATE_TAG, &raw mut made) };
        // SAFETY: the group is ours and not used again.
        unsafe { ffi::MPI_Group_free(&raw mut chosen) };
        check("MPI_Comm_create_group", result)?;
        let made = Duplicate(made);
        // SAFETY: the communicator is ours; a constant of the MPI library.
        check("MPI_Comm_set_errhandler", unsafe {
            ffi::MPI_Comm_set_errhandler(made.0, ffi::RSMPI_ERRORS_RETURN)
        })?;
        Ok(made)
    }
}

impl Drop for Duplicate {
    fn drop(&mut self) {
        // SAFETY: a constant of the MPI library.
        let null = unsafe { ffi::RSMPI_COMM_NULL };
        if is_alive() && self.0 != null {
            // SAFETY: the communicator is ours and not used again; operations that are still under
            // way complete as if it were there.
            unsafe { ffi::MPI_Comm_free(&raw mut self.0) };
        }
    }
}

impl Duplicate {
    /// Keeps it for good: messages may still be on their way to it.
    pub(super) fn keep(self) {
        std::mem::forget(self);
    }

    /// Takes a whole message of any length up to `most` bytes that has come from `source`; `None`
    /// when there is none, an empty one when it is too long.
    pub(super) fn take(
        &self,
        source: usize,
        tag: c_int,
        most: usize,
        until: Until<'_>,
    ) -> Result<Option<Vec<u8>>, MpiError> {
        let source = c_int::try_from(source).unwrap_or(c_int::MAX);
        let (mut flag, mut message) = (0, MaybeUninit::uninit());
        let mut status = MaybeUninit::uninit();
        // SAFETY: all places are written; none is read unless the flag says so.
        check("MPI_Improbe", unsafe {
            ffi::MPI_Improbe(
                source,
                tag,
                self.0,
                &raw mut flag,
                message.as_mut_ptr(),
                status.as_mut_ptr(),
            )
        })?;
        if flag == 0 {
            return Ok(None);
        }
        let mut bytes = 0;
        // SAFETY: the flag says that the status was written.
        check("MPI_Get_count", unsafe {
            ffi::MPI_Get_count(status.as_ptr(), ffi::RSMPI_UINT8_T, &raw mut bytes)
        })?;
        // One that is too long must be received all the same, or it stays in the queue.
        let length = usize::try_from(bytes).unwrap_or(0);
        let mut slot = Slot::new(length);
        slot.buffer.resize(length, 0);
        let mut request = MaybeUninit::uninit();
        // SAFETY: the buffer has `bytes` bytes and stays in the slot; the message is matched and
        // used once.
        check("MPI_Imrecv", unsafe {
            ffi::MPI_Imrecv(
                slot.buffer.as_mut_ptr().cast(),
                bytes,
                ffi::RSMPI_UINT8_T,
                message.as_mut_ptr(),
                request.as_mut_ptr(),
            )
        })?;
        // SAFETY: written by the call that succeeded.
        slot.request = Some(unsafe { request.assume_init() });
        slot.is_receive = true;
        // A large one needs its sender, which may have been stopped in the middle.
        if !slot.wait(until)? {
            return Ok(None);
        }
        let mut text = std::mem::take(&mut slot.buffer);
        if length > most {
            text.clear();
        }
        Ok(Some(text))
    }
}

/// One operation and its buffer, used again for the next.
pub(super) struct Slot {
    request: Option<ffi::MPI_Request>,
    buffer: Vec<u8>,
    is_receive: bool,
}

// SAFETY: as for `Borrowed`; the buffer is ours alone.
unsafe impl Send for Slot {}

impl Slot {
    pub(super) fn new(capacity: usize) -> Self {
        let buffer = Vec::with_capacity(capacity);
        Self { request: None, buffer, is_receive: false }
    }

    /// Whether the buffer is ours: nothing is under way.
    pub(super) fn is_free(&self) -> bool {
        self.request.is_none()
    }

    /// Begins to receive a message of up to `most` bytes.
    pub(super) fn receive(
        &mut self,
        comm: &Duplicate,
        source: usize,
        tag: c_int,
        most: usize,
    ) -> Result<(), MpiError> {
        if !self.is_free() {
            return Ok(());
        }
        self.buffer.clear();
        self.buffer.resize(most, 0);
        let count = c_int::try_from(most).unwrap_or(c_int::MAX);
        let source = c_int::try_from(source).unwrap_or(c_int::MAX);
        let mut request = MaybeUninit::uninit();
        // SAFETY: the buffer has `count` bytes at least and is neither moved nor touched until the
        // operation has ended, or leaked.
        check("MPI_Irecv", unsafe {
            ffi::MPI_Irecv(
                self.buffer.as_mut_ptr().cast(),
                count,
                ffi::RSMPI_UINT8_T,
                source,
                tag,
                comm.0,
                request.as_mut_ptr(),
            )
        })?;
        // SAFETY: written by the call that succeeded.
        self.request = Some(unsafe { request.assume_init() });
        self.is_receive = true;
        Ok(())
    }

    /// Begins to send what `fill` writes, if nothing is under way; whether it did.
    pub(super) fn send(
        &mut self,
        comm: &Duplicate,
        destination: usize,
        tag: c_int,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<bool, MpiError> {
        if !self.is_free() {
            return Ok(false);
        }
        self.buffer.clear();
        fill(&mut self.buffer);
        let count = c_int::try_from(self.buffer.len()).unwrap_or(c_int::MAX);
        let destination = c_int::try_from(destination).unwrap_or(c_int::MAX);
        let mut request = MaybeUninit::uninit();
        // SAFETY: as in `receive`.
        check("MPI_Isend", unsafe {
            ffi::MPI_Isend(
                self.buffer.as_ptr().cast(),
                count,
                ffi::RSMPI_UINT8_T,
                destination,
                tag,
                comm.0,
                request.as_mut_ptr(),
            )
        })?;
        // SAFETY: written by the call that succeeded.
        self.request = Some(unsafe { request.assume_init() });
        self.is_receive = false;
        Ok(true)
    }

    /// Looks whether the operation has ended; `None` while it has not. A receive gives what came.
    pub(super) fn test(&mut self) -> Result<Option<&[u8]>, MpiError> {
        let Some(request) = &mut self.request else { return Ok(Some(&[])) };
        let (mut flag, mut status) = (0, MaybeUninit::uninit());
        // SAFETY: the request is under way; flag and status are written.
        let result = unsafe { ffi::MPI_Test(request, &raw mut flag, status.as_mut_ptr()) };
        if result == 0 && flag == 0 {
            return Ok(None);
        }
        self.request = None;
        check("MPI_Test", result).inspect_err(|_| {
            // Whether the operation has ended is not known: MPI may still use the buffer.
            std::mem::forget(std::mem::take(&mut self.buffer));
        })?;
        if !self.is_receive {
            return Ok(Some(&[]));
        }
        let mut bytes = 0;
        // SAFETY: the flag says that the status was written.
        check("MPI_Get_count", unsafe {
            ffi::MPI_Get_count(status.as_ptr(), ffi::RSMPI_UINT8_T, &raw mut bytes)
        })?;
        let length = usize::try_from(bytes).unwrap_or(0);
        Ok(Some(self.buffer.get(..length).unwrap_or_default()))
    }

    /// Waits for the operation; `false` when `until` came first.
    pub(super) fn wait(&mut self, until: Until<'_>) -> Result<bool, MpiError> {
        let mut backoff = Backoff::default();
        while self.test()?.is_none() {
            if until.is_over() {
                return Ok(false);
            }
            until.sleep(backoff.pause());
        }
        Ok(true)
    }

    /// Waits a little for the operation, so that the buffer can be freed; whether that worked.
    fn end(&mut self) -> bool {
        if self.is_free() {
            return true;
        }
        // A receive ends when another rank sends something: that is not waited for.
        if !is_alive() || (self.is_receive && matches!(self.test(), Ok(None))) {
            return false;
        }
        let since = Instant::now();
        while matches!(self.test(), Ok(None)) {
            if since.elapsed() > END {
                return false;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        true
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.end() {
            // MPI may still read or write it.
            std::mem::forget(std::mem::take(&mut self.buffer));
        }
    }
}
