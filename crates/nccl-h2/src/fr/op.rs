//! What the name of an entry says: the operation, and for a send or receive who with whom.

/// The operation of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Op {
    AllReduce,
    /// A barrier. Many are an all-reduce of one element, and still no all-reduce of the program.
    Barrier,
    Broadcast,
    Reduce,
    AllGather,
    ReduceScatter,
    Gather,
    Scatter,
    AllToAll,
    /// `src` and `dst` are ranks of the process group.
    Send {
        src: i64,
        dst: i64,
    },
    Recv {
        src: i64,
        dst: i64,
    },
    /// The end of a group of calls that were launched together.
    GroupEnd,
    /// An operation that is not known here: compared by name alone.
    Other,
}

/// Which values of an entry have to agree between ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compared {
    /// Elements and datatype of the inputs.
    Inputs,
    /// Elements and datatype of the outputs: what a rank receives.
    Outputs,
    /// Sizes may differ between ranks by design.
    Nothing,
}

impl Op {
    /// Reads `backend:operation`, with ranks behind a send or receive.
    pub(crate) fn parse(name: &str) -> Self {
        let (_, name) = backend(name);
        let (word, ranks) = name.split_once(' ').unwrap_or((name, ""));
        match word {
            "send" => match pair(ranks, "->") {
                Some((src, dst)) => Self::Send { src, dst },
                None => Self::Other,
            },
            "recv" => match pair(ranks, "<-") {
                Some((dst, src)) => Self::Recv { src, dst },
                None => Self::Other,
            },
            _ => Self::collective(word),
        }
    }

    fn collective(word: &str) -> Self {
        match word {
            "all_reduce"
            | "allreduce"
            | "allreduce_coalesced"
            | "all_reduce_coalesced"
            | "all_reduce_sparse" => Self::AllReduce,
            "all_reduce_barrier" | "barrier" => Self::Barrier,
            "broadcast" | "_broadcast_oop" => Self::Broadcast,
            "reduce" | "_reduce_oop" => Self::Reduce,
            "all_gather"
            | "allgather"
            | "_all_gather_base"
            | "_allgather_base"
            | "all_gather_into_tensor_coalesced"
            | "allgather_into_tensor_coalesced"
            | "allgather_coalesced" => Self::AllGather,
            "reduce_scatter"
            | "_reduce_scatter_base"
            | "reduce_scatter_tensor_coalesced"
            | "reduce_scatter_coalesced" => Self::ReduceScatter,
            "gather" => Self::Gather,
            "scatter" => Self::Scatter,
            "all_to_all" | "alltoall" | "all_to_all_single" | "alltoall_base" => Self::AllToAll,
            _ if word == "coalesced" || is_group_end(word) => Self::GroupEnd,
            _ => Self::Other,
        }
    }

    /// The function of NCCL, where it is one.
    pub(crate) fn nccl_name(self) -> Option<&'static str> {
        Some(match self {
            Self::AllReduce => "ncclAllReduce",
            Self::Broadcast => "ncclBroadcast",
            Self::Reduce => "ncclReduce",
            Self::AllGather => "ncclAllGather",
            Self::ReduceScatter => "ncclReduceScatter",
            Self::Gather => "ncclGather",
            Self::Scatter => "ncclScatter",
            Self::AllToAll => "ncclAlltoAll",
            Self::Send { .. } => "ncclSend",
            Self::Recv { .. } => "ncclRecv",
            Self::Barrier | Self::GroupEnd | Self::Other => return None,
        })
    }

    /// What the ranks of a round are compared by.
    pub(crate) fn compared(self) -> Compared {
        match self {
            // A receive and a reduce-scatter are judged by what arrives. The recorder writes the one
            // tensor that a rank of a scatter receives into the inputs.
            Self::ReduceScatter | Self::Recv { .. } => Compared::Outputs,
            Self::AllToAll | Self::GroupEnd | Self::Other => Compared::Nothing,
            _ => Compared::Inputs,
        }
    }

    /// Whether the call returns on a rank only after all ranks have taken part.
    pub(crate) fn waits_for_all(self) -> bool {
        matches!(self, Self::AllReduce | Self::Barrier | Self::AllGather | Self::ReduceScatter)
    }

    /// Whether only the root has a list of tensors in the outputs of its entry.
    pub(crate) fn root_has_outputs(self) -> bool {
        matches!(self, Self::Gather | Self::Scatter)
    }
}

/// The backend and the rest of a name.
pub(crate) fn backend(name: &str) -> (&str, &str) {
    name.split_once(':').unwrap_or(("", name))
}

/// The end of a group is named after the function in capitals, such as `ALLGATHER_coalesced`.
fn is_group_end(word: &str) -> bool {
    word.strip_suffix("_coalesced").is_some_and(|function| {
        !function.is_empty()
            && function.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
    })
}

fn pair(text: &str, arrow: &str) -> Option<(i64, i64)> {
    let (left, right) = text.split_once(arrow)?;
    let rank = |text: &str| text.trim().parse::<i64>().ok().filter(|rank| *rank >= 0);
    Some((rank(left)?, rank(right)?))
}

/// An `ncclDataType_t` (-1 for a type that NCCL has not) and the bytes of an element, by the name
/// that PyTorch gives to a type of tensors. `None` for an unknown name.
pub(crate) fn datatype(name: &str) -> Option<(i64, i64)> {
    Some(match name {
        "Char" => (0, 1),
        "Byte" | "Bool" => (1, 1),
        "Int" => (2, 4),
        "UInt32" => (3, 4),
        "Long" => (4, 8),
        "UInt64" => (5, 8),
        "Half" => (6, 2),
        "Float" => (7, 4),
        "Double" => (8, 8),
        "BFloat16" => (9, 2),
        "Float8_e4m3fn" => (10, 1),
        "Float8_e5m2" => (11, 1),
        "Float8_e4m3fnuz" | "Float8_e5m2fnuz" | "Float8_e8m0fnu" => (-1, 1),
        "Short" | "UInt16" => (-1, 2),
        "ComplexHalf" => (-1, 4),
        "ComplexFloat" => (-1, 8),
        "ComplexDouble" => (-1, 16),
        _ => return None,
    })
}
