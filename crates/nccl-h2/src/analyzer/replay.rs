//! Which calls of a process were seen before: a file may be read again from its start.

/// Numbers of calls below the highest that are told apart.
const WINDOW: i64 = 2048;
const WORDS: usize = WINDOW as usize / 64;

/// Remembers the latest numbers of a process. Numbers far below the highest count as seen.
///
/// Threads of a process may write their calls in another order than that of the numbers, so a
/// watermark alone would take the slower thread's calls for repetitions.
#[derive(Debug)]
pub(crate) struct ReplayWindow {
    highest: i64,
    /// One bit a number, by the number modulo the window.
    bits: Box<[u64; WORDS]>,
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self { highest: -1, bits: Box::new([0; WORDS]) }
    }
}

impl ReplayWindow {
    /// Whether no number was seen.
    pub(crate) fn is_empty(&self) -> bool {
        self.highest < 0
    }

    /// Whether a number comes for the first time; it is remembered. A negative number is an unknown
    /// one and always new.
    #[inline]
    pub(crate) fn first_time(&mut self, number: i64) -> bool {
        if number < 0 {
            return true;
        }
        if number > self.highest {
            self.forget(number);
            self.highest = number;
        } else if self.highest - number >= WINDOW {
            return false;
        }
        let (word, bit) = place(number);
        let seen = self.bits[word] & bit != 0;
        self.bits[word] |= bit;
        !seen
    }

    /// Makes room for the numbers up to a new highest one.
    #[inline]
    fn forget(&mut self, highest: i64) {
        if highest.saturating_sub(self.highest) >= WINDOW {
            self.bits.fill(0);
            return;
        }
        for number in self.highest + 1..=highest {
            let (word, bit) = place(number);
            self.bits[word] &= !bit;
        }
    }
}

#[inline]
fn place(number: i64) -> (usize, u64) {
    // Non-negative and below the window: both fit.
    let at = (number % WINDOW) as usize;
    (at / 64, 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_new_once() {
        let mut window = ReplayWindow::default();
        assert!(window.first_time(0));
        assert!(window.first_time(5));
        assert!(window.first_time(3), "a slower thread");
        for number in [0, 3, 5] {
            assert!(!window.first_time(number), "{number} was seen");
        }
    }

    #[test]
    fn numbers_far_below_the_highest_count_as_seen() {
        let mut window = ReplayWindow::default();
        assert!(window.first_time(10_000));
        assert!(!window.first_time(10_000 - WINDOW));
        assert!(window.first_time(10_001 - WINDOW));
        assert!(window.first_time(i64::MAX));
        assert!(!window.first_time(10_000));
    }

    #[test]
    fn an_unknown_number_is_always_new() {
        let mut window = ReplayWindow::default();
        assert!(window.first_time(-1));
        assert!(window.first_time(-1));
    }

    #[test]
    fn a_long_sequence_is_all_new_and_its_repetition_all_seen() {
        let mut window = ReplayWindow::default();
        assert!((0..20_000).step_by(2).all(|number| window.first_time(number)));
        assert!((0..20_000).step_by(2).all(|number| !window.first_time(number)));
    }
}
