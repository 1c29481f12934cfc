use proptest::prelude::*;

use super::*;

/// The same by sorting: `None` without values.
fn sorted_middle(values: &[f64]) -> Option<(f64, f64)> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    Some((if sorted.len() % 2 == 1 { upper } else { sorted[sorted.len() / 2 - 1] }, upper))
}

/// Values with many ties: few different ones, or any.
fn values(len: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<f64>> {
    let value = prop_oneof![(0..4_i32).prop_map(f64::from), -1e12..1e12_f64];
    prop::collection::vec(value, len)
}

#[test]
fn medians_of_odd_and_even_numbers() {
    assert_eq!(median(&mut []), None);
    assert_eq!(median(&mut [7.0]), Some(7.0));
    assert_eq!(median(&mut [9.0, 1.0]), Some(5.0));
    assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), Some(2.5));
    let mut ten: Vec<f64> = (0..10).rev().map(f64::from).collect();
    assert_eq!(median(&mut ten), Some(4.5));
}

#[test]
fn the_deviation_is_the_median_distance() {
    // Distances from 3: 2, 1, 0, 1, 7.
    assert_eq!(deviation(&mut [1.0, 2.0, 3.0, 4.0, 10.0], 3.0), Some(1.0));
}

#[test]
fn a_mean_of_logarithms_is_that_of_the_geometric_mean() {
    assert!((mean_ln((2.0, 8.0)) - 4_f64.ln()).abs() < 1e-15);
    assert_eq!(mean_ln((3.0, 3.0)), 3_f64.ln());
}

#[test]
fn a_million_equal_values_take_no_time_and_no_stack() {
    let mut equal = vec![5.0; 1_000_000];
    equal[17] = 4.0;
    let mut pool = Pool::new(0);
    assert_eq!(Many::new([&equal, &[]], equal.len(), |v| v).middle(&mut pool), Some((5.0, 5.0)));
    assert_eq!(median(&mut equal), Some(5.0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn the_middle_is_that_of_the_sorted_values(mut values in values(0..70)) {
        let expected = sorted_middle(&values);
        prop_assert_eq!(middle(&mut values), expected);
    }

    #[test]
    fn few_values_take_the_network(mut values in values(0..=8)) {
        let expected = sorted_middle(&values);
        prop_assert_eq!(middle(&mut values), expected);
    }

    #[test]
    fn leaving_one_out_is_the_median_of_the_others(values in values(2..40)) {
        let others = LeaveOneOut::new(&mut values.clone()).unwrap();
        for (i, &value) in values.iter().enumerate() {
            let mut rest = values.clone();
            rest.remove(i);
            prop_assert_eq!(Some(others.without(value)), median(&mut rest));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Around the size from which a sample is taken, with values that are not there, ties, and a
    /// function; orders that could mislead a sample.
    #[test]
    fn ranks_of_many_values_are_those_of_the_sorted_values(
        len in prop_oneof![1..200_usize, LARGE - 3..LARGE + 3, 3 * LARGE..3 * LARGE + 40],
        ties in prop_oneof![Just(2_u64), Just(50), Just(u64::MAX)],
        missing in prop_oneof![Just(0_u64), Just(3)],
        sorted in any::<bool>(),
        split in 0.0..1.0_f64,
        rank in 0.0..1.0_f64,
        seed in any::<u64>(),
    ) {
        let mut state = seed | 1;
        let mut values: Vec<f64> = (0..len)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                ((state >> 33) % ties) as f64
            })
            .collect();
        if sorted {
            values.sort_by(f64::total_cmp);
        }
        for (i, value) in values.iter_mut().enumerate() {
            if missing > 0 && (i as u64 * 7 + seed % 5).is_multiple_of(missing) {
                *value = f64::NAN;
            }
        }
        let map = |value: f64| (value - 10.0).abs();
        let mut expected: Vec<f64> = values.iter().copied().map(map).filter(|v| !v.is_nan()).collect();
        expected.sort_by(f64::total_cmp);
        let (first, second) = values.split_at((split * len as f64) as usize);
        let many = Many::new([first, second], expected.len(), map);
        let mut pool = Pool::new(3);
        let rank = (rank * len as f64) as usize;
        let around = expected.get(rank).map(|&at| (expected[rank.saturating_sub(1)], at));
        prop_assert_eq!(many.around(rank, &mut pool), around);
        prop_assert_eq!(many.middle(&mut pool), sorted_middle(&expected));
        for rank in [0, expected.len().saturating_sub(1)] {
            let around = expected.get(rank).map(|&at| (expected[rank.saturating_sub(1)], at));
            prop_assert_eq!(many.around(rank, &mut pool), around);
        }
    }
}
