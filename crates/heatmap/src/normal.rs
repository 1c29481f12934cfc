//! The four pictures of a Normal-mode window.

use deepxtrace_artifact::{NormalArtifact, utc};
use deepxtrace_counters::{CompletionProbe, NotifyProbe, Probe, Topology};
use deepxtrace_normal::{Finding, PathScope, ProbeReport, ProbeStatus, WindowState};
use ndarray::Array2;

use crate::areas;
use crate::error::PictureError;
use crate::model::{BarPlot, Caption, Cell, Mark, MatrixPlot, Panel, Place, Tone};
use crate::picture::Picture;
use crate::style::Style;

/// One of the four pictures of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NormalView {
    /// Average durations of the three Notify probes, three panels of bars.
    NotifyDuration,
    /// Cost of a sample at the final receiver of dispatch.
    DispatchFinalCost,
    /// Cost of a sample where inter-node data of dispatch arrives.
    DispatchRdmaRecvCost,
    /// Cost of a sample at the receiver of combine.
    CombineLogicalRecvCost,
}

impl NormalView {
    /// All four.
    pub const ALL: [Self; 4] = [
        Self::NotifyDuration,
        Self::DispatchFinalCost,
        Self::DispatchRdmaRecvCost,
        Self::CombineLogicalRecvCost,
    ];

    /// The last part of the name of its file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NotifyDuration => "notify_duration",
            Self::DispatchFinalCost => "dispatch_final_cost_per_sample",
            Self::DispatchRdmaRecvCost => "dispatch_rdma_recv_cost_per_sample",
            Self::CombineLogicalRecvCost => "combine_logical_recv_cost_per_sample",
        }
    }

    /// Whether something was found in what it shows.
    #[must_use]
    pub fn has_findings(self, artifact: &NormalArtifact<'_>) -> bool {
        let found = |probe: Probe| {
            let report = artifact.diagnosis.probes.get(probe);
            report.is_some_and(|report| !report.findings.is_empty())
        };
        match self.completion() {
            Some(probe) => found(probe.into()),
            None => NotifyProbe::ALL.into_iter().any(|probe| found(probe.into())),
        }
    }

    /// The Completion probe it shows.
    fn completion(self) -> Option<CompletionProbe> {
        match self {
            Self::NotifyDuration => None,
            Self::DispatchFinalCost => Some(CompletionProbe::DispatchFinal),
            Self::DispatchRdmaRecvCost => Some(CompletionProbe::DispatchRdmaRecv),
            Self::CombineLogicalRecvCost => Some(CompletionProbe::CombineLogicalRecv),
        }
    }
}

/// Draws one picture of a window.
///
/// # Errors
///
/// A size of `style` is out of range or leaves no room for the plot.
pub fn draw_normal(
    artifact: &NormalArtifact<'_>,
    view: NormalView,
    style: &Style,
) -> Result<Picture, PictureError> {
    match view.completion() {
        None => notify_plot(artifact).draw(style),
        Some(probe) => completion_plot(artifact, probe).draw(style),
    }
}

/// The line below the title: instance, window, group, time.
pub(crate) fn subtitle(
    instance: &str,
    index: u64,
    topology: Topology,
    (begin, end): (i64, i64),
) -> String {
    let length = end.saturating_sub(begin) as f64;
    let length = match length {
        l if l >= 1e9 => format!("{:.1} s", l / 1e9),
        l => format!("{:.1} ms", l / 1e6),
    };
    format!(
        "instance {instance} · window {index} · EP {} on {} node{} · {} UTC, {length}",
        topology.ep_size(),
        topology.nodes(),
        if topology.nodes() == 1 { "" } else { "s" },
        utc(begin),
    )
}

/// The note on ranks that are missing, if there are any.
pub(crate) fn missing_note(valid: &[bool]) -> Option<String> {
    let missing: Vec<String> = valid
        .iter()
        .enumerate()
        .filter(|&(_, valid)| !valid)
        .map(|(rank, _)| rank.to_string())
        .collect();
    let ranks = match missing.len() {
        0 => return None,
        n if n > 24 => format!("{} and {} more", missing[..24].join(", "), n - 24),
        _ => missing.join(", "),
    };
    Some(format!("missing ranks (no two consecutive snapshots): {ranks}"))
}

fn caption(artifact: &NormalArtifact<'_>, title: &str) -> Caption {
    let window = &artifact.window;
    let time = (window.begin_unix_ns(), window.end_unix_ns());
    Caption {
        title: title.into(),
        subtitle: subtitle(&artifact.instance, window.index(), window.topology(), time),
        outcome: None,
        notes: missing_note(window.valid()).into_iter().collect(),
    }
}

/// The outcome of one probe in words.
fn outcome(artifact: &NormalArtifact<'_>, probe: Probe) -> (Tone, String) {
    match (artifact.diagnosis.state, artifact.diagnosis.probes.get(probe)) {
        (WindowState::Refused, _) => (Tone::Neutral, "window refused".into()),
        (WindowState::Idle, _) => (Tone::Neutral, "idle window, not diagnosed".into()),
        (_, None) => (Tone::Neutral, "not diagnosed".into()),
        (_, Some(report)) => {
            let tone = match report.status {
                ProbeStatus::Ok => Tone::Good,
                ProbeStatus::Anomalous => Tone::Bad,
                ProbeStatus::Insufficient | ProbeStatus::NotApplicable => Tone::Neutral,
            };
            (tone, words(report))
        }
    }
}

fn words(report: &ProbeReport) -> String {
    match report.status {
        ProbeStatus::Ok => "ok: nothing found".into(),
        ProbeStatus::Anomalous => match report.findings.len() {
            1 => "anomalous: 1 finding".into(),
            n => format!("anomalous: {n} findings"),
        },
        ProbeStatus::Insufficient => "insufficient: too little evidence to tell".into(),
        ProbeStatus::NotApplicable => "not applicable: one node, no path between nodes".into(),
    }
}

fn findings(artifact: &NormalArtifact<'_>, probe: Probe) -> Vec<Finding> {
    artifact.diagnosis.probes.get(probe).map(|report| report.findings.clone()).unwrap_or_default()
}

fn notify_plot(artifact: &NormalArtifact<'_>) -> BarPlot {
    let panels = NotifyProbe::ALL.map(|probe| notify_panel(artifact, probe));
    let found = panels.iter().map(|panel| panel.marks.len()).sum::<usize>();
    let mut caption = caption(artifact, "Notify: average duration of a launch by rank");
    caption.notes.push(
        "A rank that enters a Notify kernel last waits least in it: a low bar is a late rank."
            .into(),
    );
    caption.outcome = Some(match found {
        0 if artifact.diagnosis.state == WindowState::Diagnosed => {
            (Tone::Good, "no late rank found".into())
        }
        0 => outcome(artifact, Probe::NotifyDispatch),
        1 => (Tone::Bad, "1 late rank".into()),
        n => (Tone::Bad, format!("{n} findings of late ranks")),
    });
    BarPlot { caption, topology: artifact.window.topology(), panels: panels.into() }
}

fn notify_panel(artifact: &NormalArtifact<'_>, probe: NotifyProbe) -> Panel {
    let delta = artifact.window.notify(probe);
    let average =
        |(&duration, &count): (&i64, &i64)| (count > 0).then(|| duration as f64 / count as f64);
    let values: Vec<_> = delta.duration_ns.iter().zip(&delta.count).map(average).collect();
    let marks = findings(artifact, probe.into())
        .into_iter()
        .filter_map(|finding| match finding {
            Finding::LateRank { rank, .. } if rank < values.len() => {
                Some((rank, format!("{probe}: {finding}")))
            }
            _ => None,
        })
        .collect();
    let limit = median(values.iter().flatten().copied().collect()).map(|median| {
        let ratio = artifact.policy.notify_ratio;
        (ratio * median, format!("dashed: {ratio} of the median"))
    });
    let outcome = Some(outcome(artifact, probe.into()));
    Panel { title: probe.name().into(), outcome, values, marks, limit }
}

/// The middle value, or the mean of the middle two.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    let lower = if values.len().is_multiple_of(2) { *values.get(middle - 1)? } else { upper };
    Some(lower / 2.0 + upper / 2.0)
}

fn completion_plot(artifact: &NormalArtifact<'_>, probe: CompletionProbe) -> MatrixPlot {
    let topology = artifact.window.topology();
    let gateway = probe == CompletionProbe::DispatchRdmaRecv;
    let (title, row_axis) = match probe {
        CompletionProbe::DispatchFinal => ("Dispatch, final receiver", "source rank"),
        CompletionProbe::DispatchRdmaRecv => {
            ("Dispatch, RDMA receive", "source gateway proxy rank")
        }
        CompletionProbe::CombineLogicalRecv => ("Combine, logical receive", "source rank"),
    };
    let mut caption = caption(artifact, &format!("{title}: cost of a sample"));
    caption.outcome = Some(outcome(artifact, probe.into()));
    caption.notes.splice(0..0, level_note(artifact, probe));
    let one_node = gateway && topology.nodes() == 1;
    let no_data =
        if one_node { "one node: no path between nodes" } else { "no samples in this window" };
    let outside = if gateway {
        "not a path between gateways, or within one node: not judged"
    } else {
        "the rank itself: not judged"
    };
    MatrixPlot {
        caption,
        topology,
        row_axis: format!("{row_axis} (sends)"),
        column_axis: "destination rank (receives and measures)".into(),
        value_label: "cycles of the destination's GPU a sample".into(),
        no_data_label: no_data.into(),
        outside_label: outside.into(),
        cells: cells(artifact, probe),
        marks: findings(artifact, probe.into())
            .iter()
            .map(|finding| Mark {
                text: finding.to_string(),
                place: place(topology, probe, finding),
            })
            .collect(),
    }
}

fn level_note(artifact: &NormalArtifact<'_>, probe: CompletionProbe) -> Option<String> {
    let level = artifact.diagnosis.probes.get(probe)?.level?;
    let mut note = format!("level of the matrix: {:.0} cycles a sample", level.scalar?);
    if let (Some(recent), Some(best)) = (level.global_ratio, level.best_ratio) {
        note += &format!(", {recent:.2}x the recent level, {best:.2}x the best");
    }
    Some(note)
}

fn cells(artifact: &NormalArtifact<'_>, probe: CompletionProbe) -> Array2<Cell> {
    let topology = artifact.window.topology();
    let delta = artifact.window.completion(probe);
    let gateway = probe == CompletionProbe::DispatchRdmaRecv;
    Array2::from_shape_fn(delta.cost.dim(), |(source, destination)| {
        let (cost, samples) =
            (delta.cost[[source, destination]], delta.samples[[source, destination]]);
        let outside = if gateway {
            topology.same_node(source, destination)
                || topology.local_index(source) != topology.local_index(destination)
        } else {
            source == destination
        };
        match (cost > 0 && samples > 0, outside) {
            (_, true) => Cell::Outside,
            (true, false) => Cell::Value(cost as f64 / samples as f64),
            (false, false) => Cell::NoData,
        }
    })
}

/// Where a finding is. A rail of dispatch is one source row towards a node, a rail of combine one
/// destination column from a node.
fn place(topology: Topology, probe: CompletionProbe, finding: &Finding) -> Place {
    let all = PathScope::All;
    match *finding {
        Finding::SourceRow { rank, path, .. } => areas::row(topology, rank, path),
        Finding::SourceGateway { rank, .. } => areas::row(topology, rank, all),
        Finding::DestinationColumn { rank, path, .. } => areas::column(topology, rank, path),
        Finding::DestinationGateway { rank, .. } => areas::column(topology, rank, all),
        Finding::Point { src, dst, .. } | Finding::GatewayEdge { src, dst, .. } => {
            areas::point(topology, src, dst)
        }
        Finding::NodeBlock { src_node, dst_node, .. } => areas::block(topology, src_node, dst_node),
        Finding::Rail { local_index, src_node, dst_node, .. } => {
            if probe == CompletionProbe::CombineLogicalRecv {
                areas::rail_column(topology, local_index, src_node, dst_node)
            } else {
                areas::rail_row(topology, local_index, src_node, dst_node)
            }
        }
        Finding::Global { .. } => Place::Everywhere,
        _ => Place::Areas(Vec::new()),
    }
}
