//! Gather of device snapshots over NCCL (feature `nccl`), for the synchronous schedule.
//!
//! NCCL is loaded at run time: first the library that the process has loaded already, then
//! `libnccl.so.2`, then `libnccl.so`; without one every call gives a typed error.

#![allow(unsafe_code)]

mod comm;
mod engine;
mod gather;
mod library;
mod mail;

pub use comm::{NcclComm, NcclUniqueId};
pub use gather::NcclGroup;
