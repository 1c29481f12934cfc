//! What the [log](super) says about a low-latency window.

use std::fmt::{self, Write};

use deepxtrace_counters::{LlPhase, LlWindow};
use deepxtrace_ll::{LlDiagnosis, LlFinding};

use super::lines::{Lines, OneLine};
use super::normal::{list, row, separated};
use crate::diagnose::{LlReport, Ranks};

/// Findings that a summary spells out; the rest is counted.
const SPELLED_OUT: usize = 8;

/// One summary line.
pub(crate) fn summary(lines: &mut Lines, report: &LlReport<'_>) {
    lines.line(|line| {
        write!(line, "LL state={} missing_ranks=", report.state)?;
        list(line, report.missing_ranks)?;
        if let Some(reason) = report.reason {
            write!(line, " reason={reason}")?;
        }
        for (phase, diagnosis) in report.phases() {
            write!(line, " {phase}=")?;
            json(line, diagnosis)?;
            findings(line, phase, diagnosis)?;
        }
        places(line, report, report.ranks)
    });
}

fn findings(line: &mut OneLine<'_>, phase: LlPhase, diagnosis: &LlDiagnosis) -> fmt::Result {
    let all = &diagnosis.topology.findings;
    let (first, rest) = all.split_at(all.len().min(SPELLED_OUT));
    if first.is_empty() {
        return Ok(());
    }
    write!(line, " {phase}_findings=[")?;
    separated(line, "; ", first)?;
    if !rest.is_empty() {
        write!(line, "; and {} more", rest.len())?;
    }
    line.write_str("]")
}

/// Where the ranks are that everyone waits for, or that wait for everyone.
fn places(line: &mut OneLine<'_>, report: &LlReport<'_>, ranks: &Ranks) -> fmt::Result {
    let mut named = 0;
    for rank in 0..ranks.len() {
        let missing = report.missing_ranks.binary_search(&rank).is_ok();
        if !missing && !report.phases().any(|(_, diagnosis)| concerns(diagnosis, rank)) {
            continue;
        }
        named += 1;
        if named <= SPELLED_OUT {
            line.write_str(if named == 1 { " where=[" } else { "; " })?;
            write!(line, "{}", ranks.place(rank))?;
        }
    }
    match named {
        0 => Ok(()),
        _ if named > SPELLED_OUT => write!(line, "; and {} more]", named - SPELLED_OUT),
        _ => line.write_str("]"),
    }
}

fn concerns(diagnosis: &LlDiagnosis, rank: usize) -> bool {
    let mean = &diagnosis.mean_ratio;
    let axes = mean.abnormal_cols.iter().chain(&mean.abnormal_rows);
    let named = |finding: &LlFinding| match finding {
        LlFinding::Column { rank, .. } | LlFinding::Row { rank, .. } => [*rank; 2],
        LlFinding::Point { waiter, awaited, .. } => [*waiter, *awaited],
        _ => [usize::MAX; 2],
    };
    axes.map(|axis| axis.index).any(|index| index == rank)
        || mean.abnormal_points.iter().any(|point| point.row == rank || point.col == rank)
        || diagnosis.topology.findings.iter().any(|finding| named(finding).contains(&rank))
}

/// The matrices in the form of the Python original: one line with the diagnosis, then the rows.
pub(crate) fn details(lines: &mut Lines, report: &LlReport<'_>, window: &LlWindow) {
    for (phase, diagnosis) in report.phases() {
        let name = match phase {
            LlPhase::Dispatch => "Dispatch",
            LlPhase::Combine => "Combine",
        };
        lines.line(|line| {
            line.write_str("diagnose: ")?;
            json(line, diagnosis)?;
            write!(line, ", {name} Wait Recv Cost Per Token Matrix[src_rank, dst_rank]")
        });
        for (rank, waits) in window.wait(phase).rows().into_iter().enumerate() {
            lines.bare(|line| {
                write!(line, "rank={rank} ")?;
                row(line, waits.iter().copied())
            });
        }
    }
}

/// The mean-ratio rule's result as JSON.
fn json(line: &mut OneLine<'_>, diagnosis: &LlDiagnosis) -> fmt::Result {
    serde_json::to_writer(Bytes(line), &diagnosis.mean_ratio).map_err(|_| fmt::Error)
}

/// Lets JSON be written where text is.
struct Bytes<'a, 'b>(&'a mut OneLine<'b>);

impl std::io::Write for Bytes<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let text = std::str::from_utf8(bytes).map_err(std::io::Error::other)?;
        self.0.write_str(text).map_err(std::io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
