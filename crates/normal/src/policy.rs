//! The thresholds that decide what is a finding.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Smallest robust score of a finding.
pub const MIN_SCORE: f64 = 3.5;
/// Windows that a history needs before it judges.
pub const HISTORY_MIN: usize = 3;
/// Windows that a history keeps, and windows in a row with nothing but `global` after which the
/// level is the new normal.
pub const HISTORY_LEN: usize = 16;

/// The configurable thresholds, with the defaults of the specification.
///
/// The fields are free to set; [`Policy::validate`] says whether the whole makes sense, and a
/// [`Diagnoser`](crate::Diagnoser) takes no other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// A rank whose Notify average is at most this share of the others' median is late (0.25).
    pub notify_ratio: f64,
    /// Smallest ratio of a row, column, rail, gateway axis or node block (1.25).
    pub axis_ratio: f64,
    /// Smallest ratio of a point or gateway edge (2.0).
    pub point_ratio: f64,
    /// Smallest ratio of a global slowdown (1.3).
    pub global_ratio: f64,
    /// Whether cells are compared at equal load (true).
    pub load_adjust: bool,
    /// A late rank that cost each peer a smaller share of the window is not a finding (0).
    pub notify_min_share: f64,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            notify_ratio: 0.25,
            axis_ratio: 1.25,
            point_ratio: 2.0,
            global_ratio: 1.3,
            load_adjust: true,
            notify_min_share: 0.0,
        }
    }
}

impl Policy {
    /// Checks every threshold.
    ///
    /// # Errors
    ///
    /// The first field out of range, in the order of the fields:
    ///
    /// - `notify_ratio` is not above 0 and below 1
    /// - `axis_ratio`, `point_ratio` or `global_ratio` is not a finite number above 1
    /// - `notify_min_share` is not in 0 to 1
    pub fn validate(&self) -> Result<(), PolicyError> {
        let above_one = |value: f64| value > 1.0 && value.is_finite();
        let ratio = "a finite number above 1";
        let share = self.notify_min_share;
        for (name, value, valid, allowed) in [
            (
                "notify_ratio",
                self.notify_ratio,
                self.notify_ratio > 0.0 && self.notify_ratio < 1.0,
                "a number above 0 and below 1",
            ),
            ("axis_ratio", self.axis_ratio, above_one(self.axis_ratio), ratio),
            ("point_ratio", self.point_ratio, above_one(self.point_ratio), ratio),
            ("global_ratio", self.global_ratio, above_one(self.global_ratio), ratio),
            ("notify_min_share", share, (0.0..=1.0).contains(&share), "a number from 0 to 1"),
        ] {
            if !valid {
                return Err(PolicyError { name, value, allowed });
            }
        }
        Ok(())
    }
}

/// A threshold out of range.
#[derive(Debug, Clone, Copy, PartialEq, Error)]
#[error("{name} is {value}, it must be {allowed}")]
pub struct PolicyError {
    /// The field of [`Policy`].
    pub name: &'static str,
    /// Its value.
    pub value: f64,
    /// What is allowed.
    pub allowed: &'static str,
}
