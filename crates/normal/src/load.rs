//! Step 1: cells at equal load.
//!
//! A cell with more tokens a sample costs more. Tukey's resistant line through `ln` load and `ln`
//! cost tells how much more, and every cell is brought to the load of a typical one.

use crate::parallel;
use crate::select::{self, Many, Pool};

/// Fewest cells that a line is drawn through.
const MIN_CELLS: usize = 15;
/// The thirds must be at least this far apart, in `ln` load.
const MIN_SPREAD: f64 = 0.05;

/// Values that one thread takes at a time.
const PIECE: usize = 4096;

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
    parallel::each(values, PIECE, |i, values| {
        for (value, &load) in values.iter_mut().zip(&loads[i * PIECE..]) {
            // Logarithms only of what is there.
            if !load.is_nan() {
                *value = value.ln() - slope * (load.ln() - x0);
            } else if !value.is_nan() {
                *value = value.ln();
            }
        }
    });
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

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: f64 = f64::NAN;

    fn slope_of(values: &[f64], loads: &[f64]) -> f64 {
        let cells = loads.iter().filter(|load| !load.is_nan()).count();
        slope(values, loads, cells, &mut Pool::new(0)).unwrap_or(0.0)
    }

    /// Loads 1 to 15 and their costs.
    fn fifteen(cost: impl Fn(f64) -> f64) -> (Vec<f64>, Vec<f64>) {
        let loads: Vec<f64> = (1..=15).map(f64::from).collect();
        (loads.iter().map(|&load| cost(load)).collect(), loads)
    }

    #[test]
    fn the_slope_is_that_between_the_medians_of_the_outer_thirds() {
        // Thirds: loads 1 to 5, median 3; loads 11 to 15, median 13. Costs there: 7 and 20.
        let (mut values, loads) = fifteen(|load| load);
        values[..5].copy_from_slice(&[1.0, 100.0, 7.0, 5.0, 50.0]);
        values[10..].copy_from_slice(&[20.0, 2.0, 900.0, 30.0, 1.0]);
        let expected = (20_f64 / 7.0).ln() / (13_f64 / 3.0).ln();
        assert!((slope_of(&values, &loads) - expected).abs() < 1e-12);
    }

    #[test]
    fn the_slope_stays_within_0_and_1() {
        let (values, loads) = fifteen(|load| load.powi(2));
        assert_eq!(slope_of(&values, &loads), 1.0);
        let (values, loads) = fifteen(|load| 1.0 / load);
        assert_eq!(slope_of(&values, &loads), 0.0);
    }

    #[test]
    fn fewer_than_fifteen_cells_or_equal_loads_have_no_slope() {
        let (values, loads) = fifteen(|load| load);
        assert!(slope_of(&values, &loads) > 0.99);
        assert_eq!(slope_of(&values[1..], &loads[1..]), 0.0);
        let close: Vec<f64> = loads.iter().map(|load| 100.0 + load * 0.1).collect();
        assert_eq!(slope_of(&values, &close), 0.0);
        assert_eq!(slope_of(&values, &[3.0; 15]), 0.0);
    }

    #[test]
    fn cells_that_tie_with_a_bound_belong_to_its_third() {
        // A third of 15 is 5, but seven cells have the smallest load, six the largest.
        let loads = [1., 1., 1., 1., 1., 1., 1., 2., 2., 4., 4., 4., 4., 4., 4.];
        let values = [3., 3., 3., 5., 7., 7., 7., 0.1, 0.1, 8., 8., 10., 10., 12., 12.];
        // Medians: 5 of seven, 10 of six.
        let expected = (10_f64 / 5.0).ln() / 4_f64.ln();
        assert!((slope_of(&values, &loads) - expected).abs() < 1e-12);
        // The order of the cells does not matter.
        let (mut values, mut loads) = (values, loads);
        values.reverse();
        loads.reverse();
        assert!((slope_of(&values, &loads) - expected).abs() < 1e-12);
    }

    #[test]
    fn cells_are_brought_to_the_median_load_or_to_the_one_given() {
        let (mut values, mut loads) = fifteen(|load| 100.0 * load);
        // A cell without tokens, and one that is not there.
        values.extend([777.0, NONE]);
        loads.extend([NONE, NONE]);
        let mut pool = Pool::new(0);
        for (x0, level) in [(None, 800.0), (Some(2_f64.ln()), 200.0)] {
            let mut values = values.clone();
            let adjusted = adjust(&mut values, &loads, x0, &mut pool);
            assert!(adjusted.logarithms);
            assert_eq!(adjusted.median, x0.is_none().then(|| 8_f64.ln()));
            for value in &values[..15] {
                assert!((value.exp() - level).abs() < 1e-9, "{value}");
            }
            assert!((values[15].exp() - 777.0).abs() < 1e-9);
            assert!(values[16].is_nan());
        }
    }

    #[test]
    fn without_a_slope_costs_stay_as_they_are() {
        let (values, loads) = fifteen(|_| 123.456);
        let mut after = values.clone();
        let adjusted = adjust(&mut after, &loads, Some(0.0), &mut Pool::new(0));
        assert_eq!((adjusted.median, adjusted.logarithms), (None, false));
        assert_eq!(after, values);
        let adjusted = adjust(&mut after, &[NONE; 15], None, &mut Pool::new(0));
        assert_eq!((adjusted.median, adjusted.logarithms), (None, false));
    }
}
