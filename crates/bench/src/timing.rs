//! Two pieces of work, timed in turn, so that a busy machine hurts both alike.

use std::time::{Duration, Instant};

/// Time that one row of a table may take.
const BUDGET: Duration = Duration::from_millis(1500);
const MAX_REPEATS: usize = 2000;
const MIN_REPEATS: usize = 5;

/// The least time of the work and of its floor: what else the machine does only adds to it.
pub struct Pair {
    /// The work.
    pub work: Duration,
    /// The least that any program would have to do.
    pub floor: Duration,
    /// How often each was timed.
    pub repeats: usize,
}

impl Pair {
    /// The work over the floor.
    pub fn ratio(&self) -> f64 {
        self.work.as_secs_f64() / self.floor.as_secs_f64().max(1e-9)
    }
}

/// Runs both in turn and takes the least time of each; the first turn is a warm-up and does not
/// count.
pub fn side_by_side(mut work: impl FnMut(usize), mut floor: impl FnMut(usize)) -> Pair {
    let mut least = [Duration::MAX; 2];
    let mut repeats = 0;
    let begin = Instant::now();
    for turn in 0..=MAX_REPEATS {
        let taken = [time(|| work(turn)), time(|| floor(turn))];
        if turn > 0 {
            least = [least[0].min(taken[0]), least[1].min(taken[1])];
            repeats = turn;
        }
        if turn >= MIN_REPEATS && begin.elapsed() > BUDGET {
            break;
        }
    }
    let [work, floor] = least;
    Pair { work, floor, repeats }
}

fn time(work: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    work();
    begin.elapsed()
}

/// One pass over counters, as fast as they come: a sum in several lanes.
pub fn one_pass(counters: &[i64]) -> i64 {
    let mut lanes = [0_i64; 16];
    let chunks = counters.chunks_exact(lanes.len());
    let rest = chunks.remainder().iter().fold(0_i64, |sum, &counter| sum.wrapping_add(counter));
    for chunk in chunks {
        lanes.iter_mut().zip(chunk).for_each(|(sum, &counter)| *sum = sum.wrapping_add(counter));
    }
    lanes.into_iter().fold(rest, i64::wrapping_add)
}

/// A duration for people.
pub fn show(duration: Duration) -> String {
    let ns = duration.as_secs_f64() * 1e9;
    match ns {
        ..1e3 => format!("{ns:.0} ns"),
        ..1e6 => format!("{:.1} us", ns / 1e3),
        ..1e9 => format!("{:.2} ms", ns / 1e6),
        _ => format!("{:.2} s", ns / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{one_pass, show, side_by_side};

    #[test]
    fn a_pass_meets_every_counter_once() {
        for len in [0, 1, 15, 16, 17, 100] {
            let counters: Vec<i64> = (1..=len).collect();
            assert_eq!(one_pass(&counters), len * (len + 1) / 2);
        }
    }

    #[test]
    fn both_are_run_in_turn_and_the_warm_up_does_not_count() {
        let order = std::cell::RefCell::new(Vec::new());
        let pair = side_by_side(
            |turn| order.borrow_mut().push(("work", turn)),
            |turn| order.borrow_mut().push(("floor", turn)),
        );
        let order = order.into_inner();
        assert_eq!(order[..4], [("work", 0), ("floor", 0), ("work", 1), ("floor", 1)]);
        assert_eq!(order.len(), 2 * (pair.repeats + 1));
        assert!(pair.work < Duration::MAX && pair.floor < Duration::MAX);
    }

    #[test]
    fn units() {
        assert_eq!(show(Duration::from_nanos(12)), "12 ns");
        assert_eq!(show(Duration::from_nanos(78_400)), "78.4 us");
        assert_eq!(show(Duration::from_millis(15)), "15.00 ms");
    }
}
