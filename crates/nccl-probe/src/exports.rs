//! The recorded functions, as the program calls them.
//!
//! Each exists once for calls by name, exported, and once for each library that the wrapper of
//! `dlsym` binds it to.
#![allow(non_snake_case, reason = "named as in nccl.h")]

use std::ffi::c_void;

use deepxtrace_nccl_ring::Api;

use crate::around::{Bound, Direct, Origin, ending, group_end, group_start, known, on_comm};
use crate::create::{Creation, creating, creating_all};
use crate::library::MAX_LIBRARIES;
use crate::recorder::Shape;
use crate::sys::{Handle, Status, Stream, UniqueId};

/// The function that records `api` and calls it in the library with this number.
pub fn bound(api: Api, library: usize) -> *const c_void {
    const { assert!(MAX_LIBRARIES == 4, "one line a library below") };
    match library {
        0 => table::<Bound<0>>(api),
        1 => table::<Bound<1>>(api),
        2 => table::<Bound<2>>(api),
        _ => table::<Bound<3>>(api),
    }
}

/// Functions on a communicator: their arguments, and which of them are recorded.
macro_rules! on_communicator {
    ($(
        $around:ident $name:ident = $api:ident on $comm:ident
        ($($argument:ident: $type:ty),*) { $($field:ident: $value:expr),* }
    )*) => {
        mod generic {
            use super::*;

            $(
                #[inline]
                pub unsafe extern "C-unwind" fn $name<O: Origin>($($argument: $type),*) -> Status {
                    type Real = unsafe extern "C-unwind" fn($($type),*) -> Status;
                    #[allow(clippy::needless_update, reason = "some functions name every field")]
                    let shape = Shape { $($field: $value,)* ..Shape::new(Api::$api, $comm) };
                    let call = |real: *mut c_void| {
                        // SAFETY: the library's function of this name has this type.
                        let real = unsafe { std::mem::transmute::<*mut c_void, Real>(real) };
                        // SAFETY: the program's own arguments.
                        unsafe { real($($argument),*) }
                    };
                    // SAFETY: `call` is the call of this function.
                    unsafe { $around!(O, &shape, call) }
                }
            )*
        }

        $(
            /// See nccl.h.
            ///
            /// # Safety
            ///
            /// As in nccl.h.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> Status {
                // SAFETY: the program's own arguments.
                unsafe { generic::$name::<Direct>($($argument),*) }
            }
        )*

        fn on_communicator<O: Origin>(api: Api) -> *const c_void {
            match api {
                $(Api::$api => generic::$name::<O> as *const c_void,)*
                _ => std::ptr::null(),
            }
        }
    };
}

macro_rules! call {
    ($origin:ty, $shape:expr, $call:expr) => {
        on_comm::<$origin>($shape, $call)
    };
}
macro_rules! last {
    ($origin:ty, $shape:expr, $call:expr) => {
        ending::<$origin>($shape, true, $call)
    };
}
macro_rules! farewell {
    ($origin:ty, $shape:expr, $call:expr) => {
        ending::<$origin>($shape, false, $call)
    };
}

type In = *const c_void;
type Out = *mut c_void;

on_communicator! {
    call ncclAllReduce = AllReduce on comm
        (send: In, recv: Out, count: usize, kind: i32, op: i32, comm: Handle, stream: Stream)
        { count: count, datatype: kind, op: op, stream: Some(stream) }
    call ncclAllReduceConfig = AllReduceConfig on comm
        (send: In, recv: Out, count: usize, kind: i32, op: i32, comm: Handle, stream: Stream,
         config: In)
        { count: count, datatype: kind, op: op, stream: Some(stream) }
    call ncclReduceScatter = ReduceScatter on comm
        (send: In, recv: Out, count: usize, kind: i32, op: i32, comm: Handle, stream: Stream)
        { count: count, datatype: kind, op: op, stream: Some(stream) }
    call ncclReduceScatterConfig = ReduceScatterConfig on comm
        (send: In, recv: Out, count: usize, kind: i32, op: i32, comm: Handle, stream: Stream,
         config: In)
        { count: count, datatype: kind, op: op, stream: Some(stream) }
    call ncclReduce = Reduce on comm
        (send: In, recv: Out, count: usize, kind: i32, op: i32, root: i32, comm: Handle,
         stream: Stream)
        { count: count, datatype: kind, op: op, root: root, stream: Some(stream) }
    call ncclReduceConfig = ReduceConfig on comm
        (send: In, recv: Out, count: usize, kind: i32, op: i32, root: i32, comm: Handle,
         stream: Stream, config: In)
        { count: count, datatype: kind, op: op, root: root, stream: Some(stream) }
    call ncclBcast = Bcast on comm
        (buffer: Out, count: usize, kind: i32, root: i32, comm: Handle, stream: Stream)
        { count: count, datatype: kind, root: root, stream: Some(stream) }
    call ncclBroadcast = Broadcast on comm
        (send: In, recv: Out, count: usize, kind: i32, root: i32, comm: Handle, stream: Stream)
        { count: count, datatype: kind, root: root, stream: Some(stream) }
    call ncclBroadcastConfig = BroadcastConfig on comm
        (send: In, recv: Out, count: usize, kind: i32, root: i32, comm: Handle, stream: Stream,
         config: In)
        { count: count, datatype: kind, root: root, stream: Some(stream) }
    call ncclAllGather = AllGather on comm
        (send: In, recv: Out, count: usize, kind: i32, comm: Handle, stream: Stream)
        { count: count, datatype: kind, stream: Some(stream) }
    call ncclAllGatherConfig = AllGatherConfig on comm
        (send: In, recv: Out, count: usize, kind: i32, comm: Handle, stream: Stream, config: In)
        { count: count, datatype: kind, stream: Some(stream) }
    call ncclAlltoAll = AlltoAll on comm
        (send: In, recv: Out, count: usize, kind: i32, comm: Handle, stream: Stream)
        { count: count, datatype: kind, stream: Some(stream) }
    call ncclAlltoAllConfig = AlltoAllConfig on comm
        (send: In, recv: Out, count: usize, kind: i32, comm: Handle, stream: Stream, config: In)
        { count: count, datatype: kind, stream: Some(stream) }
    call ncclGather = Gather on comm
        (send: In, recv: Out, count: usize, kind: i32, root: i32, comm: Handle, stream: Stream)
        { count: count, datatype: kind, root: root, stream: Some(stream) }
    call ncclGatherConfig = GatherConfig on comm
        (send: In, recv: Out, count: usize, kind: i32, root: i32, comm: Handle, stream: Stream,
         config: In)
        { count: count, datatype: kind, root: root, stream: Some(stream) }
    call ncclScatter = Scatter on comm
        (send: In, recv: Out, count: usize, kind: i32, root: i32, comm: Handle, stream: Stream)
        { count: count, datatype: kind, root: root, stream: Some(stream) }
    call ncclScatterConfig = ScatterConfig on comm
        (send: In, recv: Out, count: usize, kind: i32, root: i32, comm: Handle, stream: Stream,
         config: In)
        { count: count, datatype: kind, root: root, stream: Some(stream) }
    call ncclSend = Send on comm
        (send: In, count: usize, kind: i32, peer: i32, comm: Handle, stream: Stream)
        { count: count, datatype: kind, peer: peer, stream: Some(stream) }
    call ncclRecv = Recv on comm
        (recv: Out, count: usize, kind: i32, peer: i32, comm: Handle, stream: Stream)
        { count: count, datatype: kind, peer: peer, stream: Some(stream) }
    call ncclPutSignal = PutSignal on comm
        (buffer: In, count: usize, kind: i32, peer: i32, window: Out, offset: usize, signal: i32,
         context: i32, flags: u32, comm: Handle, stream: Stream)
        { count: count, datatype: kind, peer: peer, stream: Some(stream) }
    call ncclSignal = Signal on comm
        (peer: i32, signal: i32, context: i32, flags: u32, comm: Handle, stream: Stream)
        { peer: peer, stream: Some(stream) }
    call ncclWaitSignal = WaitSignal on comm
        (waits: i32, signals: Out, comm: Handle, stream: Stream)
        { count: usize::try_from(waits).unwrap_or(0), stream: Some(stream) }
    call ncclRedOpCreatePreMulSum = RedOpCreatePreMulSum on comm
        (op: *mut i32, scalar: Out, kind: i32, residence: i32, comm: Handle)
        { datatype: kind }
    call ncclRedOpDestroy = RedOpDestroy on comm
        (op: i32, comm: Handle)
        { op: op }
    farewell ncclCommFinalize = CommFinalize on comm (comm: Handle) { count: 0 }
    farewell ncclCommRevoke = CommRevoke on comm (comm: Handle, flags: i32) { count: 0 }
    last ncclCommDestroy = CommDestroy on comm (comm: Handle) { count: 0 }
    last ncclCommAbort = CommAbort on comm (comm: Handle) { count: 0 }
}

/// Functions that have a caller but no communicator to tell the library by: creations and groups.
///
/// The first line is the function as the wrapper of `dlsym` hands it out; `with_caller` is what the
/// exported one jumps to, with the return address as a last argument.
macro_rules! with_caller {
    ($($name:ident = $api:ident ($($argument:ident: $type:ty),*) by $work:ident;)*) => {
        mod bound_generic {
            use super::*;

            $(pub unsafe extern "C-unwind" fn $name<O: Origin>($($argument: $type),*) -> Status {
                // SAFETY: the program's own arguments.
                unsafe { $work::<O>(0 $(, $argument)*) }
            })*
        }

        pub(crate) mod caller {
            use super::*;

            $(pub unsafe extern "C-unwind" fn $name($($argument: $type,)* caller: usize) -> Status {
                // SAFETY: the program's own arguments.
                unsafe { $work::<Direct>(caller $(, $argument)*) }
            })*
        }

        fn table<O: Origin>(api: Api) -> *const c_void {
            match api {
                $(Api::$api => bound_generic::$name::<O> as *const c_void,)*
                _ => on_communicator::<O>(api),
            }
        }
    };
}

type New = *mut Handle;

with_caller! {
    ncclGroupStart = GroupStart () by start;
    ncclGroupEnd = GroupEnd () by end;
    ncclGroupSimulateEnd = GroupSimulateEnd (info: Out) by simulate_end;
    ncclCommInitRank = CommInitRank (new: New, ranks: i32, id: UniqueId, rank: i32) by init_rank;
    ncclCommInitRankConfig = CommInitRankConfig
        (new: New, ranks: i32, id: UniqueId, rank: i32, config: Out) by init_rank_config;
    ncclCommInitRankScalable = CommInitRankScalable
        (new: New, ranks: i32, rank: i32, count: i32, ids: *const UniqueId, config: Out)
        by init_rank_scalable;
    ncclCommInitAll = CommInitAll (new: New, ranks: i32, devices: *const i32) by init_all;
    ncclCommSplit = CommSplit (parent: Handle, color: i32, key: i32, new: New, config: Out) by split;
    ncclCommShrink = CommShrink
        (parent: Handle, excluded: *const i32, count: i32, new: New, config: Out, flags: i32)
        by shrink;
    ncclCommGrow = CommGrow
        (parent: Handle, ranks: i32, id: *const UniqueId, rank: i32, new: New, config: Out) by grow;
}

/// Calls an address as a function of these arguments.
macro_rules! as_real {
    (($($argument:ident: $type:ty),*)) => {
        |real: *mut c_void| {
            type Real = unsafe extern "C-unwind" fn($($type),*) -> Status;
            // SAFETY: the library's function of this name has this type.
            let real = unsafe { std::mem::transmute::<*mut c_void, Real>(real) };
            // SAFETY: the program's own arguments.
            unsafe { real($($argument),*) }
        }
    };
}

unsafe fn start<O: Origin>(caller: usize) -> Status {
    let call = as_real!(());
    // SAFETY: the call is that of the function named.
    unsafe { group_start::<O>(caller, call) }
}

unsafe fn end<O: Origin>(caller: usize) -> Status {
    let call = as_real!(());
    // SAFETY: the call is that of the function named.
    unsafe { group_end::<O>(Api::GroupEnd, caller, call) }
}

unsafe fn simulate_end<O: Origin>(caller: usize, info: Out) -> Status {
    let call = as_real!((info: Out));
    // SAFETY: the call is that of the function named.
    unsafe { group_end::<O>(Api::GroupSimulateEnd, caller, call) }
}

unsafe fn init_rank<O: Origin>(
    caller: usize,
    new: New,
    ranks: i32,
    id: UniqueId,
    rank: i32,
) -> Status {
    let creation = Creation::from_ids(Api::CommInitRank, &[id], rank, ranks);
    let call = as_real!((new: New, ranks: i32, id: UniqueId, rank: i32));
    // SAFETY: the library writes `new`; the call is that of the function named.
    unsafe { creating::<O>(creation, None, caller, new, call) }
}

unsafe fn init_rank_config<O: Origin>(
    caller: usize,
    new: New,
    ranks: i32,
    id: UniqueId,
    rank: i32,
    config: Out,
) -> Status {
    let creation = Creation::from_ids(Api::CommInitRankConfig, &[id], rank, ranks);
    let call = as_real!((new: New, ranks: i32, id: UniqueId, rank: i32, config: Out));
    // SAFETY: the library writes `new`; the call is that of the function named.
    unsafe { creating::<O>(creation, None, caller, new, call) }
}

unsafe fn init_rank_scalable<O: Origin>(
    caller: usize,
    new: New,
    ranks: i32,
    rank: i32,
    count: i32,
    ids: *const UniqueId,
    config: Out,
) -> Status {
    let known = usize::try_from(count).ok().filter(|_| !ids.is_null());
    // SAFETY: the program passes `count` ids.
    let given = known.map(|count| unsafe { std::slice::from_raw_parts(ids, count) });
    let api = Api::CommInitRankScalable;
    let creation = Creation::from_ids(api, given.unwrap_or_default(), rank, ranks);
    let call = as_real!(
        (new: New, ranks: i32, rank: i32, count: i32, ids: *const UniqueId, config: Out)
    );
    // SAFETY: the library writes `new`; the call is that of the function named.
    unsafe { creating::<O>(creation, None, caller, new, call) }
}

unsafe fn init_all<O: Origin>(caller: usize, new: New, ranks: i32, devices: *const i32) -> Status {
    let call = as_real!((new: New, ranks: i32, devices: *const i32));
    // SAFETY: the library writes `ranks` handles; the call is that of the function named.
    unsafe { creating_all::<O>(caller, new, ranks, call) }
}

unsafe fn split<O: Origin>(
    caller: usize,
    parent: Handle,
    color: i32,
    key: i32,
    new: New,
    config: Out,
) -> Status {
    let comm = known::<O>(parent);
    let creation = Creation::split(comm, color);
    let call = as_real!((parent: Handle, color: i32, key: i32, new: New, config: Out));
    // SAFETY: the library writes `new`; the call is that of the function named.
    unsafe { creating::<O>(creation, comm, caller, new, call) }
}

unsafe fn shrink<O: Origin>(
    caller: usize,
    parent: Handle,
    excluded: *const i32,
    count: i32,
    new: New,
    config: Out,
    flags: i32,
) -> Status {
    let comm = known::<O>(parent);
    let listed = usize::try_from(count).ok().filter(|_| !excluded.is_null());
    // SAFETY: the program passes `count` ranks.
    let ranks = listed.map(|count| unsafe { std::slice::from_raw_parts(excluded, count) });
    let creation = Creation::shrink(comm, ranks.unwrap_or_default());
    let call = as_real!(
        (parent: Handle, excluded: *const i32, count: i32, new: New, config: Out, flags: i32)
    );
    // SAFETY: the library writes `new`; the call is that of the function named.
    unsafe { creating::<O>(creation, comm, caller, new, call) }
}

unsafe fn grow<O: Origin>(
    caller: usize,
    parent: Handle,
    ranks: i32,
    id: *const UniqueId,
    rank: i32,
    new: New,
    config: Out,
) -> Status {
    let comm = known::<O>(parent);
    // SAFETY: null, or an id of the program.
    let creation = Creation::grow(comm, unsafe { id.as_ref() }, rank, ranks);
    let call = as_real!(
        (parent: Handle, ranks: i32, id: *const UniqueId, rank: i32, new: New, config: Out)
    );
    // SAFETY: the library writes `new`; the call is that of the function named.
    unsafe { creating::<O>(creation, comm, caller, new, call) }
}
