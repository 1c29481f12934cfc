//! Figures of every window through the `metrics` crate, for whatever exporter the program has
//! installed (feature `metrics`).
//!
//! Recorded on the root, where windows are diagnosed:
//!
//! | name | kind | labels | meaning |
//! |---|---|---|---|
//! | `deepxtrace_windows_total` | counter | `mode`, `state` | windows by what became of them |
//! | `deepxtrace_window_index` | gauge | `mode` | number of the last window |
//! | `deepxtrace_window_seconds` | gauge | `mode` | length of the last window |
//! | `deepxtrace_missing_ranks` | gauge | `mode` | ranks without two consecutive snapshots |
//! | `deepxtrace_findings` | gauge | `mode`, `probe` | findings in the last window; in low-latency mode the probe is `dispatch` or `combine`, by the topology rule |
//! | `deepxtrace_probe_anomalous` | gauge | `probe` | 1: anomalous, 0: ok or not applicable; not set while evidence is insufficient |
//! | `deepxtrace_probe_level_cycles` | gauge | `probe` | mean cost of a sample of a Completion probe |
//! | `deepxtrace_probe_best_ratio` | gauge | `probe` | that level against the best it was |
//! | `deepxtrace_incidents` | gauge | `kind` | incidents in the last window |
//! | `deepxtrace_incident_changes_total` | counter | `kind`, `state` | followed incidents that became suspected, confirmed or cleared |
//! | `deepxtrace_ll_abnormal` | gauge | `phase`, `axis` | columns, rows and points above the mean-ratio thresholds |

#[cfg(feature = "metrics")]
mod enabled {
    use deepxtrace_normal::{IncidentKind, ProbeStatus, WindowState};
    use metrics::{counter, gauge};

    use crate::diagnose::{LlReport, NormalReport};

    const KINDS: [IncidentKind; 4] = [
        IncidentKind::PreStageArrivalSkew,
        IncidentKind::GlobalDataPathSlowdown,
        IncidentKind::LocalizedDataPathSlowdown,
        IncidentKind::Unclassified,
    ];

    fn state(state: WindowState) -> &'static str {
        match state {
            WindowState::Diagnosed => "diagnosed",
            WindowState::Idle => "idle",
            WindowState::Refused => "refused",
        }
    }

    fn window(mode: &'static str, index: u64, became: WindowState, span: Option<i64>, gone: usize) {
        counter!("deepxtrace_windows_total", "mode" => mode, "state" => state(became)).increment(1);
        gauge!("deepxtrace_window_index", "mode" => mode).set(index as f64);
        gauge!("deepxtrace_missing_ranks", "mode" => mode).set(gone as f64);
        if let Some(span) = span {
            gauge!("deepxtrace_window_seconds", "mode" => mode).set(span as f64 / 1e9);
        }
    }

    /// Records a Normal-mode window.
    pub(crate) fn normal(report: &NormalReport<'_>) {
        let diagnosis = report.diagnosis;
        let span = report.window.map(deepxtrace_counters::Window::duration_ns);
        let gone = diagnosis.missing_ranks.len();
        window("normal", diagnosis.window_index, diagnosis.state, span, gone);
        for (probe, result) in diagnosis.probes.iter() {
            let name = probe.name();
            gauge!("deepxtrace_findings", "mode" => "normal", "probe" => name)
                .set(result.findings.len() as f64);
            if result.status != ProbeStatus::Insufficient {
                let anomalous = result.status == ProbeStatus::Anomalous;
                gauge!("deepxtrace_probe_anomalous", "probe" => name)
                    .set(f64::from(u8::from(anomalous)));
            }
            let level = result.level.unwrap_or_default();
            if let Some(scalar) = level.scalar {
                gauge!("deepxtrace_probe_level_cycles", "probe" => name).set(scalar);
            }
            if let Some(best) = level.best_ratio {
                gauge!("deepxtrace_probe_best_ratio", "probe" => name).set(best);
            }
        }
        if diagnosis.state == WindowState::Diagnosed {
            for kind in KINDS {
                let count = diagnosis.incidents.iter().filter(|i| i.kind() == kind).count();
                gauge!("deepxtrace_incidents", "kind" => kind.name()).set(count as f64);
            }
        }
        for change in &diagnosis.tracker {
            let state = change.state.to_string();
            counter!(
                "deepxtrace_incident_changes_total",
                "kind" => change.kind.name(),
                "state" => state
            )
            .increment(1);
        }
    }

    /// Records a low-latency window.
    pub(crate) fn low_latency(report: &LlReport<'_>) {
        let span = report.window.map(|w| w.end_unix_ns().saturating_sub(w.begin_unix_ns()).max(0));
        let gone = report.missing_ranks.len();
        window("low_latency", report.window_index, report.state, span, gone);
        for (phase, diagnosis) in report.phases() {
            let name = phase.name();
            gauge!("deepxtrace_findings", "mode" => "low_latency", "probe" => name)
                .set(diagnosis.topology.findings.len() as f64);
            let mean = &diagnosis.mean_ratio;
            for (axis, count) in [
                ("column", mean.abnormal_cols.len()),
                ("row", mean.abnormal_rows.len()),
                ("point", mean.abnormal_points.len()),
            ] {
                gauge!("deepxtrace_ll_abnormal", "phase" => name, "axis" => axis).set(count as f64);
            }
        }
    }
}

#[cfg(feature = "metrics")]
pub(crate) use enabled::{low_latency, normal};

#[cfg(not(feature = "metrics"))]
mod disabled {
    use crate::diagnose::{LlReport, NormalReport};

    pub(crate) fn normal(_report: &NormalReport<'_>) {}

    pub(crate) fn low_latency(_report: &LlReport<'_>) {}
}

#[cfg(not(feature = "metrics"))]
pub(crate) use disabled::{low_latency, normal};
