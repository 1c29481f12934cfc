//! What makes no picture says why.

use deepxtrace_counters::Topology;
use deepxtrace_heatmap::{
    BarPlot, Caption, Cell, Format, MatrixPlot, NormalView, Panel, PictureError, Renderer, Style,
    draw_normal,
};
use ndarray::Array2;

use crate::sample::{artifact, window};

fn refuse(style: &Style) -> PictureError {
    draw_normal(&artifact(window(8, 8, None)), NormalView::DispatchFinalCost, style).unwrap_err()
}

#[test]
fn sizes_without_room_are_refused_with_the_least_size() {
    for figsize in [(1.0, 10.0), (10.0, 1.0)] {
        let style = Style { figsize: Some(figsize), ..Style::default() };
        let PictureError::TooSmall { least_width, least_height, .. } = refuse(&style) else {
            panic!("too small")
        };
        // The least size it names is enough, once the width lets the list below stand in lines.
        let figsize = Some((least_width.max(8.0), least_height + 0.1));
        let style = Style { figsize, ..Style::default() };
        let artifact = artifact(window(8, 8, None));
        draw_normal(&artifact, NormalView::DispatchFinalCost, &style).unwrap();
    }
    let style = Style { figsize: Some((2.0, 2.0)), ..Style::default() };
    let artifact = artifact(window(8, 8, None));
    let error = draw_normal(&artifact, NormalView::NotifyDuration, &style).unwrap_err();
    assert!(matches!(error, PictureError::TooSmall { .. }), "{error}");
}

#[test]
fn sizes_and_ratios_that_are_none_are_refused() {
    for side in [0.0, -1.0, f64::NAN, f64::INFINITY, 201.0] {
        let style = Style { figsize: Some((side, 10.0)), ..Style::default() };
        let error = refuse(&style);
        assert!(matches!(error, PictureError::Option { option: "figure size", .. }), "{error}");
    }
    for cell_ratio in [0.0, f64::NAN, 11.0] {
        let error = refuse(&Style { cell_ratio, ..Style::default() });
        assert!(matches!(error, PictureError::Option { option: "cell ratio", .. }), "{error}");
    }
}

#[test]
fn a_raster_image_beyond_the_limit_is_refused_before_it_is_allocated() {
    let artifact = artifact(window(64, 8, None));
    let style = Style { figsize: Some((100.0, 100.0)), ..Style::default() };
    let picture = draw_normal(&artifact, NormalView::DispatchFinalCost, &style).unwrap();
    let renderer = Renderer::new();
    let error = renderer.render(&picture, Format::Png, 1200.0).unwrap_err();
    assert!(error.to_string().contains("120000 x 120000 pixels at 1200 dpi"), "{error}");
    for dpi in [9.0, 1201.0, f64::NAN] {
        let error = renderer.render(&picture, Format::Png, dpi).unwrap_err();
        assert!(matches!(error, PictureError::Option { option: "dpi", .. }), "{error}");
    }
}

fn caption() -> Caption {
    let title = "title".into();
    Caption { title, subtitle: String::new(), outcome: None, notes: Vec::new() }
}

#[test]
fn shapes_that_do_not_fit_the_group_are_refused() {
    let topology = Topology::new(4, 4).unwrap();
    let text = String::new;
    let plot = MatrixPlot {
        caption: caption(),
        topology,
        row_axis: text(),
        column_axis: text(),
        value_label: text(),
        no_data_label: text(),
        outside_label: text(),
        cells: Array2::from_elem((4, 3), Cell::NoData),
        marks: Vec::new(),
    };
    let error = plot.draw(&Style::default()).unwrap_err();
    assert_eq!(error, PictureError::Shape { rows: 4, columns: 3, ep_size: 4 });

    let panel = Panel {
        title: "waits".into(),
        outcome: None,
        values: vec![None; 5],
        marks: Vec::new(),
        limit: None,
    };
    let plot = BarPlot { caption: caption(), topology, panels: vec![panel] };
    let error = plot.draw(&Style::default()).unwrap_err();
    assert_eq!(error.to_string(), "panel \"waits\" has 5 values for a group of 4 ranks");
}
