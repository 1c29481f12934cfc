//! Order statistics: every median of this crate comes from here.
//!
//! Values are selected, never sorted, so that many equal values cost nothing extra. Functions take
//! a slice and leave it permuted. No value may be NaN; callers filter.

/// The two middle values, the same one twice for an odd number of values; `None` without values.
pub(crate) fn middle(values: &mut [f64]) -> Option<(f64, f64)> {
    if values.is_empty() {
        return None;
    }
    let odd = values.len() % 2 == 1;
    let (below, &mut upper, _) = values.select_nth_unstable_by(values.len() / 2, f64::total_cmp);
    Some(if odd { (upper, upper) } else { (largest(below), upper) })
}

/// The median: the middle value, or the mean of the middle two; `None` without values.
///
/// The slice is permuted. No value may be NaN, or the result may be.
#[must_use]
pub fn median(values: &mut [f64]) -> Option<f64> {
    middle(values).map(|(lower, upper)| mean(lower, upper))
}

/// The median of the distances from `centre`; the slice holds these afterwards.
pub(crate) fn deviation(values: &mut [f64], centre: f64) -> Option<f64> {
    values.iter_mut().for_each(|value| *value = (*value - centre).abs());
    median(values)
}

/// The median of the logarithms of positive values, without taking each logarithm.
pub(crate) fn median_ln(values: &mut [f64]) -> Option<f64> {
    middle(values).map(|(lower, upper)| mean_ln(lower, upper))
}

fn mean(lower: f64, upper: f64) -> f64 {
    (lower + upper) / 2.0
}

fn mean_ln(lower: f64, upper: f64) -> f64 {
    if lower == upper { lower.ln() } else { (lower.ln() + upper.ln()) / 2.0 }
}

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(f64::NEG_INFINITY, |a, &b| if b > a { b } else { a })
}

fn smallest(values: &[f64]) -> f64 {
    values.iter().fold(f64::INFINITY, |a, &b| if b < a { b } else { a })
}

/// The median of a set without one of its values, in constant time for each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaveOneOut {
    len: usize,
    /// The values around the middle, in order: at `n/2 - 1`, `n/2` and `n/2 + 1`.
    around: [f64; 3],
}

impl LeaveOneOut {
    /// Prepares the answers; `None` for fewer than two values.
    pub(crate) fn new(values: &mut [f64]) -> Option<Self> {
        let len = values.len();
        if len < 2 {
            return None;
        }
        let (below, &mut at, above) = values.select_nth_unstable_by(len / 2, f64::total_cmp);
        let around = [largest(below), at, smallest(above)];
        Some(Self { len, around })
    }

    /// The median of the other values, where `value` is one of the set.
    pub(crate) fn without(&self, value: f64) -> f64 {
        let [lower, at, upper] = self.around;
        if self.len.is_multiple_of(2) {
            // An odd number of others: the one that takes the middle.
            if value <= lower { at } else { lower }
        } else if value < at {
            mean(at, upper)
        } else if value > at {
            mean(lower, at)
        } else {
            mean(lower, upper)
        }
    }
}
