//! The settings of the analyzer: flags, and a YAML file.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::Args;
use deepxtrace_nccl_h2::Settings;
use serde_json::{Map, Value};

/// Largest configuration file that is read, in bytes.
const MAX_FILE: u64 = 4 << 20;
/// Where an existing training job file has these settings.
const BLOCK: [&str; 3] = ["experiment", "runner", "tracing"];
/// Keys of that block which are not settings of the analyzer.
const OTHER_KEYS: [&str; 2] = ["enabled", "log_dir"];
/// The settings, as they are named in files and flags.
const NAMES: [&str; 12] = [
    "collective_timeout_s",
    "delayed_enter_threshold_s",
    "checkpoint_timeout_s",
    "p2p_timeout_s",
    "p2p_match_window_s",
    "missing_exit_timeout_s",
    "detect_heartbeat_timeouts",
    "initial_heartbeat_timeout_s",
    "heartbeat_timeout_s",
    "no_progress_timeout_s",
    "failure_grace_period_s",
    "scan_interval_s",
];

/// Flags of the settings, each by its name.
#[derive(Debug, Args)]
#[command(next_help_heading = "Settings")]
pub struct SettingsFlags {
    /// YAML file with these settings by name, bare or as the block experiment.runner.tracing of a
    /// training job file; flags win over it
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Seconds until a rank that has not entered a collective is missing [default: 60]
    #[arg(long, value_name = "SECONDS")]
    collective_timeout_s: Option<f64>,
    /// Seconds between the first and the last rank of a round above which the last are late
    /// [default: 30]
    #[arg(long, value_name = "SECONDS")]
    delayed_enter_threshold_s: Option<f64>,
    /// Seconds that replace the collective timeout for a rank that writes a checkpoint
    /// [default: 1800]
    #[arg(long, value_name = "SECONDS")]
    checkpoint_timeout_s: Option<f64>,
    /// Seconds until the other side of a send or receive is missing [default: the collective
    /// timeout]
    #[arg(long, value_name = "SECONDS")]
    p2p_timeout_s: Option<f64>,
    /// Seconds within which sends and receives without a number are matched [default: 30, at most
    /// the P2P timeout]
    #[arg(long, value_name = "SECONDS")]
    p2p_match_window_s: Option<f64>,
    /// Seconds until a call that has not returned is stuck [default: the collective timeout]
    #[arg(long, value_name = "SECONDS")]
    missing_exit_timeout_s: Option<f64>,
    /// Also find processes without heartbeats
    #[arg(long)]
    detect_heartbeat_timeouts: bool,
    /// Seconds from the start of a process to its first heartbeat [default: 30]
    #[arg(long, value_name = "SECONDS")]
    initial_heartbeat_timeout_s: Option<f64>,
    /// Seconds after which a heartbeat is stale [default: 30]
    #[arg(long, value_name = "SECONDS")]
    heartbeat_timeout_s: Option<f64>,
    /// Seconds without any call on any rank that are a hang outside NCCL [default: 300]
    #[arg(long, value_name = "SECONDS")]
    no_progress_timeout_s: Option<f64>,
    /// Seconds that watching goes on after the job has failed [default: the largest timeout and one
    /// scan interval]
    #[arg(long, value_name = "SECONDS")]
    failure_grace_period_s: Option<f64>,
    /// Seconds between two scans while watching [default: 5]
    #[arg(long, value_name = "SECONDS")]
    scan_interval_s: Option<f64>,
}

/// What flags and file say together.
#[derive(Debug, Default)]
pub struct Given {
    /// The settings.
    pub settings: Settings,
    /// The folder of the traces, where the file names it.
    pub log_dir: Option<PathBuf>,
}

impl SettingsFlags {
    /// Reads the file, if one is named; flags win over it.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or has a key or value that is not a setting.
    pub fn read(&self) -> anyhow::Result<Given> {
        let file = match &self.config {
            Some(path) => read_file(path)?,
            None => Given::default(),
        };
        Ok(Given { settings: self.flags().or(file.settings), ..file })
    }

    fn flags(&self) -> Settings {
        Settings {
            collective_timeout_s: self.collective_timeout_s,
            delayed_enter_threshold_s: self.delayed_enter_threshold_s,
            checkpoint_timeout_s: self.checkpoint_timeout_s,
            p2p_timeout_s: self.p2p_timeout_s,
            p2p_match_window_s: self.p2p_match_window_s,
            missing_exit_timeout_s: self.missing_exit_timeout_s,
            detect_heartbeat_timeouts: self.detect_heartbeat_timeouts.then_some(true),
            initial_heartbeat_timeout_s: self.initial_heartbeat_timeout_s,
            heartbeat_timeout_s: self.heartbeat_timeout_s,
            no_progress_timeout_s: self.no_progress_timeout_s,
            failure_grace_period_s: self.failure_grace_period_s,
            scan_interval_s: self.scan_interval_s,
        }
    }
}

fn read_file(path: &Path) -> anyhow::Result<Given> {
    let name = || path.display().to_string();
    let length = std::fs::metadata(path).with_context(name)?.len();
    if length > MAX_FILE {
        bail!("{}: {length} bytes are too many for a configuration file", path.display());
    }
    let text = std::fs::read_to_string(path).with_context(name)?;
    parse(&text).with_context(name)
}

/// Settings out of the text of a file.
fn parse(text: &str) -> anyhow::Result<Given> {
    let value: Value = serde_saphyr::from_str(text)?;
    let (place, block) = match &value {
        Value::Null => return Ok(Given::default()),
        Value::Object(map) if map.contains_key(BLOCK[0]) => {
            let mut block = &value;
            for key in BLOCK {
                match block.get(key) {
                    Some(inner) => block = inner,
                    // A training job without tracing: nothing is set.
                    None => return Ok(Given::default()),
                }
            }
            (BLOCK.join("."), block)
        }
        Value::Object(_) => (String::new(), &value),
        _ => bail!("settings by name are expected"),
    };
    let Value::Object(block) = block else { bail!("{place}: settings by name are expected") };
    given(&place, block)
}

fn given(place: &str, block: &Map<String, Value>) -> anyhow::Result<Given> {
    let dot = if place.is_empty() { "" } else { "." };
    let mut settings = Map::new();
    let mut log_dir = None;
    for (key, value) in block {
        let known = NAMES.contains(&key.as_str());
        let fits = match key.as_str() {
            _ if value.is_null() => true,
            "log_dir" => value.is_string(),
            "enabled" | "detect_heartbeat_timeouts" => value.is_boolean(),
            _ if known => value.is_number(),
            _ => bail!("{place}{dot}{key}: no such setting{}", nearest(key)),
        };
        if !fits {
            let expected = match key.as_str() {
                "log_dir" => "text",
                "enabled" | "detect_heartbeat_timeouts" => "true or false",
                _ => "a number of seconds",
            };
            bail!("{place}{dot}{key} is {value}: {expected} is expected");
        }
        if known && !value.is_null() {
            settings.insert(key.clone(), value.clone());
        }
        if key == "log_dir" {
            log_dir = value.as_str().map(PathBuf::from);
        }
    }
    Ok(Given { settings: serde_json::from_value(Value::Object(settings))?, log_dir })
}

/// The setting whose name is most like a wrong one.
fn nearest(key: &str) -> String {
    let names = NAMES.iter().chain(&OTHER_KEYS);
    let best = names
        .map(|name| (strsim::normalized_damerau_levenshtein(key, name), name))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match best {
        Some((likeness, name)) if likeness > 0.5 => format!("; do you mean {name}?"),
        _ => format!("; there are {}", NAMES.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_file_has_settings_by_name() {
        let given =
            parse("collective_timeout_s: 20\nscan_interval_s: 0.5\nlog_dir: logs\n").unwrap();
        assert_eq!(given.settings.collective_timeout_s, Some(20.0));
        assert_eq!(given.settings.scan_interval_s, Some(0.5));
        assert_eq!(given.log_dir, Some(PathBuf::from("logs")));
    }

    #[test]
    fn the_block_of_a_training_job_file_is_read_and_the_rest_left_alone() {
        let text = "experiment:\n  seed: 1\n  runner:\n    nodes: 2\n    tracing:\n      enabled: true\n      p2p_timeout_s: 15\n      p2p_match_window_s: ~\nmodel: {layers: 4}\n";
        let given = parse(text).unwrap();
        assert_eq!(given.settings.p2p_timeout_s, Some(15.0));
        assert_eq!(given.settings.p2p_match_window_s, None);
        assert!(parse("experiment: {seed: 1}\n").unwrap().settings == Settings::default());
    }

    #[test]
    fn a_misspelt_key_is_an_error_with_the_nearest_right_name() {
        let error = parse("experiment: {runner: {tracing: {colective_timeout_s: 1}}}").unwrap_err();
        assert_eq!(
            error.to_string(),
            "experiment.runner.tracing.colective_timeout_s: no such setting; do you mean \
             collective_timeout_s?"
        );
        let error = parse("timeout: 1").unwrap_err().to_string();
        assert!(error.starts_with("timeout: no such setting; "), "{error}");
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_an_error() {
        let error = parse("p2p_timeout_s: soon").unwrap_err().to_string();
        assert_eq!(error, "p2p_timeout_s is \"soon\": a number of seconds is expected");
        assert!(parse("enabled: 3").is_err());
        assert!(parse("- a\n- b\n").is_err());
    }

    #[test]
    fn every_setting_has_a_name_here() {
        let all: Map<String, Value> = NAMES
            .iter()
            .map(|name| {
                let flag = *name == "detect_heartbeat_timeouts";
                ((*name).to_owned(), if flag { Value::Bool(true) } else { 1.into() })
            })
            .collect();
        let given = given("", &all).unwrap();
        let back = serde_json::to_value(given.settings).unwrap();
        assert_eq!(back.as_object().unwrap().len(), NAMES.len());
    }
}
