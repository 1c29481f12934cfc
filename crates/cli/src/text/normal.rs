//! Normal-mode diagnoses for people: windows that say the same are one entry.

use std::fmt::Write as _;
use std::io::{self, Write};

use anstyle::Style;
use deepxtrace::counters::{NotifyProbe, Topology};
use deepxtrace::normal::{Incident, ProbeStatus, WindowDiagnosis, WindowState};

use crate::output::{BAD, FAINT, GOOD, HEADING, WARNING};
use crate::text::{count, shown};

/// Findings shown a probe.
const MOST_FINDINGS: usize = 4;

/// Prints windows as they come and counts them.
#[derive(Debug, Default)]
pub struct Report {
    group: Option<Group>,
    with_incidents: u64,
    healthy: u64,
    idle: u64,
    refused: u64,
}

/// Windows in a row that say the same.
#[derive(Debug)]
struct Group {
    first: u64,
    last: u64,
    lines: Vec<(Style, String)>,
    /// The findings of the first window.
    findings: Vec<String>,
}

impl Report {
    /// Prints what is diagnosed.
    pub fn title(
        out: &mut impl Write,
        file: &str,
        windows: usize,
        topology: Topology,
    ) -> io::Result<()> {
        let (ranks, per_node) = (count(topology.ep_size(), "rank"), topology.ranks_per_node());
        let windows = count(windows, "window");
        writeln!(out, "{HEADING}{file}{HEADING:#}: {windows} of {ranks}, {per_node} a node")
    }

    /// Takes the next window.
    pub fn window(&mut self, out: &mut impl Write, report: &WindowDiagnosis) -> io::Result<()> {
        match report.state {
            WindowState::Refused => self.refused += 1,
            WindowState::Idle => self.idle += 1,
            WindowState::Diagnosed if report.incidents.is_empty() => self.healthy += 1,
            WindowState::Diagnosed => self.with_incidents += 1,
        }
        let (lines, index) = (lines(report), report.window_index);
        match &mut self.group {
            Some(group) if group.lines == lines && report.state != WindowState::Refused => {
                group.last = index;
            }
            _ => {
                let findings = findings(report);
                let group = Group { first: index, last: index, lines, findings };
                if let Some(done) = self.group.replace(group) {
                    done.print(out)?;
                }
            }
        }
        Ok(())
    }

    /// Prints what is left, and the sum.
    pub fn finish(self, out: &mut impl Write) -> io::Result<()> {
        if let Some(group) = self.group {
            group.print(out)?;
        }
        let Self { with_incidents, healthy, idle, refused, .. } = self;
        let style = if with_incidents > 0 { BAD } else { GOOD };
        write!(out, "{style}{with_incidents} with incidents{style:#}, {healthy} without")?;
        for (count, name) in [(idle, "idle"), (refused, "refused")] {
            if count > 0 {
                write!(out, ", {WARNING}{count} {name}{WARNING:#}")?;
            }
        }
        writeln!(out)
    }
}

impl Group {
    fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let title = if self.first == self.last {
            format!("window {}", self.first)
        } else {
            format!("windows {}-{}", self.first, self.last)
        };
        for (i, (style, line)) in self.lines.iter().enumerate() {
            let title = if i == 0 { &title[..] } else { "" };
            writeln!(out, "{title:<16} {style}{line}{style:#}")?;
        }
        for line in &self.findings {
            writeln!(out, "{:<18} {FAINT}{line}{FAINT:#}", "")?;
        }
        Ok(())
    }
}

fn lines(report: &WindowDiagnosis) -> Vec<(Style, String)> {
    let mut lines = Vec::new();
    match report.state {
        WindowState::Refused => {
            let reason = report.reason.as_deref().unwrap_or("no reason given");
            lines.push((WARNING, format!("refused: {reason}")));
        }
        WindowState::Idle => lines.push((WARNING, "idle: nothing was counted".to_owned())),
        WindowState::Diagnosed => {
            lines.extend(report.incidents.iter().map(|incident| (BAD, incident_text(incident))));
            if report.incidents.is_empty() && report.has_findings() {
                lines.push((WARNING, "no incident, but findings".to_owned()));
            } else if report.incidents.is_empty() {
                lines.push((GOOD, "healthy".to_owned()));
            }
            let unknown =
                report.probes.iter().filter(|(_, r)| r.status == ProbeStatus::Insufficient);
            let unknown: Vec<_> = unknown.map(|(probe, _)| probe.name()).collect();
            if !unknown.is_empty() {
                lines.push((WARNING, format!("insufficient evidence: {}", unknown.join(", "))));
            }
        }
    }
    if !report.missing_ranks.is_empty() {
        lines.push((WARNING, format!("no snapshot of {}", named(&report.missing_ranks))));
    }
    lines
}

/// What an incident means, in a line.
pub fn incident_text(incident: &Incident) -> String {
    match incident {
        Incident::PreStageArrivalSkew { probe, ranks } => {
            let arrives = if ranks.len() == 1 { "arrives" } else { "arrive" };
            let stage = match probe {
                NotifyProbe::CachedNotifyCombine => "combine",
                NotifyProbe::NotifyDispatch | NotifyProbe::CachedNotifyDispatch => "dispatch",
            };
            format!("{} {arrives} late: look at what runs before {stage} ({probe})", named(ranks))
        }
        Incident::GlobalDataPathSlowdown { .. } => {
            "the whole data path is slow: look at the network as a whole".to_owned()
        }
        Incident::LocalizedDataPathSlowdown {
            owners, experts, node_pairs, edges, rails, ..
        } => {
            let mut text = "slow paths".to_owned();
            let mut part = |name: &str, part: String| {
                if !part.is_empty() {
                    // Writing to a string cannot fail.
                    let _ = write!(text, ", {name} {part}");
                }
            };
            part("tokens of", named(owners));
            part("experts of", named(experts));
            part("node", list(node_pairs, |[a, b]| format!("{a} -> {b}")));
            part("owner -> expert", list(edges, |[a, b]| format!("{a} -> {b}")));
            part("rails", list(rails, |[local, a, b]| format!("{local}: node {a} -> {b}")));
            text
        }
        Incident::Unclassified { .. } => "slow paths that do not add up to one cause".to_owned(),
        other => other.to_string(),
    }
}

/// `rank 9` or `ranks 0, 1`; empty for none.
pub fn named(ranks: &[usize]) -> String {
    let name = match ranks.len() {
        0 => return String::new(),
        1 => "rank",
        _ => "ranks",
    };
    format!("{name} {}", list(ranks, |rank| rank.to_string()))
}

fn list<T>(items: &[T], one: impl Fn(&T) -> String) -> String {
    let (shown, more) = shown(items, 16);
    let mut text = shown.iter().map(one).collect::<Vec<_>>().join(", ");
    if more > 0 {
        let _ = write!(text, " and {more} more");
    }
    text
}

fn findings(report: &WindowDiagnosis) -> Vec<String> {
    let mut lines = Vec::new();
    for (probe, result) in report.probes.iter() {
        let (shown, more) = shown(&result.findings, MOST_FINDINGS);
        for (i, finding) in shown.iter().enumerate() {
            let name = if i == 0 { probe.name() } else { "" };
            lines.push(format!("{name:<22} {finding}"));
        }
        if more > 0 {
            lines.push(format!("{:<22} and {more} more", ""));
        }
    }
    lines
}

/// Prints one window: incidents, and each probe with its status, level and findings.
pub fn details(out: &mut impl Write, report: &WindowDiagnosis) -> io::Result<()> {
    for (style, line) in lines(report) {
        writeln!(out, "  {style}{line}{style:#}")?;
    }
    for (probe, result) in report.probes.iter() {
        let style = match result.status {
            ProbeStatus::Ok => GOOD,
            ProbeStatus::Anomalous => BAD,
            ProbeStatus::Insufficient | ProbeStatus::NotApplicable => WARNING,
        };
        let level = result.level.unwrap_or_default();
        write!(out, "  {:<22} {style}{:<14}{style:#}", probe.name(), result.status.to_string())?;
        if let Some(scalar) = level.scalar {
            write!(out, " {scalar:.0} cycles a sample")?;
        }
        if let (Some(recent), Some(best)) = (level.global_ratio, level.best_ratio) {
            write!(out, ", {recent:.2}x the recent level, {best:.2}x the best")?;
        }
        writeln!(out)?;
        for finding in &result.findings {
            writeln!(out, "  {:<22} {FAINT}{finding}{FAINT:#}", "")?;
        }
    }
    Ok(())
}
