//! Step 1: cells at equal load.
//!
//! A cell with more tokens a sample costs more. Tukey's resistant line through `ln` load and `ln`
//! cost tells how much more, bent where cost turns upwards with load, and every cell is brought to
//! the load of a typical one.

use crate::parallel;
use crate::select::{self, Many, Pool};

/// Fewest cells that a line is drawn through.
const MIN_CELLS: usize = 15;
/// The outer thirds must be at least this far apart, in `ln` load; each of them from the middle
/// third half as far, or the line is not bent.
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
    let line = Line::through(values, loads, cells, pool).filter(Line::rises);
    let Some((line, x0)) = line.zip(x0.or(median)) else {
        return Adjusted { median, logarithms: false };
    };
    let pieces = line.pieces(line.at(x0));
    let [first, second] = line.bends;
    parallel::each(values, PIECE, |i, values| {
        for (value, &load) in values.iter_mut().zip(&loads[i * PIECE..]) {
            // Logarithms only of what is there.
            if !load.is_nan() {
                let x = load.ln();
                let (slope, start) = pieces[usize::from(x >= first) + usize::from(x >= second)];
                *value = value.ln() - (slope * x + start);
            } else if !value.is_nan() {
                *value = value.ln();
            }
        }
    });
    Adjusted { median, logarithms: true }
}

/// How `ln` cost grows with `ln` load: straight, or bent upwards twice.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Line {
    /// `ln` load of the bends: the medians of the middle and of the right third.
    bends: [f64; 2],
    /// Slopes before, between and after the bends, in 0 to 1 and never falling.
    slopes: [f64; 3],
}

impl Line {
    fn straight(slope: f64) -> Self {
        Self { bends: [0.0; 2], slopes: [slope; 3] }
    }

    /// The line through the valid cells, `None` where none can be drawn. `cells` have a load.
    fn through(values: &[f64], loads: &[f64], cells: usize, pool: &mut Pool) -> Option<Self> {
        if cells < MIN_CELLS {
            return None;
        }
        let known = Many::new([loads, &[]], cells, |load| load);
        let third = cells / 3;
        let (_, q1) = known.around(third - 1, pool)?;
        let (_, q2) = known.around(cells - third, pool)?;
        // Cells that tie with the bound of a third belong to it. NaN compares false.
        let (is_left, is_right) = (|load| load <= q1, |load| load >= q2);
        let outer =
            [median_of(loads, loads, pool, is_left)?, median_of(loads, loads, pool, is_right)?];
        if outer[1] - outer[0] <= MIN_SPREAD {
            return None;
        }
        let bottom = median_of(values, loads, pool, is_left)?;
        let top = median_of(values, loads, pool, is_right)?;
        // Nothing is between the thirds where ties fill them.
        let is_between = |load| (load > q1) & (load < q2);
        let middle = median_of(loads, loads, pool, is_between);
        let between = pool.len();
        let bent = middle.and_then(|x| {
            let runs = [x - outer[0], outer[1] - x];
            if runs[0].min(runs[1]) <= MIN_SPREAD / 2.0 {
                return None;
            }
            // Whether the median of these cells is below the straight line needs no median.
            let chord = (bottom + (top - bottom) * runs[0] / (runs[0] + runs[1])).exp();
            let below = values
                .iter()
                .zip(loads)
                .filter(|&(&value, &load)| is_between(load) & (value < chord));
            if 2 * below.count() < between {
                return None;
            }
            let y = median_of(values, loads, pool, is_between)?;
            let first = ((y - bottom) / runs[0]).clamp(0.0, 1.0);
            let second = ((top - y) / runs[1]).clamp(0.0, 1.0);
            let third = (2.0 * second - first).min(1.0);
            let bent = Self { bends: [x, outer[1]], slopes: [first, second, third] };
            (first < second).then_some(bent)
        });
        let slope = || ((top - bottom) / (outer[1] - outer[0])).clamp(0.0, 1.0);
        Some(bent.unwrap_or_else(|| Self::straight(slope())))
    }

    /// Whether any load costs more than another.
    fn rises(&self) -> bool {
        self.slopes[2] > 0.0
    }

    /// `ln` cost at this `ln` load, from a level of its own.
    fn at(&self, x: f64) -> f64 {
        let ([first, second], slopes) = (self.bends, self.slopes);
        slopes[0] * (x - first).min(0.0)
            + slopes[1] * (x.min(second) - first).max(0.0)
            + slopes[2] * (x - second).max(0.0)
    }

    /// Slope and value at 0 of each piece, for values from `level` on.
    fn pieces(&self, level: f64) -> [(f64, f64); 3] {
        let [first, second] = self.bends;
        let starts = [first, first, second];
        let mut pieces = [(0.0, 0.0); 3];
        for ((piece, slope), start) in pieces.iter_mut().zip(self.slopes).zip(starts) {
            *piece = (slope, self.at(start) - level - slope * start);
        }
        pieces
    }
}

/// The median of the logarithms of those values whose load is wanted.
fn median_of(
    values: &[f64],
    loads: &[f64],
    pool: &mut Pool,
    wanted: impl Fn(f64) -> bool,
) -> Option<f64> {
    pool.clear();
    let mut values = values.iter();
    pool.add_some(loads, |&load| (values.next().copied().unwrap_or(f64::NAN), wanted(load)));
    select::middle(pool.values()).map(select::mean_ln)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: f64 = f64::NAN;

    fn line_of(values: &[f64], loads: &[f64]) -> Option<Line> {
        let cells = loads.iter().filter(|load| !load.is_nan()).count();
        Line::through(values, loads, cells, &mut Pool::new(0))
    }

    /// Of a line that is not bent.
    fn slope_of(values: &[f64], loads: &[f64]) -> f64 {
        let [slope, ..] = line_of(values, loads).map_or([0.0; 3], |line| {
            let [first, second, third] = line.slopes;
            assert!((second - first).abs() < 1e-9 && (third - first).abs() < 1e-9, "{line:?}");
            line.slopes
        });
        slope
    }

    /// Loads 1 to 15 and their costs.
    fn fifteen(cost: impl Fn(f64) -> f64) -> (Vec<f64>, Vec<f64>) {
        let loads: Vec<f64> = (1..=15).map(f64::from).collect();
        (loads.iter().map(|&load| cost(load)).collect(), loads)
    }

    #[test]
    fn the_slope_is_that_between_the_medians_of_the_outer_thirds() {
        // Thirds: loads 1 to 5, median 3; loads 11 to 15, median 13. Costs there: 7 and 20. The
        // middle third costs 19, so that the line would have to bend downwards.
        let (mut values, loads) = fifteen(|_| 19.0);
        values[..5].copy_from_slice(&[1.0, 100.0, 7.0, 5.0, 50.0]);
        values[10..].copy_from_slice(&[20.0, 2.0, 900.0, 30.0, 1.0]);
        let expected = (20_f64 / 7.0).ln() / (13_f64 / 3.0).ln();
        assert!((slope_of(&values, &loads) - expected).abs() < 1e-12);
    }

    /// Five cells each of load 1, 2 and 4, and one of load 16; the outer ones tie with the bounds.
    const BENT: [f64; 16] = [1., 1., 1., 1., 1., 2., 2., 2., 2., 2., 4., 4., 4., 4., 4., 16.];

    #[test]
    fn where_cost_turns_upwards_the_line_is_bent_and_bends_once_more_behind_the_last_third() {
        // Slopes 1/4 and 1/2, so 3/4 behind load 4: 2^(1/4), 2^(3/4) and 2^(3/4 + 3/2).
        let cost = |load: f64| match load as u32 {
            1 => 100.0,
            2 => 100.0 * 2_f64.powf(0.25),
            4 => 100.0 * 2_f64.powf(0.75),
            _ => 100.0 * 2_f64.powf(2.25),
        };
        let values = BENT.map(cost);
        let line = line_of(&values, &BENT).unwrap();
        for (slope, expected) in line.slopes.into_iter().zip([0.25, 0.5, 0.75]) {
            assert!((slope - expected).abs() < 1e-12, "{line:?}");
        }
        // So every cell costs what those at the typical load cost.
        for (x0, level) in [(2_f64, 0.25), (1.0, 0.0), (4.0, 0.75), (8.0, 1.5)] {
            let mut values = values;
            assert!(adjust(&mut values, &BENT, Some(x0.ln()), &mut Pool::new(0)).logarithms);
            for value in values {
                assert!((value.exp() - 100.0 * 2_f64.powf(level)).abs() < 1e-9, "{value}");
            }
        }
    }

    #[test]
    fn a_bent_line_rises_at_most_in_proportion_and_never_falls() {
        // Flat, then twice as steep as load: 100, 100, 400.
        let flat = BENT.map(|load| 100.0 * (load / 2.0).max(1.0).powi(2));
        assert_eq!(line_of(&flat, &BENT).unwrap().slopes, [0.0, 1.0, 1.0]);
        // Falling, then flat.
        let falling = BENT.map(|load| 100.0 / load.min(2.0));
        let line = line_of(&falling, &BENT).unwrap();
        assert_eq!((line.slopes, line.rises()), ([0.0; 3], false));
    }

    #[test]
    fn a_line_is_not_bent_downwards_or_without_room_for_a_middle_third() {
        // 100, 200, 200: steep, then flat.
        let values = BENT.map(|load| 100.0 * load.min(2.0));
        assert!((slope_of(&values, &BENT) - 0.5).abs() < 1e-12);
        // The middle third is nearly where the right one is.
        let near = BENT.map(|load| if load == 2.0 { 3.95 } else { load });
        let values = BENT.map(|load| if load > 3.0 { 200.0 } else { 100.0 });
        assert!((slope_of(&values, &near) - 0.5).abs() < 1e-12);
        let apart = BENT.map(|load| if load == 2.0 { 3.8 } else { load });
        assert_eq!(line_of(&values, &apart).unwrap().slopes, [0.0, 1.0, 1.0]);
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
        let values = [3., 3., 3., 5., 7., 7., 7., 99., 99., 8., 8., 10., 10., 12., 12.];
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
