//! Low-latency diagnoses for people.

use std::io::{self, Write};

use deepxtrace::counters::{LlPhase, Topology};
use deepxtrace::ll::{Arrival, LlDiagnosis, LlFinding};

use crate::input::waits::Source;
use crate::output::{BAD, FAINT, GOOD, HEADING, WARNING};
use crate::text::{count, shown};

/// Lines shown a rule.
const MOST: usize = 12;

/// Prints what both rules say about one matrix.
pub fn matrix(
    out: &mut impl Write,
    source: &Source,
    topology: Topology,
    diagnosis: &LlDiagnosis,
) -> io::Result<()> {
    let (ranks, per_node) = (count(topology.ep_size(), "rank"), topology.ranks_per_node());
    writeln!(out, "{HEADING}{}{HEADING:#}: waits of {ranks}, {per_node} a node", source.file)?;
    let place = place(source);
    if !place.is_empty() {
        writeln!(out, "  {FAINT}{place}{FAINT:#}")?;
    }
    rule(out, "topology rule", &topology_lines(diagnosis))?;
    rule(out, "mean rule", &mean_lines(diagnosis))
}

/// Prints what both rules say about one phase of a window; `None` when it was idle.
pub fn phase(
    out: &mut impl Write,
    phase: LlPhase,
    diagnosis: Option<&LlDiagnosis>,
) -> io::Result<()> {
    let Some(diagnosis) = diagnosis else {
        return writeln!(out, "  {phase}: {WARNING}idle, not diagnosed{WARNING:#}");
    };
    writeln!(out, "  {HEADING}{phase}{HEADING:#}")?;
    rule(out, "topology rule", &topology_lines(diagnosis))?;
    rule(out, "mean rule", &mean_lines(diagnosis))
}

/// Which matrix of the file it is.
fn place(source: &Source) -> String {
    let mut parts = Vec::new();
    if let Some(phase) = source.phase {
        parts.push(phase.to_string());
    }
    if let Some(entry) = &source.entry {
        parts.push(format!("entry {entry}"));
    }
    if let Some(of) = source.of {
        parts.push(format!("newest of {of} complete"));
    }
    if let Some(line) = source.line {
        parts.push(format!("from line {line}"));
    }
    if let Some(time) = &source.time {
        parts.push(format!("logged at {time}"));
    }
    if let Some(instance) = &source.instance_id {
        parts.push(format!("instance {instance}"));
    }
    if let Some(window) = source.window_index {
        parts.push(format!("window {window}"));
    }
    parts.join(", ")
}

fn rule(out: &mut impl Write, name: &str, lines: &[String]) -> io::Result<()> {
    if lines.is_empty() {
        return writeln!(out, "  {name:<14} {GOOD}nothing found{GOOD:#}");
    }
    let (lines, more) = shown(lines, MOST);
    for (i, line) in lines.iter().enumerate() {
        let name = if i == 0 { name } else { "" };
        writeln!(out, "  {name:<14} {BAD}{line}{BAD:#}")?;
    }
    if more > 0 {
        writeln!(out, "  {:<14} {FAINT}and {more} more{FAINT:#}", "")?;
    }
    Ok(())
}

fn topology_lines(diagnosis: &LlDiagnosis) -> Vec<String> {
    let hint = |finding: &LlFinding| match finding {
        LlFinding::Column { rank, arrival: Arrival::Late, .. } => {
            format!("; look at what rank {rank} computes")
        }
        LlFinding::Column { rank, .. } => format!("; look at the links of rank {rank}"),
        _ => String::new(),
    };
    let findings = &diagnosis.topology.findings;
    findings.iter().map(|finding| format!("{finding}{}", hint(finding))).collect()
}

fn mean_lines(diagnosis: &LlDiagnosis) -> Vec<String> {
    let report = &diagnosis.mean_ratio;
    let columns = report.abnormal_cols.iter().map(|axis| {
        format!("column {}: all wait for this rank, {:.2}x the mean", axis.index, axis.ratio)
    });
    let rows = report.abnormal_rows.iter().map(|axis| {
        format!("row {}: this rank waits for all, {:.2}x the mean", axis.index, axis.ratio)
    });
    let points = report.abnormal_points.iter().map(|point| {
        format!("rank {} waits for {}, {:.2}x the mean", point.row, point.col, point.ratio)
    });
    columns.chain(rows).chain(points).collect()
}
