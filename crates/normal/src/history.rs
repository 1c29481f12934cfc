//! Step 7: the level of a probe over time.

use crate::policy::{HISTORY_LEN, HISTORY_MIN};
use crate::select;

/// What one Completion probe remembers of the windows in which it was `ok`.
#[derive(Debug, Clone, Default)]
pub(crate) struct History {
    scalars: [f64; HISTORY_LEN],
    /// Windows learned since the history began.
    learned: usize,
    lowest: f64,
    x0: Option<[Option<f64>; 2]>,
    /// Windows in a row whose only finding was `global`.
    global_only: usize,
}

/// How a level compares with the history.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Comparison {
    /// Against the median of the history.
    pub(crate) recent: f64,
    /// Against the lowest median since the history began.
    pub(crate) best: f64,
}

impl History {
    /// The typical `ln` load of each class in the first window learned, if one was.
    pub(crate) fn x0(&self) -> [Option<f64>; 2] {
        self.x0.unwrap_or_default()
    }

    /// Compares a level; `None` while the history is short.
    pub(crate) fn compare(&self, scalar: f64) -> Option<Comparison> {
        if self.learned < HISTORY_MIN {
            return None;
        }
        let recent = self.median();
        Some(Comparison { recent: scalar / recent, best: scalar / recent.min(self.lowest) })
    }

    /// Takes a window in which the probe was `ok`.
    pub(crate) fn learn(&mut self, scalar: f64, load: [Option<f64>; 2]) {
        self.x0.get_or_insert(load);
        self.scalars[self.learned % HISTORY_LEN] = scalar;
        self.learned += 1;
        self.global_only = 0;
        if self.learned >= HISTORY_MIN {
            let median = self.median();
            let first = self.learned == HISTORY_MIN;
            self.lowest = if first { median } else { self.lowest.min(median) };
        }
    }

    /// Takes a window in which the probe was anomalous. Says whether its level is the new normal;
    /// the history then is empty.
    pub(crate) fn reject(&mut self, only_global: bool) -> bool {
        self.global_only = if only_global { self.global_only + 1 } else { 0 };
        let shift = self.global_only == HISTORY_LEN;
        if shift {
            *self = Self::default();
        }
        shift
    }

    fn median(&self) -> f64 {
        let mut scalars = self.scalars;
        select::median(&mut scalars[..self.learned.min(HISTORY_LEN)]).unwrap_or(f64::NAN)
    }
}
