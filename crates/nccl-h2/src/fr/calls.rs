//! Calls of dumps in the terms in which calls of traces are compared.

use crate::analyzer::names::{Name, Names};
use crate::analyzer::operation::Operation;
use crate::analyzer::signature::{Called, Relation};
use crate::analyzer::trouble::worst_relation;
use crate::finding::{MismatchType, Signature};
use crate::fr::op::{Compared, Op};
use crate::fr::record::{Shape, Tensor};

/// The calls of all shapes of a set: what is compared, one [`Called`] a tensor.
#[derive(Debug)]
pub(crate) struct Calls {
    names: Names,
    by_shape: Vec<ShapeCalls>,
}

#[derive(Debug)]
struct ShapeCalls {
    op: Op,
    tensors: Vec<Called>,
    /// Whether this rank gathers or scatters from its own list of tensors.
    is_root: bool,
}

/// One rank's call in a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Made {
    /// Rank in the group.
    pub(crate) comm_rank: i64,
    /// Its shape in the set.
    pub(crate) shape: u32,
}

/// How the calls of a round relate, and where they do so.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Verdict {
    pub(crate) relation: Relation,
    /// The call of each rank, as far as it explains the relation: of the first tensors that differ.
    pub(crate) calls: Vec<(i64, Called)>,
}

impl Calls {
    /// Describes all shapes.
    pub(crate) fn new(shapes: &[Shape]) -> Self {
        let mut names = Names::new();
        let by_shape = shapes.iter().map(|shape| ShapeCalls::new(shape, &mut names)).collect();
        Self { names, by_shape }
    }

    /// The text of a call.
    pub(crate) fn describe(&self, called: &Called) -> Signature {
        called.describe(&self.names)
    }

    /// The whole call of a rank: the sum of its tensors.
    pub(crate) fn whole(&self, made: Made) -> Called {
        let shape = self.shape(made.shape);
        let tensors = shape.map(|shape| shape.tensors.as_slice()).unwrap_or_default();
        let mut whole = tensors.first().copied().unwrap_or_else(nothing);
        for more in tensors.get(1..).unwrap_or_default() {
            whole.count = whole.count.saturating_add(more.count);
            if whole.datatype != more.datatype {
                whole.datatype = -1;
            }
        }
        self.with_root(whole, made)
    }

    /// How the calls of several ranks in one round relate.
    ///
    /// `all` says whether every rank of the group is among them: only then somebody must be root.
    pub(crate) fn relate(&self, made: &[Made], all: bool) -> Verdict {
        let equal = made.windows(2).all(|pair| matches!(pair, [a, b] if a.shape == b.shape));
        if equal && !self.made_by_root(made) {
            return Verdict { relation: Relation::Equal, calls: Vec::new() };
        }
        let first = self.first_difference(made);
        if matches!(first.relation, Relation::Differ { .. }) || !all {
            return first;
        }
        let rooted = made.iter().all(|made| self.op(made.shape).is_some_and(Op::root_has_outputs));
        let moves = made.iter().any(|made| self.whole(*made).count > 0);
        if rooted && moves && !made.iter().any(|made| self.is_root(made.shape)) {
            let relation = Relation::Differ { kind: MismatchType::RootMismatch, certain: true };
            let calls = made.iter().map(|made| (made.comm_rank, self.whole(*made))).collect();
            return Verdict { relation, calls };
        }
        first
    }

    /// A coalesced group that is shorter on some ranks: these have no call at this place.
    pub(crate) fn shorter_group(&self, made: &[Made], ranks: impl Iterator<Item = i64>) -> Verdict {
        let calls = ranks.map(|rank| {
            let there = made.iter().find(|made| made.comm_rank == rank);
            (rank, there.map_or_else(nothing, |made| self.whole(*made)))
        });
        Verdict {
            relation: Relation::Differ { kind: MismatchType::ApiMismatch, certain: true },
            calls: calls.collect(),
        }
    }

    /// A rank's all-to-all with what it sends: elements of all its tensors, and their datatype.
    pub(crate) fn sent(&self, made: Made, shapes: &[Shape]) -> Called {
        let inputs = shapes.get(made.shape as usize).map(|shape| shape.inputs.as_slice());
        let mut called = self.whole(made);
        called.count = 0;
        called.datatype = -1;
        for tensor in inputs.unwrap_or_default() {
            called.count = called.count.saturating_add(tensor.elements.max(0));
            called.datatype = tensor.nccl_type();
        }
        called
    }

    /// How the amounts of a send and its receive relate.
    pub(crate) fn pair(&self, send: u32, recv: u32) -> Relation {
        let whole = |shape| self.whole(Made { comm_rank: -1, shape });
        whole(send).amount(&whole(recv), true)
    }

    /// The operation of a shape.
    pub(crate) fn op(&self, shape: u32) -> Option<Op> {
        self.shape(shape).map(|shape| shape.op)
    }

    fn shape(&self, shape: u32) -> Option<&ShapeCalls> {
        self.by_shape.get(shape as usize)
    }

    fn is_root(&self, shape: u32) -> bool {
        self.shape(shape).is_some_and(|shape| shape.is_root)
    }

    fn made_by_root(&self, made: &[Made]) -> bool {
        made.first().is_some_and(|made| self.op(made.shape).is_some_and(Op::root_has_outputs))
    }

    fn with_root(&self, mut called: Called, made: Made) -> Called {
        if self.is_root(made.shape) {
            called.root = made.comm_rank;
        }
        called
    }

    /// Compares tensor by tensor; a difference outranks equal bytes of another datatype.
    fn first_difference(&self, made: &[Made]) -> Verdict {
        let longest = made.iter().map(|made| self.tensors(made.shape)).max().unwrap_or(0);
        let mut weaker = Verdict { relation: Relation::Equal, calls: Vec::new() };
        for place in 0..longest {
            let calls: Vec<(i64, Called)> =
                made.iter().map(|made| (made.comm_rank, self.tensor(*made, place))).collect();
            let relation = self.relation(&calls, made);
            match relation {
                Relation::Differ { .. } => return Verdict { relation, calls },
                Relation::OtherDatatype => weaker = Verdict { relation, calls },
                Relation::Equal => {}
            }
        }
        let uneven = made.iter().any(|made| self.tensors(made.shape) != longest);
        if uneven {
            let relation =
                Relation::Differ { kind: MismatchType::ParameterMismatch, certain: true };
            let calls = made.iter().map(|made| (made.comm_rank, self.whole(*made))).collect();
            return Verdict { relation, calls };
        }
        weaker
    }

    fn relation(&self, calls: &[(i64, Called)], made: &[Made]) -> Relation {
        let mut barriers = made.iter().map(|made| self.op(made.shape) == Some(Op::Barrier));
        let first = barriers.next();
        if barriers.any(|barrier| Some(barrier) != first) {
            return Relation::Differ { kind: MismatchType::ApiMismatch, certain: true };
        }
        let mut variants: Vec<Called> = Vec::new();
        for (_, called) in calls {
            if !variants.contains(called) {
                variants.push(*called);
            }
        }
        worst_relation(&variants)
    }

    fn tensors(&self, shape: u32) -> usize {
        self.shape(shape).map_or(0, |shape| shape.tensors.len())
    }

    /// One tensor of a rank's call; where it has none, the call with its amount unknown.
    fn tensor(&self, made: Made, place: usize) -> Called {
        let tensors = self.shape(made.shape).map(|shape| shape.tensors.as_slice());
        let tensors = tensors.unwrap_or_default();
        let called = match tensors.get(place) {
            Some(called) => *called,
            None => Called {
                count: -1,
                datatype: -1,
                ..tensors.first().copied().unwrap_or_else(nothing)
            },
        };
        self.with_root(called, made)
    }
}

impl ShapeCalls {
    fn new(shape: &Shape, names: &mut Names) -> Self {
        let api = names.intern(shape.api());
        let operation = match (shape.op, shape.op.nccl_name()) {
            (Op::Barrier, _) => Operation::AllReduce,
            (_, Some(name)) => Operation::of(name),
            _ => Operation::Unknown,
        };
        let base = Called { operation, api, ..nothing() };
        let tensors: &[Tensor] = match shape.op.compared() {
            Compared::Inputs => &shape.inputs,
            Compared::Outputs => &shape.outputs,
            Compared::Nothing => &[],
        };
        let mut tensors: Vec<Called> = tensors
            .iter()
            .map(|tensor| Called { count: tensor.elements, datatype: tensor.nccl_type(), ..base })
            .collect();
        if tensors.is_empty() {
            tensors.push(base);
        }
        let is_root = shape.op.root_has_outputs() && !shape.outputs_empty();
        Self { op: shape.op, tensors, is_root }
    }
}

/// A call of which nothing is known.
fn nothing() -> Called {
    Called {
        operation: Operation::Unknown,
        api: Name::EMPTY,
        count: -1,
        datatype: -1,
        op: -1,
        root: -1,
    }
}
