//! The functions that a probe records, and the numbers that stand for them in a ring.

/// What a recorded function does, which decides the events that a call of it gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// All ranks of a communicator take part.
    Collective,
    /// `ncclSend` or `ncclRecv`.
    PointToPoint,
    /// Begins or ends a group of calls; on no communicator.
    Group,
    /// Creates a communicator.
    Create,
    /// Ends a communicator.
    End,
    /// Makes or drops a reduction of the user's own.
    Reduction,
    /// One-sided: recorded, not matched.
    OneSided,
}

macro_rules! apis {
    ($($class:ident: $($name:ident)*;)*) => {
        /// A recorded function. The numbers are part of the ring format: append only.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        pub enum Api {
            $($(
                #[doc = concat!("`nccl", stringify!($name), "`.")]
                $name,
            )*)*
        }

        impl Api {
            /// Every function, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$($(Self::$name,)*)*];

            /// Name of the function, such as `ncclAllReduce`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($(Self::$name => concat!("nccl", stringify!($name)),)*)* }
            }

            /// Name of the function as C text, for the dynamic linker.
            #[must_use]
            pub const fn c_name(self) -> &'static std::ffi::CStr {
                let bytes = match self {
                    $($(Self::$name => concat!("nccl", stringify!($name), "\0").as_bytes(),)*)*
                };
                match std::ffi::CStr::from_bytes_with_nul(bytes) {
                    Ok(name) => name,
                    Err(_) => c"",
                }
            }

            /// What the function does.
            #[must_use]
            pub const fn class(self) -> Class {
                match self { $($(Self::$name => Class::$class,)*)* }
            }
        }
    };
}

apis! {
    Collective: AllReduce AllGather ReduceScatter Broadcast Bcast Reduce AlltoAll Gather Scatter
        AllReduceConfig AllGatherConfig ReduceScatterConfig BroadcastConfig ReduceConfig
        AlltoAllConfig GatherConfig ScatterConfig;
    PointToPoint: Send Recv;
    Group: GroupStart GroupEnd GroupSimulateEnd;
    Create: CommInitRank CommInitRankConfig CommInitRankScalable CommInitAll CommSplit CommShrink
        CommGrow;
    End: CommFinalize CommDestroy CommAbort CommRevoke;
    Reduction: RedOpCreatePreMulSum RedOpDestroy;
    OneSided: PutSignal Signal WaitSignal;
}

impl Api {
    /// The function with this number, `None` for a number that no function has.
    #[must_use]
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The function with this name, such as `ncclAllReduce`.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL.iter().copied().find(|api| api.name().as_bytes() == name)
    }
}

/// Name of an `ncclResult_t`.
#[must_use]
pub fn result_name(result: i32) -> &'static str {
    match result {
        0 => "ncclSuccess",
        1 => "ncclUnhandledCudaError",
        2 => "ncclSystemError",
        3 => "ncclInternalError",
        4 => "ncclInvalidArgument",
        5 => "ncclInvalidUsage",
        6 => "ncclRemoteError",
        7 => "ncclInProgress",
        8 => "ncclTimeout",
        _ => "ncclUnknownResult",
    }
}

#[cfg(test)]
mod tests {
    use super::{Api, Class};

    #[test]
    fn a_number_names_the_function_at_its_place() {
        for (place, api) in Api::ALL.iter().enumerate() {
            assert_eq!(Api::from_number(u16::try_from(place).unwrap()), Some(*api));
            assert_eq!(Api::from_name(api.name().as_bytes()), Some(*api));
            assert_eq!(api.c_name().to_str().unwrap(), api.name());
        }
        assert_eq!(Api::from_number(38), None);
        assert_eq!(Api::from_number(u16::MAX), None);
    }

    #[test]
    fn numbers_never_change() {
        assert_eq!(Api::AllReduce as u16, 0);
        assert_eq!(Api::Send as u16, 17);
        assert_eq!(Api::CommInitRank as u16, 22);
        assert_eq!(Api::WaitSignal as u16, 37);
    }

    #[test]
    fn names_are_those_of_the_library() {
        assert_eq!(Api::AlltoAll.name(), "ncclAlltoAll");
        assert_eq!(Api::RedOpCreatePreMulSum.name(), "ncclRedOpCreatePreMulSum");
        assert_eq!(Api::CommShrink.class(), Class::Create);
        assert_eq!(Api::from_name(b"ncclGetVersion"), None);
    }
}
