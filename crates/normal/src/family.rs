//! Step 4: the effects of a family of groups (all rows of a class, all rails, ...), and which of
//! them stand out.

use crate::policy::MIN_SCORE;
use crate::select;

/// Fewest cells of a group with an effect, and fewest such groups of a family that is judged.
pub(crate) const MIN_CELLS: usize = 3;
/// A median absolute deviation times this estimates a standard deviation.
pub(crate) const MAD_TO_SIGMA: f64 = 1.4826;
/// The standard error of a median is this many times that of a mean.
pub(crate) const MEDIAN_ERROR: f64 = 1.2533;
/// Smallest denominator of a score.
pub(crate) const FLOOR: f64 = 1e-6;

/// Takes the median of `line` (cells that are there, in any order): the effect of the group, if it
/// has enough cells. The slice is permuted.
fn effect(line: &mut [f64]) -> Option<f64> {
    if line.len() < MIN_CELLS { None } else { select::median(line) }
}

/// The effects of one family of groups.
#[derive(Debug, Clone)]
pub(crate) struct Family {
    groups: Vec<Group>,
    buffer: Vec<f64>,
}

/// One group of a family.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Group {
    /// NaN for none.
    effect: f64,
    cells: u32,
}

impl Group {
    const NONE: Self = Self { effect: f64::NAN, cells: 0 };

    /// `None` when it has too few cells.
    pub(crate) fn effect(&self) -> Option<f64> {
        Some(self.effect).filter(|effect| !effect.is_nan())
    }

    /// Gives the group the median of its cells as effect, if it has enough of them. The slice is
    /// permuted.
    pub(crate) fn take(&mut self, line: &mut [f64]) -> Option<f64> {
        let effect = effect(line)?;
        *self = Self { effect, cells: u32::try_from(line.len()).unwrap_or(u32::MAX) };
        Some(effect)
    }
}

impl Family {
    pub(crate) fn new(groups: usize) -> Self {
        Self { groups: vec![Group::NONE; groups], buffer: Vec::with_capacity(groups) }
    }

    /// Begins anew: no group has an effect.
    pub(crate) fn clear(&mut self) {
        self.groups.fill(Group::NONE);
    }

    pub(crate) fn groups(&mut self) -> &mut [Group] {
        &mut self.groups
    }

    /// The effect of a group, `None` when it has too few cells.
    pub(crate) fn effect(&self, group: usize) -> Option<f64> {
        self.groups[group].effect()
    }

    /// Calls `found` with group, ratio and score of every group whose ratio and score reach
    /// `min_ratio` and [`MIN_SCORE`]; of none when fewer than three have an effect.
    pub(crate) fn judge(
        &mut self,
        sigma: f64,
        min_ratio: f64,
        mut found: impl FnMut(usize, f64, f64),
    ) {
        self.buffer.clear();
        let effects = self.groups.iter().map(|group| group.effect);
        self.buffer.extend(effects.filter(|effect| !effect.is_nan()));
        if self.buffer.len() < MIN_CELLS {
            return;
        }
        let Some(centre) = select::median(&mut self.buffer) else { return };
        let Some(mad) = select::deviation(&mut self.buffer, centre) else { return };
        for (group, &Group { effect, cells }) in self.groups.iter().enumerate() {
            // No effect, or at most 1x: never a finding, and most groups are that.
            if effect.is_nan() || effect <= centre {
                continue;
            }
            let error = MEDIAN_ERROR * sigma / f64::from(cells).sqrt();
            let score = (effect - centre) / (MAD_TO_SIGMA * mad).max(error).max(FLOOR);
            let ratio = (effect - centre).exp();
            if ratio >= min_ratio && score >= MIN_SCORE {
                found(group, ratio, score);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(effects: &[(f64, usize)], sigma: f64, min_ratio: f64) -> Vec<(usize, f64, f64)> {
        let mut family = Family::new(effects.len());
        for (group, &(effect, cells)) in effects.iter().enumerate() {
            family.groups()[group] = Group { effect, cells: cells as u32 };
        }
        let mut found = Vec::new();
        family.judge(sigma, min_ratio, |group, ratio, score| found.push((group, ratio, score)));
        found
    }

    #[test]
    fn a_group_of_two_cells_has_no_effect_and_one_of_three_has_its_median() {
        assert_eq!(effect(&mut [1.0, 2.0]), None);
        assert_eq!(effect(&mut [5.0, 1.0, 2.0]), Some(2.0));
    }

    #[test]
    fn two_groups_are_not_judged_and_three_are() {
        assert_eq!(judge(&[(0.0, 9), (5.0, 9)], 0.0, 1.25), []);
        assert_eq!(judge(&[(0.0, 9), (5.0, 9), (f64::NAN, 0)], 0.0, 1.25), []);
        assert_eq!(judge(&[(0.0, 9), (5.0, 9), (0.0, 9)], 0.0, 1.25).len(), 1);
    }

    #[test]
    fn the_larger_of_spread_and_noise_is_the_denominator() {
        // Effects 0, 0.1, 0.2, 1: median 0.15, distances 0.15, 0.05, 0.05, 0.85: median 0.1.
        let effects = [(0.0, 4), (0.1, 4), (0.2, 4), (1.0, 4)];
        let [(3, ratio, score)] = judge(&effects, 0.0, 1.25)[..] else { panic!("group 3") };
        assert!((ratio - 0.85_f64.exp()).abs() < 1e-12);
        assert!((score - 0.85 / (1.4826 * 0.1)).abs() < 1e-9);
        // With a noise of 0.24 a cell, a median of four is uncertain by 1.2533 x 0.12.
        let [(3, _, score)] = judge(&effects, 0.24, 1.25)[..] else { panic!("group 3") };
        assert!((score - 0.85 / (1.2533 * 0.12)).abs() < 1e-9);
        // And with 0.5 the score is 2.7: too little.
        assert_eq!(judge(&effects, 0.5, 1.25), []);
    }

    #[test]
    fn the_ratio_must_reach_its_threshold_too() {
        let effects = [(0.0, 9), (0.0, 9), (0.0, 9), (0.2, 9)];
        assert_eq!(judge(&effects, 0.0, 1.25), []);
        assert_eq!(judge(&effects, 0.0, 1.22).len(), 1);
    }
}
