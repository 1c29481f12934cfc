//! The cells of a matrix: colours, hatch, values.

use ndarray::Array2;

use super::OUTSIDE;
use super::frame::hatch_fill;
use crate::color::Colormap;
use crate::model::Cell;
use crate::scale::Scale;
use crate::style::Annotate;
use crate::svg::{Font, N, Rect, Svg};
use crate::text;

/// Shades of the colour bar; more cannot be told apart.
const SHADES: usize = 256;
/// Largest number of drawn rows; larger matrices are drawn in squares of several ranks.
pub(super) const MAX_DRAWN: usize = 1024;
const LARGEST_VALUE: f64 = 10.5;
const SMALLEST_VALUE: f64 = 7.0;

/// The value of a cell, if it is drawn as one.
pub(super) fn value(cell: Cell) -> Option<f64> {
    match cell {
        Cell::Value(value) if value.is_finite() => Some(value),
        _ => None,
    }
}

/// How many ranks a drawn square has along a side.
pub(super) fn square(ep_size: usize) -> usize {
    ep_size.div_ceil(MAX_DRAWN).max(1)
}

/// The matrix in squares of `square` ranks: the largest value of each, else no data where a rank
/// has none, else outside.
pub(super) fn reduce(cells: &Array2<Cell>, square: usize) -> Array2<Cell> {
    let (rows, columns) = cells.dim();
    Array2::from_shape_fn((rows.div_ceil(square), columns.div_ceil(square)), |(r, c)| {
        let rows = r * square..((r + 1) * square).min(rows);
        let columns = c * square..((c + 1) * square).min(columns);
        let of_square = rows.flat_map(|i| columns.clone().map(move |j| cells[[i, j]]));
        of_square.fold(Cell::Outside, |best, cell| match (value(best), value(cell)) {
            (Some(a), Some(b)) if a >= b => best,
            (_, Some(_)) => cell,
            (Some(_), None) => best,
            (None, None) if best == Cell::Outside && cell == Cell::Outside => Cell::Outside,
            (None, None) => Cell::NoData,
        })
    })
}

/// Draws all cells. `plot` is where they stand, `scale` is absent when none has a value.
pub(super) fn draw_cells(
    svg: &mut Svg,
    plot: Rect,
    cells: &Array2<Cell>,
    scale: Option<Scale>,
    map: Colormap,
) {
    let (rows, columns) = cells.dim();
    let (w, h) = (plot.w / columns as f64, plot.h / rows as f64);
    let mut shades = vec![String::new(); SHADES];
    let (mut hatched, mut outside) = (String::new(), String::new());
    for (r, row) in cells.outer_iter().enumerate() {
        let mut start = 0;
        while start < columns {
            let class = class_of(row[start], scale);
            let run = row.iter().skip(start).take_while(|&&cell| class_of(cell, scale) == class);
            let length = run.count().max(1);
            match class {
                Class::Shade(i) => square_path(&mut shades[i], (start, r), length),
                Class::NoData => pixel_path(&mut hatched, plot, (w, h), (start, r), length),
                Class::Outside => pixel_path(&mut outside, plot, (w, h), (start, r), length),
            }
            start += length;
        }
    }
    if !outside.is_empty() {
        svg.raw(format_args!("<path d=\"{outside}\" fill=\"{OUTSIDE}\"/>"));
    }
    if !hatched.is_empty() {
        let fill = hatch_fill(svg);
        svg.raw(format_args!("<path d=\"{hatched}\" fill=\"{fill}\"/>"));
    }
    // The strokes close the hairlines that some viewers leave between neighbours. They reach 0.15
    // pixels beyond a cell, less than the half that would colour the next pixel.
    svg.raw(format_args!(
        "<g transform=\"translate({} {})scale({:.5} {:.5})\" shape-rendering=\"crispEdges\" \
         stroke-width=\"{:.5}\">",
        N(plot.x),
        N(plot.y),
        w,
        h,
        0.3 / w.max(h)
    ));
    for (i, path) in shades.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
        let color = map.color(i as f64 / (SHADES - 1) as f64);
        svg.raw(format_args!("<path d=\"{path}\" fill=\"{color}\" stroke=\"{color}\"/>"));
    }
    svg.raw(format_args!("</g>"));
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Shade(usize),
    NoData,
    Outside,
}

fn class_of(cell: Cell, scale: Option<Scale>) -> Class {
    match (value(cell), scale) {
        (Some(value), Some(scale)) => Class::Shade(shade(scale, value)),
        _ if cell == Cell::Outside => Class::Outside,
        _ => Class::NoData,
    }
}

fn shade(scale: Scale, value: f64) -> usize {
    ((scale.place(value) * (SHADES - 1) as f64).round() as usize).min(SHADES - 1)
}

fn square_path(path: &mut String, (column, row): (usize, usize), length: usize) {
    *path += &format!("M{column} {row}h{length}v1h-{length}z");
}

fn pixel_path(
    path: &mut String,
    plot: Rect,
    (w, h): (f64, f64),
    (column, row): (usize, usize),
    length: usize,
) {
    let (x, y) = (plot.x + column as f64 * w, plot.y + row as f64 * h);
    let wide = length as f64 * w;
    *path += &format!("M{} {}h{}v{}h-{}z", N(x), N(y), N(wide), N(h), N(wide));
}

/// Writes the values into the cells where the user wants it and it can be read.
pub(super) fn annotate(
    svg: &mut Svg,
    plot: Rect,
    cells: &Array2<Cell>,
    scale: Scale,
    map: Colormap,
    wish: Annotate,
) {
    let (rows, columns) = cells.dim();
    let (w, h) = (plot.w / columns as f64, plot.h / rows as f64);
    let texts = || cells.iter().filter_map(|&cell| value(cell)).map(text::compact);
    let unit = texts().map(|text| text::width(&text, 1.0, false)).fold(0.0, f64::max);
    let fitting = (w * 0.84 / unit).min(h - 4.0).min(LARGEST_VALUE);
    let size = match wish {
        Annotate::Never => return,
        Annotate::Auto if fitting < SMALLEST_VALUE => return,
        Annotate::Auto => fitting,
        Annotate::Always => fitting.max(0.5),
    };
    for ((r, c), value) in cells.indexed_iter().filter_map(|(at, &cell)| Some((at, value(cell)?))) {
        let color = map.color(shade(scale, value) as f64 / (SHADES - 1) as f64);
        let at = (plot.x + (c as f64 + 0.5) * w, plot.y + (r as f64 + 0.5) * h + size * 0.36);
        svg.text(at, Font::new(size, color.readable_text()).middle(), &text::compact(value));
    }
}
