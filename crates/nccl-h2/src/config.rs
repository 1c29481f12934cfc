//! The analyzer's settings: what a user may set, and what follows from it.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Settings as a user gives them: each one optional. [`Settings::resolve`] makes a [`Config`].
///
/// | setting | default |
/// |---|---|
/// | `collective_timeout_s` | 60 |
/// | `delayed_enter_threshold_s` | 30 |
/// | `checkpoint_timeout_s` | 1800, and at least `collective_timeout_s` |
/// | `p2p_timeout_s` | `collective_timeout_s` |
/// | `p2p_match_window_s` | 30, and at most `p2p_timeout_s` |
/// | `missing_exit_timeout_s` | `collective_timeout_s` |
/// | `detect_heartbeat_timeouts` | false |
/// | `initial_heartbeat_timeout_s` | 30 |
/// | `heartbeat_timeout_s` | 30 |
/// | `no_progress_timeout_s` | 300 |
/// | `failure_grace_period_s` | the largest enabled timeout and one `scan_interval_s` |
/// | `scan_interval_s` | 5 |
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Seconds until a rank that has not entered a collective is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collective_timeout_s: Option<f64>,
    /// Seconds between the first and the last rank of a round above which the last are late.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed_enter_threshold_s: Option<f64>,
    /// Seconds that replace `collective_timeout_s` for a rank that writes a checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint_timeout_s: Option<f64>,
    /// Seconds until the other side of a send or receive is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p2p_timeout_s: Option<f64>,
    /// Seconds of wall clock within which calls without an index are searched for a partner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p2p_match_window_s: Option<f64>,
    /// Seconds until a call that has not returned is stuck.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_exit_timeout_s: Option<f64>,
    /// Whether silent heartbeats are findings of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detect_heartbeat_timeouts: Option<bool>,
    /// Seconds from the start of a process to its first heartbeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initial_heartbeat_timeout_s: Option<f64>,
    /// Seconds after which a heartbeat is stale.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heartbeat_timeout_s: Option<f64>,
    /// Seconds without any call on any rank, with nothing open, that are a hang outside NCCL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_progress_timeout_s: Option<f64>,
    /// Seconds that a live analyzer goes on after the job has failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_grace_period_s: Option<f64>,
    /// Seconds between two scans of a live analyzer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scan_interval_s: Option<f64>,
}

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A time is not a positive, finite number of seconds.
    #[error(
        "{name} is {}: it must be a number of seconds above 0 and at most {max}", short(*value)
    )]
    NotPositive {
        /// The setting.
        name: &'static str,
        /// What was given.
        value: f64,
        /// The largest number of seconds that is taken.
        max: f64,
    },
    /// The window of point-to-point matching is longer than the timeout.
    #[error("p2p_match_window_s is {window}: it must not exceed p2p_timeout_s, which is {timeout}")]
    MatchWindow {
        /// The window given.
        window: f64,
        /// The timeout in force.
        timeout: f64,
    },
    /// The grace period ends before a timeout could.
    #[error("failure_grace_period_s is {grace}: it must cover {name}, which is {timeout}")]
    GracePeriod {
        /// The grace period given.
        grace: f64,
        /// The largest enabled timeout.
        name: &'static str,
        /// Its value.
        timeout: f64,
    },
}

/// The largest number of seconds that a setting may have: about 31 years.
pub const MAX_SECONDS: f64 = 1e9;

/// Checked settings, all of them in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[non_exhaustive]
#[allow(missing_docs, reason = "described at the same names of Settings")]
pub struct Config {
    pub collective_timeout_s: f64,
    pub delayed_enter_threshold_s: f64,
    pub checkpoint_timeout_s: f64,
    pub p2p_timeout_s: f64,
    pub p2p_match_window_s: f64,
    pub missing_exit_timeout_s: f64,
    pub detect_heartbeat_timeouts: bool,
    pub initial_heartbeat_timeout_s: f64,
    pub heartbeat_timeout_s: f64,
    pub no_progress_timeout_s: f64,
    pub failure_grace_period_s: f64,
    pub scan_interval_s: f64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            collective_timeout_s: 60.0,
            delayed_enter_threshold_s: 30.0,
            checkpoint_timeout_s: 1800.0,
            p2p_timeout_s: 60.0,
            p2p_match_window_s: 30.0,
            missing_exit_timeout_s: 60.0,
            detect_heartbeat_timeouts: false,
            initial_heartbeat_timeout_s: 30.0,
            heartbeat_timeout_s: 30.0,
            no_progress_timeout_s: 300.0,
            failure_grace_period_s: 65.0,
            scan_interval_s: 5.0,
        }
    }
}

impl Settings {
    /// These settings where given, the others where not.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            collective_timeout_s: self.collective_timeout_s.or(others.collective_timeout_s),
            delayed_enter_threshold_s: self
                .delayed_enter_threshold_s
                .or(others.delayed_enter_threshold_s),
            checkpoint_timeout_s: self.checkpoint_timeout_s.or(others.checkpoint_timeout_s),
            p2p_timeout_s: self.p2p_timeout_s.or(others.p2p_timeout_s),
            p2p_match_window_s: self.p2p_match_window_s.or(others.p2p_match_window_s),
            missing_exit_timeout_s: self.missing_exit_timeout_s.or(others.missing_exit_timeout_s),
            detect_heartbeat_timeouts: self
                .detect_heartbeat_timeouts
                .or(others.detect_heartbeat_timeouts),
            initial_heartbeat_timeout_s: self
                .initial_heartbeat_timeout_s
                .or(others.initial_heartbeat_timeout_s),
            heartbeat_timeout_s: self.heartbeat_timeout_s.or(others.heartbeat_timeout_s),
            no_progress_timeout_s: self.no_progress_timeout_s.or(others.no_progress_timeout_s),
            failure_grace_period_s: self.failure_grace_period_s.or(others.failure_grace_period_s),
            scan_interval_s: self.scan_interval_s.or(others.scan_interval_s),
        }
    }

    /// Checks the settings and fills in what was not given.
    ///
    /// # Errors
    ///
    /// - a time that is not a positive, finite number of at most [`MAX_SECONDS`],
    /// - `p2p_match_window_s` above `p2p_timeout_s`,
    /// - `failure_grace_period_s` below the largest enabled timeout: the collective, P2P and
    ///   missing-exit ones, and the heartbeat ones where they are detected.
    ///
    /// ```
    /// use deepxtrace_nccl_h2::Settings;
    ///
    /// let settings = Settings { collective_timeout_s: Some(20.0), ..Settings::default() };
    /// let config = settings.resolve()?;
    /// assert_eq!((config.p2p_timeout_s, config.p2p_match_window_s), (20.0, 20.0));
    /// # Ok::<(), deepxtrace_nccl_h2::ConfigError>(())
    /// ```
    pub fn resolve(self) -> Result<Config, ConfigError> {
        let base = Config::default();
        let collective = time("collective_timeout_s", self.collective_timeout_s, 60.0)?;
        let p2p = time("p2p_timeout_s", self.p2p_timeout_s, collective)?;
        let config = Config {
            collective_timeout_s: collective,
            delayed_enter_threshold_s: time(
                "delayed_enter_threshold_s",
                self.delayed_enter_threshold_s,
                base.delayed_enter_threshold_s,
            )?,
            checkpoint_timeout_s: time(
                "checkpoint_timeout_s",
                self.checkpoint_timeout_s,
                base.checkpoint_timeout_s.max(collective),
            )?,
            p2p_timeout_s: p2p,
            p2p_match_window_s: time(
                "p2p_match_window_s",
                self.p2p_match_window_s,
                base.p2p_match_window_s.min(p2p),
            )?,
            missing_exit_timeout_s: time(
                "missing_exit_timeout_s",
                self.missing_exit_timeout_s,
                collective,
            )?,
            detect_heartbeat_timeouts: self.detect_heartbeat_timeouts.unwrap_or(false),
            initial_heartbeat_timeout_s: time(
                "initial_heartbeat_timeout_s",
                self.initial_heartbeat_timeout_s,
                base.initial_heartbeat_timeout_s,
            )?,
            heartbeat_timeout_s: time(
                "heartbeat_timeout_s",
                self.heartbeat_timeout_s,
                base.heartbeat_timeout_s,
            )?,
            no_progress_timeout_s: time(
                "no_progress_timeout_s",
                self.no_progress_timeout_s,
                base.no_progress_timeout_s,
            )?,
            failure_grace_period_s: 0.0,
            scan_interval_s: time("scan_interval_s", self.scan_interval_s, base.scan_interval_s)?,
        };
        config.with_grace(self.failure_grace_period_s)
    }
}

impl Config {
    fn with_grace(mut self, given: Option<f64>) -> Result<Self, ConfigError> {
        if self.p2p_match_window_s > self.p2p_timeout_s {
            return Err(ConfigError::MatchWindow {
                window: self.p2p_match_window_s,
                timeout: self.p2p_timeout_s,
            });
        }
        let (name, timeout) = self.largest_timeout();
        let grace = time("failure_grace_period_s", given, timeout + self.scan_interval_s)?;
        if grace < timeout {
            return Err(ConfigError::GracePeriod { grace, name, timeout });
        }
        self.failure_grace_period_s = grace;
        Ok(self)
    }

    fn largest_timeout(&self) -> (&'static str, f64) {
        let mut timeouts = vec![
            ("collective_timeout_s", self.collective_timeout_s),
            ("p2p_timeout_s", self.p2p_timeout_s),
            ("missing_exit_timeout_s", self.missing_exit_timeout_s),
        ];
        if self.detect_heartbeat_timeouts {
            timeouts.push(("initial_heartbeat_timeout_s", self.initial_heartbeat_timeout_s));
            timeouts.push(("heartbeat_timeout_s", self.heartbeat_timeout_s));
        }
        let first = ("collective_timeout_s", 0.0);
        timeouts.into_iter().fold(first, |best, next| if next.1 > best.1 { next } else { best })
    }
}

/// A number without hundreds of digits.
fn short(value: f64) -> String {
    let plain = value == 0.0 || !value.is_finite() || (1e-6..1e15).contains(&value.abs());
    if plain { value.to_string() } else { format!("{value:e}") }
}

fn time(name: &'static str, given: Option<f64>, default: f64) -> Result<f64, ConfigError> {
    let value = given.unwrap_or(default);
    if value > 0.0 && value <= MAX_SECONDS {
        Ok(value)
    } else {
        Err(ConfigError::NotPositive { name, value, max: MAX_SECONDS })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_settings_the_defaults_hold() {
        assert_eq!(Settings::default().resolve(), Ok(Config::default()));
    }

    #[test]
    fn p2p_and_missing_exit_timeouts_follow_the_collective_timeout() {
        let given = Settings { collective_timeout_s: Some(100.0), ..Settings::default() };
        let config = given.resolve().unwrap();
        assert_eq!(config.p2p_timeout_s, 100.0);
        assert_eq!(config.missing_exit_timeout_s, 100.0);
        assert_eq!(config.p2p_match_window_s, 30.0);
        assert_eq!(config.failure_grace_period_s, 105.0);
    }

    #[test]
    fn the_match_window_is_at_most_the_p2p_timeout() {
        let given = Settings { p2p_timeout_s: Some(12.0), ..Settings::default() };
        assert_eq!(given.resolve().unwrap().p2p_match_window_s, 12.0);
        let given = Settings { p2p_match_window_s: Some(13.0), ..given };
        let error = given.resolve().unwrap_err();
        assert_eq!(error, ConfigError::MatchWindow { window: 13.0, timeout: 12.0 });
    }

    #[test]
    fn the_grace_period_covers_the_largest_enabled_timeout() {
        let given = Settings {
            heartbeat_timeout_s: Some(90.0),
            failure_grace_period_s: Some(60.0),
            ..Settings::default()
        };
        assert_eq!(given.resolve().unwrap().failure_grace_period_s, 60.0);
        let given = Settings { detect_heartbeat_timeouts: Some(true), ..given };
        let error = given.resolve().unwrap_err().to_string();
        assert_eq!(
            error,
            "failure_grace_period_s is 60: it must cover heartbeat_timeout_s, which is 90"
        );
    }

    #[test]
    fn a_time_must_be_positive_and_finite() {
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY, 2e9] {
            let given = Settings { scan_interval_s: Some(value), ..Settings::default() };
            let error = given.resolve().unwrap_err().to_string();
            assert!(error.starts_with("scan_interval_s is "), "{error}");
        }
    }

    #[test]
    fn the_range_of_a_time_is_told_and_no_number_is_long() {
        let told = |value| {
            let given = Settings { collective_timeout_s: Some(value), ..Settings::default() };
            given.resolve().unwrap_err().to_string()
        };
        let range = "it must be a number of seconds above 0 and at most 1000000000";
        assert_eq!(told(1e300), format!("collective_timeout_s is 1e300: {range}"));
        assert_eq!(told(-1e-300), format!("collective_timeout_s is -1e-300: {range}"));
        assert_eq!(told(1e9 + 1.0), format!("collective_timeout_s is 1000000001: {range}"));
        assert_eq!(told(0.0), format!("collective_timeout_s is 0: {range}"));
        assert_eq!(told(f64::NAN), format!("collective_timeout_s is NaN: {range}"));
    }

    #[test]
    fn flags_win_over_a_file() {
        let flags = Settings { p2p_timeout_s: Some(1.0), ..Settings::default() };
        let file = Settings {
            p2p_timeout_s: Some(2.0),
            scan_interval_s: Some(3.0),
            ..Settings::default()
        };
        let both = flags.or(file);
        assert_eq!((both.p2p_timeout_s, both.scan_interval_s), (Some(1.0), Some(3.0)));
    }
}
