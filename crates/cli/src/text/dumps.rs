//! Flight Recorder dumps for people.

use std::io::{self, Write};

use deepxtrace_nccl_h2::fr::{CallSite, DumpSet, Frame, Located, Report};

use crate::output::{FAINT, WARNING};
use crate::text::nccl::ranks;
use crate::text::{self, count, shown};

/// Call sites shown a finding.
const MOST_SITES: usize = 6;
/// Frames shown a call site.
const MOST_FRAMES: usize = 3;

/// Prints what was found in dumps.
pub fn report(out: &mut impl Write, set: &DumpSet, report: &Report) -> io::Result<()> {
    writeln!(
        out,
        "{FAINT}{}, {}: {} and {} compared{FAINT:#}",
        count(set.ranks().count(), "dump"),
        count(set.entries(), "entry"),
        count(report.rounds, "collective"),
        count(report.pairs, "send"),
    )?;
    for found in &report.findings {
        finding(out, found)?;
    }
    if report.findings.is_empty() {
        let compared = report.rounds > 0 || report.pairs > 0;
        let what = if compared { "the ranks do not differ" } else { "nothing could be compared" };
        writeln!(out, "{what}")?;
    }
    for note in &report.notes {
        writeln!(out, "{WARNING}{note}{WARNING:#}")?;
    }
    Ok(())
}

fn finding(out: &mut impl Write, found: &Located) -> io::Result<()> {
    writeln!(out)?;
    text::nccl::finding(out, &found.finding)?;
    let group = &found.process_group;
    writeln!(
        out,
        "  {FAINT}process group{FAINT:#} {} ({}) of ranks {}",
        group.name,
        group.description,
        ranks(&group.ranks)
    )?;
    let (sites, more) = shown(&found.call_sites, MOST_SITES);
    for site in sites {
        call_site(out, site)?;
    }
    if more > 0 {
        writeln!(out, "  {FAINT}and {}{FAINT:#}", count(more, "more place"))?;
    }
    Ok(())
}

fn call_site(out: &mut impl Write, site: &CallSite) -> io::Result<()> {
    let did = if site.about == "last_call" { "last called" } else { "called" };
    let word = if site.ranks.len() == 1 { "rank" } else { "ranks" };
    let who = ranks(&site.ranks);
    write!(out, "  {word} {who} {did} {} {}", site.profiling_name, site.seq)?;
    let own: Vec<&Frame> = own_frames(&site.frames).collect();
    let frames = if own.is_empty() { site.frames.iter().collect() } else { own };
    for frame in frames.iter().take(MOST_FRAMES) {
        write!(out, "{FAINT},{FAINT:#} {}:{} in {}", frame.file, frame.line, frame.function)?;
    }
    writeln!(out)
}

/// Frames of the program, not of the libraries under it.
fn own_frames(frames: &[Frame]) -> impl Iterator<Item = &Frame> {
    const LIBRARIES: [&str; 5] =
        ["site-packages/", "dist-packages/", "/lib/python", "torch/distributed/", "<frozen"];
    frames.iter().filter(|frame| !LIBRARIES.iter().any(|library| frame.file.contains(library)))
}
