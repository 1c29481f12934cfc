//! What an analysis of dumps gives.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::config::Config;
use crate::finding::Finding;
use crate::fr::record::Frame;

/// How dumps are judged.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Options {
    /// Timeouts.
    pub config: Config,
    /// Seconds that the job stood still after its latest call, where the user knows; else 0. Dumps
    /// do not tell when they were taken.
    pub stood_still_s: f64,
    /// The run that findings name.
    pub run_id: String,
}

/// A process group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProcessGroup {
    /// `desc` of the dumps.
    pub description: String,
    /// `name` of the dumps, which findings have as their `comm_uid_hash`.
    pub name: String,
    /// Global ranks in the order of the group; their places are the `comm_rank`s of findings. Empty
    /// where the dumps do not tell.
    pub ranks: Vec<i64>,
}

/// Where ranks made a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CallSite {
    /// `call` for one that the finding is about, `last_call` for the latest call of a rank that did
    /// not make it.
    pub about: &'static str,
    /// The process group of the call.
    pub comm_uid_hash: String,
    /// The call stack, innermost first; empty where the dumps have none.
    pub frames: Vec<Frame>,
    /// `profiling_name` of the call.
    pub profiling_name: String,
    /// Global ranks that made it here.
    pub ranks: Vec<i64>,
    /// `collective_seq_id`, for a send or receive `p2p_seq_id`.
    pub seq: i64,
}

/// A finding in dumps: the same as in traces, and where in the program it happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Located {
    /// What was found.
    pub finding: Finding,
    /// On which process group.
    pub process_group: ProcessGroup,
    /// Where the calls were made, those of the first ranks first.
    pub call_sites: Vec<CallSite>,
    /// Ranks of the group that have no dump, about which nothing is said.
    pub ranks_without_dump: Vec<i64>,
}

impl Located {
    /// The finding as one line of compact JSON with sorted keys, without a newline: that of
    /// [`Finding::to_json`] with `call_sites`, `process_group` and `ranks_without_dump` among the
    /// details.
    pub fn to_json(&self) -> String {
        let mut details = sorted(serde_json::to_value(&self.finding.details));
        let mut more = |key: &str, value: serde_json::Result<Value>| {
            if let Ok(value) = value {
                details.insert(key.to_owned(), value);
            }
        };
        more("call_sites", serde_json::to_value(&self.call_sites));
        more("process_group", serde_json::to_value(&self.process_group));
        more("ranks_without_dump", serde_json::to_value(&self.ranks_without_dump));
        let mut finding = sorted(serde_json::to_value(&self.finding));
        finding.insert("details".to_owned(), Value::Object(details.into_iter().collect()));
        let finding: Map<String, Value> = finding.into_iter().collect();
        Value::Object(finding).to_string()
    }
}

/// The members of an object by key, whatever order the JSON library keeps.
fn sorted(value: serde_json::Result<Value>) -> std::collections::BTreeMap<String, Value> {
    match value {
        Ok(Value::Object(members)) => members.into_iter().collect(),
        _ => std::collections::BTreeMap::new(),
    }
}

/// What an analysis could not decide, and what a reader should know beside the findings.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Note {
    /// Only one dump was read: nothing could be compared.
    OneDump {
        /// Its global rank.
        rank: i64,
    },
    /// Ranks of the job have no dump: nothing is concluded about them.
    MissingDumps {
        /// Global ranks.
        ranks: Vec<i64>,
    },
    /// Dumps of open calls only, say: what is not in them proves nothing.
    PartialDumps {
        /// Global ranks.
        ranks: Vec<i64>,
    },
    /// The sends and receives in a dump are those of another rank than its file name says.
    OtherRank {
        /// The rank by the file name.
        rank: i64,
    },
    /// Sends and receives that could not be paired, because buffers have lost older ones.
    UndecidedP2p {
        /// The process group.
        group: String,
        /// Sending rank in the group.
        src_comm_rank: i64,
        /// Receiving rank in the group.
        dst_comm_rank: i64,
        /// Sends in the dump of the one.
        sends: usize,
        /// Receives in the dump of the other.
        recvs: usize,
    },
    /// More mismatches of a group than are reported.
    MoreMismatches {
        /// The process group.
        group: String,
        /// How many more.
        count: i64,
    },
    /// All ranks with a dump have entered a call that was not over when the dumps were taken. If
    /// the job hangs there, it waits for a rank without a dump, or it hangs on the device or outside
    /// of the communication library.
    NotCompleted {
        /// The process group.
        group: String,
        /// The call.
        api: String,
        /// `collective_seq_id`.
        seq: i64,
        /// Global ranks on which it was not over.
        ranks: Vec<i64>,
        /// Global ranks of the group that have no dump.
        without_dump: Vec<i64>,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OneDump { rank } => write!(
                f,
                "only one dump was read, of rank {rank}: there is nothing to compare it with"
            ),
            Self::MissingDumps { ranks } => {
                let them = if ranks.len() == 1 { "it" } else { "them" };
                write!(f, "no dump of {}: nothing is said about {them}", named(ranks))
            }
            Self::PartialDumps { ranks } => write!(
                f,
                "the {} of {} calls: what is not in {} proves nothing",
                if ranks.len() == 1 { "dump" } else { "dumps" },
                match ranks.len() {
                    1 => format!("{} leaves out", named(ranks)),
                    _ => format!("{} leave out", named(ranks)),
                },
                if ranks.len() == 1 { "it" } else { "them" },
            ),
            Self::OtherRank { rank } => write!(
                f,
                "the dump that is named after rank {rank} holds sends and receives of another rank: \
                 they were left out"
            ),
            Self::UndecidedP2p { group, src_comm_rank, dst_comm_rank, sends, recvs } => write!(
                f,
                "group {group}: {} and {} from rank {src_comm_rank} to rank {dst_comm_rank} \
                 could not be paired, the buffers have lost older calls",
                count(*sends, "send"),
                count(*recvs, "receive"),
            ),
            Self::MoreMismatches { group, count } => {
                let differ = if *count == 1 { "call differs" } else { "calls differ" };
                write!(f, "group {group}: {count} more {differ} between ranks")
            }
            Self::NotCompleted { group, api, seq, ranks, without_dump } => {
                write!(
                    f,
                    "group {group}: all ranks with a dump have entered {api} {seq}, which was not \
                     over on {}; if the job hangs there, it ",
                    named(ranks)
                )?;
                if !without_dump.is_empty() {
                    write!(f, "waits for {}, or it ", named(without_dump))?;
                }
                f.write_str("hangs on the device or outside of the communication library")
            }
        }
    }
}

/// `1 send`, `2 sends`.
fn count(number: usize, thing: &str) -> String {
    format!("{number} {thing}{}", if number == 1 { "" } else { "s" })
}

/// `rank 3` or `ranks 0-3, 5`.
fn named(ranks: &[i64]) -> String {
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, list(ranks))
}

/// Ranks as text, runs of them shortened: `0-3, 5`.
fn list(ranks: &[i64]) -> String {
    let mut parts = Vec::new();
    for run in ranks.chunk_by(|a, b| a.checked_add(1) == Some(*b)) {
        match run {
            [first, .., last] => parts.push(format!("{first}-{last}")),
            [only] => parts.push(only.to_string()),
            [] => {}
        }
    }
    parts.join(", ")
}

/// What was found in a set of dumps.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Report {
    /// Findings, those about the earliest calls first.
    pub findings: Vec<Located>,
    /// What is not decided, and why.
    pub notes: Vec<Note>,
    /// Collectives that were compared between ranks, one a round.
    pub rounds: i64,
    /// Sends that were paired with their receive.
    pub pairs: i64,
}
