//! Counters in the memory of a CUDA device (feature `cuda`).
//!
//! The driver is loaded at run time: nothing of CUDA is needed to build, and where there is no
//! driver or device every call gives a typed error. Calls go to the driver by `cudarc`'s bindings;
//! its safe layer is not used, because it cannot borrow an event or a context, leaves its context
//! current on the caller's thread and panics where a library is absent.

#![allow(unsafe_code)]

mod device;
pub(crate) mod driver;
mod memory;
pub(crate) mod resources;

pub use device::CudaDevice;
pub use memory::CudaMemory;
