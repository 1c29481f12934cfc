//! Differences of low-latency vectors.

use deepxtrace_counters::{
    FaultPlace, LlError, LlLayout, LlPhase, LlWindow, LlWindows, SnapshotError, Step, Topology,
    WindowError,
};
use ndarray::Array2;
use proptest::prelude::*;

fn topology(ep_size: usize) -> Topology {
    Topology::new(ep_size, 8).unwrap()
}

#[test]
fn dispatch_waits_stand_before_combine_waits() {
    let layout = LlLayout::new(3).unwrap();
    assert_eq!(layout.vector_len(), 6);
    assert_eq!(layout.wait(LlPhase::Dispatch), 0..3);
    assert_eq!(layout.wait(LlPhase::Combine), 3..6);
    assert!(LlLayout::new(0).is_err() && LlLayout::new(4_097).is_err());
    assert!(LlLayout::new(4_096).is_ok());
}

#[test]
fn a_row_of_a_window_is_a_waiter() {
    let mut windows = LlWindows::new(topology(2));
    assert!(matches!(windows.advance(100, &[0; 8], &[true; 2]).unwrap(), Step::Boundary));
    let Step::Window(window) = windows.advance(200, &[1, 2, 3, 4, 5, 6, 7, 8], &[true; 2]).unwrap()
    else {
        panic!("a window")
    };
    assert_eq!((window.index(), window.begin_unix_ns(), window.end_unix_ns()), (1, 100, 200));
    assert_eq!(window.wait(LlPhase::Dispatch), ndarray::array![[1, 2], [5, 6]]);
    assert_eq!(window.wait(LlPhase::Combine), ndarray::array![[3, 4], [7, 8]]);
    assert!(!window.is_idle());
    let Step::Window(window) = windows.advance(300, &[1, 2, 3, 4, 5, 6, 7, 8], &[true; 2]).unwrap()
    else {
        panic!("a window")
    };
    assert!(window.is_idle());
    assert_eq!(windows.next_index(), 3);
}

#[test]
fn a_wait_that_goes_back_is_named_and_its_vectors_are_the_new_boundary() {
    let mut windows = LlWindows::new(topology(2));
    windows.advance(0, &[10; 8], &[true; 2]).unwrap();
    let error = windows.advance(1, &[10, 10, 10, 10, 10, 10, 10, 4], &[true; 2]).unwrap_err();
    let LlError::Window(WindowError::CounterDecreased(fault)) = error else { panic!("{error}") };
    assert_eq!((fault.rank, fault.source, fault.older, fault.newer), (1, Some(1), 10, 4));
    assert_eq!(fault.place, FaultPlace::LowLatency(LlPhase::Combine));
    assert_eq!(
        error.to_string(),
        "a counter went back: rank 1, combine wait[1] went from 10 to 4 (reset or restart)"
    );
    let Step::Window(window) = windows.advance(2, &[11; 8], &[true; 2]).unwrap() else {
        panic!("a window")
    };
    assert_eq!(window.index(), 2);
    assert_eq!(window.wait(LlPhase::Combine)[[1, 1]], 7);
}

#[test]
fn a_wait_that_jumps_beyond_the_range_is_refused() {
    let mut windows = LlWindows::new(topology(1));
    windows.advance(0, &[i64::MIN, 0], &[true]).unwrap();
    let error = windows.advance(1, &[i64::MAX, 0], &[true]).unwrap_err();
    assert!(matches!(error, LlError::Window(WindowError::CounterJumped(_))), "{error}");
    let mut windows = LlWindows::new(topology(1));
    windows.advance(0, &[0, 0], &[true]).unwrap();
    let Step::Window(window) = windows.advance(1, &[i64::MAX, 0], &[true]).unwrap() else {
        panic!("a window")
    };
    assert_eq!(window.wait(LlPhase::Dispatch)[[0, 0]], i64::MAX);
}

#[test]
fn an_absent_rank_waits_for_nobody_until_it_has_two_vectors_in_a_row() {
    let mut windows = LlWindows::new(topology(2));
    let mut seen = Vec::new();
    for (i, present) in [true, false, true, true].into_iter().enumerate() {
        let mut counters = [10 * i as i64; 8];
        if !present {
            counters[4..].fill(-1);
        }
        let step = windows.advance(i as i64, &counters, &[true, present]).unwrap();
        if let Step::Window(window) = step {
            seen.push((window.valid()[1], window.wait(LlPhase::Dispatch).row(1).sum()));
            assert_eq!(window.wait(LlPhase::Combine).row(0).sum(), 20);
        }
    }
    assert_eq!(seen, [(false, 0), (false, 0), (true, 20)]);
}

#[test]
fn lengths_that_do_not_fit_change_nothing() {
    let mut windows = LlWindows::new(topology(2));
    windows.advance(0, &[0; 8], &[true; 2]).unwrap();
    let expected = SnapshotError::Length { length: 7, ranks: 2, each: 4, expected: 8 };
    assert_eq!(windows.advance(1, &[9; 7], &[true; 2]), Err(LlError::Snapshot(expected)));
    let expected = SnapshotError::Present { length: 1, ranks: 2 };
    assert_eq!(windows.advance(1, &[9; 8], &[true]), Err(LlError::Snapshot(expected)));
    let Step::Window(window) = windows.advance(2, &[5; 8], &[true; 2]).unwrap() else {
        panic!("a window")
    };
    assert_eq!((window.index(), window.wait(LlPhase::Dispatch)[[0, 1]]), (1, 5));
}

#[test]
fn a_window_from_a_file_is_checked() {
    let mut window = LlWindow::empty(topology(2));
    let wait = || [Array2::from_elem((2, 2), 4_i64), Array2::zeros((2, 2))];
    window.set(3, (5, 6), vec![true, false], wait()).unwrap();
    assert_eq!((window.index(), window.valid()), (3, &[true, false][..]));
    assert_eq!(window.wait(LlPhase::Dispatch).sum(), 16);
    assert!(window.set(3, (5, 6), vec![true], wait()).is_err());
    let wrong = [Array2::zeros((2, 2)), Array2::zeros((2, 3))];
    assert!(window.set(3, (5, 6), vec![true; 2], wrong).is_err());
    assert_eq!(window.wait(LlPhase::Dispatch).sum(), 16);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn every_wait_is_the_difference_of_its_counter(
        ep_size in 1..7_usize,
        older in prop::collection::vec(any::<i32>(), 72),
        steps in prop::collection::vec(-1..1_000_000_i64, 72),
        back in any::<bool>(),
    ) {
        let len = 2 * ep_size * ep_size;
        let older: Vec<i64> = older[..len].iter().map(|&value| value.into()).collect();
        let steps: Vec<i64> =
            steps[..len].iter().map(|&step| if back { step } else { step.max(0) }).collect();
        let newer: Vec<i64> = older.iter().zip(&steps).map(|(a, b)| a + b).collect();
        let present = vec![true; ep_size];
        let mut windows = LlWindows::new(topology(ep_size));
        windows.advance(0, &older, &present).unwrap();
        let first = steps.iter().position(|&step| step < 0);
        match windows.advance(1, &newer, &present) {
            Ok(Step::Window(window)) => {
                prop_assert_eq!(first, None);
                for (i, &step) in steps.iter().enumerate() {
                    let (rank, rest) = (i / (2 * ep_size), i % (2 * ep_size));
                    let phase = LlPhase::ALL[rest / ep_size];
                    prop_assert_eq!(window.wait(phase)[[rank, rest % ep_size]], step);
                }
            }
            Ok(Step::Boundary) => prop_assert!(false, "the second vectors end a window"),
            Err(LlError::Window(error)) => {
                let at = first.unwrap();
                let fault = error.counter().unwrap();
                prop_assert_eq!(fault.rank, at / (2 * ep_size));
                prop_assert_eq!(fault.source, Some(at % ep_size));
            }
            Err(error) => prop_assert!(false, "{}", error),
        }
    }
}
