//! Sets of numbers that are nearly contiguous: the watermark of what is finished.

use serde::{Deserialize, Serialize};

/// A set of numbers as disjoint, sorted, inclusive ranges.
///
/// It holds at most [`RangeSet::MAX_RANGES`] ranges: above that the two lowest become one, so that
/// old gaps count as members.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RangeSet {
    ranges: Vec<(i64, i64)>,
}

impl RangeSet {
    pub(crate) const MAX_RANGES: usize = 1024;

    /// Adds a number.
    pub(crate) fn insert(&mut self, number: i64) {
        if let Some((_, end)) = self.ranges.last_mut()
            && end.checked_add(1) == Some(number)
        {
            *end = number;
            return;
        }
        let next = self.ranges.partition_point(|&(start, _)| start <= number);
        if next > 0 && self.ranges[next - 1].1 >= number {
            return;
        }
        let joins_left = next > 0 && self.ranges[next - 1].1 == number - 1;
        let joins_right =
            next < self.ranges.len() && number != i64::MAX && self.ranges[next].0 == number + 1;
        match (joins_left, joins_right) {
            (true, true) => {
                self.ranges[next - 1].1 = self.ranges[next].1;
                self.ranges.remove(next);
            }
            (true, false) => self.ranges[next - 1].1 = number,
            (false, true) => self.ranges[next].0 = number,
            (false, false) => self.ranges.insert(next, (number, number)),
        }
        if self.ranges.len() > Self::MAX_RANGES {
            self.ranges[1].0 = self.ranges[0].0;
            self.ranges.remove(0);
        }
    }

    /// Whether a number is in the set.
    pub(crate) fn contains(&self, number: i64) -> bool {
        match self.ranges.last() {
            None => false,
            Some(&(start, end)) if number >= start => number <= end,
            Some(_) => {
                let next = self.ranges.partition_point(|&(start, _)| start <= number);
                next > 0 && self.ranges[next - 1].1 >= number
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn neighbours_become_one_range() {
        let mut set = RangeSet::default();
        for number in [5, 7, 6, 4, 10, 5] {
            set.insert(number);
        }
        assert_eq!(set.ranges, [(4, 7), (10, 10)]);
    }

    #[test]
    fn the_ends_of_the_numbers_are_members_like_others() {
        let mut set = RangeSet::default();
        for number in [i64::MAX, i64::MIN, i64::MAX - 1, i64::MAX] {
            set.insert(number);
        }
        assert_eq!(set.ranges, [(i64::MIN, i64::MIN), (i64::MAX - 1, i64::MAX)]);
    }

    #[test]
    fn a_set_with_too_many_gaps_fills_the_oldest() {
        let mut set = RangeSet::default();
        for number in 0..=RangeSet::MAX_RANGES as i64 {
            set.insert(number * 2);
        }
        assert_eq!(set.ranges.len(), RangeSet::MAX_RANGES);
        assert!(set.contains(1), "the oldest gap");
        assert!(!set.contains(3));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]
        #[test]
        fn it_holds_what_was_put_in(numbers in prop::collection::vec(-20_i64..20, 0..60)) {
            let mut set = RangeSet::default();
            for &number in &numbers {
                set.insert(number);
            }
            let expected: BTreeSet<i64> = numbers.into_iter().collect();
            for number in -25..25 {
                prop_assert_eq!(set.contains(number), expected.contains(&number));
            }
        }
    }
}
