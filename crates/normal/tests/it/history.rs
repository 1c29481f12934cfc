//! The level of a probe over time.

use deepxtrace_counters::{Topology, Window};
use deepxtrace_normal::{Against, Diagnoser, Finding, Level, ProbeStatus, WindowState};

use crate::build::{DispatchFinal, assert_close, diagnoser, only, report, set_costs, topology};

/// A window in which every cell of dispatch costs `level`, but for a point of `point` times that.
fn window(topology: Topology, level: f64, point: f64) -> Window {
    let mut window = Window::empty(topology);
    set_costs(
        &mut window,
        DispatchFinal,
        |s, d| {
            if (s, d) == (1, 2) { point * level } else { level }
        },
    );
    window
}

fn level(diagnoser: &mut Diagnoser, cost: f64) -> (ProbeStatus, Level) {
    let window = window(topology(8, 8), cost, 1.0);
    let report = report(diagnoser.diagnose(&window), DispatchFinal);
    (report.status, report.level.unwrap())
}

#[test]
fn three_learned_windows_judge_the_fourth() {
    let mut diagnoser = diagnoser(topology(8, 8));
    for cost in [1_000.0, 1_100.0, 900.0] {
        let (status, level) = level(&mut diagnoser, cost);
        assert_eq!((status, level.global_ratio, level.scalar), (ProbeStatus::Ok, None, Some(cost)));
    }
    let window = window(topology(8, 8), 1_310.0, 1.0);
    let Finding::Global { ratio, against: Against::Recent, excess_cycles } =
        *only(diagnoser.diagnose(&window), DispatchFinal)
    else {
        panic!("a global slowdown")
    };
    assert_close(ratio, 1.31);
    // 56 cells of 1,000 samples lost 310 each.
    assert_close(excess_cycles, 56.0 * 1_000.0 * 310.0);
}

#[test]
fn an_anomalous_window_is_not_learned() {
    let topology = topology(8, 8);
    let mut diagnoser = diagnoser(topology);
    for _ in 0..3 {
        diagnoser.diagnose(&window(topology, 1_000.0, 1.0));
    }
    for _ in 0..20 {
        // At 1.2 times the level, but with a slow point.
        let window = window(topology, 1_200.0, 3.0);
        let found = report(diagnoser.diagnose(&window), DispatchFinal);
        assert_eq!(found.status, ProbeStatus::Anomalous);
        assert_close(found.level.unwrap().global_ratio.unwrap(), 1.2);
    }
}

#[test]
fn a_slow_ramp_is_measured_against_the_lowest_level() {
    let mut diagnoser = diagnoser(topology(8, 8));
    let mut cost = 1_000.0;
    for _ in 0..3 {
        level(&mut diagnoser, cost);
    }
    // 2 % more each window: against the median of the last 16 it never is 1.3x.
    let mut windows = 0;
    let last = loop {
        cost *= 1.02;
        windows += 1;
        let (status, level) = level(&mut diagnoser, cost);
        assert!(level.global_ratio.unwrap() < 1.3);
        if status == ProbeStatus::Anomalous {
            break level;
        }
        assert!(windows < 30, "the ramp was learned away");
    };
    let window = window(topology(8, 8), cost, 1.0);
    let Finding::Global { ratio, against: Against::Best, .. } =
        *only(diagnoser.diagnose(&window), DispatchFinal)
    else {
        panic!("against the best")
    };
    // 1.02^14 is the first power above 1.3. The lowest median of three is the first.
    assert_eq!(windows, 14);
    assert!((ratio - 1.02_f64.powi(14)).abs() < 1e-5, "{ratio}");
    assert_eq!(last.best_ratio, Some(ratio));
}

#[test]
fn only_sixteen_scalars_are_kept() {
    let mut diagnoser = diagnoser(topology(8, 8));
    for cost in [1_200.0; 10] {
        level(&mut diagnoser, cost);
    }
    for _ in 0..16 {
        level(&mut diagnoser, 1_000.0);
    }
    // The ten are gone: with them the median of 26 would be the same, but that of the last 16
    // scalars is 1,000 from the ninth on, and the next ratio says so.
    assert_close(level(&mut diagnoser, 1_100.0).1.global_ratio.unwrap(), 1.1);
    // Nine at 1,100 and seven at 1,000 remain after eight more.
    for _ in 0..8 {
        level(&mut diagnoser, 1_100.0);
    }
    assert_close(level(&mut diagnoser, 1_100.0).1.global_ratio.unwrap(), 1.0);
}

#[test]
fn after_sixteen_global_windows_the_level_is_the_new_normal() {
    let topology = topology(8, 8);
    let mut diagnoser = diagnoser(topology);
    for _ in 0..4 {
        level(&mut diagnoser, 1_000.0);
    }
    for window in 1..=16 {
        let (status, level) = level(&mut diagnoser, 1_500.0);
        assert_eq!(status, ProbeStatus::Anomalous, "window {window}");
        assert_eq!(level.level_shift, window == 16, "window {window}");
    }
    // The history is empty: no ratio for three windows, then against the new level.
    for _ in 0..3 {
        let (status, level) = level(&mut diagnoser, 1_500.0);
        assert_eq!((status, level.global_ratio), (ProbeStatus::Ok, None));
    }
    let (status, level) = level(&mut diagnoser, 1_500.0);
    assert_eq!((status, level.global_ratio), (ProbeStatus::Ok, Some(1.0)));
    assert_eq!(level.best_ratio, Some(1.0));
}

#[test]
fn another_finding_breaks_the_row_and_an_idle_window_does_not() {
    let topology = topology(8, 8);
    let mut diagnoser = diagnoser(topology);
    for _ in 0..4 {
        level(&mut diagnoser, 1_000.0);
    }
    for _ in 0..10 {
        level(&mut diagnoser, 1_500.0);
    }
    diagnoser.diagnose(&window(topology, 1_500.0, 3.0));
    for _ in 0..8 {
        level(&mut diagnoser, 1_500.0);
    }
    // Idle, and one with too few cells.
    assert_eq!(diagnoser.diagnose(&Window::empty(topology)).state, WindowState::Idle);
    let mut few = Window::empty(topology);
    set_costs(&mut few, DispatchFinal, |s, d| if (s, d) == (0, 1) { 1_000.0 } else { 0.0 });
    assert_eq!(report(diagnoser.diagnose(&few), DispatchFinal).status, ProbeStatus::Insufficient);
    for window in 9..=16 {
        let (_, level) = level(&mut diagnoser, 1_500.0);
        assert_eq!(level.level_shift, window == 16, "window {window} after the point");
    }
}

#[test]
fn an_ok_window_breaks_the_row() {
    let mut diagnoser = diagnoser(topology(8, 8));
    for _ in 0..4 {
        level(&mut diagnoser, 1_000.0);
    }
    for _ in 0..15 {
        level(&mut diagnoser, 1_500.0);
    }
    level(&mut diagnoser, 1_000.0);
    assert!(!level(&mut diagnoser, 1_500.0).1.level_shift);
}

#[test]
fn a_known_change_can_be_told() {
    let mut diagnoser = diagnoser(topology(8, 8));
    for _ in 0..4 {
        level(&mut diagnoser, 1_000.0);
    }
    diagnoser.forget_history();
    let (status, level) = level(&mut diagnoser, 3_000.0);
    assert_eq!((status, level.global_ratio, level.best_ratio), (ProbeStatus::Ok, None, None));
}
