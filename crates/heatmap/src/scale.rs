//! From values to the length of a colour bar or an axis, and the ticks on it.

/// What the user asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ScaleChoice {
    /// Logarithmic when the largest value is at least 20 times the smallest and all are above 0.
    #[default]
    Auto,
    /// Linear.
    Linear,
    /// Logarithmic; values of 0 and below take the colour of the smallest value above 0.
    Log,
}

/// Ratio from which [`ScaleChoice::Auto`] is logarithmic.
const AUTO_LOG: f64 = 20.0;

/// Least ratio of the ends of a scale of positive values: that of the smallest row or column that
/// is a finding.
const LEAST_RATIO: f64 = 1.25;

/// Maps `[low, high]` to `[0, 1]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    log: bool,
}

impl Scale {
    /// The scale for these values; `None` without a finite one.
    pub(crate) fn of(values: impl Iterator<Item = f64>, choice: ScaleChoice) -> Option<Self> {
        let (mut low, mut high, mut positive) = (f64::INFINITY, f64::NEG_INFINITY, f64::INFINITY);
        for value in values.filter(|value| value.is_finite()) {
            low = low.min(value);
            high = high.max(value);
            if value > 0.0 {
                positive = positive.min(value);
            }
        }
        if low > high {
            return None;
        }
        let log = match choice {
            ScaleChoice::Linear => false,
            ScaleChoice::Log => positive.is_finite(),
            ScaleChoice::Auto => low > 0.0 && high / low >= AUTO_LOG,
        };
        Some(Self { low: if log { positive } else { low }, high, log }.widened())
    }

    /// The same scale, widened around its middle to a ratio of [`LEAST_RATIO`]: noise of a few
    /// percent must not look like a fault.
    fn widened(self) -> Self {
        if self.low <= 0.0 || self.high / self.low >= LEAST_RATIO || !self.high.is_normal() {
            return self;
        }
        let middle = self.low / 2.0 + self.high / 2.0;
        let high = (middle * LEAST_RATIO.sqrt()).max(self.high);
        if high.is_finite() {
            Self { low: (middle / LEAST_RATIO.sqrt()).min(self.low), high, ..self }
        } else {
            self
        }
    }

    /// A linear scale from 0 to a round number not below `high`.
    pub(crate) fn from_zero(high: f64) -> Self {
        let high = if high.is_finite() && high > 0.0 { high } else { 1.0 };
        let step = nice_step(high / 4.0);
        Self { low: 0.0, high: (high / step).ceil() * step, log: false }
    }

    pub(crate) fn is_log(self) -> bool {
        self.log
    }

    /// The place of `value` in `[0, 1]`; the middle when all values are equal.
    pub(crate) fn place(self, value: f64) -> f64 {
        let map = |x: f64| if self.log { x.max(f64::MIN_POSITIVE).ln() } else { x };
        let (low, high) = (map(self.low), map(self.high));
        // Halves, because the difference of the ends may be beyond the largest float.
        let length = high / 2.0 - low / 2.0;
        if length <= 0.0 { 0.5 } else { ((map(value) / 2.0 - low / 2.0) / length).clamp(0.0, 1.0) }
    }

    /// Round values within the scale, rising; at most about `most` of them.
    pub(crate) fn ticks(self, most: usize) -> Vec<f64> {
        let most = most.max(2);
        if self.low >= self.high {
            return vec![self.low];
        }
        let ticks = if self.log { self.log_ticks(most) } else { self.linear_ticks(most) };
        if ticks.len() < 2 { vec![self.low, self.high] } else { ticks }
    }

    fn linear_ticks(self, most: usize) -> Vec<f64> {
        let step = nice_step((self.high / 2.0 - self.low / 2.0) / most as f64 * 2.0);
        let first = (self.low / step - 1e-9).ceil();
        let count = (self.high / step + 1e-9).floor() - first;
        if !count.is_finite() {
            return Vec::new();
        }
        (0..=(count.max(0.0) as usize).min(4 * most)).map(|i| (first + i as f64) * step).collect()
    }

    fn log_ticks(self, most: usize) -> Vec<f64> {
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        let within = |factors: &[f64], every: usize| -> Vec<f64> {
            (first..=last)
                .step_by(every)
                .flat_map(|e| factors.iter().map(move |f| f * 10f64.powi(e)))
                .filter(|v| (self.low..=self.high).contains(v))
                .collect()
        };
        for factors in [&[1.0, 1.5, 2.0, 3.0, 5.0, 7.0][..], &[1.0, 2.0, 5.0], &[1.0, 3.0]] {
            let ticks = within(factors, 1);
            if ticks.len() <= most {
                return ticks;
            }
        }
        let decades = (last - first).max(1) as usize;
        within(&[1.0], decades.div_ceil(most).max(1))
    }
}

/// The next of 1, 2, 2.5, 5 times a power of ten that is not below `step`.
fn nice_step(step: f64) -> f64 {
    if !(step > 0.0 && step.is_finite()) {
        return 1.0;
    }
    let power = 10f64.powf(step.log10().floor());
    let factor = step / power;
    let nice = [1.0, 2.0, 2.5, 5.0].into_iter().find(|&n| factor <= n * (1.0 + 1e-9));
    let step = nice.unwrap_or(10.0) * power;
    if step > 0.0 && step.is_finite() { step } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(values: &[f64], choice: ScaleChoice) -> Scale {
        Scale::of(values.iter().copied(), choice).unwrap()
    }

    #[test]
    fn places_are_linear_or_by_ratio() {
        let linear = scale(&[100.0, 300.0], ScaleChoice::Auto);
        assert!(!linear.is_log());
        assert_eq!(linear.place(150.0), 0.25);
        let log = scale(&[1.0, 10_000.0], ScaleChoice::Auto);
        assert!(log.is_log());
        assert!((log.place(100.0) - 0.5).abs() < 1e-12);
        assert_eq!(log.place(0.0), 0.0);
    }

    #[test]
    fn automatic_is_logarithmic_from_twenty_times_and_never_with_a_zero() {
        assert!(!scale(&[1.0, 19.9], ScaleChoice::Auto).is_log());
        assert!(scale(&[1.0, 20.0], ScaleChoice::Auto).is_log());
        assert!(!scale(&[0.0, 1000.0], ScaleChoice::Auto).is_log());
        assert!(!scale(&[-5.0, 0.0], ScaleChoice::Log).is_log());
        // 4 is half-way from 2 to 8 by ratio; the zero takes the colour of the 2.
        let log = scale(&[0.0, 2.0, 8.0], ScaleChoice::Log);
        assert!((log.place(4.0) - 0.5).abs() < 1e-12 && log.place(0.0) == 0.0);
    }

    #[test]
    fn equal_values_stand_in_the_middle() {
        let same = scale(&[100.0, 100.0], ScaleChoice::Auto);
        // The ends are 100 / sqrt(1.25) = 89.4 and 100 * sqrt(1.25) = 111.8.
        assert!((same.place(100.0) - 0.472).abs() < 0.001);
        assert_eq!(same.ticks(5), [90.0, 95.0, 100.0, 105.0, 110.0]);
        let zero = scale(&[0.0, 0.0], ScaleChoice::Auto);
        assert_eq!((zero.place(0.0), zero.ticks(6)), (0.5, vec![0.0]));
        assert_eq!(Scale::of([f64::NAN].into_iter(), ScaleChoice::Auto), None);
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(
            scale(&[0.0, 10.0], ScaleChoice::Auto).ticks(5),
            [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
        );
        assert_eq!(
            scale(&[980.0, 1510.0], ScaleChoice::Auto).ticks(6),
            [1000.0, 1100.0, 1200.0, 1300.0, 1400.0, 1500.0]
        );
        let log = scale(&[90.0, 90_000.0], ScaleChoice::Auto).ticks(6);
        assert_eq!(log.len(), 6, "{log:?}");
        assert_eq!((log[0], log[1]), (100.0, 300.0));
    }

    #[test]
    fn extreme_values_give_places_and_finitely_many_ticks() {
        for values in [
            [f64::MIN, f64::MAX],
            [0.0, f64::MIN_POSITIVE],
            [5e-324, 1e308],
            [i64::MAX as f64, i64::MAX as f64 * (1.0 + f64::EPSILON)],
        ] {
            for choice in [ScaleChoice::Auto, ScaleChoice::Linear, ScaleChoice::Log] {
                let scale = scale(&values, choice);
                assert!(scale.ticks(6).len() <= 24, "{values:?}");
                assert!((0.0..=1.0).contains(&scale.place(values[1])));
            }
        }
        assert_eq!(Scale::from_zero(f64::NAN).ticks(4).first(), Some(&0.0));
    }
}
