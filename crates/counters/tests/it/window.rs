//! Differences of snapshots.

use deepxtrace_counters::{
    CompletionProbe, Counter, FaultPlace, Layout, NotifyProbe, Probe, Snapshot, Step, Topology,
    Window, WindowError, Windows,
};
use proptest::prelude::*;

fn topology(ep_size: usize) -> Topology {
    Topology::new(ep_size, 8).unwrap()
}

/// A snapshot of `ep_size` ranks whose counter at `offset` of rank `r` is `value(r, offset)`.
fn snapshot(ep_size: usize, time: i64, value: impl Fn(usize, usize) -> i64) -> Snapshot {
    let mut snapshot = Snapshot::zeros(topology(ep_size), time);
    for rank in 0..ep_size {
        let vector = snapshot.vector_mut(rank).unwrap();
        vector.iter_mut().enumerate().for_each(|(offset, counter)| *counter = value(rank, offset));
    }
    snapshot
}

fn difference(older: &Snapshot, newer: &Snapshot) -> Result<Window, WindowError> {
    let mut window = Window::empty(older.topology());
    window.difference(1, older, newer).map(|()| window)
}

#[test]
fn every_counter_of_two_ranks_stands_where_it_belongs() {
    // Rank r counts 100 r + offset + 1 more at each offset; 24 offsets of two ranks.
    let older = snapshot(2, 1_000, |rank, offset| (7 * rank + 3 * offset) as i64);
    let newer =
        snapshot(2, 3_500, |rank, offset| (7 * rank + 3 * offset + 100 * rank + offset + 1) as i64);
    let window = difference(&older, &newer).unwrap();
    assert_eq!((window.index(), window.duration_ns()), (1, 2_500));
    assert_eq!((window.begin_unix_ns(), window.end_unix_ns()), (1_000, 3_500));
    assert!(!window.is_idle());
    assert_eq!(window.valid(), [true, true]);
    let notify = window.notify(NotifyProbe::CachedNotifyDispatch);
    assert_eq!((&notify.duration_ns[..], &notify.count[..]), (&[3, 103][..], &[4, 104][..]));
    // dispatch_final begins at 6: cost of sources 0 and 1, their samples, their tokens. A row of a
    // matrix is a source: rank 0's and rank 1's view of it.
    let dispatch = window.completion(CompletionProbe::DispatchFinal);
    assert_eq!(dispatch.cost, ndarray::array![[7, 107], [8, 108]]);
    assert_eq!(dispatch.samples, ndarray::array![[9, 109], [10, 110]]);
    assert_eq!(dispatch.tokens, ndarray::array![[11, 111], [12, 112]]);
    let combine = window.completion(CompletionProbe::CombineLogicalRecv);
    assert_eq!(combine.tokens, ndarray::array![[23, 123], [24, 124]]);
}

#[test]
fn a_counter_that_goes_back_is_named_by_rank_probe_counter_and_source() {
    let older = snapshot(3, 0, |_, _| 100);
    let layout = Layout::new(3).unwrap();
    let mut newer = older.clone();
    newer.vector_mut(2).unwrap()[layout.count(NotifyProbe::CachedNotifyCombine)] = 99;
    newer.vector_mut(1).unwrap()[layout.samples(CompletionProbe::DispatchRdmaRecv).start + 2] = 40;
    // The first by rank and offset.
    let error = difference(&older, &newer).unwrap_err();
    let WindowError::CounterDecreased(fault) = error else { panic!("{error}") };
    assert_eq!((fault.rank, fault.source, fault.older, fault.newer), (1, Some(2), 100, 40));
    let place = FaultPlace::Normal(Probe::DispatchRdmaRecv, Counter::SampleCount);
    assert_eq!(fault.place, place);
    assert_eq!(error.counter(), Some(&fault));
    assert_eq!(
        error.to_string(),
        "a counter went back: rank 1, probe dispatch_rdma_recv, counter sample_count[2] went from \
         100 to 40 (reset or restart)"
    );
    newer.set_present(1, false);
    let error = difference(&older, &newer).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a counter went back: rank 2, probe cached_notify_combine, counter count went from 100 to \
         99 (reset or restart)"
    );
}

#[test]
fn differences_at_the_ends_of_the_range_are_right_or_refused() {
    let with = |value: i64| snapshot(1, 0, |_, offset| if offset == 7 { value } else { 0 });
    let samples = |older: i64, newer: i64| {
        difference(&with(older), &with(newer))
            .map(|window| window.completion(CompletionProbe::DispatchFinal).samples[[0, 0]])
    };
    assert_eq!(samples(0, i64::MAX), Ok(i64::MAX));
    assert_eq!(samples(i64::MIN, -1), Ok(i64::MAX));
    assert_eq!(samples(-5, 3), Ok(8));
    assert_eq!(samples(i64::MAX, i64::MAX), Ok(0));
    for (older, newer) in [(-1, i64::MAX), (i64::MIN, 0), (i64::MIN, i64::MAX)] {
        let error = samples(older, newer).unwrap_err();
        assert!(matches!(error, WindowError::CounterJumped(_)), "{older} to {newer}: {error}");
    }
    for (older, newer) in [(0, -1), (0, i64::MIN), (i64::MAX, i64::MIN), (1, 0), (-1, i64::MIN)] {
        let error = samples(older, newer).unwrap_err();
        assert!(matches!(error, WindowError::CounterDecreased(_)), "{older} to {newer}: {error}");
    }
}

#[test]
fn a_window_is_idle_without_new_samples_and_launches() {
    let layout = Layout::new(2).unwrap();
    let zero = snapshot(2, 0, |_, _| 0);
    let idle_with = |offset: usize| {
        let newer = snapshot(2, 1, |rank, at| i64::from(rank == 1 && at == offset));
        difference(&zero, &newer).unwrap().is_idle()
    };
    for offset in 0..layout.vector_len() {
        let (_, counter, _) = layout.describe(offset).unwrap();
        let counts = matches!(counter, Counter::Count | Counter::SampleCount);
        assert_eq!(idle_with(offset), !counts, "{:?}", layout.describe(offset));
    }
    // A rank that is not valid has done nothing.
    let mut newer = snapshot(2, 1, |rank, _| i64::from(rank == 1));
    newer.set_present(1, false);
    assert!(difference(&zero, &newer).unwrap().is_idle());
}

#[test]
fn an_absent_rank_is_invalid_until_it_has_two_snapshots_in_a_row() {
    let mut windows = Windows::new(topology(3));
    let mut missing = Vec::new();
    let mut columns = Vec::new();
    for (i, present) in [true, true, false, false, true, true].into_iter().enumerate() {
        // What stands in the vector of an absent rank is not read: here it goes back.
        let mut newer =
            snapshot(3, i as i64, |rank, _| if rank == 1 && !present { -9 } else { 10 * i as i64 });
        newer.set_present(1, present);
        if let Step::Window(window) = windows.advance(&mut newer).unwrap() {
            missing.push(window.missing_ranks().collect::<Vec<_>>());
            let cost = &window.completion(CompletionProbe::DispatchFinal).cost;
            columns.push((cost[[0, 0]], cost[[0, 1]], cost[[1, 0]]));
            let count = &window.notify(NotifyProbe::NotifyDispatch).count;
            assert_eq!(count[1], cost[[0, 1]]);
        }
    }
    assert_eq!(missing, [vec![], vec![1], vec![1], vec![1], vec![]]);
    // The column of rank 1 is 0 meanwhile; what others counted from it stays.
    let gone = (10, 0, 10);
    assert_eq!(columns, [(10, 10, 10), gone, gone, gone, (10, 10, 10)]);
}

#[test]
fn a_refused_window_keeps_its_number_and_makes_a_new_boundary() {
    let mut windows = Windows::new(topology(2));
    let mut advance = |value: i64| {
        let index = windows.next_index();
        let mut newer = snapshot(2, value, |_, _| value);
        windows.advance(&mut newer).map(|step| match step {
            Step::Boundary => (index, None),
            Step::Window(window) => {
                assert_eq!(window.index(), index);
                (index, Some(window.notify(NotifyProbe::NotifyDispatch).count[0]))
            }
        })
    };
    assert_eq!(advance(50), Ok((1, None)));
    assert_eq!(advance(70), Ok((1, Some(20))));
    assert!(advance(5).is_err());
    // From 5 on, and window 2 is the refused one.
    assert_eq!(advance(9), Ok((3, Some(4))));
    windows.restart();
    let mut newer = snapshot(2, 0, |_, _| 0);
    assert!(matches!(windows.advance(&mut newer), Ok(Step::Boundary)));
    assert_eq!(windows.next_index(), 4);
}

#[test]
fn the_caller_gets_the_older_snapshot_back() {
    let mut windows = Windows::new(topology(1));
    windows.advance(&mut snapshot(1, 10, |_, _| 1)).unwrap();
    let mut buffer = snapshot(1, 20, |_, _| 2);
    windows.advance(&mut buffer).unwrap();
    assert_eq!(buffer, snapshot(1, 10, |_, _| 1));
}

#[test]
fn another_group_is_refused_and_changes_nothing() {
    let mut windows = Windows::new(topology(2));
    windows.advance(&mut snapshot(2, 0, |_, _| 1)).unwrap();
    let error = windows.advance(&mut Snapshot::zeros(topology(3), 1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "snapshots of different groups: 2 ranks, 8 a node, then 3 ranks, 8 a node"
    );
    assert_eq!((error.counter(), windows.next_index()), (None, 1));
    let mut newer = snapshot(2, 2, |_, _| 4);
    let Ok(Step::Window(window)) = windows.advance(&mut newer) else { panic!("a window") };
    assert_eq!(window.notify(NotifyProbe::NotifyDispatch).count, [3, 3]);
    let other = Topology::new(2, 1).unwrap();
    assert!(difference(&newer, &Snapshot::zeros(other, 0)).is_err());
}

#[test]
fn a_clock_that_goes_back_gives_a_length_of_zero() {
    let window = difference(&snapshot(1, i64::MAX, |_, _| 0), &snapshot(1, i64::MIN, |_, _| 0));
    assert_eq!(window.unwrap().duration_ns(), 0);
}

#[test]
fn one_buffer_serves_groups_of_different_size() {
    let mut window = Window::empty(topology(5));
    for ep_size in [1, 4, 17, 2] {
        let older = snapshot(ep_size, 0, |_, _| 0);
        let newer = snapshot(ep_size, 1, |rank, offset| (rank * 1_000 + offset) as i64);
        window.difference(9, &older, &newer).unwrap();
        assert_eq!(window, {
            let mut fresh = Window::empty(topology(ep_size));
            fresh.difference(9, &older, &newer).unwrap();
            fresh
        });
    }
}

#[test]
fn the_largest_group_is_differenced() {
    let topology = Topology::new(4_096, 8).unwrap();
    let layout = Layout::of(topology);
    // Zeros that nobody writes take no memory; the window takes 1.2 GB.
    let older = Snapshot::zeros(topology, 0);
    let mut newer = Snapshot::zeros(topology, 1);
    newer.vector_mut(4_095).unwrap()[layout.samples(CompletionProbe::DispatchFinal).start + 17] = 3;
    let mut window = Window::empty(topology);
    window.difference(1, &older, &newer).unwrap();
    let samples = &window.completion(CompletionProbe::DispatchFinal).samples;
    assert_eq!((samples[[17, 4_095]], samples.sum()), (3, 3));
}

#[test]
fn edits_by_hand_decide_whether_a_window_is_idle() {
    let mut window = Window::empty(topology(2));
    assert!(window.is_idle());
    window.edit_completion(CompletionProbe::DispatchFinal, |delta| delta.samples[[0, 1]] = 1);
    assert!(!window.is_idle());
    window.edit_completion(CompletionProbe::DispatchFinal, |delta| delta.samples.fill(0));
    assert!(window.is_idle());
    window.edit_notify(NotifyProbe::NotifyDispatch, |delta| delta.count[1] = 2);
    assert!(!window.is_idle());
    window.set_place(4, 10, 30);
    window.valid_mut()[1] = false;
    assert_eq!((window.index(), window.duration_ns()), (4, 20));
    assert_eq!(window.missing_ranks().collect::<Vec<_>>(), [1]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Sizes around the side of the tiles, absent ranks, any counters: each cell against its own
    /// checked subtraction, found by the layout.
    #[test]
    fn every_difference_is_that_of_its_counter(
        ep_size in prop_oneof![1..6_usize, 15..18_usize, 31..34_usize],
        seed in any::<u64>(),
        bits in 1..64_u32,
    ) {
        let topology = topology(ep_size);
        let layout = Layout::of(topology);
        let mut state = seed | 1;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut older = Snapshot::zeros(topology, 0);
        let mut newer = Snapshot::zeros(topology, 1);
        for at in 0..older.counters().len() {
            let base = random() as i64 >> bits;
            older.counters_mut()[at] = base;
            let step = (random() >> bits) as i64;
            newer.counters_mut()[at] = base.wrapping_add(step);
        }
        // Rarely a counter that goes back.
        if random() % 4 == 0 {
            let at = random() as usize % older.counters().len();
            newer.counters_mut()[at] = older.counters()[at].saturating_sub(1);
        }
        for rank in 0..ep_size {
            older.set_present(rank, random() % 8 != 0);
            newer.set_present(rank, random() % 8 != 0);
        }
        let valid: Vec<bool> =
            older.present().iter().zip(newer.present()).map(|(a, b)| *a && *b).collect();
        let pairs = older.counters().iter().zip(newer.counters());
        let bad = pairs.enumerate().find(|&(at, (old, new))| {
            valid[at / layout.vector_len()] && new.checked_sub(*old).is_none_or(|d| d < 0)
        });
        match difference(&older, &newer) {
            Err(error) => {
                let (at, (old, new)) = bad.expect("a counter that goes back or jumps");
                let fault = error.counter().unwrap();
                prop_assert_eq!(fault.rank, at / layout.vector_len());
                prop_assert_eq!((fault.older, fault.newer), (*old, *new));
                let (probe, counter, source) = layout.describe(at % layout.vector_len()).unwrap();
                prop_assert_eq!(fault.place, FaultPlace::Normal(probe, counter));
                prop_assert_eq!(fault.source, source);
            }
            Ok(window) => {
                prop_assert_eq!(bad, None);
                prop_assert_eq!(window.valid(), &valid[..]);
                let mut active = false;
                for (rank, &valid) in valid.iter().enumerate() {
                    let (old, new) = (older.vector(rank).unwrap(), newer.vector(rank).unwrap());
                    for offset in 0..layout.vector_len() {
                        let expected = if valid { new[offset] - old[offset] } else { 0 };
                        let (probe, counter, source) = layout.describe(offset).unwrap();
                        let delta = |probe| window.completion(probe);
                        let ours = match (probe.notify(), probe.completion(), counter, source) {
                            (Some(p), _, Counter::DurationNs, _) => window.notify(p).duration_ns[rank],
                            (Some(p), _, Counter::Count, _) => window.notify(p).count[rank],
                            (_, Some(p), Counter::Cost, Some(s)) => delta(p).cost[[s, rank]],
                            (_, Some(p), Counter::SampleCount, Some(s)) => delta(p).samples[[s, rank]],
                            (_, Some(p), Counter::TokenCount, Some(s)) => delta(p).tokens[[s, rank]],
                            other => panic!("{other:?}"),
                        };
                        prop_assert_eq!(ours, expected, "rank {}, offset {}", rank, offset);
                        let counts = matches!(counter, Counter::Count | Counter::SampleCount);
                        active |= counts && expected > 0;
                    }
                }
                prop_assert_eq!(window.is_idle(), !active);
            }
        }
    }
}
