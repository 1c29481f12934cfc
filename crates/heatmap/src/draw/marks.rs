//! Outlines around what was found, and their numbers along the edges.

use super::frame::{LISTED, TAG_HEIGHT, draw_tag, tag_width};
use super::{FAINT, MARK};
use crate::model::{Area, Mark, Place};
use crate::svg::{N, Rect, Svg};

/// Outlines drawn at most; a picture with more says nothing.
const OUTLINED: usize = 400;

/// The edge at which the number of a mark stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Edge {
    Right,
    Top,
}

/// The areas of a mark; none of one that is everywhere.
fn areas(mark: &Mark) -> &[Area] {
    match &mark.place {
        Place::Everywhere => &[],
        Place::Areas(areas) => areas,
    }
}

/// The smallest rectangle around all areas of a mark, in ranks; `None` for a mark without.
fn bounds(mark: &Mark) -> Option<Area> {
    areas(mark).iter().cloned().reduce(|a, b| Area {
        rows: a.rows.start.min(b.rows.start)..a.rows.end.max(b.rows.end),
        columns: a.columns.start.min(b.columns.start)..a.columns.end.max(b.columns.end),
    })
}

/// The edge of the number of a mark; `None` when there is nothing to point at.
fn edge(mark: &Mark) -> Option<Edge> {
    match (bounds(mark), &mark.place) {
        (Some(area), _) if area.rows.len() > area.columns.len() => Some(Edge::Top),
        (Some(_), _) | (None, Place::Everywhere) => Some(Edge::Right),
        (None, Place::Areas(_)) => None,
    }
}

/// Room that the numbers need above and right of the plot.
pub(super) fn room(marks: &[Mark]) -> (f64, f64) {
    let has = |wanted| marks.iter().take(LISTED).any(|mark| edge(mark) == Some(wanted));
    (if has(Edge::Top) { 26.0 } else { 6.0 }, if has(Edge::Right) { 34.0 } else { 8.0 })
}

/// Draws outlines and numbers; `pitch` is the pixels a rank has in x and y.
pub(super) fn draw_marks(svg: &mut Svg, plot: Rect, pitch: (f64, f64), marks: &[Mark]) {
    let mut path = String::new();
    for mark in marks.iter().take(OUTLINED) {
        if mark.place == Place::Everywhere {
            path += &outline(plot);
        }
        for area in areas(mark) {
            path += &outline(grow(
                pitch,
                Rect {
                    x: plot.x + area.columns.start as f64 * pitch.0,
                    y: plot.y + area.rows.start as f64 * pitch.1,
                    w: area.columns.len() as f64 * pitch.0,
                    h: area.rows.len() as f64 * pitch.1,
                },
            ));
        }
    }
    if path.is_empty() {
        return;
    }
    svg.raw(format_args!(
        "<g fill=\"none\" stroke-linejoin=\"round\">\
         <path d=\"{path}\" stroke=\"#fff\" stroke-width=\"4\"/>\
         <path d=\"{path}\" stroke=\"{MARK}\" stroke-width=\"2\"/></g>"
    ));
    draw_numbers(svg, plot, pitch, marks, Edge::Right);
    draw_numbers(svg, plot, pitch, marks, Edge::Top);
}

/// Small cells are outlined from outside, so that their colour stays in sight.
fn grow((x, y): (f64, f64), r: Rect) -> Rect {
    let by = ((16.0 - x.min(y)) / 5.0).clamp(0.0, 2.0);
    Rect { x: r.x - by, y: r.y - by, w: r.w + 2.0 * by, h: r.h + 2.0 * by }
}

fn outline(r: Rect) -> String {
    format!("M{} {}h{}v{}h-{}z", N(r.x), N(r.y), N(r.w), N(r.h), N(r.w))
}

fn draw_numbers(svg: &mut Svg, plot: Rect, pitch: (f64, f64), marks: &[Mark], wanted: Edge) {
    let (start, length) = if wanted == Edge::Right { (plot.y, plot.h) } else { (plot.x, plot.w) };
    let mut numbers: Vec<(usize, f64)> = marks
        .iter()
        .take(LISTED)
        .enumerate()
        .filter(|(_, mark)| edge(mark) == Some(wanted))
        .map(|(i, mark)| {
            let middle = bounds(mark).map(|area| match wanted {
                Edge::Right => (area.rows.start + area.rows.end) as f64 / 2.0 * pitch.1,
                Edge::Top => (area.columns.start + area.columns.end) as f64 / 2.0 * pitch.0,
            });
            (i + 1, start + middle.unwrap_or(length / 2.0))
        })
        .collect();
    numbers.sort_by(|a, b| a.1.total_cmp(&b.1).then(a.0.cmp(&b.0)));
    let gap = if wanted == Edge::Right { TAG_HEIGHT + 1.5 } else { tag_width(LISTED) + 1.5 };
    let wishes: Vec<f64> = numbers.iter().map(|&(_, at)| at).collect();
    for ((number, wish), at) in numbers.iter().zip(spread(&wishes, gap, start, start + length)) {
        let (from, bend, to) = match wanted {
            Edge::Right => {
                let x = plot.right();
                ((x + 2.0, *wish), (x + 10.0, at), (x + 10.0 + tag_width(*number) / 2.0, at))
            }
            Edge::Top => ((*wish, plot.y - 2.0), (at, plot.y - 9.0), (at, plot.y - 16.0)),
        };
        svg.line(from, bend, FAINT, 0.8);
        draw_tag(svg, to, *number);
    }
}

/// Moves rising `wishes` apart to at least `gap`, as little as needed, within the ends where the
/// room suffices.
pub(super) fn spread(wishes: &[f64], gap: f64, low: f64, high: f64) -> Vec<f64> {
    let mut places: Vec<f64> = wishes.to_vec();
    let mut least = low + gap / 2.0;
    for place in &mut places {
        *place = place.max(least);
        least = *place + gap;
    }
    let mut most = high - gap / 2.0;
    for place in places.iter_mut().rev() {
        *place = place.min(most);
        most = *place - gap;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_moved_apart_and_stay_at_the_plot() {
        assert_eq!(spread(&[50.0], 10.0, 0.0, 100.0), [50.0]);
        assert_eq!(spread(&[50.0, 50.0, 52.0], 10.0, 0.0, 100.0), [50.0, 60.0, 70.0]);
        assert_eq!(spread(&[98.0, 99.0], 10.0, 0.0, 100.0), [85.0, 95.0]);
        assert_eq!(spread(&[1.0, 2.0], 10.0, 0.0, 100.0), [5.0, 15.0]);
    }

    #[test]
    fn a_column_is_numbered_above_and_everything_else_at_the_right() {
        let mark = |place| Mark { text: String::new(), place };
        let area = |rows, columns| mark(Place::Areas(vec![Area { rows, columns }]));
        assert_eq!(edge(&area(0..8, 3..4)), Some(Edge::Top));
        assert_eq!(edge(&area(3..4, 0..8)), Some(Edge::Right));
        assert_eq!(edge(&area(3..4, 3..4)), Some(Edge::Right));
        assert_eq!(edge(&mark(Place::Everywhere)), Some(Edge::Right));
        assert_eq!(edge(&mark(Place::Areas(vec![]))), None);
    }
}
