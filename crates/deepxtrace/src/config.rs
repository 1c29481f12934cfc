//! The settings of [`Diagnose`](crate::Diagnose), from the environment or from a program.
//!
//! | variable | default | meaning |
//! |---|---|---|
//! | `DEEPEP_DIAGNOSE_ENABLE` | 0 | on with anything but `0`, `false`, `off`, empty |
//! | `DEEPEP_DIAGNOSE_ASYNC` | 1 | 1: periodic background collection, 0: the caller drives it |
//! | `DEEPEP_DIAGNOSE_INTERVAL` | 20 | seconds between asynchronous collections |
//! | `DEEPEP_DIAGNOSE_WARMING_TIME` | the interval | seconds before the boundary |
//! | `DEEPEP_DIAGNOSE_SYNC_STEP` | 580 | synchronous calls between collections |
//! | `DEEPEP_DIAGNOSE_LOG_PATH` | `.` | folder of `diagnose_rank<r>.log` |
//! | `DEEPEP_DIAGNOSE_LOG_DETAILS` | 0 | 1: every window's values are logged |
//! | `DEEPEP_DIAGNOSE_THRESHOLD_COL`, `_ROW`, `_POINT` | 3.0, 3.0, 5.0 | low-latency mean ratios |
//! | `DEEPEP_DIAGNOSE_EXCLUDING_ZEROS` | 0 | low-latency: leave zeros out of the point mean |
//! | `DEEPEP_DIAGNOSE_NORMAL_NOTIFY_RATIO` | 0.25 | late-arrival ratio |
//! | `DEEPEP_DIAGNOSE_NORMAL_AXIS_RATIO` | 1.25 | row, column, rail, gateway axis, block |
//! | `DEEPEP_DIAGNOSE_NORMAL_POINT_RATIO` | 2.0 | point, gateway edge |
//! | `DEEPEP_DIAGNOSE_NORMAL_GLOBAL_RATIO` | 1.3 | global slowdown |
//! | `DEEPEP_DIAGNOSE_NORMAL_LOAD_ADJUST` | 1 | 0: no load step |
//! | `DEEPEP_DIAGNOSE_NORMAL_NOTIFY_MIN_SHARE` | 0 | smallest share of the window that a late rank costs |
//! | `DEEPEP_DIAGNOSE_RANKS_PER_NODE` | 8 | node size |
//! | `DEEPEP_DIAGNOSE_ARTIFACT_PATH` | unset | folder for NPZ windows |
//! | `DEEPEP_DIAGNOSE_ARTIFACT_KEEP` | 128 | newest windows kept |
//!
//! Switches other than `ENABLE` take `1`, `true`, `on`, and `0`, `false`, `off`, in any case. A
//! variable that is set to nothing counts as unset, but for `ENABLE`, where it means off. When
//! `ENABLE` is off, the others are not read.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use deepxtrace_counters::MAX_EP_SIZE;
use deepxtrace_ll::MeanRatioPolicy;
use deepxtrace_normal::{Policy, PolicyError};
use thiserror::Error;

/// Longest interval and warm-up, seconds: a year.
const MAX_SECONDS: f64 = 365.0 * 24.0 * 3600.0;
/// Shortest interval, seconds.
const MIN_INTERVAL: f64 = 0.001;

/// When windows are collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// By the root's clock, on a background thread.
    Asynchronous,
    /// When the program calls.
    Synchronous,
}

/// The settings, with the defaults of the table above. The fields are free to set;
/// [`Config::validate`] says whether the whole makes sense.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Whether windows are collected at all (false).
    pub enabled: bool,
    /// When they are (asynchronously).
    pub mode: Mode,
    /// Time between asynchronous collections (20 s).
    pub interval: Duration,
    /// Time before the boundary; `None` is one interval.
    pub warming_time: Option<Duration>,
    /// Synchronous calls between collections (580).
    pub sync_step: u64,
    /// Folder of the log files (`.`).
    pub log_path: PathBuf,
    /// Whether every window's values are logged (false).
    pub log_details: bool,
    /// Thresholds of the low-latency mean-ratio rule.
    pub mean_ratio: MeanRatioPolicy,
    /// Thresholds of the Normal mode and of the low-latency topology rule.
    pub policy: Policy,
    /// Ranks on one node (8).
    pub ranks_per_node: usize,
    /// Folder for NPZ windows; `None`: none are written.
    pub artifact_path: Option<PathBuf>,
    /// Newest NPZ windows kept (128).
    pub artifact_keep: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            enabled: false,
            mode: Mode::Asynchronous,
            interval: Duration::from_secs(20),
            warming_time: None,
            sync_step: 580,
            log_path: PathBuf::from("."),
            log_details: false,
            mean_ratio: MeanRatioPolicy::default(),
            policy: Policy::default(),
            ranks_per_node: 8,
            artifact_path: None,
            artifact_keep: 128,
        }
    }
}

/// A setting that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{variable}={value} cannot be used, it must be {allowed}")]
pub struct ConfigError {
    /// The variable, also for settings that came from the program.
    pub variable: &'static str,
    /// Its value.
    pub value: String,
    /// What is allowed.
    pub allowed: &'static str,
}

const ENABLE: &str = "DEEPEP_DIAGNOSE_ENABLE";
const ASYNC: &str = "DEEPEP_DIAGNOSE_ASYNC";
const INTERVAL: &str = "DEEPEP_DIAGNOSE_INTERVAL";
const WARMING_TIME: &str = "DEEPEP_DIAGNOSE_WARMING_TIME";
const SYNC_STEP: &str = "DEEPEP_DIAGNOSE_SYNC_STEP";
const LOG_PATH: &str = "DEEPEP_DIAGNOSE_LOG_PATH";
const LOG_DETAILS: &str = "DEEPEP_DIAGNOSE_LOG_DETAILS";
const EXCLUDING_ZEROS: &str = "DEEPEP_DIAGNOSE_EXCLUDING_ZEROS";
const LOAD_ADJUST: &str = "DEEPEP_DIAGNOSE_NORMAL_LOAD_ADJUST";
const RANKS_PER_NODE: &str = "DEEPEP_DIAGNOSE_RANKS_PER_NODE";
const ARTIFACT_PATH: &str = "DEEPEP_DIAGNOSE_ARTIFACT_PATH";
const ARTIFACT_KEEP: &str = "DEEPEP_DIAGNOSE_ARTIFACT_KEEP";

const SECONDS: &str = "a number of seconds from 0.001 to 31536000";
const SECONDS_OR_ZERO: &str = "a number of seconds from 0 to 31536000";
const SWITCH: &str = "1, true, on, 0, false or off";
const COUNT: &str = "a whole number above 0";
const NODE: &str = "a whole number from 1 to 4096";
const NUMBER: &str = "a number";
const FOLDER: &str = "the path of a folder";

/// Every threshold: its variable and its name in [`Policy`] or [`MeanRatioPolicy`].
const THRESHOLDS: [(&str, &str); 8] = [
    ("DEEPEP_DIAGNOSE_THRESHOLD_COL", "threshold_col"),
    ("DEEPEP_DIAGNOSE_THRESHOLD_ROW", "threshold_row"),
    ("DEEPEP_DIAGNOSE_THRESHOLD_POINT", "threshold_point"),
    ("DEEPEP_DIAGNOSE_NORMAL_NOTIFY_RATIO", "notify_ratio"),
    ("DEEPEP_DIAGNOSE_NORMAL_AXIS_RATIO", "axis_ratio"),
    ("DEEPEP_DIAGNOSE_NORMAL_POINT_RATIO", "point_ratio"),
    ("DEEPEP_DIAGNOSE_NORMAL_GLOBAL_RATIO", "global_ratio"),
    ("DEEPEP_DIAGNOSE_NORMAL_NOTIFY_MIN_SHARE", "notify_min_share"),
];

impl Config {
    /// The settings of the process environment.
    ///
    /// # Errors
    ///
    /// A variable has a value that does not parse or is out of range.
    pub fn from_env() -> Result<Self, ConfigError> {
        Self::from_vars(|name| std::env::var_os(name))
    }

    /// The settings of any source of variables.
    ///
    /// ```
    /// use deepxtrace::config::{Config, Mode};
    ///
    /// let vars = [("DEEPEP_DIAGNOSE_ENABLE", "1"), ("DEEPEP_DIAGNOSE_INTERVAL", "0.5")];
    /// let config = Config::from_vars(|name| {
    ///     vars.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).into())
    /// })?;
    /// assert!(config.enabled && config.mode == Mode::Asynchronous);
    /// assert_eq!(config.warming_time().as_millis(), 500);
    /// # Ok::<(), deepxtrace::config::ConfigError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`from_env`](Self::from_env).
    pub fn from_vars(var: impl Fn(&str) -> Option<OsString>) -> Result<Self, ConfigError> {
        let enabled = var(ENABLE).is_some_and(|value| !is_off(&value.to_string_lossy()));
        let mut config = Self { enabled, ..Self::default() };
        if !config.enabled {
            return Ok(config);
        }
        let vars = Vars(&var);
        if let Some(asynchronous) = vars.switch(ASYNC)? {
            config.mode = if asynchronous { Mode::Asynchronous } else { Mode::Synchronous };
        }
        vars.set(INTERVAL, SECONDS, seconds, &mut config.interval)?;
        config.warming_time = vars.get(WARMING_TIME, SECONDS_OR_ZERO, seconds)?;
        vars.set(SYNC_STEP, COUNT, parse, &mut config.sync_step)?;
        vars.folder(LOG_PATH)?.into_iter().for_each(|path| config.log_path = path);
        config.artifact_path = vars.folder(ARTIFACT_PATH)?;
        vars.set(ARTIFACT_KEEP, COUNT, parse, &mut config.artifact_keep)?;
        vars.set(RANKS_PER_NODE, NODE, parse, &mut config.ranks_per_node)?;
        for (variable, flag) in [
            (LOG_DETAILS, &mut config.log_details),
            (EXCLUDING_ZEROS, &mut config.mean_ratio.excluding_zeros),
            (LOAD_ADJUST, &mut config.policy.load_adjust),
        ] {
            *flag = vars.switch(variable)?.unwrap_or(*flag);
        }
        for (i, (variable, _)) in THRESHOLDS.into_iter().enumerate() {
            if let Some(threshold) = config.thresholds_mut().into_iter().nth(i) {
                vars.set(variable, NUMBER, parse, threshold)?;
            }
        }
        config.validate()?;
        Ok(config)
    }

    /// Checks every setting.
    ///
    /// # Errors
    ///
    /// The first one that is out of range, in the order of the fields, named by its variable.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let refuse =
            |variable, value: String, allowed| Err(ConfigError { variable, value, allowed });
        let interval = self.interval.as_secs_f64();
        if !(MIN_INTERVAL..=MAX_SECONDS).contains(&interval) {
            return refuse(INTERVAL, interval.to_string(), SECONDS);
        }
        let warming = self.warming_time().as_secs_f64();
        if warming > MAX_SECONDS {
            return refuse(WARMING_TIME, warming.to_string(), SECONDS_OR_ZERO);
        }
        if self.sync_step == 0 {
            return refuse(SYNC_STEP, self.sync_step.to_string(), COUNT);
        }
        let checked = self.mean_ratio.validate().and_then(|()| self.policy.validate());
        if let Err(PolicyError { name, value, allowed }) = checked {
            let threshold = THRESHOLDS.into_iter().find(|(_, field)| *field == name);
            let variable = threshold.map_or(name, |(variable, _)| variable);
            return refuse(variable, value.to_string(), allowed);
        }
        if !(1..=MAX_EP_SIZE).contains(&self.ranks_per_node) {
            return refuse(RANKS_PER_NODE, self.ranks_per_node.to_string(), NODE);
        }
        if self.artifact_keep == 0 {
            return refuse(ARTIFACT_KEEP, self.artifact_keep.to_string(), COUNT);
        }
        Ok(())
    }

    /// Time before the boundary.
    #[must_use]
    pub fn warming_time(&self) -> Duration {
        self.warming_time.unwrap_or(self.interval)
    }

    /// Every setting but the switch itself, by variable, as text: what the ranks must agree on.
    #[must_use]
    pub fn settings(&self) -> Vec<(String, String)> {
        let switch = |on: bool| u8::from(on).to_string();
        let artifacts = self.artifact_path.as_deref();
        let mut all = vec![
            (ASYNC, switch(self.mode == Mode::Asynchronous)),
            (INTERVAL, self.interval.as_secs_f64().to_string()),
            (WARMING_TIME, self.warming_time().as_secs_f64().to_string()),
            (SYNC_STEP, self.sync_step.to_string()),
            (LOG_PATH, self.log_path.display().to_string()),
            (LOG_DETAILS, switch(self.log_details)),
            (EXCLUDING_ZEROS, switch(self.mean_ratio.excluding_zeros)),
            (LOAD_ADJUST, switch(self.policy.load_adjust)),
            (RANKS_PER_NODE, self.ranks_per_node.to_string()),
            (ARTIFACT_PATH, artifacts.map_or("unset".to_owned(), |p| p.display().to_string())),
            (ARTIFACT_KEEP, self.artifact_keep.to_string()),
        ];
        let mut copy = self.clone();
        let thresholds = copy.thresholds_mut();
        all.extend(
            THRESHOLDS.iter().zip(thresholds).map(|((v, _), value)| (*v, value.to_string())),
        );
        all.into_iter().map(|(variable, value)| (variable.to_owned(), value)).collect()
    }

    /// In the order of [`THRESHOLDS`].
    fn thresholds_mut(&mut self) -> [&mut f64; 8] {
        let (mean, policy) = (&mut self.mean_ratio, &mut self.policy);
        [
            &mut mean.threshold_col,
            &mut mean.threshold_row,
            &mut mean.threshold_point,
            &mut policy.notify_ratio,
            &mut policy.axis_ratio,
            &mut policy.point_ratio,
            &mut policy.global_ratio,
            &mut policy.notify_min_share,
        ]
    }
}

/// Variables that are read with their errors.
struct Vars<'a, F>(&'a F);

impl<F: Fn(&str) -> Option<OsString>> Vars<'_, F> {
    fn get<T>(
        &self,
        variable: &'static str,
        allowed: &'static str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        let Some(value) = self.0(variable).filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        let parsed = value.to_str().and_then(|text| parse(text.trim()));
        let refused = || {
            let value = value.to_string_lossy().into_owned();
            ConfigError { variable, value, allowed }
        };
        parsed.map(Some).ok_or_else(refused)
    }

    fn set<T>(
        &self,
        variable: &'static str,
        allowed: &'static str,
        parse: impl Fn(&str) -> Option<T>,
        place: &mut T,
    ) -> Result<(), ConfigError> {
        if let Some(value) = self.get(variable, allowed, parse)? {
            *place = value;
        }
        Ok(())
    }

    fn switch(&self, variable: &'static str) -> Result<Option<bool>, ConfigError> {
        self.get(variable, SWITCH, |text| match text.to_ascii_lowercase().as_str() {
            "1" | "true" | "on" => Some(true),
            "0" | "false" | "off" => Some(false),
            _ => None,
        })
    }

    fn folder(&self, variable: &'static str) -> Result<Option<PathBuf>, ConfigError> {
        let path = self.0(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
        match path {
            Some(path) if path.is_file() => {
                let value = path.display().to_string();
                Err(ConfigError { variable, value, allowed: FOLDER })
            }
            path => Ok(path),
        }
    }
}

fn parse<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

fn seconds(text: &str) -> Option<Duration> {
    let seconds: f64 = text.parse().ok()?;
    Duration::try_from_secs_f64(seconds).ok().filter(|_| seconds <= MAX_SECONDS)
}

fn is_off(value: &str) -> bool {
    let value = value.trim();
    value.is_empty() || ["0", "false", "off"].iter().any(|off| value.eq_ignore_ascii_case(off))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(vars: &[(&str, &str)]) -> Result<Config, ConfigError> {
        Config::from_vars(|name| {
            let value = vars.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
            value.or((name == ENABLE).then_some("1")).map(OsString::from)
        })
    }

    #[test]
    fn nothing_set_is_off_with_the_defaults() {
        let config = Config::from_vars(|_| None).unwrap();
        assert_eq!(config, Config::default());
        assert!(!config.enabled);
        let on = read(&[]).unwrap();
        assert_eq!(on, Config { enabled: true, ..Config::default() });
        assert_eq!(on.warming_time(), Duration::from_secs(20));
        assert_eq!(on.validate(), Ok(()));
    }

    #[test]
    fn anything_but_four_words_enables() {
        for off in ["", "0", "false", "off", "False", "OFF", " 0 "] {
            assert!(!read(&[(ENABLE, off)]).unwrap().enabled, "{off:?}");
        }
        for on in ["1", "true", "2", "no", "yes"] {
            assert!(read(&[(ENABLE, on)]).unwrap().enabled, "{on:?}");
        }
    }

    #[test]
    fn every_variable_is_read() {
        let config = read(&[
            (ASYNC, "0"),
            (INTERVAL, "0.25"),
            (WARMING_TIME, "0"),
            (SYNC_STEP, "7"),
            (LOG_PATH, "/nowhere/logs"),
            (LOG_DETAILS, "1"),
            ("DEEPEP_DIAGNOSE_THRESHOLD_COL", "2"),
            ("DEEPEP_DIAGNOSE_THRESHOLD_ROW", "2.5"),
            ("DEEPEP_DIAGNOSE_THRESHOLD_POINT", "9"),
            (EXCLUDING_ZEROS, "true"),
            ("DEEPEP_DIAGNOSE_NORMAL_NOTIFY_RATIO", "0.5"),
            ("DEEPEP_DIAGNOSE_NORMAL_AXIS_RATIO", "1.5"),
            ("DEEPEP_DIAGNOSE_NORMAL_POINT_RATIO", "3"),
            ("DEEPEP_DIAGNOSE_NORMAL_GLOBAL_RATIO", "1.4"),
            (LOAD_ADJUST, "off"),
            ("DEEPEP_DIAGNOSE_NORMAL_NOTIFY_MIN_SHARE", "0.005"),
            (RANKS_PER_NODE, "4"),
            (ARTIFACT_PATH, "/nowhere/windows"),
            (ARTIFACT_KEEP, "3"),
        ])
        .unwrap();
        let expected = Config {
            enabled: true,
            mode: Mode::Synchronous,
            interval: Duration::from_millis(250),
            warming_time: Some(Duration::ZERO),
            sync_step: 7,
            log_path: "/nowhere/logs".into(),
            log_details: true,
            mean_ratio: MeanRatioPolicy {
                threshold_col: 2.0,
                threshold_row: 2.5,
                threshold_point: 9.0,
                excluding_zeros: true,
                keep_points: false,
            },
            policy: Policy {
                notify_ratio: 0.5,
                axis_ratio: 1.5,
                point_ratio: 3.0,
                global_ratio: 1.4,
                load_adjust: false,
                notify_min_share: 0.005,
            },
            ranks_per_node: 4,
            artifact_path: Some("/nowhere/windows".into()),
            artifact_keep: 3,
        };
        assert_eq!(config, expected);
        // Each of them is compared between ranks.
        let defaults = Config::default().settings();
        let differing = config.settings().iter().filter(|pair| !defaults.contains(pair)).count();
        assert_eq!((differing, defaults.len()), (19, 19));
    }

    #[test]
    fn values_that_cannot_be_used_are_named_with_what_is_allowed() {
        for (variable, values) in [
            (ASYNC, ["2", "yes", "-1"]),
            (INTERVAL, ["0", "1e9", "20s"]),
            (INTERVAL, ["-1", "NaN", "inf"]),
            (WARMING_TIME, ["-0.5", "1e99", "soon"]),
            (SYNC_STEP, ["0", "-1", "1.5"]),
            (LOG_DETAILS, ["2", "maybe", "0x1"]),
            ("DEEPEP_DIAGNOSE_THRESHOLD_COL", ["0", "inf", "three"]),
            ("DEEPEP_DIAGNOSE_THRESHOLD_POINT", ["-5", "NaN", "5,0"]),
            ("DEEPEP_DIAGNOSE_NORMAL_NOTIFY_RATIO", ["0", "1", "1.5"]),
            ("DEEPEP_DIAGNOSE_NORMAL_AXIS_RATIO", ["1", "0.8", "x"]),
            ("DEEPEP_DIAGNOSE_NORMAL_GLOBAL_RATIO", ["1", "-inf", "1.3.1"]),
            ("DEEPEP_DIAGNOSE_NORMAL_NOTIFY_MIN_SHARE", ["-0.1", "1.1", "1%"]),
            (LOAD_ADJUST, ["no", "00", "tru"]),
            (RANKS_PER_NODE, ["0", "4097", "8.0"]),
            (ARTIFACT_KEEP, ["0", "-3", "all"]),
        ] {
            for value in values {
                let error = read(&[(variable, value)]).unwrap_err();
                assert_eq!(error.variable, variable, "{value}: {error}");
                let text = error.to_string();
                assert!(text.starts_with(&format!("{variable}=")), "{text}");
                assert!(text.contains("must be"), "{text}");
            }
        }
        let text = read(&[(INTERVAL, "20s")]).unwrap_err().to_string();
        let expected = "DEEPEP_DIAGNOSE_INTERVAL=20s cannot be used, it must be a number of \
                        seconds from 0.001 to 31536000";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_file_is_no_folder() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        assert_eq!(read(&[(LOG_PATH, file)]).unwrap_err().variable, LOG_PATH);
    }

    #[test]
    fn set_to_nothing_is_unset() {
        let config = read(&[(INTERVAL, ""), (ARTIFACT_PATH, ""), (ASYNC, "")]).unwrap();
        assert_eq!(config, Config { enabled: true, ..Config::default() });
    }

    #[test]
    fn a_program_may_set_what_is_wrong_and_is_told() {
        let mut config = Config { sync_step: 0, ..Config::default() };
        assert_eq!(config.validate().unwrap_err().variable, SYNC_STEP);
        config = Config { interval: Duration::MAX, ..Config::default() };
        assert_eq!(config.validate().unwrap_err().variable, INTERVAL);
        config.interval = Duration::from_secs(1);
        config.policy.axis_ratio = f64::NAN;
        let variable = config.validate().unwrap_err().variable;
        assert_eq!(variable, "DEEPEP_DIAGNOSE_NORMAL_AXIS_RATIO");
    }
}
