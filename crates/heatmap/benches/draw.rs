//! One matrix of a group: drawn, and as a PNG.
//!
//! `cargo bench -p deepxtrace-heatmap -- EP64` runs one size.
#![allow(missing_docs, clippy::unwrap_used)]

use std::hint::black_box;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use deepxtrace_counters::Topology;
use deepxtrace_heatmap::{Area, Caption, Cell, Format, Mark, MatrixPlot, Place, Renderer, Style};
use ndarray::Array2;

fn plot(ep_size: usize) -> MatrixPlot {
    let topology = Topology::new(ep_size, 8).unwrap();
    let cells = Array2::from_shape_fn((ep_size, ep_size), |(s, d)| {
        let base = if topology.same_node(s, d) { 20_000.0 } else { 60_000.0 };
        if s == d { Cell::Outside } else { Cell::Value(base + ((s * 131 + d * 71) % 997) as f64) }
    });
    let areas = vec![Area { rows: 3..4, columns: 0..ep_size }];
    MatrixPlot {
        caption: Caption {
            title: "Dispatch".into(),
            subtitle: "a window".into(),
            outcome: None,
            notes: Vec::new(),
        },
        topology,
        row_axis: "source rank".into(),
        column_axis: "destination rank".into(),
        value_label: "cycles a sample".into(),
        no_data_label: "no samples".into(),
        outside_label: "not judged".into(),
        cells,
        marks: vec![Mark { text: "source rank 3".into(), place: Place::Areas(areas) }],
    }
}

fn draw(c: &mut Criterion) {
    let mut group = c.benchmark_group("heatmap");
    group.sample_size(10).measurement_time(Duration::from_secs(1));
    group.warm_up_time(Duration::from_millis(300));
    let renderer = Renderer::new();
    for ep_size in [16, 64, 256] {
        let plot = plot(ep_size);
        group.bench_function(BenchmarkId::new("svg", format!("EP{ep_size}")), |b| {
            b.iter(|| black_box(plot.draw(&Style::default()).unwrap()));
        });
        group.bench_function(BenchmarkId::new("png", format!("EP{ep_size}")), |b| {
            b.iter(|| {
                let picture = plot.draw(&Style::default()).unwrap();
                black_box(renderer.render(&picture, Format::Png, 144.0).unwrap().len())
            });
        });
    }
}

criterion_group!(benches, draw);
criterion_main!(benches);
