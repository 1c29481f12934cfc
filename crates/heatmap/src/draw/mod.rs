//! From a description to a drawing.

mod axes;
mod bars;
mod cells;
mod frame;
mod marks;
mod matrix;

pub(crate) use bars::draw_bars;
pub(crate) use matrix::draw_matrix;

use crate::svg::Font;

/// Margin around everything, pixels.
const PAD: f64 = 16.0;
/// Pixels an inch: one CSS pixel is 1/96 inch.
pub(crate) const PIXELS_PER_INCH: f64 = 96.0;

/// Colour of outlines, tags and everything else that says "here".
const MARK: &str = "#d3006c";
/// Ordinary text.
const INK: &str = "#1c1c20";
/// Text of lesser weight.
const FAINT: &str = "#55565c";
/// Frame and axis lines.
const RULE: &str = "#33343a";
/// Cells and bars outside the test.
const OUTSIDE: &str = "#dcdce2";

const TICK: Font = Font::new(10.0, FAINT);
const LABEL: Font = Font::new(12.0, INK);

/// The pixel size of a plot area, and the room around it.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Room {
    /// Least width of the whole picture.
    least_width: f64,
    left: f64,
    right: f64,
}

impl Room {
    /// Width of the whole picture around a plot of this width.
    fn total(self, plot: f64) -> f64 {
        (self.left + plot + self.right).max(self.least_width)
    }
}
