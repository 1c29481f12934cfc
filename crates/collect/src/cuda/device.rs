//! A CUDA device as this crate uses it: its primary context, never left current on a thread of the
//! program.

use std::ffi::c_char;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use cudarc::driver::sys::{self, CUcontext, CUdevice, CUresult, CUstreamCaptureMode};

use super::driver::{check, initialize};
use crate::device::{DeviceError, Identity};

/// A CUDA device, by its primary context: the one that the CUDA runtime, PyTorch and `cudarc` use.
///
/// Clones share the context, which is given back with the last of them and of what was made on it.
#[derive(Clone)]
pub struct CudaDevice {
    inner: Arc<Primary>,
}

struct Primary {
    ordinal: usize,
    device: CUdevice,
    context: CUcontext,
}

// SAFETY: a context handle may be used from any thread; the driver locks what it needs to.
unsafe impl Send for Primary {}
// SAFETY: as above.
unsafe impl Sync for Primary {}

impl Drop for Primary {
    fn drop(&mut self) {
        let _relaxed = RelaxedCapture::enter();
        // SAFETY: the context was retained once in `CudaDevice::new`. An error means that the
        // driver has shut down or the context was destroyed: nothing is left to give back.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}

impl fmt::Debug for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaDevice").field("ordinal", &self.inner.ordinal).finish_non_exhaustive()
    }
}

impl CudaDevice {
    /// The device with the number `ordinal` among those that the process sees
    /// (`CUDA_VISIBLE_DEVICES`).
    ///
    /// # Errors
    ///
    /// - there is no CUDA driver, or it is too old
    /// - there is no device, or none with this number
    /// - the driver cannot make its primary context
    pub fn new(ordinal: usize) -> Result<Self, DeviceError> {
        let count = Self::count()?;
        let number = i32::try_from(ordinal).ok().filter(|_| ordinal < count);
        let Some(number) = number else {
            return Err(DeviceError::Unavailable {
                what: format!("CUDA device {ordinal}"),
                reason: format!("the process sees {count} devices, numbered from 0"),
            });
        };
        let _relaxed = RelaxedCapture::enter();
        let mut device: CUdevice = 0;
        // SAFETY: the driver is initialised; it writes one device number.
        check("cuDeviceGet", unsafe { sys::cuDeviceGet(&raw mut device, number) })?;
        let mut context: CUcontext = std::ptr::null_mut();
        // SAFETY: the device was just given by the driver; it writes one handle.
        let result = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, device) };
        check("cuDevicePrimaryCtxRetain", result)?;
        Ok(Self { inner: Arc::new(Primary { ordinal, device, context }) })
    }

    /// The device whose context is current on the calling thread: after
    /// `torch.cuda.set_device(n)` or `cudaSetDevice(n)` that is device `n`.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new), and when no context is current on this thread.
    pub fn current() -> Result<Self, DeviceError> {
        initialize()?;
        let mut device: CUdevice = 0;
        // SAFETY: the driver is initialised; it writes one device number.
        let result = unsafe { sys::cuCtxGetDevice(&raw mut device) };
        if result == CUresult::CUDA_ERROR_INVALID_CONTEXT {
            return Err(DeviceError::Unavailable {
                what: "a current CUDA device".into(),
                reason: "this thread has no current context: select a device first".into(),
            });
        }
        check("cuCtxGetDevice", result)?;
        // The driver's device numbers are the ordinals.
        Self::new(usize::try_from(device).unwrap_or(usize::MAX))
    }

    /// How many devices the process sees; 0 with a driver but no device.
    ///
    /// # Errors
    ///
    /// There is no CUDA driver, or it cannot be used.
    pub fn count() -> Result<usize, DeviceError> {
        match initialize() {
            Ok(()) => {}
            Err(DeviceError::Unavailable { what, .. }) if what == "a CUDA device" => return Ok(0),
            Err(error) => return Err(error),
        }
        let mut count = 0;
        // SAFETY: the driver is initialised; it writes one number.
        check("cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&raw mut count) })?;
        Ok(usize::try_from(count).unwrap_or(0))
    }

    /// Its number among the devices that the process sees.
    #[must_use]
    pub fn ordinal(&self) -> usize {
        self.inner.ordinal
    }

    /// Host, model and UUID (written as `nvidia-smi -L` writes it), and the InfiniBand interfaces
    /// of its NUMA node. What cannot be read is empty.
    #[must_use]
    pub fn identity(&self) -> Identity {
        let device = self.inner.device;
        let mut name = [0; 256];
        // SAFETY: the buffer has the length that is said.
        let result = unsafe { sys::cuDeviceGetName(name.as_mut_ptr(), 256, device) };
        let name = if result == CUresult::CUDA_SUCCESS { until_nul(&name) } else { String::new() };
        Identity { device: name, uuid: uuid(device), nics: nics(device), ..Identity::of_host() }
    }

    /// The context handle.
    pub(crate) fn context(&self) -> CUcontext {
        self.inner.context
    }

    /// Makes the context current on this thread until the guard is dropped, and puts this thread
    /// into relaxed capture mode for as long.
    pub(crate) fn enter(&self) -> Result<Entered, DeviceError> {
        let relaxed = RelaxedCapture::enter();
        let mut current: CUcontext = std::ptr::null_mut();
        // SAFETY: the driver writes one handle.
        check("cuCtxGetCurrent", unsafe { sys::cuCtxGetCurrent(&raw mut current) })?;
        let pushed = current != self.inner.context;
        if pushed {
            // SAFETY: the context is retained by `self`.
            let result = unsafe { sys::cuCtxPushCurrent_v2(self.inner.context) };
            check("cuCtxPushCurrent", result)?;
        }
        Ok(Entered { pushed, _relaxed: relaxed })
    }
}

/// The context is current; what was current before is so again when this is dropped.
#[must_use]
pub(crate) struct Entered {
    pushed: bool,
    _relaxed: RelaxedCapture,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if self.pushed {
            let mut popped: CUcontext = std::ptr::null_mut();
            // SAFETY: the context on top of this thread's stack is the one pushed by `enter`.
            let _ = unsafe { sys::cuCtxPopCurrent_v2(&raw mut popped) };
        }
    }
}

/// This thread's calls do not disturb stream captures of other threads until this is dropped.
///
/// In the other modes a call that may synchronise (an allocation, an event query) invalidates a
/// global-mode capture that any thread of the process has under way.
pub(crate) struct RelaxedCapture {
    before: CUstreamCaptureMode,
}

impl RelaxedCapture {
    pub(crate) fn enter() -> Self {
        let mut before = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the driver swaps one value. On an error nothing is written and the mode that is
        // put back later is the relaxed one, which disturbs nobody.
        let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut before) };
        Self { before }
    }
}

impl Drop for RelaxedCapture {
    fn drop(&mut self) {
        // SAFETY: as in `enter`.
        let _ = unsafe { sys::cuThreadExchangeStreamCaptureMode(&raw mut self.before) };
    }
}

fn until_nul(text: &[c_char]) -> String {
    let bytes: Vec<u8> = text.iter().take_while(|&&c| c != 0).map(|&c| c.cast_unsigned()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn uuid(device: CUdevice) -> String {
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: the driver writes 16 bytes.
    if unsafe { sys::cuDeviceGetUuid_v2(&raw mut uuid, device) } != CUresult::CUDA_SUCCESS {
        return String::new();
    }
    let bytes = uuid.bytes.map(c_char::cast_unsigned);
    format!("GPU-{}", uuid::Uuid::from_bytes(bytes))
}

/// Names of the InfiniBand interfaces on the device's NUMA node.
fn nics(device: CUdevice) -> Vec<String> {
    let mut bus = [0; 32];
    // SAFETY: the buffer has the length that is said.
    if unsafe { sys::cuDeviceGetPCIBusId(bus.as_mut_ptr(), 32, device) } != CUresult::CUDA_SUCCESS {
        return Vec::new();
    }
    let pci = Path::new("/sys/bus/pci/devices").join(until_nul(&bus).to_lowercase());
    nics_near(&pci, Path::new("/sys/class/infiniband"))
}

/// The entries of `class` whose NUMA node is that of the PCI device; none when either is unknown.
fn nics_near(pci: &Path, class: &Path) -> Vec<String> {
    let node_of = |folder: &Path| -> Option<i64> {
        let text = std::fs::read_to_string(folder.join("numa_node")).ok()?;
        text.trim().parse().ok().filter(|&node| node >= 0)
    };
    let (Some(node), Ok(entries)) = (node_of(pci), std::fs::read_dir(class)) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .flatten()
        .filter(|entry| node_of(&entry.path().join("device")) == Some(node))
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nics_are_those_of_the_numa_node_of_the_device() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, node: &str| {
            let path = folder.path().join(path);
            std::fs::create_dir_all(&path).unwrap();
            std::fs::write(path.join("numa_node"), node).unwrap();
        };
        write("gpu", "1\n");
        write("unknown", "-1\n");
        write("ib/mlx5_2/device", "1\n");
        write("ib/mlx5_0/device", "0\n");
        write("ib/mlx5_1/device", "1\n");
        write("ib/mlx5_9/device", "-1\n");
        let class = folder.path().join("ib");
        assert_eq!(nics_near(&folder.path().join("gpu"), &class), ["mlx5_1", "mlx5_2"]);
        assert!(nics_near(&folder.path().join("unknown"), &class).is_empty());
        assert!(nics_near(&folder.path().join("none"), &class).is_empty());
        assert!(nics_near(&folder.path().join("gpu"), &folder.path().join("none")).is_empty());
    }

    #[test]
    fn without_a_driver_or_device_the_error_says_so() {
        match CudaDevice::count() {
            Ok(0) | Err(DeviceError::Unavailable { .. }) => {
                let error = CudaDevice::new(0).unwrap_err();
                assert!(matches!(error, DeviceError::Unavailable { .. }), "{error}");
                assert!(CudaDevice::current().is_err());
            }
            Ok(count) => {
                let error = CudaDevice::new(count).unwrap_err();
                assert!(error.to_string().contains(&format!("sees {count} devices")), "{error}");
            }
            Err(other) => panic!("{other}"),
        }
    }
}
