//! The EP group: who is in it, what its ranks must agree on, and how they find together.

use std::fmt;
use std::sync::Arc;

use deepxtrace_counters::MAX_EP_SIZE;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use uuid::Uuid;

use crate::device::Identity;
use crate::gather::Gather;
use crate::stop::Until;

/// Version of what ranks send each other and of the counter layout.
pub const SCHEMA: u32 = 1;

/// The ranks of an EP group in order, and the own place among them.
///
/// A rank of the group is its place in the list of *global* ranks, which may be any ordered subset
/// of the job's ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    rank: usize,
    root: usize,
    global_ranks: Arc<[usize]>,
}

impl Membership {
    /// The whole job: EP rank and global rank are the same, rank 0 is the root.
    ///
    /// # Errors
    ///
    /// `size` is 0 or above [`MAX_EP_SIZE`], or `rank` is not below it.
    pub fn world(rank: usize, size: usize) -> Result<Self, MembershipError> {
        if size > MAX_EP_SIZE {
            return Err(MembershipError::Size(size));
        }
        Self::subgroup((0..size).collect(), rank, 0)
    }

    /// The group of `global_ranks` in this order, seen from `own_global_rank`; `root` is a rank of
    /// the group (a place in the list).
    ///
    /// # Errors
    ///
    /// - the list is empty or longer than [`MAX_EP_SIZE`]
    /// - a global rank stands in it twice, or the own one does not
    /// - `root` is not a place in the list
    pub fn subgroup(
        global_ranks: Vec<usize>,
        own_global_rank: usize,
        root: usize,
    ) -> Result<Self, MembershipError> {
        let size = global_ranks.len();
        if size == 0 || size > MAX_EP_SIZE {
            return Err(MembershipError::Size(size));
        }
        let mut sorted = global_ranks.clone();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(MembershipError::Twice(twice[0]));
        }
        if root >= size {
            return Err(MembershipError::Root { root, size });
        }
        let rank = global_ranks.iter().position(|&global| global == own_global_rank);
        let rank = rank.ok_or(MembershipError::NotMember { own: own_global_rank, size })?;
        Ok(Self { rank, root, global_ranks: global_ranks.into() })
    }

    /// The same group with another root, a rank of the group.
    ///
    /// # Errors
    ///
    /// `root` is not a rank of the group.
    pub fn with_root(self, root: usize) -> Result<Self, MembershipError> {
        if root >= self.size() {
            return Err(MembershipError::Root { root, size: self.size() });
        }
        Ok(Self { root, ..self })
    }

    /// The own rank in the group.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Ranks of the group, `N`.
    #[must_use]
    pub fn size(&self) -> usize {
        self.global_ranks.len()
    }

    /// The rank of the group that gathers and diagnoses.
    #[must_use]
    pub fn root(&self) -> usize {
        self.root
    }

    /// Whether the own rank is the root.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.rank == self.root
    }

    /// The global ranks in the order of the group.
    #[must_use]
    pub fn global_ranks(&self) -> &[usize] {
        &self.global_ranks
    }

    /// The global rank of `rank`, `None` outside the group.
    #[must_use]
    pub fn global(&self, rank: usize) -> Option<usize> {
        self.global_ranks.get(rank).copied()
    }
}

/// A group that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MembershipError {
    /// The number of ranks is 0 or above [`MAX_EP_SIZE`].
    #[error("a group of {0} ranks: it must have 1 to {MAX_EP_SIZE}")]
    Size(usize),
    /// A global rank is listed twice.
    #[error("global rank {0} is in the group twice")]
    Twice(usize),
    /// The own global rank is not listed.
    #[error("global rank {own} is not among the {size} ranks of the group")]
    NotMember {
        /// The own global rank.
        own: usize,
        /// Ranks of the group.
        size: usize,
    },
    /// The root is outside the group.
    #[error("root {root} is not a rank of the group, which has ranks 0..{size}")]
    Root {
        /// The root asked for.
        root: usize,
        /// Ranks of the group.
        size: usize,
    },
}

/// What one rank brings to the group. All but the identity must be equal on all ranks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// Whether collection is wanted at all. When no rank wants it, the rest is not compared.
    pub enabled: bool,
    /// Counters a rank, elements.
    pub vector_len: usize,
    /// Names and values of all settings, in one order.
    pub settings: Vec<(String, String)>,
    /// Where this rank runs.
    pub identity: Identity,
}

/// Everything that ranks compare, as it travels to the root.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`SCHEMA`] of the sender.
    pub schema: u32,
    /// Its rank in the group.
    pub rank: usize,
    /// The root it believes in.
    pub root: usize,
    /// The group it believes in, global ranks in order.
    pub global_ranks: Vec<usize>,
    /// What it wants.
    pub proposal: Proposal,
}

impl Hello {
    /// What the rank of `membership` says.
    #[must_use]
    pub fn new(membership: &Membership, proposal: &Proposal) -> Self {
        Self {
            schema: SCHEMA,
            rank: membership.rank(),
            root: membership.root(),
            global_ranks: membership.global_ranks().to_vec(),
            proposal: proposal.clone(),
        }
    }

    /// Every compared value by name, in a fixed order.
    fn compared(&self) -> Vec<(String, String)> {
        let enabled = self.proposal.enabled;
        let mut all = vec![
            ("schema".to_owned(), self.schema.to_string()),
            ("EP size".to_owned(), self.global_ranks.len().to_string()),
            ("enabled".to_owned(), enabled.to_string()),
            ("root".to_owned(), self.root.to_string()),
            ("global ranks".to_owned(), format!("{:?}", self.global_ranks)),
        ];
        if enabled {
            all.push(("vector length".to_owned(), self.proposal.vector_len.to_string()));
            all.extend(self.proposal.settings.iter().cloned());
        }
        all
    }
}

/// What the ranks agreed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Agreement {
    /// All want collection; the root names this run.
    Enabled(Uuid),
    /// Nobody wants it.
    Disabled,
}

/// One setting that differs: each value with the ranks of the group that have it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The setting.
    pub setting: String,
    /// Its values, each with its ranks in order, in the order of their first ranks. A rank that
    /// does not know the setting has the value `unset`.
    pub values: Vec<(String, Vec<usize>)>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SPELLED_OUT: usize = 8;
        write!(f, "{} is ", self.setting)?;
        if self.values.len() > SPELLED_OUT {
            write!(f, "different on {} ranks or groups of ranks: ", self.values.len())?;
        }
        for (i, (value, ranks)) in self.values.iter().take(SPELLED_OUT).enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            let plural = if ranks.len() == 1 { "rank" } else { "ranks" };
            write!(f, "{comma}{value} on {plural} {}", RankList(ranks))?;
        }
        match self.values.len().checked_sub(SPELLED_OUT) {
            None | Some(0) => Ok(()),
            Some(more) => write!(f, ", and {more} more"),
        }
    }
}

/// Writes ranks in order as `0-3, 7`.
struct RankList<'a>(&'a [usize]);

impl fmt::Display for RankList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, run) in self.0.chunk_by(|a, b| a + 1 == *b).enumerate() {
            let comma = if i == 0 { "" } else { ", " };
            match run {
                [first, .., last] => write!(f, "{comma}{first}-{last}")?,
                [only] => write!(f, "{comma}{only}")?,
                [] => {}
            }
        }
        Ok(())
    }
}

/// Compares what all ranks said.
///
/// # Errors
///
/// Every setting in which two ranks differ, in the order of the settings.
pub fn agree(hellos: &[Hello], instance: Uuid) -> Result<Agreement, Vec<Difference>> {
    let Some(first) = hellos.first() else { return Ok(Agreement::Disabled) };
    let reference = first.compared();
    let others: Vec<_> = hellos.iter().map(|hello| (hello.rank, hello.compared())).collect();
    let mut names: Vec<String> = reference.into_iter().map(|(name, _)| name).collect();
    for (name, _) in others.iter().flat_map(|(_, compared)| compared) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    let enabled = hellos.iter().filter(|hello| hello.proposal.enabled).count();
    if enabled > 0 && enabled < hellos.len() {
        // The settings of a disabled rank are not read, so only the switch can be compared.
        names.retain(|name| ["schema", "EP size", "enabled"].contains(&name.as_str()));
    }
    let differences: Vec<_> =
        names.into_iter().filter_map(|name| difference(name, &others)).collect();
    if !differences.is_empty() {
        return Err(differences);
    }
    Ok(if enabled > 0 { Agreement::Enabled(instance) } else { Agreement::Disabled })
}

fn difference(setting: String, all: &[(usize, Vec<(String, String)>)]) -> Option<Difference> {
    let mut values: Vec<(String, Vec<usize>)> = Vec::new();
    for (rank, compared) in all {
        let value = compared.iter().find(|(name, _)| *name == setting);
        let value = value.map_or("unset", |(_, value)| value.as_str());
        match values.iter_mut().find(|(known, _)| known == value) {
            Some((_, ranks)) => ranks.push(*rank),
            None => values.push((value.to_owned(), vec![*rank])),
        }
    }
    for (_, ranks) in &mut values {
        ranks.sort_unstable();
    }
    values.sort_by(|a, b| a.1.cmp(&b.1));
    (values.len() > 1).then_some(Difference { setting, values })
}

/// A group that has not come together yet: what a rank knows before it speaks to the others.
pub trait Group: Send {
    /// The own place in the group.
    fn membership(&self) -> &Membership;

    /// Whether the gather may be used from a thread other than the one that joins, as the
    /// asynchronous schedule does.
    ///
    /// # Errors
    ///
    /// It may not, and why.
    fn check_background(&self) -> Result<(), JoinError> {
        Ok(())
    }

    /// Meets the other ranks and agrees with them. Every rank of the group calls it, and each gets
    /// the same answer. `None`: nobody wants collection; nothing is left behind.
    ///
    /// # Errors
    ///
    /// The ranks disagree, or not all came before `until`.
    fn join(
        self: Box<Self>,
        proposal: &Proposal,
        until: Until<'_>,
    ) -> Result<Option<Joined>, JoinError>;
}

/// A group whose ranks have agreed.
pub struct Joined {
    /// Names this run, the same on all ranks.
    pub instance: Uuid,
    /// The way to gather.
    pub gather: Box<dyn Gather>,
}

impl fmt::Debug for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joined").field("instance", &self.instance).finish_non_exhaustive()
    }
}

/// Why the ranks did not come together.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum JoinError {
    /// Settings differ between ranks.
    #[error("the ranks of the group disagree: {}", joined(.0))]
    Disagreement(Vec<Difference>),
    /// Some ranks did not come in time.
    #[error("{} of {size} ranks did not join in time: rank {}", .ranks.len(), RankList(.ranks))]
    Missing {
        /// The ranks that did not come.
        ranks: Vec<usize>,
        /// Ranks of the group.
        size: usize,
    },
    /// The root was not reached in time.
    #[error("no answer from the root of the group ({place}) in time: {reason}")]
    NoRoot {
        /// Where it was expected.
        place: String,
        /// What happened last.
        reason: String,
    },
    /// The root refused this rank.
    #[error("the root of the group refused rank {rank}: {reason}")]
    Refused {
        /// The own rank.
        rank: usize,
        /// The root's words.
        reason: String,
    },
    /// The transport cannot be used.
    #[error("{what}: {reason}")]
    Transport {
        /// What was tried.
        what: String,
        /// Why it failed.
        reason: String,
    },
    /// A setting of the transport is missing or wrong.
    #[error("{variable}={value:?} cannot be used: {allowed}")]
    Setting {
        /// The variable or builder setting.
        variable: &'static str,
        /// Its value; empty when unset.
        value: String,
        /// What would be right.
        allowed: &'static str,
    },
    /// The group was told to stop before it had come together.
    #[error("stopped before the group had come together")]
    Stopped,
}

fn joined(differences: &[Difference]) -> String {
    differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}
