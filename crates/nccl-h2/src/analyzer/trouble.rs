//! What is kept of a communicator once the calls of a round differ.

use serde::{Deserialize, Serialize};

use super::divergence::Sequence;
use super::signature::{Called, Relation};

/// Calls of each rank that are kept from the first difference on, at most, and of all together.
const WINDOW: usize = 512;
const ALL_CALLS: usize = 1 << 18;
/// Calls that are kept of each rank of a large communicator.
const LEAST: usize = 64;

/// Complete rounds that differ and are kept whole; more are counted.
pub(crate) const MAX_DIFFERING: usize = 64;

/// The calls around and after the first difference of a communicator.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Trouble {
    /// The first round that differs.
    pub(crate) start: i64,
    /// By rank: number and call, from `start` on, in order of arrival.
    pub(crate) sequences: Vec<Vec<(i64, Called)>>,
    /// Complete rounds that differ, in order of their completion.
    pub(crate) differing: Vec<Differing>,
    /// Complete rounds that differ and are not in `differing`.
    pub(crate) more: i64,
    /// The last complete round that differs.
    pub(crate) last: i64,
    /// An explanation was given as a finding.
    pub(crate) explained: bool,
    /// The calls stay apart: what differs later is explained, too.
    pub(crate) lasting: bool,
    /// Calls that are kept of each rank.
    window: usize,
    /// The latest mismatch that was given as a finding.
    pub(crate) reported: Option<Vec<(i64, Called)>>,
    /// The first round that was given as a finding, alone or within an explanation.
    pub(crate) first_reported: Option<i64>,
}

/// A complete round whose calls differ.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Differing {
    pub(crate) seq: i64,
    pub(crate) relation: Relation,
    /// By rank, in order.
    pub(crate) calls: Vec<(i64, Called)>,
    /// Already given as a finding, alone or within another.
    pub(crate) done: bool,
}

/// Calls of each of so many ranks that are kept from the first difference on.
pub(crate) fn window(ranks: usize) -> usize {
    (ALL_CALLS / ranks.max(1)).clamp(LEAST, WINDOW)
}

impl Trouble {
    pub(crate) fn new(start: i64, nranks: i64) -> Self {
        Self {
            window: window(usize::try_from(nranks).unwrap_or(1)),
            lasting: false,
            start,
            sequences: Vec::new(),
            differing: Vec::new(),
            more: 0,
            last: start,
            explained: false,
            reported: None,
            first_reported: None,
        }
    }

    /// Keeps a call of a rank, as long as there is room.
    pub(crate) fn keep(&mut self, rank: usize, seq: i64, called: Called) {
        if seq < self.start {
            return;
        }
        if self.sequences.len() <= rank {
            self.sequences.resize_with(rank + 1, Vec::new);
        }
        let sequence = &mut self.sequences[rank];
        if sequence.len() < self.window {
            sequence.push((seq, called));
        }
    }

    /// Keeps a complete round that differs, or counts it.
    pub(crate) fn differ(&mut self, differing: Differing) {
        self.last = self.last.max(differing.seq);
        if self.differing.len() < MAX_DIFFERING {
            self.differing.push(differing);
        } else {
            self.more += 1;
        }
    }

    /// The calls of a rank from the first difference on, by position; `None` where the trace has a
    /// hole.
    pub(crate) fn sequence(&self, rank: usize) -> Sequence {
        let mut calls: Vec<(i64, Called)> = match self.sequences.get(rank) {
            Some(calls) => calls.clone(),
            None => return Vec::new(),
        };
        calls.sort_by_key(|&(seq, _)| seq);
        calls.dedup_by_key(|&mut (seq, _)| seq);
        let mut placed: Vec<Option<Called>> = Vec::with_capacity(calls.len());
        for (seq, called) in calls {
            // At most WINDOW holes: what lies further off is not compared.
            let Ok(at) = usize::try_from(seq.saturating_sub(self.start)) else { continue };
            if at < placed.len() || at >= 2 * WINDOW {
                continue;
            }
            placed.resize(at, None);
            placed.push(Some(called));
        }
        placed
    }
}

/// The worst relation among the different calls of a round, and between which it holds.
///
/// An api that differs outranks a root, a root outranks other parameters, and any of them outranks
/// a datatype under which the bytes are equal.
pub(crate) fn worst_relation(variants: &[Called]) -> Relation {
    let mut different: Vec<Called> = Vec::new();
    for called in variants {
        if !different.contains(called) {
            different.push(*called);
        }
    }
    let mut worst = Relation::Equal;
    for (at, one) in different.iter().enumerate() {
        for other in &different[at + 1..] {
            let relation = one.relation(other);
            if rank(relation) > rank(worst) {
                worst = relation;
            }
        }
    }
    worst
}

fn rank(relation: Relation) -> u8 {
    use crate::finding::MismatchType;
    match relation {
        Relation::Equal => 0,
        Relation::OtherDatatype => 1,
        Relation::Differ { kind, certain } => {
            let kind = match kind {
                MismatchType::ParameterMismatch => 0,
                MismatchType::RootMismatch => 1,
                MismatchType::ApiMismatch => 2,
            };
            2 + 2 * kind + u8::from(certain)
        }
    }
}
