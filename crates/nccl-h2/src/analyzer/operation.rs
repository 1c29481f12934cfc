//! What the functions of the library do, and what of their parameters must match.

use serde::{Deserialize, Serialize};

/// What a function does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Operation {
    AllReduce,
    ReduceScatter,
    Reduce,
    Broadcast,
    AllGather,
    AllToAll,
    Gather,
    Scatter,
    Send,
    Recv,
    /// Makes a communicator.
    Create(Creation),
    /// Ends a communicator.
    Destroy,
    GroupStart,
    GroupEnd,
    /// Known, and of no place in the order of a communicator.
    Apart,
    /// A function that this version does not know.
    Unknown,
}

/// How a communicator is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Creation {
    /// All ranks of the new communicator call.
    Init,
    /// One process makes a communicator with all of its ranks.
    Alone,
    /// All ranks of the parent call.
    Split,
    /// The ranks of the parent that stay call.
    Shrink,
    /// Old and new ranks call, and share no name.
    Grow,
}

/// What of a collective's parameters must be equal on all ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needs {
    /// Only the product of count and size of the datatype counts.
    pub(crate) bytes: bool,
    pub(crate) op: bool,
    pub(crate) root: bool,
}

impl Operation {
    /// The operation of a function. A `Config` variant is the same operation.
    #[inline]
    pub(crate) fn of(api: &str) -> Self {
        match api {
            "ncclAllReduce" => Self::AllReduce,
            "ncclAllGather" => Self::AllGather,
            "ncclReduceScatter" => Self::ReduceScatter,
            "ncclSend" => Self::Send,
            "ncclRecv" => Self::Recv,
            "ncclGroupStart" => Self::GroupStart,
            "ncclGroupEnd" => Self::GroupEnd,
            "ncclBroadcast" | "ncclBcast" => Self::Broadcast,
            "ncclReduce" => Self::Reduce,
            "ncclAlltoAll" | "ncclAllToAll" => Self::AllToAll,
            "ncclGather" => Self::Gather,
            "ncclScatter" => Self::Scatter,
            _ => Self::of_rare(api),
        }
    }

    fn of_rare(api: &str) -> Self {
        match api {
            "ncclCommInitRank" | "ncclCommInitRankConfig" | "ncclCommInitRankScalable" => {
                Self::Create(Creation::Init)
            }
            "ncclCommInitAll" => Self::Create(Creation::Alone),
            "ncclCommSplit" => Self::Create(Creation::Split),
            "ncclCommShrink" => Self::Create(Creation::Shrink),
            "ncclCommGrow" => Self::Create(Creation::Grow),
            "ncclCommFinalize" | "ncclCommDestroy" | "ncclCommAbort" | "ncclCommRevoke" => {
                Self::Destroy
            }
            "ncclGroupSimulateEnd" => Self::Apart,
            _ if APART.iter().any(|prefix| api.starts_with(prefix)) => Self::Apart,
            _ => match api.strip_suffix("Config") {
                Some(plain) if !plain.ends_with("Config") => Self::of(plain),
                _ => Self::Unknown,
            },
        }
    }

    /// What must match, for a collective that is known.
    pub(crate) fn needs(self) -> Option<Needs> {
        let needs = |bytes, op, root| Some(Needs { bytes, op, root });
        match self {
            Self::AllReduce | Self::ReduceScatter => needs(false, true, false),
            Self::Reduce => needs(false, true, true),
            Self::Broadcast | Self::Gather | Self::Scatter => needs(true, false, true),
            Self::AllGather | Self::AllToAll => needs(true, false, false),
            _ => None,
        }
    }

    /// Whether the calls are numbered as rounds of a communicator.
    #[inline]
    pub(crate) fn is_round(self) -> bool {
        self.needs().is_some() || self == Self::Unknown
    }
}

/// Beginnings of functions that have no place in the order of a communicator: management,
/// registration, and one-sided calls, which are recorded and not matched.
const APART: &[&str] = &[
    "ncclComm",
    "ncclGroup",
    "ncclMem",
    "ncclGet",
    "ncclRedOp",
    "ncclReset",
    "ncclSet",
    "ncclPut",
    "ncclSignal",
    "ncclWait",
    "ncclDev",
    "ncclWin",
];

/// First of the values of `ncclRedOp_t` that are handles of user-defined operations.
pub(crate) const FIRST_USER_OP: i64 = 5;

/// Bytes of one element of a `ncclDataType_t`.
pub(crate) fn element_bytes(datatype: i64) -> Option<i64> {
    match datatype {
        0 | 1 | 10 | 11 => Some(1),
        6 | 9 => Some(2),
        2 | 3 | 7 => Some(4),
        4 | 5 | 8 => Some(8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_variant_is_the_same_operation() {
        assert_eq!(Operation::of("ncclAllReduceConfig"), Operation::AllReduce);
        assert_eq!(Operation::of("ncclSendConfig"), Operation::Send);
        assert_eq!(Operation::of("ncclCommInitRankConfig"), Operation::Create(Creation::Init));
        assert_eq!(Operation::of("ncclAllReduceConfigConfig"), Operation::Unknown);
        assert_eq!(Operation::of("Config"), Operation::Unknown);
    }

    #[test]
    fn bcast_is_broadcast() {
        assert_eq!(Operation::of("ncclBcast"), Operation::of("ncclBroadcast"));
    }

    #[test]
    fn one_sided_and_management_calls_have_no_place_in_the_order() {
        for api in ["ncclPutSignal", "ncclSignal", "ncclWaitSignal", "ncclCommRegister"] {
            assert_eq!(Operation::of(api), Operation::Apart, "{api}");
        }
    }

    #[test]
    fn every_datatype_of_the_table_has_its_size() {
        let sizes: Vec<_> = (0..13).map(element_bytes).collect();
        let expected = [1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1];
        assert_eq!(sizes[..12], expected.map(Some));
        assert_eq!((sizes[12], element_bytes(-1)), (None, None));
    }
}
