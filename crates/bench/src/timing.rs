//! Two pieces of work, timed in turn, so that a busy machine hurts both alike.

use std::time::{Duration, Instant};

/// Time that one row of a table may take.
const BUDGET: Duration = Duration::from_millis(1500);
const MAX_REPEATS: usize = 2000;
const MIN_REPEATS: usize = 5;

/// Medians of the work and of its floor.
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

/// Runs both in turn and takes the median of each; the first turn is a warm-up and does not count.
pub fn side_by_side(mut work: impl FnMut(usize), mut floor: impl FnMut(usize)) -> Pair {
    let mut times = [Vec::new(), Vec::new()];
    let begin = Instant::now();
    for turn in 0..=MAX_REPEATS {
        let taken = [time(|| work(turn)), time(|| floor(turn))];
        if turn > 0 {
            times.iter_mut().zip(taken).for_each(|(all, one)| all.push(one));
        }
        if turn >= MIN_REPEATS && begin.elapsed() > BUDGET {
            break;
        }
    }
    let repeats = times[0].len();
    let [work, floor] = times.map(median);
    Pair { work, floor, repeats }
}

fn time(work: impl FnOnce()) -> Duration {
    let begin = Instant::now();
    work();
    begin.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
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

    use super::{median, show};

    #[test]
    fn median_and_units() {
        assert_eq!(median([5, 1, 9].map(Duration::from_secs).to_vec()), Duration::from_secs(5));
        assert_eq!(median(Vec::new()), Duration::ZERO);
        assert_eq!(show(Duration::from_nanos(12)), "12 ns");
        assert_eq!(show(Duration::from_nanos(78_400)), "78.4 us");
        assert_eq!(show(Duration::from_millis(15)), "15.00 ms");
    }
}
