//! NCCL's functions, loaded at run time.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::sync::Arc;

use libloading::os::unix::{Library, RTLD_LAZY, RTLD_LOCAL};

use crate::cuda::driver::reason;
use crate::device::DeviceError;

/// `ncclComm_t`.
pub(crate) type RawComm = *mut c_void;
/// `ncclResult_t`.
pub(crate) type RawResult = c_int;

/// `ncclSuccess`.
pub(crate) const SUCCESS: RawResult = 0;
/// `ncclInProgress`: a non-blocking communicator has not finished the call yet.
pub(crate) const IN_PROGRESS: RawResult = 7;
/// `ncclInt64`.
pub(crate) const INT64: c_int = 4;
/// `NCCL_SPLIT_NOCOLOR`.
pub(crate) const NO_COLOR: c_int = -1;

/// `dlopen`: only if it is loaded already (Linux).
const RTLD_NOLOAD: c_int = 4;
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];

/// `ncclUniqueId`, passed by value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct RawUniqueId(pub(crate) [u8; 128]);

/// The beginning of `ncclConfig_t`. NCCL reads as many bytes as `size` says and takes its defaults
/// for what the stated version did not have.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct RawConfig {
    size: usize,
    magic: u32,
    version: u32,
    blocking: c_int,
    /// Fills the last word; NCCL's "undefined".
    cga_cluster_size: c_int,
}

impl RawConfig {
    /// A communicator whose calls do not block.
    pub(crate) fn non_blocking() -> Self {
        Self {
            size: size_of::<Self>(),
            magic: 0xcafe_beef,
            version: 21400,
            blocking: 0,
            cga_cluster_size: c_int::MIN,
        }
    }
}

macro_rules! table {
    ($(#[$doc:meta])* $name:ident
        required {
            $($field:ident: $symbol:literal fn($($argument:ty),*) -> $result:ty;)*
        }
        optional {
            $($maybe:ident: $maybe_symbol:literal fn($($maybe_argument:ty),*) -> $maybe_result:ty;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy)]
        #[allow(missing_debug_implementations)]
        pub(crate) struct $name {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) -> $result,)*
            $(pub(crate) $maybe: Option<unsafe extern "C" fn($($maybe_argument),*) -> $maybe_result>,)*
        }

        impl $name {
            /// Looks all functions up; the name of the first that is missing as the error.
            fn load(library: &Library) -> Result<Self, &'static str> {
                Ok(Self {
                    $(
                        // SAFETY: the type is that of the function in NCCL's header since 2.14.
                        $field: *unsafe { library.get($symbol.to_bytes_with_nul()) }
                            .map_err(|_| $symbol.to_str().unwrap_or("a function"))?,
                    )*
                    $(
                        // SAFETY: as above.
                        $maybe: unsafe { library.get($maybe_symbol.to_bytes_with_nul()) }
                            .ok()
                            .map(|symbol| *symbol),
                    )*
                })
            }
        }
    };
}

table! {
    /// The functions, with the types of NCCL's header.
    Functions
    required {
        get_version: c"ncclGetVersion" fn(*mut c_int) -> RawResult;
        get_unique_id: c"ncclGetUniqueId" fn(*mut RawUniqueId) -> RawResult;
        comm_init: c"ncclCommInitRankConfig"
            fn(*mut RawComm, c_int, RawUniqueId, c_int, *mut RawConfig) -> RawResult;
        comm_destroy: c"ncclCommDestroy" fn(RawComm) -> RawResult;
        comm_abort: c"ncclCommAbort" fn(RawComm) -> RawResult;
        comm_count: c"ncclCommCount" fn(RawComm, *mut c_int) -> RawResult;
        comm_user_rank: c"ncclCommUserRank" fn(RawComm, *mut c_int) -> RawResult;
        comm_device: c"ncclCommCuDevice" fn(RawComm, *mut c_int) -> RawResult;
        comm_async_error: c"ncclCommGetAsyncError" fn(RawComm, *mut RawResult) -> RawResult;
        error_string: c"ncclGetErrorString" fn(RawResult) -> *const c_char;
        group_start: c"ncclGroupStart" fn() -> RawResult;
        group_end: c"ncclGroupEnd" fn() -> RawResult;
        send: c"ncclSend"
            fn(*const c_void, usize, c_int, c_int, RawComm, *mut c_void) -> RawResult;
        recv: c"ncclRecv" fn(*mut c_void, usize, c_int, c_int, RawComm, *mut c_void) -> RawResult;
    }
    optional {
        last_error: c"ncclGetLastError" fn(RawComm) -> *const c_char;
        comm_split: c"ncclCommSplit"
            fn(RawComm, c_int, c_int, *mut RawComm, *mut RawConfig) -> RawResult;
    }
}

/// NCCL, loaded. Clones share it; it stays loaded until the process ends, because its threads may
/// outlive any communicator.
#[derive(Clone)]
pub(crate) struct Nccl {
    pub(crate) functions: Functions,
    _library: Arc<ManuallyDrop<Library>>,
}

impl Nccl {
    /// The library that the process has loaded already, otherwise the one that the system finds.
    ///
    /// # Errors
    ///
    /// There is none, or it is older than 2.14.
    pub(crate) fn load() -> Result<Self, DeviceError> {
        let unavailable = |reason| DeviceError::Unavailable { what: "NCCL".into(), reason };
        let mut reasons = Vec::new();
        let attempts = [(NAMES[0], RTLD_NOLOAD), (NAMES[0], 0), (NAMES[1], 0)];
        let library = attempts.into_iter().find_map(|(name, flag)| {
            // SAFETY: NCCL's initialisers are those that every NCCL program runs.
            match unsafe { Library::open(Some(name), RTLD_LAZY | RTLD_LOCAL | flag) } {
                Ok(library) => Some(library),
                Err(error) if flag == 0 => {
                    reasons.push(reason(&error));
                    None
                }
                Err(_) => None,
            }
        });
        let Some(library) = library else { return Err(unavailable(reasons.join("; "))) };
        let library = Arc::new(ManuallyDrop::new(library));
        let functions = Functions::load(&library).map_err(|name| {
            unavailable(format!("it has no {name}: version 2.14 or newer is needed"))
        })?;
        Ok(Self { functions, _library: library })
    }

    /// The version as NCCL writes it: 22809 is 2.28.9.
    pub(crate) fn version(&self) -> Result<u32, DeviceError> {
        let mut version = 0;
        // SAFETY: NCCL writes one number.
        let result = unsafe { (self.functions.get_version)(&raw mut version) };
        self.check("ncclGetVersion", result, None)?;
        Ok(u32::try_from(version).unwrap_or(0))
    }

    /// The result of a call as a `Result`; a call in progress is no error.
    pub(crate) fn check(
        &self,
        call: &'static str,
        result: RawResult,
        comm: Option<RawComm>,
    ) -> Result<(), DeviceError> {
        if result == SUCCESS || result == IN_PROGRESS {
            return Ok(());
        }
        // SAFETY: the function takes any number and gives a static string.
        let mut message = text(unsafe { (self.functions.error_string)(result) })
            .unwrap_or_else(|| "an error NCCL has no name for".to_owned());
        if let (Some(ask), Some(comm)) = (self.functions.last_error, comm) {
            // SAFETY: the communicator is alive; the string is copied at once.
            if let Some(detail) = text(unsafe { ask(comm) }).filter(|detail| !detail.is_empty()) {
                message = format!("{message}: {}", detail.trim());
            }
        }
        Err(DeviceError::Call { call, code: i64::from(result), message })
    }
}

fn text(pointer: *const c_char) -> Option<String> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: NCCL gave a pointer to a terminated string.
    Some(unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nccl_is_loaded_or_its_absence_is_a_typed_error() {
        match Nccl::load() {
            Ok(nccl) => {
                let version = nccl.version().unwrap();
                assert!(version >= 21400, "version {version}");
                let error = nccl.check("ncclSend", 4, None).unwrap_err();
                assert!(error.to_string().contains("ncclSend failed with 4: "), "{error}");
                assert!(nccl.check("ncclSend", IN_PROGRESS, None).is_ok());
            }
            Err(error) => {
                assert!(matches!(error, DeviceError::Unavailable { .. }), "{error}");
            }
        }
    }
}
