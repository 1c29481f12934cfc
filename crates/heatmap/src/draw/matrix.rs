//! The picture of a matrix.

use ndarray::Array2;

use super::axes::{RankAxis, draw_boundaries};
use super::cells;
use super::frame::{self, Footer};
use super::marks;
use super::{FAINT, INK, LABEL, PAD, PIXELS_PER_INCH, RULE, Room, TICK};
use crate::color::Colormap;
use crate::error::PictureError;
use crate::model::{Cell, MatrixPlot};
use crate::picture::Picture;
use crate::scale::Scale;
use crate::style::Style;
use crate::svg::{Font, Rect, Svg};
use crate::text;

/// Least side of a plot, pixels.
const LEAST_PLOT: f64 = 260.0;
const LEAST_WIDTH: f64 = 740.0;
/// Distance of the colour bar from what stands left of it.
const BAR_GAP: f64 = 14.0;
const BAR_WIDTH: f64 = 18.0;
/// Steps of the colour bar.
const BAR_STEPS: u32 = 96;
/// Room right of the colour bar: tick, number, label.
const BAR_ROOM: f64 = 72.0;

/// Draws a matrix.
pub(crate) fn draw_matrix(plot: &MatrixPlot, style: &Style) -> Result<Picture, PictureError> {
    check(plot, style)?;
    let drawing = Drawing::new(plot, style);
    let (cell, room) = drawing.size(style)?;
    Ok(drawing.draw(style, cell, room))
}

fn check(plot: &MatrixPlot, style: &Style) -> Result<(), PictureError> {
    let (rows, columns) = plot.cells.dim();
    let ep_size = plot.topology.ep_size();
    if rows != ep_size || columns != ep_size {
        return Err(PictureError::Shape { rows, columns, ep_size });
    }
    let ratio = style.cell_ratio;
    if !(0.1..=10.0).contains(&ratio) {
        let (option, allowed) = ("cell ratio", "from 0.1 to 10");
        return Err(PictureError::Option { option, value: ratio, allowed });
    }
    Ok(())
}

/// Refuses sizes that are no sizes.
pub(super) fn check_figsize(style: &Style) -> Result<(), PictureError> {
    let Some((width, height)) = style.figsize else { return Ok(()) };
    let wrong = [width, height].into_iter().find(|side| !(*side > 0.0 && *side <= 200.0));
    wrong.map_or(Ok(()), |value| {
        let (option, allowed) = ("figure size", "above 0 and at most 200 inches");
        Err(PictureError::Option { option, value, allowed })
    })
}

/// Side of the plot of a group of this size that nobody gave a size for, pixels.
pub(super) fn natural_side(ep_size: usize) -> f64 {
    let side = match ep_size {
        0..=8 => 480.0,
        9..=16 => 576.0,
        17..=32 => 640.0,
        33..=64 => 768.0,
        65..=128 => 896.0,
        _ => 1024.0,
    };
    let cell: f64 = side / ep_size.max(1) as f64;
    // Whole pixels a rank keep the cells equal.
    let largest = (LEAST_PLOT / ep_size.max(1) as f64).ceil().max(96.0);
    if cell >= 1.0 { cell.floor().min(largest) * ep_size as f64 } else { side }
}

struct Drawing<'a> {
    plot: &'a MatrixPlot,
    /// Ranks a drawn square has along a side.
    square: usize,
    cells: Array2<Cell>,
    scale: Option<Scale>,
    notes: Vec<String>,
}

impl<'a> Drawing<'a> {
    fn new(plot: &'a MatrixPlot, style: &Style) -> Self {
        let square = cells::square(plot.topology.ep_size());
        let cells = cells::reduce(&plot.cells, square);
        let scale = Scale::of(cells.iter().filter_map(|&cell| cells::value(cell)), style.scale);
        let mut notes = plot.caption.notes.clone();
        if square > 1 {
            let text = "each drawn cell is the largest of";
            notes.push(format!("{text} {square} x {square} pairs of ranks"));
        }
        Self { plot, square, cells, scale, notes }
    }

    fn footer(&self) -> Footer<'_> {
        let has = |wanted: fn(&Cell) -> bool| self.cells.iter().any(wanted);
        let mut legend = Vec::new();
        if has(|cell| cells::value(*cell).is_none() && *cell != Cell::Outside) {
            legend.push((true, &*self.plot.no_data_label));
        }
        if has(|cell| *cell == Cell::Outside) {
            legend.push((false, &*self.plot.outside_label));
        }
        let findings = self.plot.marks.iter().map(|mark| &*mark.text).collect();
        Footer { legend, findings, notes: &self.notes }
    }

    /// Pixels a rank has in x and y, and the room around the plot.
    fn size(&self, style: &Style) -> Result<((f64, f64), Room), PictureError> {
        check_figsize(style)?;
        let n = self.plot.topology.ep_size() as f64;
        let (_, tags) = marks::room(&self.plot.marks);
        let bar = if self.scale.is_some() { BAR_GAP + BAR_WIDTH + BAR_ROOM } else { PAD };
        let room_for = |pitch: f64| {
            let axis = RankAxis { topology: self.plot.topology, pitch };
            let left = (PAD + axis.width_left()).ceil();
            Room { least_width: LEAST_WIDTH, left, right: tags + bar }
        };
        let ratio = style.cell_ratio;
        let Some((width, height)) = style.figsize else {
            let side = natural_side(self.plot.topology.ep_size());
            // A flat cell keeps its width, a high one its height.
            let pitch = side / n / ratio.max(1.0);
            return Ok(((pitch, pitch * ratio), room_for(pitch)));
        };
        let (width, height) = (width * PIXELS_PER_INCH, height * PIXELS_PER_INCH);
        // The room depends on the pitch only through the names of the nodes: take the larger.
        let room = room_for(f64::from(u16::MAX));
        let fixed = self.height(width, (f64::from(u16::MAX), 0.0));
        let free = (width - room.left - room.right, height - fixed);
        let pitch = (free.0 / n).min(free.1 / n / ratio);
        if pitch * n < LEAST_PLOT || pitch * n * ratio < LEAST_PLOT.min(LEAST_PLOT * ratio) {
            let least = LEAST_PLOT.max(LEAST_PLOT / ratio);
            return Err(PictureError::TooSmall {
                width: width / PIXELS_PER_INCH,
                height: height / PIXELS_PER_INCH,
                least_width: (room.left + room.right + least) / PIXELS_PER_INCH,
                least_height: (fixed + least * ratio) / PIXELS_PER_INCH,
            });
        }
        Ok(((pitch, pitch * ratio), Room { least_width: width, ..room }))
    }

    /// Height of the whole picture.
    fn height(&self, width: f64, (x, y): (f64, f64)) -> f64 {
        let n = self.plot.topology.ep_size() as f64;
        let axis = RankAxis { topology: self.plot.topology, pitch: x };
        let mut scratch = Svg::new("");
        let top = frame::draw_header(&mut scratch, &self.plot.caption, None, width);
        let plot = top + marks::room(&self.plot.marks).0 + n * y + axis.height_below();
        self.footer().draw(None, plot, width)
    }

    fn draw(&self, style: &Style, pitch: (f64, f64), room: Room) -> Picture {
        let n = self.plot.topology.ep_size() as f64;
        let width = room.total(n * pitch.0);
        let mut svg = Svg::new(&style.id_prefix);
        frame::define_hatch(&mut svg);
        let top = frame::draw_header(&mut svg, &self.plot.caption, style.title.as_deref(), width);
        let (above, tags) = marks::room(&self.plot.marks);
        let plot = Rect { x: room.left, y: top + above, w: n * pitch.0, h: n * pitch.1 };
        let columns = RankAxis { topology: self.plot.topology, pitch: pitch.0 };
        let rows = RankAxis { topology: self.plot.topology, pitch: pitch.1 };

        // The last drawn square may reach beyond the group.
        let drawn = Rect {
            w: (self.cells.dim().1 * self.square) as f64 * pitch.0,
            h: (self.cells.dim().0 * self.square) as f64 * pitch.1,
            ..plot
        };
        cells::draw_cells(&mut svg, drawn, &self.cells, self.scale, style.colormap);
        if let Some(scale) = self.scale {
            cells::annotate(&mut svg, drawn, &self.cells, scale, style.colormap, style.annotate);
        }
        draw_boundaries(&mut svg, plot, columns, Some(rows));
        svg.rect(plot, format_args!("fill=\"none\" stroke=\"{RULE}\" stroke-width=\"1\""));
        marks::draw_marks(&mut svg, plot, pitch, &self.plot.marks);
        columns.draw_below(&mut svg, plot, &self.plot.column_axis);
        rows.draw_left(&mut svg, plot, &self.plot.row_axis);
        match self.scale {
            Some(scale) => {
                let x = plot.right() + tags + BAR_GAP;
                let bar = Rect { x, w: BAR_WIDTH, ..plot };
                draw_bar(&mut svg, bar, scale, style.colormap, &self.plot.value_label);
            }
            None => draw_empty(&mut svg, plot, &self.plot.no_data_label),
        }
        let footer_top = plot.bottom() + columns.height_below();
        let height = self.footer().draw(Some(&mut svg), footer_top, width);
        let height = style.figsize.map_or(height, |(_, inches)| inches * PIXELS_PER_INCH);
        Picture::new(svg.finish(width, height), width, height)
    }
}

fn draw_bar(svg: &mut Svg, bar: Rect, scale: Scale, map: Colormap, label: &str) {
    // Rectangles, because converters of SVG disagree on gradients of many stops.
    for i in 0..BAR_STEPS {
        let t = f64::from(i) / f64::from(BAR_STEPS - 1);
        let h = bar.h / f64::from(BAR_STEPS);
        let y = bar.bottom() - f64::from(i + 1) * h;
        // Each reaches under the next, so that no light shows between the two.
        let reach = if i == 0 { 0.0 } else { 0.5 };
        svg.rect(Rect { y, h: h + reach, ..bar }, format_args!("fill=\"{}\"", map.color(t)));
    }
    svg.rect(bar, format_args!("fill=\"none\" stroke=\"{RULE}\" stroke-width=\"0.8\""));
    let most = ((bar.h / 45.0) as usize).clamp(2, 12);
    let ticks = scale.ticks(most);
    for (&tick, name) in ticks.iter().zip(text::ticks(&ticks)) {
        let y = bar.bottom() - scale.place(tick) * bar.h;
        svg.line((bar.right(), y), (bar.right() + 4.0, y), RULE, 0.8);
        svg.text((bar.right() + 7.0, y + 3.5), TICK, &name);
    }
    let label = if scale.is_log() { format!("{label}, log scale") } else { label.to_owned() };
    let label = text::fit(&label, LABEL.size, false, bar.h);
    let font = Font { color: FAINT, ..LABEL };
    svg.text_upwards((bar.right() + 58.0, bar.y + bar.h / 2.0), font, &label);
}

/// Says across the plot that there is nothing to see.
fn draw_empty(svg: &mut Svg, plot: Rect, message: &str) {
    let font = Font::new(13.0, INK).bold().middle();
    let lines = text::wrap(message, font.size * 1.15, plot.w - 60.0);
    let widest = lines.iter().map(|line| text::width(line, font.size, true)).fold(0.0, f64::max);
    let (w, h) = (widest + 28.0, lines.len() as f64 * 18.0 + 16.0);
    let (x, y) = (plot.x + plot.w / 2.0, plot.y + plot.h / 2.0);
    let place = Rect { x: x - w / 2.0, y: y - h / 2.0, w, h };
    svg.rect(place, format_args!("rx=\"4\" fill=\"#fff\" stroke=\"{RULE}\""));
    for (i, line) in lines.iter().enumerate() {
        svg.text((x, place.y + 21.0 + i as f64 * 18.0), font, line);
    }
}
