//! What a picture says.

use deepxtrace_counters::{CompletionProbe, LlPhase, Topology, Window};
use deepxtrace_heatmap::{
    Format, LlMatrix, NormalView, Renderer, Style, draw_ll_matrix, draw_normal,
};
use deepxtrace_ll::{LlDiagnoser, MeanRatioPolicy};
use deepxtrace_normal::Policy;
use ndarray::Array2;

use crate::sample::{artifact, window};

fn svg(window: Window, view: NormalView) -> String {
    draw_normal(&artifact(window), view, &Style::default()).unwrap().svg().to_owned()
}

#[track_caller]
fn says(svg: &str, text: &str) {
    assert!(svg.contains(&format!(">{text}</text>")), "it does not say {text:?}:\n{svg}");
}

#[test]
fn axes_units_and_findings_are_named() {
    let svg = svg(window(16, 8, None), NormalView::DispatchFinalCost);
    says(&svg, "source rank (sends)");
    says(&svg, "destination rank (receives and measures)");
    says(&svg, "cycles of the destination&#39;s GPU a sample");
    says(&svg, "node 0");
    says(&svg, "node 1");
    assert!(svg.contains(">anomalous: "), "{svg}");
    assert!(svg.contains("source rank 2, all paths: 1.8"), "{svg}");
    assert!(svg.contains("window 12 · EP 16 on 2 nodes · 2023-11-14 22:13:20.000 UTC, 20.0 s"));
}

#[test]
fn a_late_rank_is_named_with_its_probe_and_unit() {
    let svg = svg(window(16, 8, None), NormalView::NotifyDuration);
    assert!(svg.contains("notify_dispatch: rank 2 arrives late"), "{svg}");
    says(&svg, "average, µs");
    says(&svg, "dashed: 0.25 of the median");
}

#[test]
fn an_empty_window_says_so_and_has_no_colour_bar() {
    let empty = Window::empty(Topology::new(16, 8).unwrap());
    for view in NormalView::ALL {
        let svg = svg(empty.clone(), view);
        let message = match view {
            NormalView::NotifyDuration => "no launches in this window",
            _ => "no samples in this window",
        };
        says(&svg, message);
        says(&svg, "idle window, not diagnosed");
        assert!(!svg.contains("cycles of the destination"), "{svg}");
    }
}

#[test]
fn one_node_has_no_path_between_nodes() {
    let svg = svg(window(8, 8, None), NormalView::DispatchRdmaRecvCost);
    says(&svg, "one node: no path between nodes");
    assert!(svg.contains(">not applicable"), "{svg}");
}

#[test]
fn missing_ranks_are_named() {
    let svg = svg(window(16, 8, Some(11)), NormalView::CombineLogicalRecvCost);
    says(&svg, "missing ranks (no two consecutive snapshots): 11");
    says(&svg, "no samples in this window");
}

#[test]
fn text_of_the_user_cannot_become_markup() {
    let title = "</text><script>alert(1)</script>";
    let style = Style { title: Some(title.into()), id_prefix: "\"><x".into(), ..Style::default() };
    let artifact = artifact(window(8, 4, None));
    for view in NormalView::ALL {
        let picture = draw_normal(&artifact, view, &style).unwrap();
        assert!(picture.svg().contains("&lt;/text&gt;&lt;script&gt;alert(1)&lt;/script&gt;"));
        assert!(!picture.svg().contains("<script"));
        Renderer::new().render(&picture, Format::Png, 72.0).unwrap();
    }
}

#[test]
fn the_same_window_gives_the_same_bytes() {
    let artifact = artifact(window(16, 8, None));
    let draw = || draw_normal(&artifact, NormalView::DispatchFinalCost, &Style::default()).unwrap();
    for format in Format::ALL {
        let render = || Renderer::new().render(&draw(), format, 96.0).unwrap();
        let bytes = render();
        // The converter of pages orders its fonts differently each time.
        assert!(format == Format::Pdf || bytes == render(), "{format}");
        let magic: &[u8] = match format {
            Format::Png => b"\x89PNG",
            Format::Pdf => b"%PDF",
            _ => b"<svg",
        };
        assert!(bytes.starts_with(magic), "{format}");
    }
}

#[test]
fn a_wait_matrix_names_who_is_waited_for() {
    let mut waits = Array2::from_elem((16, 16), 1_000_i64);
    waits.column_mut(4).fill(90_000);
    waits[[3, 2]] = 0;
    let topology = Topology::new(16, 8).unwrap();
    let mut diagnoser =
        LlDiagnoser::new(topology, MeanRatioPolicy::default(), Policy::default()).unwrap();
    let diagnosis = diagnoser.diagnose(waits.view()).unwrap();
    let matrix = LlMatrix {
        origin: "a log",
        phase: Some(LlPhase::Dispatch),
        topology,
        waits: waits.view(),
        diagnosis: Some(diagnosis),
    };
    let picture = draw_ll_matrix(&matrix, &Style::default()).unwrap();
    says(picture.svg(), "Low-latency dispatch: waits");
    says(picture.svg(), "waiting rank (source in logs)");
    says(picture.svg(), "no wait measured");
    assert!(picture.svg().contains("all wait for rank 4"), "{}", picture.svg());
    assert!(picture.svg().contains(", log scale"), "waits from 1,000 to 90,000");
}

#[test]
fn a_matrix_of_the_largest_counters_is_drawn() {
    let mut window = window(4, 2, None);
    window.edit_completion(CompletionProbe::DispatchFinal, |delta| {
        delta.cost.fill(i64::MAX);
        delta.samples.fill(1);
        delta.samples[[0, 1]] = i64::MAX;
    });
    let svg = svg(window, NormalView::DispatchFinalCost);
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
}
