//! What a user must know about the input, on standard error.

use std::path::Path;

use deepxtrace_nccl_h2::{LimitsReached, ReadReport};

pub use crate::output::warn;
use crate::text::count;

/// Files with bad lines that are named.
const MOST_FILES: usize = 8;
/// Bad lines of a file that are shown.
const MOST_LINES: usize = 3;

/// Says which lines could not be used.
pub fn of_reading(report: &ReadReport) {
    let bad: Vec<_> = report.files.iter().filter(|file| file.bad_lines > 0).collect();
    for file in bad.iter().take(MOST_FILES) {
        for line in file.first_bad.iter().take(MOST_LINES) {
            warn(&format!("{}:{}: {}", file.path.display(), line.line, line.reason));
        }
        let more = file.bad_lines.saturating_sub(MOST_LINES as u64);
        if more > 0 {
            warn(&format!("{}: {}", file.path.display(), count(more, "more bad line")));
        }
    }
    if bad.len() > MOST_FILES {
        warn(&format!("bad lines in {}", count(bad.len() - MOST_FILES, "more file")));
    }
}

/// Says that nothing is there to watch yet: the name may be mistyped.
pub fn waiting(folder: &Path) {
    warn(&format!("{}: no trace yet, waiting for one", folder.display()));
}

/// Says what did not fit into the analyzer's bounds.
pub fn of_limits(reached: LimitsReached) {
    let kinds = [
        (reached.rounds, "entries into rounds"),
        (reached.p2p_calls, "sends and receives"),
        (reached.communicators, "events on communicators"),
        (reached.processes, "events of processes"),
        (reached.open_calls, "calls that have not returned"),
        (reached.findings, "findings"),
    ];
    for (number, what) in kinds {
        if number > 0 {
            warn(&format!("{number} {what} were not kept: a bound was reached"));
        }
    }
}
