//! What one artifact holds.

use std::borrow::Cow;

use deepxtrace_counters::{LlWindow, Topology, Window};
use deepxtrace_ll::{LlDiagnosis, MeanRatioPolicy};
use deepxtrace_normal::{Policy, WindowDiagnosis};

use crate::name::{ArtifactName, InvalidInstance, Kind};

/// A window of the Normal mode with its diagnosis.
#[derive(Debug, Clone, PartialEq)]
pub struct NormalArtifact<'a> {
    /// Which run of which group it belongs to.
    pub instance: Cow<'a, str>,
    /// The thresholds of the diagnosis.
    pub policy: Policy,
    /// The counter differences.
    pub window: Cow<'a, Window>,
    /// What they mean.
    pub diagnosis: Cow<'a, WindowDiagnosis>,
}

/// A low-latency window with the diagnosis of both phases.
#[derive(Debug, Clone, PartialEq)]
pub struct LlArtifact<'a> {
    /// Which run of which group it belongs to.
    pub instance: Cow<'a, str>,
    /// The thresholds of the topology-aware rule.
    pub policy: Policy,
    /// The thresholds of the mean-ratio rule.
    pub mean_policy: MeanRatioPolicy,
    /// The waits.
    pub window: Cow<'a, LlWindow>,
    /// What the waits of dispatch and of combine mean, in the order of
    /// [`LlPhase::ALL`](deepxtrace_counters::LlPhase::ALL); none when the window was idle.
    pub diagnoses: [Option<Cow<'a, LlDiagnosis>>; 2],
}

/// One window as it is kept in a file.
#[allow(clippy::large_enum_variant, reason = "artifacts are handled one at a time")]
#[derive(Debug, Clone, PartialEq)]
pub enum Artifact<'a> {
    /// Of the Normal mode.
    Normal(NormalArtifact<'a>),
    /// Of the low-latency mode.
    LowLatency(LlArtifact<'a>),
}

impl Artifact<'_> {
    /// Which run of which group it belongs to.
    #[must_use]
    pub fn instance(&self) -> &str {
        match self {
            Self::Normal(artifact) => &artifact.instance,
            Self::LowLatency(artifact) => &artifact.instance,
        }
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self {
            Self::Normal(_) => Kind::Normal,
            Self::LowLatency(_) => Kind::LowLatency,
        }
    }

    /// The group.
    #[must_use]
    pub fn topology(&self) -> Topology {
        match self {
            Self::Normal(artifact) => artifact.window.topology(),
            Self::LowLatency(artifact) => artifact.window.topology(),
        }
    }

    /// The number of the window.
    #[must_use]
    pub fn index(&self) -> u64 {
        match self {
            Self::Normal(artifact) => artifact.window.index(),
            Self::LowLatency(artifact) => artifact.window.index(),
        }
    }

    /// Begin and end, ns since 1970.
    #[must_use]
    pub fn time(&self) -> (i64, i64) {
        match self {
            Self::Normal(artifact) => {
                (artifact.window.begin_unix_ns(), artifact.window.end_unix_ns())
            }
            Self::LowLatency(artifact) => {
                (artifact.window.begin_unix_ns(), artifact.window.end_unix_ns())
            }
        }
    }

    /// The name of its file.
    ///
    /// # Errors
    ///
    /// The instance cannot be part of a file name.
    pub fn name(&self) -> Result<ArtifactName, InvalidInstance> {
        ArtifactName::new(self.kind(), self.instance(), self.index())
    }
}
