//! What the [log](super) says about a Normal-mode window.

use std::fmt::{self, Write};

use deepxtrace_counters::{CompletionDelta, NotifyDelta, Probe, Window};
use deepxtrace_normal::{ProbeReport, WindowDiagnosis};

use super::lines::{Lines, OneLine};
use crate::diagnose::Ranks;

/// Findings and ranks that a summary spells out; the rest is counted.
const SPELLED_OUT: usize = 8;

/// One summary line, and one for every followed incident that changed.
pub(crate) fn summary(lines: &mut Lines, diagnosis: &WindowDiagnosis, ranks: &Ranks) {
    lines.line(|line| {
        write!(line, "Normal state={} missing_ranks=", diagnosis.state)?;
        list(line, &diagnosis.missing_ranks)?;
        if let Some(reason) = &diagnosis.reason {
            write!(line, " reason={reason}")?;
        }
        for (probe, report) in diagnosis.probes.iter() {
            write!(line, " {probe}={}", report.status)?;
            if report.level.is_some_and(|level| level.level_shift) {
                line.write_str(" (new level)")?;
            }
        }
        if diagnosis.state == deepxtrace_normal::WindowState::Diagnosed {
            line.write_str(" incidents=[")?;
            separated(line, "; ", &diagnosis.incidents)?;
            line.write_str("]")?;
        }
        findings(line, diagnosis)?;
        places(line, diagnosis, ranks)
    });
    for change in &diagnosis.tracker {
        lines.line(|line| write!(line, "Normal incident {change}"));
    }
}

fn findings(line: &mut OneLine<'_>, diagnosis: &WindowDiagnosis) -> fmt::Result {
    let all = || {
        let probes = diagnosis.probes.iter();
        probes.flat_map(|(probe, report)| report.findings.iter().map(move |f| (probe, f)))
    };
    let count = all().count();
    if count == 0 {
        return Ok(());
    }
    line.write_str(" findings=[")?;
    for (i, (probe, finding)) in all().take(SPELLED_OUT).enumerate() {
        let comma = if i == 0 { "" } else { "; " };
        write!(line, "{comma}{probe}: {finding}")?;
    }
    if count > SPELLED_OUT {
        write!(line, "; and {} more", count - SPELLED_OUT)?;
    }
    line.write_str("]")
}

/// Where the ranks are that the summary names.
fn places(line: &mut OneLine<'_>, diagnosis: &WindowDiagnosis, ranks: &Ranks) -> fmt::Result {
    let mut named = 0;
    for rank in 0..ranks.len() {
        if !ranks.concerns(diagnosis, rank) {
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

/// Six lines, one a probe, each directly followed by its values.
pub(crate) fn details(lines: &mut Lines, diagnosis: &WindowDiagnosis, window: &Window) {
    for probe in Probe::ALL {
        let report = diagnosis.probes.get(probe);
        if let Some(notify) = probe.notify() {
            heading(lines, probe, report, "avg_ns[rank]");
            notify_values(lines, probe, window.notify(notify));
        } else if let Some(completion) = probe.completion() {
            heading(lines, probe, report, "avg_cycles[src_rank, dst_rank]");
            completion_values(lines, probe, window.completion(completion));
        }
    }
}

fn heading(lines: &mut Lines, probe: Probe, report: Option<&ProbeReport>, values: &str) {
    lines.line(|line| {
        write!(line, "Normal detail {probe}")?;
        match report {
            Some(report) => {
                write!(line, " status={} findings=[", report.status)?;
                separated(line, "; ", &report.findings)?;
                write!(line, "] {values}")
            }
            None => write!(line, " status=none findings=[] {values}"),
        }
    });
}

fn notify_values(lines: &mut Lines, probe: Probe, delta: &NotifyDelta) {
    lines.line(|line| {
        write!(line, "{probe} ")?;
        let averages = delta.duration_ns.iter().zip(&delta.count);
        row(line, averages.map(|(sum, count)| average(*sum, *count)))
    });
}

fn completion_values(lines: &mut Lines, probe: Probe, delta: &CompletionDelta) {
    for (source, (cost, samples)) in
        delta.cost.rows().into_iter().zip(delta.samples.rows()).enumerate()
    {
        lines.line(|line| {
            write!(line, "{probe} source={source} ")?;
            row(line, cost.iter().zip(samples).map(|(cost, samples)| average(*cost, *samples)))
        });
    }
}

/// The average, to the nearest whole number (a half away from 0); 0 where nothing was counted.
fn average(sum: i64, count: i64) -> i64 {
    if count <= 0 || sum <= 0 {
        return 0;
    }
    let (quotient, rest) = (sum / count, sum % count);
    quotient + i64::from(rest >= count - rest)
}

/// `[1 2 3]`: digits and spaces only, as existing parsers of rows want them.
pub(super) fn row(line: &mut OneLine<'_>, values: impl Iterator<Item = i64>) -> fmt::Result {
    line.write_str("[")?;
    for (i, value) in values.enumerate() {
        let space = if i == 0 { "" } else { " " };
        write!(line, "{space}{value}")?;
    }
    line.write_str("]")
}

/// `[1, 2, 3]`.
pub(super) fn list(line: &mut OneLine<'_>, items: &[usize]) -> fmt::Result {
    line.write_str("[")?;
    separated(line, ", ", items)?;
    line.write_str("]")
}

pub(super) fn separated<T: fmt::Display>(
    line: &mut OneLine<'_>,
    separator: &str,
    items: &[T],
) -> fmt::Result {
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            line.write_str(separator)?;
        }
        write!(line, "{item}")?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_rounded_and_never_overflow() {
        assert_eq!(average(10, 4), 3);
        assert_eq!(average(9, 4), 2);
        assert_eq!(average(0, 4), 0);
        assert_eq!(average(7, 0), 0);
        assert_eq!(average(i64::MAX, 1), i64::MAX);
        assert_eq!(average(i64::MAX, i64::MAX), 1);
        assert_eq!(average(-7, 2), 0);
        assert_eq!(average(i64::MAX, 2), 1 << 62);
    }
}
