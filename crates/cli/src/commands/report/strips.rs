//! The timeline: one strip an incident, one step a window.

use std::fmt::Write as _;

use deepxtrace::artifact::utc;
use deepxtrace::normal::{Incident, WindowState};

use super::folder::{Outcome, Run};
use super::html::Escaped;
use crate::text::normal::incident_text;

/// Strips shown at most.
const MOST: usize = 24;

/// One strip: its text, its colour, and in which windows it is filled.
struct Strip {
    text: String,
    class: &'static str,
    windows: Vec<usize>,
}

/// Writes the timeline of a run.
pub fn write(page: &mut String, run: &Run) {
    let mut strips = strips(run);
    let more = strips.len().saturating_sub(MOST);
    strips.truncate(MOST);
    let count = run.windows.len();
    let _ = writeln!(page, "<div class=\"timeline\">");
    let state = |wanted: fn(&Outcome) -> bool| -> Vec<usize> {
        let windows = run.windows.iter().enumerate();
        windows.filter(|(_, window)| wanted(&window.outcome)).map(|(i, _)| i).collect()
    };
    let unknown = state(|outcome| match outcome {
        Outcome::Normal(diagnosis) => diagnosis.state != WindowState::Diagnosed,
        Outcome::LowLatency(diagnoses) => diagnoses.iter().all(Option::is_none),
    });
    if !unknown.is_empty() {
        let text = "not diagnosed (idle or refused)".to_owned();
        strips.push(Strip { text, class: "idle", windows: unknown });
    }
    if strips.is_empty() {
        let _ = writeln!(page, "<p>No incident in any window.</p>");
    }
    for strip in &strips {
        let windows = strip.windows.len();
        let _ = writeln!(
            page,
            "<div class=\"what\">{} <span class=\"faint\">{windows} of {count} windows</span></div>",
            Escaped(arrows(&strip.text))
        );
        let _ = write!(
            page,
            "<svg class=\"strip\" viewBox=\"0 0 {count} 1\" preserveAspectRatio=\"none\">\
             <rect width=\"{count}\" height=\"1\" class=\"track\"/>"
        );
        for (start, length) in runs_of(&strip.windows) {
            let class = strip.class;
            let _ = write!(
                page,
                "<rect x=\"{start}\" width=\"{length}\" height=\"1\" class=\"{class}\"/>"
            );
        }
        let _ = writeln!(page, "</svg>");
    }
    if let (Some(first), Some(last)) = (run.windows.first(), run.windows.last()) {
        let _ = writeln!(
            page,
            "<div></div><div class=\"ends\"><span>window {}<br>{}</span><span>window {}<br>{}</span></div>",
            first.index,
            utc(first.time.0),
            last.index,
            utc(last.time.1)
        );
    }
    let _ = writeln!(page, "</div>");
    if more > 0 {
        let _ = writeln!(page, "<p class=\"faint\">and {more} more incidents</p>");
    }
}

fn strips(run: &Run) -> Vec<Strip> {
    let mut strips: Vec<Strip> = Vec::new();
    for (i, window) in run.windows.iter().enumerate() {
        let mut add = |text: String, class| match strips.iter_mut().find(|s| s.text == text) {
            Some(strip) if strip.windows.last() == Some(&i) => {}
            Some(strip) => strip.windows.push(i),
            None => strips.push(Strip { text, class, windows: vec![i] }),
        };
        if let Some(diagnosis) = window.normal() {
            for incident in &diagnosis.incidents {
                add(incident_text(incident), class(incident));
            }
        }
        for (phase, diagnosis) in window.low_latency() {
            for finding in &diagnosis.topology.findings {
                add(low_latency_text(phase, finding), "localized");
            }
            for column in &diagnosis.mean_ratio.abnormal_cols {
                add(format!("{phase}, mean rule: all wait for rank {}", column.index), "late");
            }
        }
    }
    // Those that were there most of the time first.
    strips.sort_by_key(|strip| {
        (std::cmp::Reverse(strip.windows.len()), strip.windows.first().copied())
    });
    strips
}

/// Arrows that no browser breaks into two lines.
pub fn arrows(text: &str) -> String {
    text.replace(" -> ", "\u{a0}\u{2192}\u{a0}")
}

/// A finding without its figures, which change from window to window.
fn low_latency_text(
    phase: deepxtrace::counters::LlPhase,
    finding: &deepxtrace::ll::LlFinding,
) -> String {
    let text = finding.to_string();
    let text = text.split_once(':').map_or(text.as_str(), |(what, _)| what);
    format!("{phase}: {text}")
}

fn class(incident: &Incident) -> &'static str {
    match incident {
        Incident::PreStageArrivalSkew { .. } => "late",
        Incident::GlobalDataPathSlowdown { .. } => "global",
        Incident::LocalizedDataPathSlowdown { .. } => "localized",
        _ => "unclassified",
    }
}

/// Start and length of each stretch of consecutive numbers.
fn runs_of(numbers: &[usize]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some((start, length)) if *start + *length == number => *length += 1,
            _ => runs.push((number, 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_windows_are_one_bar() {
        assert_eq!(runs_of(&[0, 1, 2, 5, 7, 8]), [(0, 3), (5, 1), (7, 2)]);
        assert!(runs_of(&[]).is_empty());
    }
}
