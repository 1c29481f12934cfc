//! `deepxtrace nccl analyze --format fr`: PyTorch Flight Recorder dumps.

use std::error::Error as _;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::bail;
use deepxtrace_nccl_h2::fr::{DumpSet, Options};

use super::warnings::warn;
use crate::output::Output;
use crate::text;

/// Judges dumps and prints what was found. Says whether anything was found that counts.
///
/// # Errors
/// No dump can be read; or, after the findings in the others, one cannot.
pub fn analyze(
    paths: &[PathBuf],
    options: &Options,
    json: bool,
    output: &mut Output,
) -> anyhow::Result<bool> {
    let set = DumpSet::read(paths)?;
    let mut problems = set.problems().iter().map(|problem| {
        let why = problem.source().map(|why| format!(": {why}")).unwrap_or_default();
        format!("{problem}{why}")
    });
    let unread = problems.next();
    problems.for_each(|problem| warn(&problem));
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
    if let Some(unread) = unread {
        bail!("{unread}; the findings lack what it holds");
    }
    Ok(report.findings.iter().any(|found| !found.finding.trace_ended_early()))
}
