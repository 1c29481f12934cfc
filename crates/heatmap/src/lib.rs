//! Pictures of windows: what was measured between which ranks, and where something was found.
//!
//! [`draw_normal`] draws the four pictures of a Normal-mode window, [`draw_ll`] those of a
//! low-latency window, [`draw_ll_matrix`] a wait matrix from a log. [`MatrixPlot`] and [`BarPlot`]
//! draw anything else over the ranks of a group. Each gives a [`Picture`], which is SVG; a
//! [`Renderer`] turns it into PNG (feature `png`) or PDF (feature `pdf`) with embedded fonts, so that
//! the same window gives the same picture on every machine (SVG and PNG to the byte).
//!
//! Every picture says what its axes and colours are, draws the boundaries between nodes, hatches
//! what was not measured, outlines and numbers what was found, and lists it below. Colours follow
//! one scale a picture. Values that differ by less than a quarter in all do not use the whole scale, so
//! that noise does not look like a fault. Groups of more than 1,024 ranks are drawn in squares of
//! several ranks, each with its largest value.
//!
//! ```
//! use deepxtrace_counters::Topology;
//! use deepxtrace_heatmap::{Area, Caption, Cell, Mark, MatrixPlot, Place, Style, Tone};
//! use ndarray::Array2;
//!
//! let mut cells = Array2::from_elem((4, 4), Cell::Value(1_000.0));
//! cells[[2, 1]] = Cell::Value(9_000.0);
//! cells[[3, 3]] = Cell::NoData;
//! let plot = MatrixPlot {
//!     caption: Caption {
//!         title: "Latency".into(),
//!         subtitle: "two nodes of two".into(),
//!         outcome: Some((Tone::Bad, "1 finding".into())),
//!         notes: Vec::new(),
//!     },
//!     topology: Topology::new(4, 2)?,
//!     row_axis: "source rank".into(),
//!     column_axis: "destination rank".into(),
//!     value_label: "cycles".into(),
//!     no_data_label: "no samples".into(),
//!     outside_label: "not judged".into(),
//!     cells,
//!     marks: vec![Mark {
//!         text: "path 2 -> 1: 9x".into(),
//!         place: Place::Areas(vec![Area { rows: 2..3, columns: 1..2 }]),
//!     }],
//! };
//! let picture = plot.draw(&Style::default())?;
//! assert!(picture.svg().contains("path 2 -&gt; 1: 9x"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod areas;
mod color;
mod draw;
mod error;
mod low_latency;
mod model;
mod normal;
mod picture;
mod scale;
mod style;
mod svg;
mod text;

pub use color::Colormap;
pub use error::PictureError;
pub use low_latency::{LlMatrix, draw_ll, draw_ll_matrix};
pub use model::{Area, BarPlot, Caption, Cell, Mark, MatrixPlot, Panel, Place, Tone};
pub use normal::{NormalView, draw_normal};
pub use picture::{Format, MAX_PIXELS, Picture, Renderer};
pub use scale::ScaleChoice;
pub use style::{Annotate, Style};

impl MatrixPlot {
    /// Draws the picture.
    ///
    /// # Errors
    ///
    /// - the cells are not one a pair of ranks
    /// - a size of `style` is out of range or leaves no room for the plot
    pub fn draw(&self, style: &Style) -> Result<Picture, PictureError> {
        draw::draw_matrix(self, style)
    }
}

impl BarPlot {
    /// Draws the picture.
    ///
    /// # Errors
    ///
    /// - a panel does not have one value a rank
    /// - a size of `style` is out of range or leaves no room for the plot
    pub fn draw(&self, style: &Style) -> Result<Picture, PictureError> {
        draw::draw_bars(self, style)
    }
}
