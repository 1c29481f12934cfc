//! What the findings of several probes mean together, and how incidents change over time.

use std::fmt;

use deepxtrace_counters::{NotifyProbe, Probe};
use serde::{Deserialize, Serialize};

/// A finding that an incident rests on: its probe, and its place in the findings of that probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Evidence {
    /// The probe.
    pub probe: Probe,
    /// Index in [`ProbeReport::findings`](crate::ProbeReport::findings).
    pub index: usize,
}

/// One incident of one window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Incident {
    /// Ranks enter a Notify kernel late although the data path is healthy: what they do before it
    /// takes longer.
    PreStageArrivalSkew {
        /// The Notify probe.
        probe: NotifyProbe,
        /// The late ranks, in order.
        ranks: Vec<usize>,
    },
    /// Dispatch and combine are both slow everywhere against their own history.
    GlobalDataPathSlowdown {
        /// The findings it rests on, in order of probe and index.
        evidence: Vec<Evidence>,
    },
    /// Dispatch and combine are slow in the same place.
    LocalizedDataPathSlowdown {
        /// Token owners: source ranks of dispatch, destination ranks of combine.
        owners: Vec<usize>,
        /// Expert ranks: destination ranks of dispatch, source ranks of combine.
        experts: Vec<usize>,
        /// `[owner node, expert node]`.
        node_pairs: Vec<[usize; 2]>,
        /// `[owner, expert]`.
        edges: Vec<[usize; 2]>,
        /// `[local index, source node, destination node]`.
        rails: Vec<[usize; 3]>,
        /// The findings that matched or support it, in order of probe and index.
        evidence: Vec<Evidence>,
    },
    /// A Completion probe found something, and no other incident says what it is.
    Unclassified {
        /// The findings of the anomalous Completion probes, in order of probe and index.
        evidence: Vec<Evidence>,
    },
}

/// The kind of an [`Incident`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum IncidentKind {
    /// See [`Incident::PreStageArrivalSkew`].
    PreStageArrivalSkew,
    /// See [`Incident::GlobalDataPathSlowdown`].
    GlobalDataPathSlowdown,
    /// See [`Incident::LocalizedDataPathSlowdown`].
    LocalizedDataPathSlowdown,
    /// See [`Incident::Unclassified`].
    Unclassified,
}

impl IncidentKind {
    /// The name in logs, JSON and artifacts.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::PreStageArrivalSkew => "pre_stage_arrival_skew",
            Self::GlobalDataPathSlowdown => "global_data_path_slowdown",
            Self::LocalizedDataPathSlowdown => "localized_data_path_slowdown",
            Self::Unclassified => "unclassified",
        }
    }
}

impl fmt::Display for IncidentKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Incident {
    /// Its kind.
    #[must_use]
    pub fn kind(&self) -> IncidentKind {
        match self {
            Self::PreStageArrivalSkew { .. } => IncidentKind::PreStageArrivalSkew,
            Self::GlobalDataPathSlowdown { .. } => IncidentKind::GlobalDataPathSlowdown,
            Self::LocalizedDataPathSlowdown { .. } => IncidentKind::LocalizedDataPathSlowdown,
            Self::Unclassified { .. } => IncidentKind::Unclassified,
        }
    }

    /// Its Notify probe, for the kinds that belong to one.
    #[must_use]
    pub fn probe(&self) -> Option<NotifyProbe> {
        match self {
            Self::PreStageArrivalSkew { probe, .. } => Some(*probe),
            _ => None,
        }
    }
}

impl fmt::Display for Incident {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind().name())?;
        match self {
            Self::PreStageArrivalSkew { probe, ranks } => {
                write!(f, " {probe} ranks")?;
                list(f, ranks, |f, rank| write!(f, "{rank}"))
            }
            Self::LocalizedDataPathSlowdown {
                owners, experts, node_pairs, edges, rails, ..
            } => {
                if !owners.is_empty() {
                    f.write_str(" owners")?;
                    list(f, owners, |f, rank| write!(f, "{rank}"))?;
                }
                if !experts.is_empty() {
                    f.write_str(" experts")?;
                    list(f, experts, |f, rank| write!(f, "{rank}"))?;
                }
                if !node_pairs.is_empty() {
                    f.write_str(" nodes")?;
                    list(f, node_pairs, |f, [a, b]| write!(f, "{a}->{b}"))?;
                }
                if !edges.is_empty() {
                    f.write_str(" edges")?;
                    list(f, edges, |f, [a, b]| write!(f, "{a}->{b}"))?;
                }
                if !rails.is_empty() {
                    f.write_str(" rails")?;
                    list(f, rails, |f, [l, a, b]| write!(f, "{l}:{a}->{b}"))?;
                }
                Ok(())
            }
            Self::GlobalDataPathSlowdown { .. } | Self::Unclassified { .. } => Ok(()),
        }
    }
}

fn list<T>(
    f: &mut fmt::Formatter<'_>,
    items: &[T],
    one: impl Fn(&mut fmt::Formatter<'_>, &T) -> fmt::Result,
) -> fmt::Result {
    items.iter().try_for_each(|item| {
        f.write_str(" ")?;
        one(f, item)
    })
}

/// How sure it is that an incident persists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IncidentState {
    /// Seen in one window.
    Suspected,
    /// Seen in two of the last three diagnosed windows.
    Confirmed,
    /// Not seen for three diagnosed windows.
    Cleared,
}

impl fmt::Display for IncidentState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Suspected => "suspected",
            Self::Confirmed => "confirmed",
            Self::Cleared => "cleared",
        })
    }
}

/// A followed incident that entered a new state in this window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrackerChange {
    /// Kind of the incident.
    pub kind: IncidentKind,
    /// The state it is in now.
    pub state: IncidentState,
    /// Its Notify probe, for the kinds that belong to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<NotifyProbe>,
    /// Its ranks when it was last seen, for the kinds that have ranks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<usize>,
}

impl fmt::Display for TrackerChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.state)?;
        if let Some(probe) = self.probe {
            write!(f, " {probe}")?;
        }
        if !self.ranks.is_empty() {
            f.write_str(" ranks")?;
            list(f, &self.ranks, |f, rank| write!(f, "{rank}"))?;
        }
        Ok(())
    }
}
