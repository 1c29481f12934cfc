//! The names of trace files.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// What the name of a trace file tells, in the order in which files are read.
///
/// `rank_3_pid_7.jsonl` is the trace of a process; `rank_3_pid_7.seg000001.jsonl` the next segment
/// of it; `rank_3_pid_7.g2.jsonl` that of another program in the same process;
/// `rank_3_pid_7.heartbeat.jsonl` has the heartbeats of another writer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct FileName {
    pub(crate) rank: i64,
    pub(crate) pid: i64,
    /// Parts of the name that are none of the known ones, such as `heartbeat`.
    other: String,
    generation: u64,
    segment: u64,
}

impl FileName {
    /// `None` for a name that is no trace file's.
    pub(crate) fn of(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let stem = name.strip_prefix("rank_")?.strip_suffix(".jsonl")?;
        let mut parts = stem.split('.');
        let (rank, pid) = parts.next()?.split_once("_pid_").unwrap_or((stem, ""));
        let mut found = Self {
            rank: rank.parse().unwrap_or(i64::MAX),
            pid: pid.parse().unwrap_or(i64::MAX),
            other: String::new(),
            generation: 1,
            segment: 0,
        };
        if found.rank == i64::MAX || found.pid == i64::MAX {
            stem.clone_into(&mut found.other);
            return Some(found);
        }
        for part in parts {
            let number = |prefix: &str| part.strip_prefix(prefix)?.parse().ok();
            if let Some(segment) = number("seg") {
                found.segment = segment;
            } else if let Some(generation) = number("g") {
                found.generation = generation;
            } else {
                found.other.push_str(part);
            }
        }
        Some(found)
    }

    /// Whether a file goes on where another ends: the same process and writer.
    pub(crate) fn continues(&self, before: &Self) -> bool {
        (self.rank, self.pid, &self.other) == (before.rank, before.pid, &before.other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Option<FileName> {
        FileName::of(Path::new(text))
    }

    #[test]
    fn segments_and_generations_of_a_process_follow_each_other() {
        let sorted = [
            "rank_2_pid_9.jsonl",
            "rank_10_pid_7.jsonl",
            "rank_10_pid_7.seg000001.jsonl",
            "rank_10_pid_7.seg000002.jsonl",
            "rank_10_pid_7.g2.jsonl",
            "rank_10_pid_7.g2.seg000001.jsonl",
            "rank_10_pid_7.heartbeat.jsonl",
            "rank_10_pid_8.jsonl",
        ];
        let names: Vec<FileName> = sorted.iter().map(|text| name(text).unwrap()).collect();
        assert!(names.is_sorted());
        let continues: Vec<bool> =
            names.windows(2).map(|pair| pair[1].continues(&pair[0])).collect();
        assert_eq!(continues, [false, true, true, true, true, false, false]);
    }

    #[test]
    fn other_files_are_no_traces() {
        for text in ["findings.jsonl", "rank_0_pid_1.json", "analyzer.log", "training.exit_code"] {
            assert_eq!(name(text), None, "{text}");
        }
        assert!(name("rank_x_pid_y.jsonl").is_some(), "read, though its name tells nothing");
        assert!(!name("rank_x.jsonl").unwrap().continues(&name("rank_y.jsonl").unwrap()));
    }
}
