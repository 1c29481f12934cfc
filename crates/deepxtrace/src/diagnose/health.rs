//! Counts of what has happened, for programs that watch.

use deepxtrace_collect::GatherEvents;

/// What has happened on this rank since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// Rounds that ended, after the warm-up.
    pub rounds: u64,
    /// Rounds that failed as a whole on this rank.
    pub rounds_failed: u64,
    /// Rounds for which this rank had no snapshot.
    pub skipped: u64,
    /// Root: windows of both modes that were reported.
    pub windows: u64,
    /// Lines that the log did not take.
    pub log_lines_lost: u64,
    /// Root: windows that the sink did not take.
    pub sink_failures: u64,
    /// Notices told.
    pub notices: u64,
    /// Root: what happened on the transport.
    pub gather: GatherEvents,
}
