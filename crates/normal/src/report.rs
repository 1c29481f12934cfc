//! The report of one window.

use std::fmt;

use deepxtrace_counters::Probe;
use serde::de::{self, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::finding::Finding;
use crate::incident::{Incident, TrackerChange};

/// What became of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WindowState {
    /// It was diagnosed.
    Diagnosed,
    /// Nothing happened in it: neither diagnosed nor learned.
    Idle,
    /// Its counters make no sense: nothing is concluded from it.
    Refused,
}

impl fmt::Display for WindowState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Diagnosed => "diagnosed",
            Self::Idle => "idle",
            Self::Refused => "refused",
        })
    }
}

/// The verdict of one probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbeStatus {
    /// Enough evidence, no finding.
    Ok,
    /// At least one finding.
    Anomalous,
    /// Too little evidence to tell.
    Insufficient,
    /// The topology has no such path.
    NotApplicable,
}

impl ProbeStatus {
    /// Whether the probe speaks for a healthy path: `ok`, or there is no such path.
    #[must_use]
    pub fn is_clear(self) -> bool {
        matches!(self, Self::Ok | Self::NotApplicable)
    }
}

impl fmt::Display for ProbeStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Anomalous => "anomalous",
            Self::Insufficient => "insufficient",
            Self::NotApplicable => "not_applicable",
        })
    }
}

/// The level of a Completion probe as a whole, and how it compares with the probe's history.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Level {
    /// Mean cost of a sample, cycles; `None` when the probe has too little evidence.
    #[serde(deserialize_with = "nullable")]
    pub scalar: Option<f64>,
    /// `scalar` over the median of the history; `None` while the history is short.
    #[serde(deserialize_with = "nullable")]
    pub global_ratio: Option<f64>,
    /// `scalar` over the lowest level; `None` while the history is short.
    #[serde(deserialize_with = "nullable")]
    pub best_ratio: Option<f64>,
    /// This level was the only finding for 16 windows: it is the new normal from here on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub level_shift: bool,
}

/// A key that must be there, but may be null. (A plain `Option` may be left out, and then every
/// object would look like a [`Level`].)
fn nullable<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    Option::deserialize(deserializer)
}

/// The result of one probe in one window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbeReport {
    /// The verdict.
    pub status: ProbeStatus,
    /// Level and history; only Completion probes have one.
    #[serde(flatten)]
    pub level: Option<Level>,
    /// What was found, what costs most first.
    pub findings: Vec<Finding>,
}

impl ProbeReport {
    pub(crate) fn new(probe: Probe) -> Self {
        Self {
            status: ProbeStatus::Insufficient,
            level: probe.completion().map(|_| Level::default()),
            findings: Vec::new(),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.status = ProbeStatus::Insufficient;
        self.level = self.level.map(|_| Level::default());
        self.findings.clear();
    }
}

/// The reports of all six probes, or of none when the window was not diagnosed.
///
/// As JSON it is an object with the probes' names as keys, in the order of [`Probe::ALL`].
#[derive(Debug, Clone, PartialEq)]
pub struct ProbeReports {
    diagnosed: bool,
    reports: [ProbeReport; 6],
}

impl ProbeReports {
    pub(crate) fn none() -> Self {
        Self { diagnosed: false, reports: Probe::ALL.map(ProbeReport::new) }
    }

    pub(crate) fn reset(&mut self, diagnosed: bool) {
        self.diagnosed = diagnosed;
        self.reports.iter_mut().for_each(ProbeReport::clear);
    }

    pub(crate) fn get_mut(&mut self, probe: impl Into<Probe>) -> &mut ProbeReport {
        &mut self.reports[probe.into() as usize]
    }

    /// The reports of the Completion probes, in order.
    pub(crate) fn completion_mut(&mut self) -> [&mut ProbeReport; 3] {
        let [_, _, _, dispatch, gateway, combine] = &mut self.reports;
        [dispatch, gateway, combine]
    }

    pub(crate) fn of(&self, probe: impl Into<Probe>) -> &ProbeReport {
        &self.reports[probe.into() as usize]
    }

    /// The report of a probe; `None` when the window was not diagnosed.
    #[must_use]
    pub fn get(&self, probe: impl Into<Probe>) -> Option<&ProbeReport> {
        self.diagnosed.then(|| self.of(probe))
    }

    /// Whether the window was not diagnosed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.diagnosed
    }

    /// The reports in the order of [`Probe::ALL`].
    pub fn iter(&self) -> impl Iterator<Item = (Probe, &ProbeReport)> {
        Probe::ALL.into_iter().zip(&self.reports).filter(|_| self.diagnosed)
    }
}

impl Serialize for ProbeReports {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.iter().count()))?;
        for (probe, report) in self.iter() {
            map.serialize_entry(&probe, report)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for ProbeReports {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reports;

        impl<'de> Visitor<'de> for Reports {
            type Value = ProbeReports;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of all six probes, or an empty one")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut reports = ProbeReports::none();
                let mut seen = [false; 6];
                while let Some((probe, report)) = map.next_entry::<Probe, ProbeReport>()? {
                    if std::mem::replace(&mut seen[probe as usize], true) {
                        return Err(de::Error::custom(format_args!("probe {probe} stands twice")));
                    }
                    if report.level.is_some() != probe.completion().is_some() {
                        return Err(de::Error::custom(format_args!(
                            "probe {probe}: scalar, global_ratio and best_ratio belong to \
                             Completion probes, and to each of them"
                        )));
                    }
                    *reports.get_mut(probe) = report;
                }
                reports.diagnosed = seen.contains(&true);
                match seen.iter().position(|seen| !seen) {
                    Some(i) if reports.diagnosed => {
                        Err(de::Error::custom(format_args!("probe {} is missing", Probe::ALL[i])))
                    }
                    _ => Ok(reports),
                }
            }
        }

        deserializer.deserialize_map(Reports)
    }
}

/// Everything that one window led to; as JSON, one line of `normal analyze --json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WindowDiagnosis {
    /// Number of the window.
    pub window_index: u64,
    /// What became of it.
    pub state: WindowState,
    /// Why it was refused.
    pub reason: Option<String>,
    /// Ranks without two consecutive snapshots, in order.
    pub missing_ranks: Vec<usize>,
    /// Followed incidents that entered a new state in this window.
    pub tracker: Vec<TrackerChange>,
    /// The result of every probe, none when the window was not diagnosed.
    pub probes: ProbeReports,
    /// What the findings mean together.
    pub incidents: Vec<Incident>,
}

impl WindowDiagnosis {
    pub(crate) fn new(ranks: usize) -> Self {
        Self {
            window_index: 0,
            state: WindowState::Idle,
            reason: None,
            missing_ranks: Vec::with_capacity(ranks),
            tracker: Vec::new(),
            probes: ProbeReports::none(),
            incidents: Vec::new(),
        }
    }

    /// Whether a probe has a finding.
    #[must_use]
    pub fn has_findings(&self) -> bool {
        self.probes.iter().any(|(_, report)| !report.findings.is_empty())
    }
}
