//! What a window led to, as the program is told.

use std::fmt;
use std::sync::Arc;

use deepxtrace_collect::{Gather, Identity, Membership, Status};
use deepxtrace_counters::{LlPhase, LlWindow, Window};
use deepxtrace_ll::LlDiagnosis;
use deepxtrace_normal::{Finding, Incident, WindowDiagnosis, WindowState};

/// What a callback is told.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Report<'a> {
    /// Root: a Normal-mode window has ended.
    Normal(NormalReport<'a>),
    /// Root: a low-latency window has ended.
    LowLatency(LlReport<'a>),
    /// Any rank: something happened that is no window.
    Notice(&'a Notice),
}

/// A Normal-mode window.
#[derive(Debug, Clone, Copy)]
pub struct NormalReport<'a> {
    /// What it led to.
    pub diagnosis: &'a WindowDiagnosis,
    /// Its counters; `None` when it was refused.
    pub window: Option<&'a Window>,
    /// Who and where the ranks are.
    pub ranks: &'a Ranks,
}

/// A low-latency window.
#[derive(Debug, Clone, Copy)]
pub struct LlReport<'a> {
    /// Number of the window.
    pub window_index: u64,
    /// What became of it.
    pub state: WindowState,
    /// Why it was refused.
    pub reason: Option<&'a str>,
    /// Ranks without two consecutive snapshots, in order.
    pub missing_ranks: &'a [usize],
    /// Its waits; `None` when it was refused.
    pub window: Option<&'a LlWindow>,
    /// The diagnosis of the dispatch waits; `None` unless the window was diagnosed.
    pub dispatch: Option<&'a LlDiagnosis>,
    /// The diagnosis of the combine waits; `None` unless the window was diagnosed.
    pub combine: Option<&'a LlDiagnosis>,
    /// Who and where the ranks are.
    pub ranks: &'a Ranks,
}

impl<'a> LlReport<'a> {
    /// The diagnoses there are, by phase.
    pub fn phases(&self) -> impl Iterator<Item = (LlPhase, &'a LlDiagnosis)> + use<'a> {
        let both = [(LlPhase::Dispatch, self.dispatch), (LlPhase::Combine, self.combine)];
        both.into_iter().filter_map(|(phase, diagnosis)| Some((phase, diagnosis?)))
    }
}

/// Something that happened and is no window.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// A round failed on this rank; the next is tried.
    RoundFailed(String),
    /// This rank had no snapshot for a round.
    Skipped(String),
    /// The root has left: there will be no more windows.
    RootLeft,
    /// Snapshots are not in the order of the producer's work, for want of its stream.
    Unordered,
    /// The log cannot be written. It is tried again; the program is not told again before it has
    /// worked in between.
    Log(String),
    /// A window could not be handed on, to an artifact for one.
    Sink(String),
    /// The program's callback panicked. It is not called again.
    CallbackPanicked,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RoundFailed(reason) => write!(f, "round failed: {reason}"),
            Self::Skipped(reason) => write!(f, "no snapshot: {reason}"),
            Self::RootLeft => f.write_str("the root has left, there will be no more windows"),
            Self::Unordered => f.write_str(
                "no producer stream: snapshots are unordered, counters of one window may be from \
                 different moments",
            ),
            Self::Log(reason) | Self::Sink(reason) => f.write_str(reason),
            Self::CallbackPanicked => f.write_str("the callback panicked, it is not called again"),
        }
    }
}

/// Who the ranks of the group are, where they run, and how they answered last.
#[derive(Debug)]
pub struct Ranks {
    membership: Membership,
    identities: Vec<Option<Arc<Identity>>>,
    statuses: Vec<Status>,
}

impl Ranks {
    pub(crate) fn new(membership: Membership) -> Self {
        let ranks = membership.size();
        Self { membership, identities: vec![None; ranks], statuses: vec![Status::Ok; ranks] }
    }

    pub(crate) fn update(&mut self, gather: &dyn Gather, statuses: &[Status]) {
        for (rank, known) in self.identities.iter_mut().enumerate() {
            *known = gather.identity(rank);
        }
        for (known, status) in self.statuses.iter_mut().zip(statuses) {
            *known = *status;
        }
    }

    /// Number of ranks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.membership.size()
    }

    pub(crate) fn own(&self) -> usize {
        self.membership.rank()
    }

    pub(crate) fn root(&self) -> usize {
        self.membership.root()
    }

    /// Never: a group has a rank at least.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The global rank of `rank`, `None` outside the group.
    #[must_use]
    pub fn global(&self, rank: usize) -> Option<usize> {
        self.membership.global(rank)
    }

    /// Where `rank` runs, where that is known.
    #[must_use]
    pub fn identity(&self, rank: usize) -> Option<&Identity> {
        self.identities.get(rank)?.as_deref()
    }

    /// How `rank` answered the last round, `Ok` before the first; `None` outside the group.
    #[must_use]
    pub fn status(&self, rank: usize) -> Option<Status> {
        self.statuses.get(rank).copied()
    }

    /// `rank` with all that is known of its place, for people: `rank 1 (global rank 9, host a,
    /// NVIDIA H200 GPU-5f, mlx5_0)`.
    #[must_use]
    pub fn place(&self, rank: usize) -> impl fmt::Display + '_ {
        Place { ranks: self, rank }
    }

    /// Whether a finding, an incident or an absence names `rank` itself.
    pub(crate) fn concerns(&self, diagnosis: &WindowDiagnosis, rank: usize) -> bool {
        let finding = |finding: &Finding| match *finding {
            Finding::LateRank { rank: named, .. }
            | Finding::SourceRow { rank: named, .. }
            | Finding::DestinationColumn { rank: named, .. } => named == rank,
            Finding::Point { src, dst, .. } => src == rank || dst == rank,
            // A gateway is a proxy, not the rank itself.
            _ => false,
        };
        let incident = |incident: &Incident| match incident {
            Incident::PreStageArrivalSkew { ranks, .. } => ranks.contains(&rank),
            Incident::LocalizedDataPathSlowdown { owners, experts, edges, .. } => {
                owners.contains(&rank)
                    || experts.contains(&rank)
                    || edges.iter().any(|edge| edge.contains(&rank))
            }
            _ => false,
        };
        diagnosis.missing_ranks.binary_search(&rank).is_ok()
            || diagnosis.incidents.iter().any(incident)
            || diagnosis.probes.iter().any(|(_, report)| report.findings.iter().any(finding))
    }
}

struct Place<'a> {
    ranks: &'a Ranks,
    rank: usize,
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.rank)?;
        let Some(global) = self.ranks.global(self.rank) else { return Ok(()) };
        write!(f, " (global rank {global}")?;
        if let Some(identity) = self.ranks.identity(self.rank) {
            if !identity.host.is_empty() {
                write!(f, ", host {}", identity.host)?;
            }
            if !identity.device.is_empty() {
                write!(f, ", {}", identity.device)?;
            }
            if !identity.uuid.is_empty() {
                write!(f, " {}", identity.uuid)?;
            }
            for nic in &identity.nics {
                write!(f, ", {nic}")?;
            }
        }
        match self.ranks.status(self.rank) {
            Some(Status::Skipped(reason)) => write!(f, ", skipped: {}", reason.text())?,
            Some(Status::Goodbye) => f.write_str(", has left")?,
            Some(Status::Missing) => f.write_str(", no answer")?,
            _ => {}
        }
        f.write_str(")")
    }
}
