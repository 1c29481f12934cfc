//! `deepxtrace nccl analyze --format fr`: PyTorch Flight Recorder dumps.

use std::error::Error as _;
use std::io::Write as _;
use std::path::PathBuf;

use deepxtrace_nccl_h2::fr::{DumpSet, Options};

use super::warnings::warn;
use crate::output::Output;
use crate::text;

/// Judges dumps and prints what was found. Says whether anything was found that counts.
pub fn analyze(
    paths: &[PathBuf],
    options: &Options,
    json: bool,
    output: &mut Output,
) -> anyhow::Result<bool> {
    let set = DumpSet::read(paths)?;
    for problem in set.problems() {
        let why = problem.source().map(|why| format!(": {why}")).unwrap_or_default();
        warn(&format!("{problem}{why}"));
    }
    let report = set.analyze(options);
    if json {
        for found in &report.findings {
            writeln!(output, "{}", found.to_json())?;
        }
        for note in &report.notes {
            warn(&note.to_string());
        }
    } else {
        text::dumps::report(output, &set, &report)?;
    }
    Ok(report.findings.iter().any(|found| !found.finding.trace_ended_early()))
}
