//! Which windows get pictures.

use std::collections::BTreeSet;

use super::folder::{Folder, Window};
use crate::text::normal::incident_text;

/// The windows to show, in the order of the folder: for every incident the window in which it costs
/// most, those that cost most first, until there are `most`; then what else costs most.
pub fn choose(folder: &Folder, most: usize) -> Vec<(usize, usize)> {
    let mut candidates: Vec<(usize, usize, &Window)> = Vec::new();
    for (r, run) in folder.runs.iter().enumerate() {
        let found = run.windows.iter().enumerate().filter(|(_, window)| window.has_incidents());
        candidates.extend(found.map(|(w, window)| (r, w, window)));
    }
    // Largest first; of equals the earliest.
    candidates
        .sort_by(|a, b| weight(b.2).total_cmp(&weight(a.2)).then((a.0, a.1).cmp(&(b.0, b.1))));
    let mut seen = BTreeSet::new();
    let (mut first, mut rest) = (Vec::new(), Vec::new());
    for (r, w, window) in candidates {
        let before = seen.len();
        seen.extend(signs(window).into_iter().map(|sign| (r, sign)));
        if seen.len() > before { first.push((r, w)) } else { rest.push((r, w)) }
    }
    let mut chosen: Vec<_> = first.into_iter().chain(rest).take(most).collect();
    chosen.sort_unstable();
    chosen
}

/// What tells the incidents of a window from those of another.
fn signs(window: &Window) -> Vec<String> {
    match window.normal() {
        Some(diagnosis) => diagnosis.incidents.iter().map(incident_text).collect(),
        None => window
            .low_latency()
            .flat_map(|(phase, d)| {
                let columns = d.mean_ratio.abnormal_cols.iter();
                columns.map(move |column| format!("{phase} {}", column.index))
            })
            .chain(["low latency".to_owned()])
            .collect(),
    }
}

/// What the findings of a window cost, cycles; a nanosecond of a late rank counts as about two.
fn weight(window: &Window) -> f64 {
    match window.normal() {
        Some(diagnosis) => diagnosis
            .probes
            .iter()
            .flat_map(|(probe, report)| {
                let scale = if probe.notify().is_some() { 2.0 } else { 1.0 };
                report.findings.iter().map(move |finding| finding.excess() * scale)
            })
            .sum(),
        None => window
            .low_latency()
            .map(|(_, d)| {
                let mean = d.mean_ratio.abnormal_cols.iter().map(|column| column.ratio);
                mean.sum::<f64>() + d.topology.findings.len() as f64
            })
            .sum(),
    }
}
