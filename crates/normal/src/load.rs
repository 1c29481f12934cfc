//! Step 1: cells at equal load.
//!
//! A cell with more tokens a sample costs more. Tukey's resistant line through `ln` load and `ln`
//! cost tells how much more, and every cell is brought to the load of a typical one.

use crate::select::{self, Many, Pool};

/// Fewest cells that a line is drawn through.
const MIN_CELLS: usize = 15;
/// The thirds must be at least this far apart, in `ln` load.
const MIN_SPREAD: f64 = 0.05;

/// What step 1 did to a path class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Adjusted {
    /// The median of `ln` load, to remember; known only where no `x0` was given.
    pub(crate) median: Option<f64>,
    /// Whether the values are logarithms now.
    pub(crate) logarithms: bool,
}

/// Brings the cells of one path class to the load `x0`, or to their own median load.
///
/// `values` are costs a sample, NaN where there is no valid cell; `loads` tokens a sample, NaN
/// where there are none. Where nothing has to be changed, the costs stay as they are; else they
/// become logarithms.
pub(crate) fn adjust(
    values: &mut [f64],
    loads: &[f64],
    x0: Option<f64>,
    pool: &mut Pool,
) -> Adjusted {
    let cells = loads.iter().filter(|load| !load.is_nan()).count();
    let known = Many::new([loads, &[]], cells, |load| load);
    let median = match x0 {
        Some(_) => None,
        None => known.middle(pool).map(select::mean_ln),
    };
    let slope = slope(values, loads, cells, pool).unwrap_or(0.0);
    let Some(x0) = x0.or(median).filter(|_| slope > 0.0) else {
        return Adjusted { median, logarithms: false };
    };
    for (value, &load) in values.iter_mut().zip(loads) {
        // Logarithms only of what is there.
        if !load.is_nan() {
            *value = value.ln() - slope * (load.ln() - x0);
        } else if !value.is_nan() {
            *value = value.ln();
        }
    }
    Adjusted { median, logarithms: true }
}

/// The slope of the resistant line, in 0 to 1; `None` where none can be drawn. `cells` have a load.
fn slope(values: &[f64], loads: &[f64], cells: usize, pool: &mut Pool) -> Option<f64> {
    if cells < MIN_CELLS {
        return None;
    }
    let known = Many::new([loads, &[]], cells, |load| load);
    let third = cells / 3;
    let (_, q1) = known.around(third - 1, pool)?;
    let (_, q2) = known.around(cells - third, pool)?;
    // Cells that tie with the bound of a third belong to it. NaN compares false.
    let left = loads.iter().filter(|&&load| load <= q1).count();
    let right = loads.iter().filter(|&&load| load >= q2).count();
    let mut median_from = |first: usize, count: usize| {
        let (lower, upper) = known.around(first + count / 2, pool)?;
        Some(select::mean_ln((if count % 2 == 1 { upper } else { lower }, upper)))
    };
    let run = median_from(cells - right, right)? - median_from(0, left)?;
    if run <= MIN_SPREAD {
        return None;
    }
    let bottom = median_of(values, loads, pool, |load| load <= q1)?;
    let top = median_of(values, loads, pool, |load| load >= q2)?;
    Some(((top - bottom) / run).clamp(0.0, 1.0))
}

/// The median of the `ln` costs of those cells whose load is wanted.
fn median_of(
    values: &[f64],
    loads: &[f64],
    pool: &mut Pool,
    wanted: impl Fn(f64) -> bool,
) -> Option<f64> {
    pool.clear();
    let mut costs = values.iter();
    pool.add_some(loads, |&load| (costs.next().copied().unwrap_or(f64::NAN), wanted(load)));
    select::middle(pool.values()).map(select::mean_ln)
}
