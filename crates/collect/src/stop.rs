//! Bounded waiting: a deadline and a flag that ends every wait early.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A flag that is set once and wakes whoever waits on it. Clones share the flag.
#[derive(Debug, Clone, Default)]
pub struct Stop {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    set: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// A flag that is not set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the flag and wakes all who wait.
    pub fn set(&self) {
        *lock(&self.shared.set) = true;
        self.shared.changed.notify_all();
    }

    /// Whether the flag is set.
    #[must_use]
    pub fn is_set(&self) -> bool {
        *lock(&self.shared.set)
    }

    /// Sleeps for `time`, or until the flag is set; says whether it is set.
    pub fn sleep(&self, time: Duration) -> bool {
        let guard = lock(&self.shared.set);
        let waited = self.shared.changed.wait_timeout_while(guard, time, |set| !*set);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Until when to wait: a deadline, or the moment a [`Stop`] is set.
///
/// Whoever waits looks at it at least every 20 ms.
#[derive(Debug, Clone, Copy)]
pub struct Until<'a> {
    deadline: Instant,
    stop: &'a Stop,
}

impl<'a> Until<'a> {
    /// Until `timeout` from now. A time beyond the range of the clock is cut to a year.
    #[must_use]
    pub fn after(timeout: Duration, stop: &'a Stop) -> Self {
        const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
        let now = Instant::now();
        let deadline = now.checked_add(timeout.min(YEAR)).unwrap_or(now);
        Self { deadline, stop }
    }

    /// The same flag with the earlier of this deadline and `timeout` from now.
    #[must_use]
    pub fn at_most(self, timeout: Duration) -> Self {
        let sooner = Self::after(timeout, self.stop).deadline;
        Self { deadline: self.deadline.min(sooner), stop: self.stop }
    }

    /// The flag.
    #[must_use]
    pub fn stop(self) -> &'a Stop {
        self.stop
    }

    /// What is left before the deadline; zero after it.
    #[must_use]
    pub fn remaining(self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Whether the deadline has passed or the flag is set.
    #[must_use]
    pub fn is_over(self) -> bool {
        self.remaining().is_zero() || self.stop.is_set()
    }

    /// Sleeps for `time` at most, shorter when the deadline or the flag comes first.
    pub fn sleep(self, time: Duration) {
        self.stop.sleep(time.min(self.remaining()));
    }
}

/// The pause between two looks at something that has no way to wake us: short at first, then longer,
/// 2 ms at most.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    rounds: u32,
}

impl Backoff {
    /// Forgets what was waited: something happened.
    pub(crate) fn reset(&mut self) {
        self.rounds = 0;
    }

    /// The next pause.
    pub(crate) fn pause(&mut self) -> Duration {
        let micros = 20_u64 << self.rounds.min(7);
        self.rounds = self.rounds.saturating_add(1);
        Duration::from_micros(micros.min(2_000))
    }
}

/// Locks a mutex whose content is valid at every moment, so a panic elsewhere does not spoil it.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn setting_the_flag_ends_a_wait_of_an_hour() {
        let stop = Stop::new();
        let other = stop.clone();
        let start = Instant::now();
        let waiter = std::thread::spawn(move || other.sleep(Duration::from_secs(3600)));
        stop.set();
        assert!(waiter.join().unwrap());
        assert!(start.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn a_deadline_passes_and_an_endless_timeout_does_not_overflow() {
        let stop = Stop::new();
        assert!(Until::after(Duration::ZERO, &stop).is_over());
        let long = Until::after(Duration::MAX, &stop);
        assert!(!long.is_over());
        assert!(long.at_most(Duration::ZERO).is_over());
        stop.set();
        assert!(long.is_over());
    }

    #[test]
    fn pauses_grow_to_two_milliseconds_and_start_again() {
        let mut backoff = Backoff::default();
        let first = backoff.pause();
        assert_eq!(first, Duration::from_micros(20));
        for _ in 0..100 {
            assert!(backoff.pause() <= Duration::from_millis(2));
        }
        assert_eq!(backoff.pause(), Duration::from_millis(2));
        backoff.reset();
        assert_eq!(backoff.pause(), first);
    }
}
