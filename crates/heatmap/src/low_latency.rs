//! The picture of a low-latency wait matrix.

use deepxtrace_counters::{LlPhase, Topology};
use deepxtrace_ll::{LlDiagnosis, LlFinding};
use ndarray::{Array2, ArrayView2};

use deepxtrace_artifact::LlArtifact;

use crate::areas;
use crate::error::PictureError;
use crate::model::{Caption, Cell, Mark, MatrixPlot, Place, Tone};
use crate::normal::{missing_note, subtitle};
use crate::picture::Picture;
use crate::style::Style;

/// A wait matrix from a log or a file, with its diagnosis.
#[derive(Debug, Clone, Copy)]
pub struct LlMatrix<'a> {
    /// Where it comes from, for the line below the title.
    pub origin: &'a str,
    /// The phase, if it is known.
    pub phase: Option<LlPhase>,
    /// The group.
    pub topology: Topology,
    /// The waits, `[waiter, awaited]`.
    pub waits: ArrayView2<'a, i64>,
    /// What they mean; none when they were not diagnosed.
    pub diagnosis: Option<&'a LlDiagnosis>,
}

/// Draws a wait matrix.
///
/// # Errors
///
/// - the matrix does not fit the group
/// - a size of `style` is out of range or leaves no room for the plot
pub fn draw_ll_matrix(matrix: &LlMatrix<'_>, style: &Style) -> Result<Picture, PictureError> {
    plot(matrix, matrix.origin.to_owned(), None).draw(style)
}

/// Draws one phase of a low-latency window.
///
/// # Errors
///
/// A size of `style` is out of range or leaves no room for the plot.
pub fn draw_ll(
    artifact: &LlArtifact<'_>,
    phase: LlPhase,
    style: &Style,
) -> Result<Picture, PictureError> {
    let window = &artifact.window;
    let time = (window.begin_unix_ns(), window.end_unix_ns());
    let origin = subtitle(&artifact.instance, window.index(), window.topology(), time);
    let matrix = LlMatrix {
        origin: &origin,
        phase: Some(phase),
        topology: window.topology(),
        waits: window.wait(phase).view(),
        diagnosis: artifact.diagnoses[phase as usize].as_deref(),
    };
    plot(&matrix, origin.clone(), missing_note(window.valid())).draw(style)
}

fn plot(matrix: &LlMatrix<'_>, subtitle: String, note: Option<String>) -> MatrixPlot {
    let title = match matrix.phase {
        Some(LlPhase::Dispatch) => "Low-latency dispatch: waits",
        Some(LlPhase::Combine) => "Low-latency combine: waits",
        None => "Low-latency waits",
    };
    let marks = marks(matrix);
    let outcome = match marks.len() {
        _ if matrix.diagnosis.is_none() => (Tone::Neutral, "idle window, not diagnosed".to_owned()),
        0 => (Tone::Good, "nothing found".to_owned()),
        1 => (Tone::Bad, "1 finding".to_owned()),
        n => (Tone::Bad, format!("{n} findings")),
    };
    MatrixPlot {
        caption: Caption {
            title: title.into(),
            subtitle,
            outcome: Some(outcome),
            notes: note.into_iter().collect(),
        },
        topology: matrix.topology,
        row_axis: "waiting rank (source in logs)".into(),
        column_axis: "awaited rank (destination in logs)".into(),
        value_label: "wait, cycles of the waiter's GPU".into(),
        no_data_label: "no wait measured".into(),
        outside_label: "the rank itself: not judged".into(),
        cells: cells(matrix.waits),
        marks,
    }
}

fn cells(waits: ArrayView2<'_, i64>) -> Array2<Cell> {
    Array2::from_shape_fn(waits.dim(), |(waiter, awaited)| match waits[[waiter, awaited]] {
        _ if waiter == awaited => Cell::Outside,
        wait if wait > 0 => Cell::Value(wait as f64),
        _ => Cell::NoData,
    })
}

/// Findings of the topology-aware rule, then those of the mean-ratio rule.
fn marks(matrix: &LlMatrix<'_>) -> Vec<Mark> {
    let Some(diagnosis) = matrix.diagnosis else { return Vec::new() };
    let group = matrix.topology;
    let all = deepxtrace_ll::PathScope::All;
    let mut marks: Vec<Mark> = diagnosis
        .topology
        .findings
        .iter()
        .map(|finding| Mark {
            text: finding.to_string(),
            place: match *finding {
                LlFinding::Column { rank, path, .. } => areas::column(group, rank, path),
                LlFinding::Row { rank, path, .. } => areas::row(group, rank, path),
                LlFinding::Point { waiter, awaited, .. } => areas::point(group, waiter, awaited),
                LlFinding::NodeBlock { waiter_node, awaited_node, .. } => {
                    areas::block(group, waiter_node, awaited_node)
                }
                _ => Place::Areas(Vec::new()),
            },
        })
        .collect();
    let mean = &diagnosis.mean_ratio;
    marks.extend(mean.abnormal_cols.iter().map(|column| Mark {
        text: format!("mean rule: all wait for rank {}, {:.2}x", column.index, column.ratio),
        place: areas::column(group, column.index, all),
    }));
    marks.extend(mean.abnormal_rows.iter().map(|row| Mark {
        text: format!("mean rule: rank {} waits for all, {:.2}x", row.index, row.ratio),
        place: areas::row(group, row.index, all),
    }));
    marks.extend(mean.abnormal_points.iter().map(|point| Mark {
        text: format!("mean rule: rank {} waits for {}, {:.2}x", point.row, point.col, point.ratio),
        place: areas::point(group, point.row, point.col),
    }));
    marks
}
