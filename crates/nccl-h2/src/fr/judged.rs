//! A process group with everything that was found on it alone.

use crate::fr::p2p::Pairs;
use crate::fr::rounds::{GroupView, Rounds};

/// A process group with everything that was found on it alone.
#[derive(Debug)]
pub(crate) struct Judged<'a> {
    pub(crate) view: GroupView<'a>,
    pub(crate) rounds: Rounds,
    pub(crate) pairs: Pairs,
}
