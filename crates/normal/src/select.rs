//! Order statistics: every median of this crate comes from here.
//!
//! Values are selected, never sorted, so that many equal values cost nothing extra. No value may
//! be NaN; where a function takes NaN as "not there", it says so.

/// Values that a sorting network takes.
const NETWORK: usize = 8;
/// The comparisons of a sorting network for eight values.
#[rustfmt::skip]
const COMPARISONS: [(usize, usize); 19] = [
    (0, 2), (1, 3), (4, 6), (5, 7), (0, 4), (1, 5), (2, 6), (3, 7), (0, 1), (2, 3),
    (4, 5), (6, 7), (2, 4), (3, 5), (1, 4), (3, 6), (1, 2), (3, 4), (5, 6),
];

/// The two middle values, the same one twice for an odd number of values; `None` without values.
/// The slice is permuted.
pub(crate) fn middle(values: &mut [f64]) -> Option<(f64, f64)> {
    match values.len() {
        0 => None,
        len @ 1..=NETWORK => Some(middle_of_few(values, len)),
        len => {
            let (below, &mut upper, _) = values.select_nth_unstable_by(len / 2, f64::total_cmp);
            Some((if len % 2 == 1 { upper } else { largest(below) }, upper))
        }
    }
}

/// Eight values at most, without a branch that depends on them.
fn middle_of_few(values: &[f64], len: usize) -> (f64, f64) {
    // As many infinities on both sides keep the middle where it is.
    let below = (NETWORK - len) / 2;
    let mut sorted = [f64::INFINITY; NETWORK];
    sorted[..below].fill(f64::NEG_INFINITY);
    sorted[below..below + len].copy_from_slice(values);
    for (i, j) in COMPARISONS {
        let (a, b) = (sorted[i], sorted[j]);
        (sorted[i], sorted[j]) = if b < a { (b, a) } else { (a, b) };
    }
    let upper = sorted[below + len / 2];
    (if len % 2 == 1 { upper } else { sorted[below + len / 2 - 1] }, upper)
}

/// The median: the middle value, or the mean of the middle two; `None` without values.
///
/// The slice is permuted. No value may be NaN, or the result may be.
#[must_use]
pub fn median(values: &mut [f64]) -> Option<f64> {
    middle(values).map(mean)
}

/// The median of the distances from `centre`; the slice holds these afterwards.
pub(crate) fn deviation(values: &mut [f64], centre: f64) -> Option<f64> {
    values.iter_mut().for_each(|value| *value = (*value - centre).abs());
    median(values)
}

/// The mean of two values.
pub(crate) fn mean((lower, upper): (f64, f64)) -> f64 {
    (lower + upper) / 2.0
}

/// The mean of the logarithms of two values.
pub(crate) fn mean_ln((lower, upper): (f64, f64)) -> f64 {
    if lower == upper { lower.ln() } else { (lower.ln() + upper.ln()) / 2.0 }
}

fn largest(values: &[f64]) -> f64 {
    values.iter().fold(f64::NEG_INFINITY, |a, &b| if b > a { b } else { a })
}

fn smallest(values: &[f64]) -> f64 {
    values.iter().fold(f64::INFINITY, |a, &b| if b < a { b } else { a })
}

/// Memory for the values of one selection.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    values: Vec<f64>,
    len: usize,
}

impl Pool {
    /// Room for `capacity` values; more make it grow.
    pub(crate) fn new(capacity: usize) -> Self {
        Self { values: vec![0.0; capacity], len: 0 }
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn values(&mut self) -> &mut [f64] {
        &mut self.values[..self.len]
    }

    /// Adds the values that are not NaN.
    #[inline]
    pub(crate) fn add(&mut self, values: &[f64]) {
        self.add_some(values, |&value| (value, !value.is_nan()));
    }

    /// Adds all values, none of which is NaN.
    #[inline]
    pub(crate) fn add_all(&mut self, values: &[f64]) {
        let end = self.reserve(values.len());
        self.values[self.len..end].copy_from_slice(values);
        self.len = end;
    }

    /// Adds one value.
    #[inline]
    pub(crate) fn push(&mut self, value: f64) {
        let end = self.reserve(1);
        self.values[self.len] = value;
        self.len = end;
    }

    /// Adds what `take` makes of those items that it takes, without a branch for each.
    #[inline]
    pub(crate) fn add_some<T>(&mut self, items: &[T], mut take: impl FnMut(&T) -> (f64, bool)) {
        let end = self.reserve(items.len());
        let free = &mut self.values[self.len..end];
        let mut kept = 0;
        for item in items {
            let (value, taken) = take(item);
            free[kept] = value;
            kept += usize::from(taken);
        }
        self.len += kept;
    }

    /// Makes room for `count` more values; says where they end.
    fn reserve(&mut self, count: usize) -> usize {
        let end = self.len + count;
        if self.values.len() < end {
            self.values.resize(end, 0.0);
        }
        end
    }
}

/// Many values, NaN for those that are not there, seen through a function: for order statistics
/// without a copy of them all.
///
/// A sample tells between which two values the wanted one must be. One pass counts what is below
/// and collects what is between. Where the sample misled, all values are collected.
#[derive(Clone, Copy)]
pub(crate) struct Many<'a, F> {
    parts: [&'a [f64]; 2],
    len: usize,
    map: F,
}

/// Fewest values for which a sample pays.
const LARGE: usize = 2048;
/// One value of this many is in the sample, up to [`MAX_SAMPLE`].
const SAMPLED: usize = 16;
const MAX_SAMPLE: usize = 2048;
/// Standard errors between the wanted rank in the sample and the bounds.
const MARGIN: f64 = 3.0;

impl<'a, F: Fn(f64) -> f64 + Copy> Many<'a, F> {
    /// The values of `parts`, of which `len` are not NaN. `map` keeps NaN.
    pub(crate) fn new(parts: [&'a [f64]; 2], len: usize, map: F) -> Self {
        Self { parts, len, map }
    }

    /// The two middle values, the same one twice for an odd number; `None` without values.
    pub(crate) fn middle(&self, pool: &mut Pool) -> Option<(f64, f64)> {
        self.around(self.len / 2, pool)
            .map(|(lower, upper)| (if self.len % 2 == 1 { upper } else { lower }, upper))
    }

    /// The values at `rank - 1` and at `rank`, counted from 0 in ascending order; at rank 0 the
    /// same one twice. `None` past the end.
    pub(crate) fn around(&self, rank: usize, pool: &mut Pool) -> Option<(f64, f64)> {
        if rank >= self.len {
            return None;
        }
        if self.len >= LARGE {
            let (lower, upper) = self.bounds(rank, pool);
            pool.clear();
            let below = self.collect(lower, upper, pool);
            if below < rank && rank < below + pool.len() {
                return around(pool.values(), rank - below);
            }
        }
        pool.clear();
        self.collect(f64::NEG_INFINITY, f64::INFINITY, pool);
        around(pool.values(), rank)
    }

    /// Two values of a sample that most likely stand on both sides of the ranks asked for.
    fn bounds(&self, rank: usize, pool: &mut Pool) -> (f64, f64) {
        let all = self.parts[0].len() + self.parts[1].len();
        let wanted = (self.len / SAMPLED).min(MAX_SAMPLE);
        pool.clear();
        // Multiples of the golden ratio, so that no row or column is preferred.
        let places = (0..wanted as u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        for place in places {
            let at = ((u128::from(place) * all as u128) >> 64) as usize;
            let value = self.parts[0].get(at);
            let value = *value.unwrap_or_else(|| &self.parts[1][at - self.parts[0].len()]);
            if !value.is_nan() {
                pool.push((self.map)(value));
            }
        }
        let share = rank as f64 / self.len as f64;
        let size = pool.len() as f64;
        let margin = MARGIN * (size * share * (1.0 - share)).sqrt() + 2.0;
        let (first, last) = (share * size - margin, share * size + margin);
        let sample = pool.values();
        // The last bound first: what is before it can then be searched for the other.
        let upper = match sample.len() {
            len if last >= len as f64 => f64::INFINITY,
            _ => *sample.select_nth_unstable_by(last as usize, f64::total_cmp).1,
        };
        let lower = match first {
            first if first < 0.0 => f64::NEG_INFINITY,
            _ => *sample.select_nth_unstable_by(first as usize, f64::total_cmp).1,
        };
        (lower, upper)
    }

    /// Adds the values from about `lower` to about `upper` to the pool; returns how many are below
    /// these.
    fn collect(&self, lower: f64, upper: f64, pool: &mut Pool) -> usize {
        let (centre, reach) = (lower / 2.0 + upper / 2.0, upper / 2.0 - lower / 2.0);
        if !centre.is_finite() {
            // A bound is infinite: the rank is near an end, or all are wanted.
            let mut below = 0;
            for part in self.parts {
                pool.add_some(part, |&value| {
                    let value = (self.map)(value);
                    below += usize::from(value < lower);
                    (value, (value >= lower) & (value <= upper))
                });
            }
            return below;
        }
        // One comparison tells what is within; another pass, of which several values are compared
        // at once, what is below. Both see the same distance.
        let mut below = 0;
        for part in self.parts {
            let distances = part.iter().map(|&value| (self.map)(value) - centre);
            below += distances.filter(|&distance| distance < -reach).count();
            pool.add_some(part, |&value| {
                let value = (self.map)(value);
                (value, (value - centre).abs() <= reach)
            });
        }
        below
    }
}

fn around(values: &mut [f64], rank: usize) -> Option<(f64, f64)> {
    let (below, &mut at, _) = values.select_nth_unstable_by(rank, f64::total_cmp);
    Some((if rank == 0 { at } else { largest(below) }, at))
}

/// The median of a set without one of its values, in constant time for each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeaveOneOut {
    len: usize,
    /// The values around the middle, in order: at `n/2 - 1`, `n/2` and `n/2 + 1`.
    around: [f64; 3],
}

impl LeaveOneOut {
    /// Prepares the answers; `None` for fewer than two values. The slice is permuted.
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
            mean((at, upper))
        } else if value > at {
            mean((lower, at))
        } else {
            mean((lower, upper))
        }
    }
}

#[cfg(test)]
mod tests;
