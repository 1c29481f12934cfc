//! Where windows go besides the log and the program's callback.

use std::error::Error;

use deepxtrace_collect::Uuid;
use deepxtrace_counters::Window;
use deepxtrace_normal::{Policy, WindowDiagnosis};

/// Takes every Normal-mode window that was not refused, on the root: to write it as an artifact,
/// for one.
///
/// It is called on the thread that collects and should not take longer than an interval. What it
/// fails at is counted and told once; it is called again for the next window.
pub trait WindowSink: Send {
    /// Takes one window.
    ///
    /// # Errors
    ///
    /// Whatever keeps it from doing so.
    fn window(&mut self, record: WindowRecord<'_>) -> Result<(), Box<dyn Error + Send + Sync>>;
}

/// A window with all that belongs to it.
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

/// The sink that `DEEPEP_DIAGNOSE_ARTIFACT_PATH` asks for.
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
