//! The CUDA driver: whether it is there, and its results as errors.

use std::ffi::{CStr, c_char};

use cudarc::driver::sys::{self, CUresult};
use libloading::Library;

use crate::device::DeviceError;

/// The names under which the driver is looked for, in the order in which `cudarc` looks.
const LIBRARY_NAMES: [&str; 2] = ["libcuda.so", "libcuda.so.1"];

/// Every function of the driver that this crate calls: all are asked for before the first call,
/// because `cudarc` panics at a function that is not there.
const FUNCTIONS: [&CStr; 32] = [
    c"cuInit",
    c"cuDeviceGetCount",
    c"cuDeviceGet",
    c"cuDeviceGetName",
    c"cuDeviceGetUuid_v2",
    c"cuDeviceGetPCIBusId",
    c"cuDevicePrimaryCtxRetain",
    c"cuDevicePrimaryCtxRelease_v2",
    c"cuCtxGetCurrent",
    c"cuCtxGetDevice",
    c"cuCtxPushCurrent_v2",
    c"cuCtxPopCurrent_v2",
    c"cuMemAlloc_v2",
    c"cuMemFree_v2",
    c"cuMemHostAlloc",
    c"cuMemFreeHost",
    c"cuMemsetD8Async",
    c"cuMemcpyDtoDAsync_v2",
    c"cuMemcpyDtoHAsync_v2",
    c"cuMemcpyHtoDAsync_v2",
    c"cuStreamCreate",
    c"cuStreamDestroy_v2",
    c"cuStreamGetCtx",
    c"cuStreamIsCapturing",
    c"cuStreamSynchronize",
    c"cuThreadExchangeStreamCaptureMode",
    c"cuEventCreate",
    c"cuEventDestroy_v2",
    c"cuEventQuery",
    c"cuEventRecord",
    c"cuGetErrorName",
    c"cuGetErrorString",
];

/// Makes sure that the driver can be called.
///
/// # Errors
///
/// There is no driver, it is too old, or it finds no device it can use.
pub(crate) fn initialize() -> Result<(), DeviceError> {
    let unavailable = |reason| DeviceError::Unavailable { what: "the CUDA driver".into(), reason };
    let mut reasons = Vec::new();
    let library = LIBRARY_NAMES.into_iter().find_map(|name| {
        // SAFETY: this is the driver's own library, whose initialisers every CUDA program runs.
        match unsafe { Library::new(name) } {
            Ok(library) => Some(library),
            Err(error) => {
                reasons.push(reason(&error));
                None
            }
        }
    });
    let Some(library) = library else { return Err(unavailable(reasons.join("; "))) };
    for name in FUNCTIONS {
        // SAFETY: the symbol is only looked up; its type does not matter for that.
        if unsafe { library.get::<*const ()>(name.to_bytes_with_nul()) }.is_err() {
            let name = name.to_string_lossy();
            return Err(unavailable(format!("it has no {name}: a newer driver is needed")));
        }
    }
    // SAFETY: the library and the function are there, as was just seen.
    let result = unsafe { sys::cuInit(0) };
    if result == CUresult::CUDA_ERROR_NO_DEVICE {
        return Err(DeviceError::Unavailable {
            what: "a CUDA device".into(),
            reason: "the driver finds none".into(),
        });
    }
    check("cuInit", result)
}

/// Why a library cannot be loaded, in the loader's words where it has some.
pub(crate) fn reason(error: &libloading::Error) -> String {
    std::error::Error::source(error).map_or_else(|| error.to_string(), ToString::to_string)
}

/// The result of a driver call as a `Result`.
pub(crate) fn check(call: &'static str, result: CUresult) -> Result<(), DeviceError> {
    if result == CUresult::CUDA_SUCCESS { Ok(()) } else { Err(failure(call, result)) }
}

/// The error for a driver call that did not succeed.
#[cold]
pub(crate) fn failure(call: &'static str, result: CUresult) -> DeviceError {
    let name = text(result, sys::cuGetErrorName);
    let words = text(result, sys::cuGetErrorString);
    let message = match (name, words) {
        (Some(name), Some(words)) => format!("{name}, {words}"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => "an error the driver has no name for".to_owned(),
    };
    DeviceError::Call { call, code: result as i64, message }
}

/// Asks the driver for a text about `result`.
fn text(
    result: CUresult,
    ask: unsafe fn(CUresult, *mut *const c_char) -> CUresult,
) -> Option<String> {
    let mut text: *const c_char = std::ptr::null();
    // SAFETY: both functions write one pointer and can be called at any time.
    let answer = unsafe { ask(result, &raw mut text) };
    if answer != CUresult::CUDA_SUCCESS || text.is_null() {
        return None;
    }
    // SAFETY: the driver gave a pointer to a terminated string that lives as long as the library.
    Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
