//! Where windows go besides the log and the program's callback.

use std::error::Error;

use deepxtrace_collect::Uuid;
use deepxtrace_counters::{LlWindow, Window};
use deepxtrace_ll::{LlDiagnosis, MeanRatioPolicy};
use deepxtrace_normal::{Policy, WindowDiagnosis};

/// Takes every window that was not refused, on the root: to write it as an artifact, for one.
///
/// It is called on the thread that collects and should not take longer than an interval. What it
/// fails at is counted and told once; it is called again for the next window.
pub trait WindowSink: Send {
    /// Takes one Normal-mode window.
    ///
    /// # Errors
    ///
    /// Whatever keeps it from doing so.
    fn normal(&mut self, record: WindowRecord<'_>) -> Result<(), SinkError>;

    /// Takes one low-latency window; by default nothing is done with it.
    ///
    /// # Errors
    ///
    /// Whatever keeps it from doing so.
    fn low_latency(&mut self, record: LlRecord<'_>) -> Result<(), SinkError> {
        let _ = record;
        Ok(())
    }
}

/// Why a sink did not take a window.
pub type SinkError = Box<dyn Error + Send + Sync>;

/// A Normal-mode window with all that belongs to it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct WindowRecord<'a> {
    /// The run, the same on all ranks.
    pub instance: Uuid,
    /// The counters of the window.
    pub window: &'a Window,
    /// What they led to.
    pub diagnosis: &'a WindowDiagnosis,
    /// The thresholds that were used.
    pub policy: &'a Policy,
}

/// A low-latency window with all that belongs to it.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct LlRecord<'a> {
    /// The run, the same on all ranks.
    pub instance: Uuid,
    /// The waits of the window.
    pub window: &'a LlWindow,
    /// The diagnosis of the dispatch waits; `None` when the window is idle.
    pub dispatch: Option<&'a LlDiagnosis>,
    /// The diagnosis of the combine waits; `None` when the window is idle.
    pub combine: Option<&'a LlDiagnosis>,
    /// The thresholds of the mean-ratio rule that were used.
    pub mean_ratio: &'a MeanRatioPolicy,
    /// The thresholds of the topology rule that were used.
    pub policy: &'a Policy,
}

/// The sink that `DEEPEP_DIAGNOSE_ARTIFACT_PATH` asks for.
#[cfg(feature = "artifact")]
pub(super) fn artifacts(
    config: &crate::config::Config,
) -> Result<Option<Box<dyn WindowSink>>, super::DiagnoseError> {
    let store = |path| deepxtrace_artifact::Store::new(path, config.artifact_keep);
    Ok(config
        .artifact_path
        .as_ref()
        .map(|path| Box::new(super::artifact::Artifacts::new(store(path))) as Box<dyn WindowSink>))
}

/// The sink that `DEEPEP_DIAGNOSE_ARTIFACT_PATH` asks for.
#[cfg(not(feature = "artifact"))]
pub(super) fn artifacts(
    config: &crate::config::Config,
) -> Result<Option<Box<dyn WindowSink>>, super::DiagnoseError> {
    let Some(path) = &config.artifact_path else { return Ok(None) };
    Err(crate::config::ConfigError {
        variable: "DEEPEP_DIAGNOSE_ARTIFACT_PATH",
        value: path.display().to_string(),
        allowed: "unset: this build has no artifacts (feature `artifact`), and no sink was given",
    }
    .into())
}
