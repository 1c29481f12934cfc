//! What the comparison of answers gives.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value, json};

use crate::finding::Finding;

/// Whether a communicator launches operations.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Motion {
    /// One answer does not tell.
    OneAnswer,
    /// Counts have grown between the last two answers.
    Moving,
    /// No count has changed.
    Still {
        /// For so long, as far as the answers go back.
        seconds: f64,
    },
}

/// How a communicator looks in the last answer.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    /// Names it.
    pub hash: String,
    /// Its ranks.
    pub size: i64,
    /// Ranks that answered.
    pub answered: usize,
    /// Ranks that are named as missing.
    pub missing: usize,
    /// The least and most operations that a rank has launched.
    pub launched: [i64; 2],
    /// Whether all ranks that answered have launched the same.
    pub agree: bool,
    /// Whether it launches operations.
    pub motion: Motion,
}

impl fmt::Display for State {
    /// One line. It never says that a communicator is well: launching is not completing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hash, size, answered, launched: [least, most], .. } = self;
        write!(f, "{hash}: {answered} of {size} ranks answer, ")?;
        match self.agree {
            true => write!(f, "{most} operations launched on each")?,
            false => write!(f, "{least} to {most} operations launched, ranks differ")?,
        }
        match (self.motion, self.agree) {
            (Motion::OneAnswer, _) => {
                write!(f, "; one answer does not tell whether it moves")
            }
            (Motion::Moving, _) => {
                write!(f, "; launching (whether operations complete is not known)")
            }
            (Motion::Still { seconds }, false) => write!(f, "; stands still for {seconds} s"),
            (Motion::Still { seconds }, true) => write!(
                f,
                "; nothing launched for {seconds} s: idle, or hung on its devices (launch counts do \
                 not tell)"
            ),
        }
    }
}

/// A finding in answers of RAS: the same as in traces, with what only RAS knows.
#[derive(Debug, Clone, PartialEq)]
pub struct RasFinding {
    /// What was found. `comm_seq` is -1: RAS counts each kind of operation apart.
    pub finding: Finding,
    /// Rank in the communicator, operation, and by how many launches it is behind.
    pub behind: Vec<(i64, String, i64)>,
    /// Host and process number that it is about, where it is about one process.
    pub process: Option<(String, i64)>,
    /// Communicators that it is about.
    pub communicators: Vec<String>,
}

impl RasFinding {
    /// The finding as one line of compact JSON with sorted keys, without a newline: that of
    /// [`Finding::to_json`] with `behind_by_comm_rank`, `communicators`, `host`, `pid` and `source`
    /// among the details.
    pub fn to_json(&self) -> String {
        let mut behind: BTreeMap<String, BTreeMap<&str, i64>> = BTreeMap::new();
        for (rank, operation, count) in &self.behind {
            behind.entry(rank.to_string()).or_default().insert(operation, *count);
        }
        let mut details = members(serde_json::to_value(&self.finding.details));
        details.insert("behind_by_comm_rank".to_owned(), json!(behind));
        details.insert("communicators".to_owned(), json!(self.communicators));
        let host = self.process.as_ref().map(|(host, _)| host);
        details.insert("host".to_owned(), json!(host));
        let pid = self.process.as_ref().map(|(_, pid)| pid);
        details.insert("pid".to_owned(), json!(pid));
        details.insert("source".to_owned(), json!("ras_launch_counts"));
        let mut finding = members(serde_json::to_value(&self.finding));
        finding.insert("details".to_owned(), Value::Object(details.into_iter().collect()));
        let finding: Map<String, Value> = finding.into_iter().collect();
        Value::Object(finding).to_string()
    }
}

/// The members of an object by key, whatever order the JSON library keeps.
fn members(value: serde_json::Result<Value>) -> BTreeMap<String, Value> {
    match value {
        Ok(Value::Object(members)) => members.into_iter().collect(),
        _ => BTreeMap::new(),
    }
}

/// What was found in answers of RAS.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct RasReport {
    /// Findings, in the order of the communicators.
    pub findings: Vec<RasFinding>,
    /// The communicators of the last answer.
    pub communicators: Vec<State>,
    /// Places in which the JSON of the answers had to be mended.
    pub mended: usize,
}
