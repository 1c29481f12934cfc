//! The log of a rank: `diagnose_rank<r>.log`, rotated daily, two old ones kept.
//!
//! Every line begins with the time (UTC), the run, the size of the group and the window:
//!
//! ```text
//! [2026-03-01T12:00:00.250] [Diagnose] InstanceID: 6f0c... EPSize: 16 WindowIndex: 3 ...
//! ```
//!
//! At level 0 there is one summary line a window, and one for every change of a followed incident.
//! With details, six more follow, one a probe, each directly followed by its values: for a Notify
//! probe the average wait by rank (ns), for a Completion probe the average cost `[source,
//! destination]` (cycles), a row a line, 0 where there was no sample. Low-latency matrices have the
//! form that the Python original gave them, rows as `rank=<i> [...]`.
//!
//! The file keeps its name while it is written. At midnight (UTC) it is renamed to
//! `diagnose_rank<r>.log.<date>`, and all but the two newest of these are deleted. A file that
//! cannot be written costs the program nothing: lines are counted as lost, it is said once, and the
//! next line tries again.

mod file;
mod lines;
pub(crate) mod low_latency;
pub(crate) mod normal;

pub(crate) use file::LogFile;
pub(crate) use lines::{Lines, OneLine};
