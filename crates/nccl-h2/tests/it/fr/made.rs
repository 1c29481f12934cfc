//! Dumps made here, in the JSON form, as a program of all ranks.

use std::collections::BTreeMap;
use std::fs;

use deepxtrace_nccl_h2::fr::{DumpSet, Options, Report};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Nanoseconds between two calls of a rank.
pub(super) const STEP_NS: i64 = 1_000_000;

/// The dumps of a job of so many ranks.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) groups: Vec<(String, Vec<i64>)>,
    pub(super) entries: BTreeMap<i64, Vec<Value>>,
    pub(super) version: &'static str,
    seqs: BTreeMap<(i64, String), [i64; 3]>,
    clock: i64,
}

/// What goes in and comes out: shapes and datatype.
#[derive(Debug, Clone)]
pub(super) struct Tensors {
    pub(super) inputs: Value,
    pub(super) outputs: Value,
    pub(super) datatype: &'static str,
}

pub(super) fn tensors(inputs: Value, outputs: Value) -> Tensors {
    Tensors { inputs, outputs, datatype: "Float" }
}

/// The same tensor in and out.
pub(super) fn same(elements: i64) -> Tensors {
    tensors(json!([[elements]]), json!([[elements]]))
}

impl Job {
    /// Ranks `0..ranks` in the group "0".
    pub(super) fn new(ranks: i64) -> Self {
        let world: Vec<i64> = (0..ranks).collect();
        Self {
            entries: world.iter().map(|rank| (*rank, Vec::new())).collect(),
            groups: vec![("0".to_owned(), world)],
            version: "2.10",
            seqs: BTreeMap::new(),
            clock: 1_700_000_000_000_000_000,
        }
    }

    pub(super) fn group(&mut self, name: &str, ranks: &[i64]) {
        self.groups.push((name.to_owned(), ranks.to_vec()));
    }

    pub(super) fn members(&self, group: &str) -> Vec<i64> {
        self.groups.iter().find(|(name, _)| name == group).unwrap().1.clone()
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, nanoseconds: i64) {
        self.clock += nanoseconds;
    }

    fn entry(&mut self, rank: i64, group: &str, name: &str, t: &Tensors, state: &str) {
        self.clock += STEP_NS;
        let seqs = self.seqs.entry((rank, group.to_owned())).or_default();
        seqs[2] += 1;
        let completed = if state == "completed" { self.clock + 10 } else { 0 };
        let count = |list: &Value| list.as_array().unwrap().len();
        let entries = self.entries.get_mut(&rank).unwrap();
        let entry = json!({
            "record_id": entries.len(), "process_group": [group, "made"],
            "collective_seq_id": seqs[0], "p2p_seq_id": seqs[1], "op_id": seqs[2],
            "profiling_name": name, "time_created_ns": self.clock,
            "input_sizes": t.inputs, "input_dtypes": vec![t.datatype; count(&t.inputs)],
            "output_sizes": t.outputs, "output_dtypes": vec![t.datatype; count(&t.outputs)],
            "state": state, "time_discovered_started_ns": 0,
            "time_discovered_completed_ns": completed, "retired": state == "completed",
            "timeout_ms": 600_000, "is_p2p": name.contains(' '),
            "frames": [{"name": "call", "filename": "made.py", "line": entries.len()}],
        });
        entries.push(entry);
    }

    /// A collective of one rank.
    pub(super) fn call(&mut self, rank: i64, group: &str, name: &str, t: &Tensors, state: &str) {
        self.seqs.entry((rank, group.to_owned())).or_default()[0] += 1;
        self.entry(rank, group, name, t, state);
    }

    /// The same collective on all ranks of a group.
    pub(super) fn all(&mut self, group: &str, name: &str, t: &Tensors, state: &str) {
        for rank in self.members(group) {
            self.call(rank, group, name, t, state);
        }
    }

    /// A coalesced group of collectives on one rank, with its end.
    pub(super) fn coalesced(
        &mut self,
        rank: i64,
        group: &str,
        end: &str,
        calls: &[(&str, Tensors)],
        state: &str,
    ) {
        self.seqs.entry((rank, group.to_owned())).or_default()[0] += 1;
        for (name, tensors) in calls {
            self.entry(rank, group, name, tensors, "scheduled");
        }
        self.seqs.get_mut(&(rank, group.to_owned())).unwrap()[2] -= 1;
        self.entry(rank, group, end, &tensors(json!([]), json!([])), state);
    }

    /// A send or receive of one rank. `src` and `dst` are ranks of the group.
    pub(super) fn p2p(
        &mut self,
        group: &str,
        (src, dst): (i64, i64),
        sends: bool,
        t: &Tensors,
        state: &str,
    ) {
        let own = self.members(group)[usize::try_from(if sends { src } else { dst }).unwrap()];
        let name = if sends {
            format!("nccl:send {src}->{dst}")
        } else {
            format!("nccl:recv {dst}<-{src}")
        };
        self.seqs.entry((own, group.to_owned())).or_default()[1] += 1;
        self.entry(own, group, &name, t, state);
    }

    /// A batch of sends and receives of one rank, with its end: pairs of ranks, and which side.
    pub(super) fn batch(
        &mut self,
        rank: i64,
        group: &str,
        calls: &[(i64, i64, bool, i64)],
        state: &str,
    ) {
        self.seqs.entry((rank, group.to_owned())).or_default()[1] += 1;
        for (src, dst, sends, elements) in calls {
            let name = if *sends {
                format!("nccl:send {src}->{dst}")
            } else {
                format!("nccl:recv {dst}<-{src}")
            };
            self.entry(rank, group, &name, &same(*elements), "scheduled");
        }
        self.seqs.get_mut(&(rank, group.to_owned())).unwrap()[2] -= 1;
        self.entry(rank, group, "nccl:coalesced", &tensors(json!([]), json!([])), state);
    }

    /// Keeps only the latest entries of a rank, as its ring buffer would.
    pub(super) fn keep(&mut self, rank: i64, entries: usize) {
        let all = self.entries.get_mut(&rank).unwrap();
        *all = all.split_off(all.len().saturating_sub(entries));
    }

    /// The dump of a rank.
    pub(super) fn dump(&self, rank: i64) -> Value {
        let mine = self.groups.iter().filter(|(_, ranks)| ranks.contains(&rank));
        let config = mine.map(|(name, ranks)| {
            let ranks = format!("{ranks:?}");
            (name.clone(), json!({"name": name, "desc": "made", "ranks": ranks}))
        });
        let config: serde_json::Map<String, Value> = config.collect();
        json!({"version": self.version, "pg_config": config, "entries": self.entries[&rank]})
    }

    /// Writes the dumps of some ranks and judges them.
    pub(super) fn judged_of(&self, ranks: &[i64]) -> Report {
        let folder = TempDir::new().unwrap();
        for rank in ranks {
            let path = folder.path().join(format!("made_rank_{rank}"));
            fs::write(path, self.dump(*rank).to_string()).unwrap();
        }
        DumpSet::read(&[folder.path().to_owned()]).unwrap().analyze(&Options::default())
    }

    pub(super) fn judged(&self) -> Report {
        let ranks: Vec<i64> = self.entries.keys().copied().collect();
        self.judged_of(&ranks)
    }
}
