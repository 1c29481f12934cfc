//! Answers of NCCL's RAS for people.

use std::io::{self, Write};

use deepxtrace_nccl_h2::ras::{RasFinding, RasReport};

use crate::output::{FAINT, HEADING, WARNING};
use crate::text::{self, count, shown};

/// What to do about answers that do not go back far enough.
const EARLY: &str = "The answers do not show that it stands still for long: ask again later, and give \
                     all answers in the order of time (or use --watch).";

/// Communicators shown.
const MOST: usize = 32;

/// Prints what answers tell.
pub fn report(out: &mut impl Write, report: &RasReport) -> io::Result<()> {
    writeln!(out, "{HEADING}{}{HEADING:#}", count(report.communicators.len(), "communicator"))?;
    // Those that differ or stand still are what the user looks for.
    let mut states: Vec<_> = report.communicators.iter().collect();
    states.sort_by_key(|state| (state.agree, state.missing == 0));
    let (states, more) = shown(&states, MOST);
    for state in states {
        writeln!(out, "  {state}")?;
    }
    if more > 0 {
        writeln!(out, "  {FAINT}and {more} more{FAINT:#}")?;
    }
    for found in &report.findings {
        finding(out, found)?;
    }
    if report.mended > 0 {
        writeln!(
            out,
            "  {WARNING}the JSON of the answers was malformed in {} and was mended{WARNING:#}",
            count(report.mended, "place")
        )?;
    }
    Ok(())
}

fn finding(out: &mut impl Write, found: &RasFinding) -> io::Result<()> {
    writeln!(out)?;
    text::nccl::finding_of(out, &found.finding, EARLY)?;
    for (rank, operation, count) in &found.behind {
        writeln!(out, "  rank {rank} is behind by {count} {operation}")?;
    }
    if let Some((host, pid)) = &found.process {
        writeln!(out, "  process {pid} on {host}")?;
    }
    Ok(())
}

/// What makes a finding the same in the next answer: everything but how long it lasts.
pub fn identity(found: &RasFinding) -> String {
    let kind = found.finding.hang_type.as_str();
    let sure = found.finding.confidence().as_str();
    format!("{kind} {sure} {:?} {:?} {:?}", found.communicators, found.behind, found.process)
}
