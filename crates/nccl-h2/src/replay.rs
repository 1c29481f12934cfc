//! Deterministic sessions: what an analyzer was told and when, as lines of JSON.

use std::io::{self, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::analyzer::{Analyzer, Moment};
use crate::config::{ConfigError, Settings};
use crate::event::Event;
use crate::finding::Finding;

/// Why a line of a session cannot be done.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The line is no JSON object, or has a wrong or unknown field.
    #[error(transparent)]
    Line(#[from] serde_json::Error),
    /// The operation is none of those known.
    #[error("unknown op {0:?}: config, ingest or scan")]
    UnknownOp(String),
    /// A setting cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An event or a scan came before the configuration.
    #[error("{0} before config")]
    NoConfig(&'static str),
}

/// A session that is being replayed: one line in, one line out. No clock is read.
///
/// ```
/// use deepxtrace_nccl_h2::ReplaySession;
///
/// let mut session = ReplaySession::default();
/// assert_eq!(session.line(r#"{"op":"config","run_id":"r"}"#)?, r#"{"op":"config"}"#);
/// let scan = r#"{"op":"scan","now_monotonic_s":8.0,"now_unix_ns":8}"#;
/// let expected = r#"{"op":"scan","findings":[],"open_rounds":0,"open_p2p_calls":0}"#;
/// assert_eq!(session.line(scan)?, expected);
/// # Ok::<(), deepxtrace_nccl_h2::ReplayError>(())
/// ```
#[derive(Debug, Default)]
pub struct ReplaySession {
    analyzer: Option<Analyzer>,
}

#[derive(Deserialize)]
struct Op<'a> {
    #[serde(borrow)]
    op: std::borrow::Cow<'a, str>,
}

#[derive(Deserialize)]
struct Ingest<'a> {
    observed_monotonic_s: f64,
    observed_unix_ns: i64,
    #[serde(borrow)]
    event: Event<'a>,
}

#[derive(Deserialize)]
struct Scan {
    now_monotonic_s: f64,
    now_unix_ns: i64,
}

#[derive(Serialize)]
struct Scanned<'a> {
    op: &'static str,
    findings: &'a [Finding],
    open_rounds: usize,
    open_p2p_calls: usize,
}

impl ReplaySession {
    /// Does what a line says, and gives the line that answers it.
    ///
    /// # Errors
    ///
    /// When the line is no operation, has an unknown setting or one that cannot be used, or comes
    /// before the configuration.
    pub fn line(&mut self, line: &str) -> Result<String, ReplayError> {
        let Op { op } = serde_json::from_str(line)?;
        match &*op {
            "config" => self.config(line),
            "ingest" => self.ingest(line),
            "scan" => self.scan(line),
            other => Err(ReplayError::UnknownOp(other.to_owned())),
        }
    }

    /// The analyzer, once it is configured.
    pub fn analyzer(&self) -> Option<&Analyzer> {
        self.analyzer.as_ref()
    }

    fn config(&mut self, line: &str) -> Result<String, ReplayError> {
        let mut fields: serde_json::Map<String, serde_json::Value> = serde_json::from_str(line)?;
        fields.remove("op");
        let run_id = match fields.remove("run_id") {
            Some(run_id) => from_value(run_id)?,
            None => String::new(),
        };
        let settings: Settings = from_value(serde_json::Value::Object(fields))?;
        self.analyzer = Some(Analyzer::new(run_id, settings.resolve()?));
        Ok(r#"{"op":"config"}"#.to_owned())
    }

    fn ingest(&mut self, line: &str) -> Result<String, ReplayError> {
        let analyzer = self.analyzer.as_mut().ok_or(ReplayError::NoConfig("ingest"))?;
        let Ingest { observed_monotonic_s, observed_unix_ns, event } = serde_json::from_str(line)?;
        let receipt = moment(observed_monotonic_s, observed_unix_ns);
        let accepted = analyzer.ingest(&event, receipt);
        Ok(format!(r#"{{"op":"ingest","accepted":{accepted}}}"#))
    }

    fn scan(&mut self, line: &str) -> Result<String, ReplayError> {
        let analyzer = self.analyzer.as_mut().ok_or(ReplayError::NoConfig("scan"))?;
        let Scan { now_monotonic_s, now_unix_ns } = serde_json::from_str(line)?;
        let findings = analyzer.scan(moment(now_monotonic_s, now_unix_ns));
        let scanned = Scanned {
            op: "scan",
            findings: &findings,
            open_rounds: analyzer.open_rounds(),
            open_p2p_calls: analyzer.open_p2p_calls(),
        };
        Ok(serde_json::to_string(&scanned)?)
    }
}

fn from_value<T: DeserializeOwned>(value: serde_json::Value) -> Result<T, serde_json::Error> {
    serde_json::from_value(value)
}

fn moment(monotonic_s: f64, unix_ns: i64) -> Moment {
    // A conversion to an integer keeps to its range.
    Moment { monotonic_ns: (monotonic_s * 1e9).round() as i64, unix_ns }
}

/// Writes a session that [`ReplaySession`] can replay.
#[derive(Debug)]
pub struct SessionWriter<W> {
    out: W,
}

impl<W: Write> SessionWriter<W> {
    /// Begins a session.
    ///
    /// # Errors
    ///
    /// When the line cannot be written.
    pub fn new(mut out: W, run_id: &str, settings: &Settings) -> io::Result<Self> {
        #[derive(Serialize)]
        struct Config<'a> {
            op: &'static str,
            run_id: &'a str,
            #[serde(flatten)]
            settings: &'a Settings,
        }
        write_line(&mut out, &Config { op: "config", run_id, settings })?;
        Ok(Self { out })
    }

    /// Notes an event and its receipt.
    ///
    /// # Errors
    ///
    /// When the line cannot be written.
    pub fn ingest(&mut self, event: &Event<'_>, receipt: Moment) -> io::Result<()> {
        #[derive(Serialize)]
        struct Ingest<'a> {
            op: &'static str,
            observed_monotonic_s: f64,
            observed_unix_ns: i64,
            event: &'a Event<'a>,
        }
        let line = Ingest {
            op: "ingest",
            observed_monotonic_s: seconds(receipt),
            observed_unix_ns: receipt.unix_ns,
            event,
        };
        write_line(&mut self.out, &line)
    }

    /// Notes a scan.
    ///
    /// # Errors
    ///
    /// When the line cannot be written.
    pub fn scan(&mut self, now: Moment) -> io::Result<()> {
        #[derive(Serialize)]
        struct Scan {
            op: &'static str,
            now_monotonic_s: f64,
            now_unix_ns: i64,
        }
        let line = Scan { op: "scan", now_monotonic_s: seconds(now), now_unix_ns: now.unix_ns };
        write_line(&mut self.out, &line)?;
        self.out.flush()
    }
}

fn seconds(moment: Moment) -> f64 {
    moment.monotonic_ns as f64 / 1e9
}

fn write_line(out: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, line)?;
    out.write_all(b"\n")
}
