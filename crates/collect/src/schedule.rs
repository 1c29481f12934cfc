//! The third step: when to collect.

use std::time::{Duration, Instant};

/// Longest pause after failed rounds, in intervals.
const MAX_BACKOFF: u32 = 8;

/// Decides when the root begins a round, and, for schedules that the program drives, when a rank
/// takes part. It reads no clock of its own.
pub trait Schedule: Send {
    /// How long to wait from `now` on until a round is due by the clock; zero when it is due.
    /// `None`: the clock never makes one due.
    fn until_due(&self, now: Instant) -> Option<Duration>;

    /// The program has made one step; whether it is a step with a round.
    fn step(&mut self) -> bool;

    /// A round ended at `now`; `ok` unless it failed as a whole.
    fn ended(&mut self, now: Instant, ok: bool);
}

/// Every so many steps of the program.
#[derive(Debug, Clone)]
pub struct EverySteps {
    every: u64,
    made: u64,
}

impl EverySteps {
    /// A round on every `every`-th step; 0 is taken as 1.
    #[must_use]
    pub fn new(every: u64) -> Self {
        Self { every: every.max(1), made: 0 }
    }
}

impl Schedule for EverySteps {
    fn until_due(&self, _now: Instant) -> Option<Duration> {
        None
    }

    fn step(&mut self) -> bool {
        self.made += 1;
        if self.made < self.every {
            return false;
        }
        self.made = 0;
        true
    }

    fn ended(&mut self, _now: Instant, _ok: bool) {}
}

/// By the clock: first at the end of the warm-up, then once an interval.
///
/// Rounds are due at whole intervals after the first one, so that the time a round takes does not
/// add up. A round that is late is not made up for. After failed rounds the pause doubles, up to
/// eight intervals.
#[derive(Debug, Clone)]
pub struct EveryInterval {
    interval: Duration,
    due: Instant,
    failed: u32,
}

impl EveryInterval {
    /// First due `warm_up` after `now`, then every `interval`, which is at least 1 ms.
    #[must_use]
    pub fn new(now: Instant, warm_up: Duration, interval: Duration) -> Self {
        let interval = interval.max(Duration::from_millis(1));
        Self { interval, due: later(now, warm_up), failed: 0 }
    }
}

impl Schedule for EveryInterval {
    fn until_due(&self, now: Instant) -> Option<Duration> {
        Some(self.due.saturating_duration_since(now))
    }

    fn step(&mut self) -> bool {
        false
    }

    fn ended(&mut self, now: Instant, ok: bool) {
        if ok {
            self.failed = 0;
            self.due = later(self.due, self.interval);
            if self.due < now {
                self.due = later(now, self.interval);
            }
        } else {
            self.failed = self.failed.saturating_add(1);
            let factor = 1_u32 << self.failed.min(MAX_BACKOFF.ilog2());
            self.due = later(now, self.interval.saturating_mul(factor));
        }
    }
}

/// `time` after `from`, or a year after it when that is beyond the clock.
fn later(from: Instant, time: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    from.checked_add(time.min(YEAR)).unwrap_or(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn every_third_step_has_a_round() {
        let mut schedule = EverySteps::new(3);
        let due: Vec<bool> = (0..7).map(|_| schedule.step()).collect();
        assert_eq!(due, [false, false, true, false, false, true, false]);
        assert_eq!(schedule.until_due(Instant::now()), None);
        assert!(EverySteps::new(0).step());
    }

    #[test]
    fn rounds_stay_on_whole_intervals_after_the_warm_up() {
        let start = Instant::now();
        let mut schedule = EveryInterval::new(start, 5 * SECOND, 2 * SECOND);
        assert_eq!(schedule.until_due(start), Some(5 * SECOND));
        assert_eq!(schedule.until_due(start + 6 * SECOND), Some(Duration::ZERO));
        // The round took half a second; the next is due at 7 s all the same.
        schedule.ended(start + 5 * SECOND + SECOND / 2, true);
        assert_eq!(schedule.until_due(start + 6 * SECOND), Some(SECOND));
        // A round that ends after the next was due does not make up for it.
        schedule.ended(start + 20 * SECOND, true);
        assert_eq!(schedule.until_due(start + 20 * SECOND), Some(2 * SECOND));
        assert!(!schedule.step());
    }

    #[test]
    fn failed_rounds_double_the_pause_up_to_eight_intervals() {
        let start = Instant::now();
        let mut schedule = EveryInterval::new(start, Duration::ZERO, SECOND);
        let pauses: Vec<u64> = (0..5)
            .map(|_| {
                schedule.ended(start, false);
                schedule.until_due(start).unwrap().as_secs()
            })
            .collect();
        assert_eq!(pauses, [2, 4, 8, 8, 8]);
        schedule.ended(start + 8 * SECOND, true);
        assert_eq!(schedule.until_due(start + 8 * SECOND), Some(SECOND));
    }

    #[test]
    fn an_endless_interval_does_not_overflow() {
        let start = Instant::now();
        let mut schedule = EveryInterval::new(start, Duration::MAX, Duration::MAX);
        schedule.ended(start, false);
        assert!(schedule.until_due(start).unwrap() > SECOND);
    }
}
