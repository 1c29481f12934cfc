//! Comparing what two ranks called.

use serde::{Deserialize, Serialize};

use super::names::{Name, Names};
use super::operation::{FIRST_USER_OP, Operation, element_bytes};
use crate::event::NcclCall;
use crate::finding::{MismatchType, Signature};

/// What a rank called, without text. A user-defined reduction is kept as "user-defined" only: its
/// handle differs between ranks by design.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Called {
    pub(crate) operation: Operation,
    pub(crate) api: Name,
    pub(crate) count: i64,
    pub(crate) datatype: i64,
    pub(crate) op: i64,
    pub(crate) root: i64,
}

/// How two calls of one round relate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Relation {
    /// Nothing that matters differs.
    Equal,
    /// Equal bytes under another datatype, where only bytes matter.
    OtherDatatype,
    /// Something that matters differs. `certain` is false where one of the functions is unknown,
    /// so that nobody knows what matters.
    Differ { kind: MismatchType, certain: bool },
}

impl Called {
    #[inline]
    pub(crate) fn new(operation: Operation, api: Name, call: &NcclCall<'_>) -> Self {
        Self {
            operation,
            api,
            count: call.count,
            datatype: call.datatype,
            op: call.op.min(FIRST_USER_OP),
            root: call.root,
        }
    }

    /// Bytes that the call moves, `None` where count or datatype is unknown.
    pub(crate) fn bytes(&self) -> Option<i128> {
        let size = element_bytes(self.datatype)?;
        (self.count >= 0).then(|| i128::from(self.count) * i128::from(size))
    }

    /// How this call relates to that of another rank in the same round.
    pub(crate) fn relation(&self, other: &Self) -> Relation {
        let certain = self.operation != Operation::Unknown && other.operation != Operation::Unknown;
        let differ = |kind| Relation::Differ { kind, certain };
        if certain && self.count == 0 && other.count == 0 {
            // Neither does anything.
            return Relation::Equal;
        }
        if self.operation != other.operation {
            return differ(MismatchType::ApiMismatch);
        }
        let Some(needs) = self.operation.needs() else {
            return if self == other {
                Relation::Equal
            } else if self.api != other.api {
                differ(MismatchType::ApiMismatch)
            } else {
                differ(MismatchType::ParameterMismatch)
            };
        };
        if needs.root && differs(self.root, other.root) {
            return differ(MismatchType::RootMismatch);
        }
        if needs.op && differs(self.op, other.op) {
            return differ(MismatchType::ParameterMismatch);
        }
        self.amount(other, needs.bytes)
    }

    /// How the amounts of data relate.
    pub(crate) fn amount(&self, other: &Self, only_bytes: bool) -> Relation {
        let differ = Relation::Differ { kind: MismatchType::ParameterMismatch, certain: true };
        let datatypes = differs(self.datatype, other.datatype);
        if !datatypes {
            return if differs(self.count, other.count) { differ } else { Relation::Equal };
        }
        if !only_bytes {
            return differ;
        }
        match (self.bytes(), other.bytes()) {
            (Some(0), Some(0)) => Relation::Equal,
            (Some(mine), Some(theirs)) if mine == theirs => Relation::OtherDatatype,
            (Some(_), Some(_)) => differ,
            // The size of a datatype is not known: nothing can be said.
            _ => Relation::Equal,
        }
    }

    /// The call with its text.
    pub(crate) fn describe(&self, names: &Names) -> Signature {
        Signature {
            api: names.text(self.api).to_owned(),
            count: self.count,
            datatype: self.datatype,
            op: self.op,
            root: self.root,
        }
    }
}

/// Whether two values differ. A negative value is an unknown one and differs from nothing.
fn differs(a: i64, b: i64) -> bool {
    a >= 0 && b >= 0 && a != b
}

#[cfg(test)]
mod tests {
    use super::*;

    fn called(api: &str, count: i64, datatype: i64, op: i64, root: i64) -> Called {
        let mut call = NcclCall::new(api);
        (call.count, call.datatype, call.op, call.root) = (count, datatype, op, root);
        let mut names = Names::new();
        let mut name = Name::EMPTY;
        // The same number for the same text among the few that the tests use.
        for known in ["ncclAllReduce", "ncclBroadcast", "ncclBcast", "ncclFoo", "ncclBar", api] {
            let number = names.intern(known);
            if known == api {
                name = number;
            }
        }
        Called::new(Operation::of(api), name, &call)
    }

    #[track_caller]
    fn check(a: Called, b: Called, expected: Relation) {
        assert_eq!(a.relation(&b), expected);
        assert_eq!(b.relation(&a), expected);
    }

    const PARAMETER: Relation =
        Relation::Differ { kind: MismatchType::ParameterMismatch, certain: true };
    const ROOT: Relation = Relation::Differ { kind: MismatchType::RootMismatch, certain: true };
    const API: Relation = Relation::Differ { kind: MismatchType::ApiMismatch, certain: true };

    #[test]
    fn all_reduce_needs_count_datatype_and_op() {
        let a = called("ncclAllReduce", 8, 7, 0, -1);
        check(a, a, Relation::Equal);
        check(a, called("ncclAllReduce", 9, 7, 0, -1), PARAMETER);
        check(a, called("ncclAllReduce", 8, 2, 0, -1), PARAMETER);
        check(a, called("ncclAllReduce", 4, 8, 0, -1), PARAMETER);
        check(a, called("ncclAllReduce", 8, 7, 1, -1), PARAMETER);
        check(a, called("ncclAllReduce", 8, 7, 0, 3), Relation::Equal);
    }

    #[test]
    fn reduce_needs_the_root_and_says_so_first() {
        let a = called("ncclReduce", 8, 7, 0, 0);
        check(a, called("ncclReduce", 8, 7, 0, 1), ROOT);
        check(a, called("ncclReduce", 9, 7, 0, 1), ROOT);
        check(a, called("ncclReduce", 9, 7, 0, 0), PARAMETER);
    }

    #[test]
    fn where_only_bytes_matter_another_datatype_is_a_contract_warning() {
        for api in ["ncclBroadcast", "ncclAllGather", "ncclAlltoAll", "ncclGather", "ncclScatter"] {
            let a = called(api, 8, 7, -1, 0);
            check(a, called(api, 4, 8, -1, 0), Relation::OtherDatatype);
            check(a, called(api, 4, 7, -1, 0), PARAMETER);
            check(a, called(api, 8, 8, -1, 0), PARAMETER);
        }
    }

    #[test]
    fn bcast_matches_broadcast_and_config_matches_plain() {
        let a = called("ncclBroadcast", 8, 7, -1, 0);
        check(a, called("ncclBcast", 8, 7, -1, 0), Relation::Equal);
        check(a, called("ncclBroadcastConfig", 8, 7, -1, 0), Relation::Equal);
        check(a, called("ncclAllReduce", 8, 7, 0, -1), API);
    }

    #[test]
    fn user_defined_reductions_are_never_compared_by_value() {
        let a = called("ncclAllReduce", 8, 7, 812_748_662, -1);
        check(a, called("ncclAllReduce", 8, 7, 110_148_945, -1), Relation::Equal);
        check(a, called("ncclAllReduce", 8, 7, 0, -1), PARAMETER);
    }

    #[test]
    fn unknown_functions_are_compared_whole_and_never_for_certain() {
        let a = called("ncclFoo", 8, 7, 0, 1);
        check(a, a, Relation::Equal);
        let parameter = Relation::Differ { kind: MismatchType::ParameterMismatch, certain: false };
        check(a, called("ncclFoo", 8, 7, 0, 2), parameter);
        let api = Relation::Differ { kind: MismatchType::ApiMismatch, certain: false };
        check(a, called("ncclBar", 8, 7, 0, 1), api);
        check(a, called("ncclAllReduce", 8, 7, 0, 1), api);
    }

    #[test]
    fn a_count_of_zero_is_healthy_on_all_ranks_and_a_mismatch_on_some() {
        let none = called("ncclAllReduce", 0, 7, 0, -1);
        check(none, called("ncclAllReduce", 0, 2, 1, -1), Relation::Equal);
        check(none, called("ncclAllReduce", 1, 7, 0, -1), PARAMETER);
        let none = called("ncclAllGather", 0, 7, -1, -1);
        check(none, called("ncclAllGather", 1, 7, -1, -1), PARAMETER);
        check(none, called("ncclAllGather", 1, 8, -1, -1), PARAMETER);
    }

    #[test]
    fn values_that_are_unknown_differ_from_nothing() {
        let a = called("ncclAllReduce", 8, 7, 0, -1);
        check(a, called("ncclAllReduce", -1, -1, -1, -1), Relation::Equal);
        let a = called("ncclBroadcast", 8, 7, -1, 0);
        check(a, called("ncclBroadcast", 8, 40, -1, 0), Relation::Equal);
    }

    #[test]
    fn the_largest_counts_are_compared_without_overflow() {
        let a = called("ncclBroadcast", i64::MAX, 8, -1, 0);
        check(a, called("ncclBroadcast", i64::MAX, 7, -1, 0), PARAMETER);
    }
}
