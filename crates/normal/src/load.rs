//! Step 1: cells at equal load.
//!
//! A cell with more tokens a sample costs more. Tukey's resistant line through `ln` load and `ln`
//! cost tells how much more, and every cell is brought to the load of a typical one.

use crate::select;

/// Fewest cells that a line is drawn through.
const MIN_CELLS: usize = 15;
/// The thirds must be at least this far apart, in `ln` load.
const MIN_SPREAD: f64 = 0.05;

/// Brings the cells of one path class to the load `x0`, or to their own median load.
///
/// `values` are costs a sample, NaN where there is no valid cell; `loads` tokens a sample, NaN
/// where there are none. Returns the class median of `ln` load, `None` without any load.
pub(crate) fn adjust(
    values: &mut [f64],
    loads: &[f64],
    x0: Option<f64>,
    buffer: &mut Vec<f64>,
) -> Option<f64> {
    buffer.clear();
    buffer.extend(loads.iter().filter(|load| !load.is_nan()));
    let median = select::median_ln(buffer)?;
    let beta = slope(values, loads, buffer);
    if beta > 0.0 {
        let x0 = x0.unwrap_or(median);
        for (value, load) in values.iter_mut().zip(loads) {
            if !load.is_nan() {
                *value *= (-beta * (load.ln() - x0)).exp();
            }
        }
    }
    Some(median)
}

/// The slope of the resistant line, in 0 to 1; `buffer` holds the loads in any order.
fn slope(values: &[f64], loads: &[f64], buffer: &mut Vec<f64>) -> f64 {
    let cells = buffer.len();
    if cells < MIN_CELLS {
        return 0.0;
    }
    let third = cells / 3;
    let (_, &mut q1, rest) = buffer.select_nth_unstable_by(third - 1, f64::total_cmp);
    // The third-largest of all is at `cells - third`, and `rest` begins at `third`.
    let (_, &mut q2, _) = rest.select_nth_unstable_by(cells - 2 * third, f64::total_cmp);
    // Cells that tie with the bound of a third belong to it.
    let mut median_ln = |column: &[f64], within: &dyn Fn(f64) -> bool| {
        buffer.clear();
        let cells = column.iter().zip(loads).filter(|&(_, &load)| within(load));
        buffer.extend(cells.map(|(cell, _)| cell));
        select::median_ln(buffer)
    };
    let mut thirds = |column| {
        Some((median_ln(column, &|load| load <= q1)?, median_ln(column, &|load| load >= q2)?))
    };
    match (thirds(loads), thirds(values)) {
        (Some((left, right)), Some((bottom, top))) if right - left > MIN_SPREAD => {
            ((top - bottom) / (right - left)).clamp(0.0, 1.0)
        }
        _ => 0.0,
    }
}
