//! A communicator: our own, or one of the program's that is only borrowed.

use std::ffi::{c_int, c_void};
use std::fmt;

use super::library::{
    IN_PROGRESS, INT64, NO_COLOR, Nccl, RawComm, RawConfig, RawUniqueId, SUCCESS,
};
use crate::cuda::CudaDevice;
use crate::cuda::resources::Patience;
use crate::device::DeviceError;
use crate::stop::Until;

/// Names a communicator that is to be made: one rank makes it, all ranks need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NcclUniqueId(RawUniqueId);

impl NcclUniqueId {
    /// A new one.
    ///
    /// # Errors
    ///
    /// NCCL is not there, is older than 2.14, or finds no network interface.
    pub fn new() -> Result<Self, DeviceError> {
        let nccl = Nccl::load()?;
        let mut id = RawUniqueId([0; 128]);
        // SAFETY: NCCL writes 128 bytes.
        let result = unsafe { (nccl.functions.get_unique_id)(&raw mut id) };
        nccl.check("ncclGetUniqueId", result, None)?;
        Ok(Self(id))
    }

    /// The bytes, to be sent to the other ranks.
    #[must_use]
    pub fn bytes(&self) -> [u8; 128] {
        self.0.0
    }

    /// From the bytes that another rank sent.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 128]) -> Self {
        Self(RawUniqueId(bytes))
    }
}

/// An NCCL communicator.
///
/// One that was made here is given back when it is dropped. A borrowed one is never destroyed and
/// never aborted.
pub struct NcclComm {
    nccl: Nccl,
    raw: RawComm,
    owned: bool,
    rank: usize,
    size: usize,
    device: usize,
}

// SAFETY: NCCL allows a communicator to be used from any thread, one at a time, which `&mut` and
// the single owner see to.
unsafe impl Send for NcclComm {}

impl fmt::Debug for NcclComm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NcclComm")
            .field("rank", &self.rank)
            .field("size", &self.size)
            .field("device", &self.device)
            .field("owned", &self.owned)
            .finish_non_exhaustive()
    }
}

impl NcclComm {
    /// Makes a communicator of `size` ranks. All of them call it with the same `id`.
    ///
    /// # Errors
    ///
    /// - NCCL is not there, or is older than 2.14
    /// - NCCL refuses
    /// - not all ranks came before `until`; what was begun is then aborted
    pub fn new(
        device: &CudaDevice,
        id: NcclUniqueId,
        rank: usize,
        size: usize,
        until: Until<'_>,
    ) -> Result<Self, DeviceError> {
        let nccl = Nccl::load()?;
        let number = |value| c_int::try_from(value).unwrap_or(c_int::MAX);
        let _entered = device.enter()?;
        let mut raw: RawComm = std::ptr::null_mut();
        let mut config = RawConfig::non_blocking();
        // SAFETY: NCCL writes one handle and reads as much of the configuration as its size says.
        let result = unsafe {
            (nccl.functions.comm_init)(
                &raw mut raw,
                number(size),
                id.0,
                number(rank),
                &raw mut config,
            )
        };
        nccl.check("ncclCommInitRankConfig", result, None)?;
        Self::finish_making(nccl, raw, "ncclCommInitRankConfig", until)
    }

    /// Borrows a communicator of the program.
    ///
    /// # Safety
    ///
    /// `comm` is a live `ncclComm_t` of the NCCL library that the process has loaded, stays alive
    /// as long as this value and whatever it is given to, and nobody else enqueues on it while a
    /// call of ours that uses it has not returned.
    ///
    /// # Errors
    ///
    /// NCCL is not there, is older than 2.14, or refuses the communicator.
    pub unsafe fn borrow(comm: *mut c_void) -> Result<Self, DeviceError> {
        let nccl = Nccl::load()?;
        if comm.is_null() {
            return Err(DeviceError::Unavailable {
                what: "the NCCL communicator".into(),
                reason: "the handle is null".into(),
            });
        }
        Self { nccl, raw: comm, owned: false, rank: 0, size: 0, device: 0 }.described()
    }

    /// Splits this communicator by colour, ranks ordered by `key`; `None` for the ranks that give
    /// no colour. All ranks of this communicator call it.
    ///
    /// # Errors
    ///
    /// NCCL is older than 2.18 or refuses, or not all ranks came before `until`.
    pub fn split(
        &mut self,
        color: Option<u32>,
        key: u32,
        until: Until<'_>,
    ) -> Result<Option<Self>, DeviceError> {
        let Some(split) = self.nccl.functions.comm_split else {
            return Err(DeviceError::Unavailable {
                what: "ncclCommSplit".into(),
                reason: "NCCL 2.18 or newer is needed".into(),
            });
        };
        let device = CudaDevice::new(self.device)?;
        let _entered = device.enter()?;
        let number = |value| c_int::try_from(value).unwrap_or(c_int::MAX);
        let mut raw: RawComm = std::ptr::null_mut();
        let mut config = RawConfig::non_blocking();
        // SAFETY: the communicator is alive; NCCL writes one handle and reads the configuration.
        let result = unsafe {
            split(
                self.raw,
                color.map_or(NO_COLOR, number),
                number(key),
                &raw mut raw,
                &raw mut config,
            )
        };
        self.nccl.check("ncclCommSplit", result, Some(self.raw))?;
        self.settle("ncclCommSplit", until)?;
        if color.is_none() {
            return Ok(None);
        }
        Self::finish_making(self.nccl.clone(), raw, "ncclCommSplit", until).map(Some)
    }

    /// The version of the NCCL library, as NCCL writes it: 22809 is 2.28.9.
    ///
    /// # Errors
    ///
    /// NCCL is not there, or is older than 2.14.
    pub fn library_version() -> Result<u32, DeviceError> {
        Nccl::load()?.version()
    }

    /// The own rank.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// How many ranks it has.
    #[must_use]
    pub fn size(&self) -> usize {
        self.size
    }

    /// The number of the CUDA device it works on.
    #[must_use]
    pub fn device(&self) -> usize {
        self.device
    }

    /// The handle, an `ncclComm_t`.
    #[must_use]
    pub fn raw(&self) -> *mut c_void {
        self.raw
    }

    fn finish_making(
        nccl: Nccl,
        raw: RawComm,
        call: &'static str,
        until: Until<'_>,
    ) -> Result<Self, DeviceError> {
        let mut comm = Self { nccl, raw, owned: true, rank: 0, size: 0, device: 0 };
        match comm.settle(call, until) {
            Ok(()) => comm.described(),
            Err(error) => {
                comm.abort();
                Err(error)
            }
        }
    }

    /// Asks the communicator for its rank, size and device.
    fn described(mut self) -> Result<Self, DeviceError> {
        let functions = self.nccl.functions;
        let questions = [
            ("ncclCommUserRank", functions.comm_user_rank),
            ("ncclCommCount", functions.comm_count),
            ("ncclCommCuDevice", functions.comm_device),
        ];
        let mut answers = [0; 3];
        for ((call, ask), answer) in questions.into_iter().zip(&mut answers) {
            let mut value: c_int = 0;
            // SAFETY: the communicator is alive; NCCL writes one number.
            let result = unsafe { ask(self.raw, &raw mut value) };
            self.nccl.check(call, result, Some(self.raw))?;
            *answer = usize::try_from(value).unwrap_or(0);
        }
        [self.rank, self.size, self.device] = answers;
        Ok(self)
    }

    /// Whether NCCL has seen an error since; `Ok(false)`: it has not finished the last call yet.
    pub(crate) fn poll(&self, call: &'static str) -> Result<bool, DeviceError> {
        let mut state = SUCCESS;
        // SAFETY: the communicator is alive; NCCL writes one number.
        let result = unsafe { (self.nccl.functions.comm_async_error)(self.raw, &raw mut state) };
        self.nccl.check("ncclCommGetAsyncError", result, Some(self.raw))?;
        self.nccl.check(call, state, Some(self.raw))?;
        Ok(state != IN_PROGRESS)
    }

    /// Waits until NCCL has finished the last call on the host.
    pub(crate) fn settle(&self, call: &'static str, until: Until<'_>) -> Result<(), DeviceError> {
        let mut patience = Patience::new();
        while !self.poll(call)? {
            if until.is_over() {
                return Err(late(call));
            }
            patience.rest(until);
        }
        Ok(())
    }

    /// Enqueues sends and receives as one group. Without any there is no group either: NCCL 2.28.3
    /// keeps 176 bytes of every empty one for ever (2.32.3 does not).
    pub(crate) fn exchange(
        &mut self,
        transfers: impl IntoIterator<Item = Transfer>,
        stream: *mut c_void,
        until: Until<'_>,
    ) -> Result<(), DeviceError> {
        let mut transfers = transfers.into_iter().peekable();
        if transfers.peek().is_none() {
            return Ok(());
        }
        // SAFETY: no arguments; the group is ended below on this thread.
        let result = unsafe { (self.nccl.functions.group_start)() };
        self.nccl.check("ncclGroupStart", result, None)?;
        let inner = transfers.try_for_each(|transfer| self.enqueue(transfer, stream));
        // SAFETY: as above.
        let result = unsafe { (self.nccl.functions.group_end)() };
        inner?;
        self.nccl.check("ncclGroupEnd", result, Some(self.raw))?;
        self.settle("ncclGroupEnd", until)
    }

    fn enqueue(&self, transfer: Transfer, stream: *mut c_void) -> Result<(), DeviceError> {
        let Transfer { way, address, len, peer } = transfer;
        let (nccl, raw, address, peer) = (&self.nccl, self.raw, pointer(address), index(peer));
        match way {
            Way::To => {
                // SAFETY: the address is of a live device buffer of at least `len` elements, kept
                // until an event behind the group is done.
                let result =
                    unsafe { (nccl.functions.send)(address, len, INT64, peer, raw, stream) };
                nccl.check("ncclSend", result, Some(raw))
            }
            Way::From => {
                // SAFETY: as above.
                let result =
                    unsafe { (nccl.functions.recv)(address, len, INT64, peer, raw, stream) };
                nccl.check("ncclRecv", result, Some(raw))
            }
        }
    }

    /// Ends a communicator that was made here, whatever it is doing. A borrowed one is left alone.
    pub fn abort(&mut self) {
        if std::mem::take(&mut self.owned) {
            // SAFETY: the communicator is ours and is not used again.
            let _ = unsafe { (self.nccl.functions.comm_abort)(self.raw) };
        }
    }

    /// Whether it was made here.
    pub(crate) fn is_owned(&self) -> bool {
        self.owned
    }
}

impl Drop for NcclComm {
    fn drop(&mut self) {
        if self.owned {
            // SAFETY: the communicator is ours and is not used again.
            let _ = unsafe { (self.nccl.functions.comm_destroy)(self.raw) };
        }
    }
}

/// A send or a receive of `len` 64-bit integers in device memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Transfer {
    way: Way,
    address: u64,
    len: usize,
    peer: usize,
}

#[derive(Debug, Clone, Copy)]
enum Way {
    To,
    From,
}

impl Transfer {
    pub(crate) fn send(address: u64, len: usize, peer: usize) -> Self {
        Self { way: Way::To, address, len, peer }
    }

    pub(crate) fn recv(address: u64, len: usize, peer: usize) -> Self {
        Self { way: Way::From, address, len, peer }
    }
}

/// A device address as the pointer that NCCL takes; the host never follows it.
fn pointer(address: u64) -> *mut c_void {
    std::ptr::without_provenance_mut(usize::try_from(address).unwrap_or(0))
}

fn index(rank: usize) -> c_int {
    c_int::try_from(rank).unwrap_or(c_int::MAX)
}

/// The error for a call that did not end in time.
pub(crate) fn late(call: &'static str) -> DeviceError {
    DeviceError::Call {
        call,
        code: i64::from(IN_PROGRESS),
        message: "not all ranks came to this call in time".to_owned(),
    }
}
