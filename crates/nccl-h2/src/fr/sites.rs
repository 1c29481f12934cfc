//! Where in the program calls were made.

use std::collections::BTreeMap;

use crate::fr::record::{Record, Shape};
use crate::fr::report::CallSite;
use crate::fr::rounds::{GroupView, Site};
use crate::fr::set::DumpSet;

/// Different call sites of one finding that are told; a job has few.
const MAX_SITES: usize = 32;

/// Calls that are at the same place in the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// Calls that the finding is about come first.
    last_call: bool,
    seq: i64,
    shape: u32,
    stack: u32,
    group: u32,
}

/// Collects the call sites of a finding.
#[derive(Debug)]
pub(crate) struct Sites<'a> {
    set: &'a DumpSet,
    ranks: BTreeMap<Place, Vec<i64>>,
}

impl<'a> Sites<'a> {
    pub(crate) fn new(set: &'a DumpSet) -> Self {
        Self { set, ranks: BTreeMap::new() }
    }

    /// Adds a call that the finding is about.
    pub(crate) fn call(&mut self, view: &GroupView<'_>, site: Site) {
        let rank = view.global(site.comm_rank);
        if let Some(record) = record(self.set, rank, site.record) {
            self.add(false, &record, rank);
        }
    }

    /// Adds the latest call of a rank.
    pub(crate) fn last_call(&mut self, rank: i64) {
        if let Some(record) = last_record(self.set, rank) {
            self.add(true, &record, rank);
        }
    }

    fn add(&mut self, last_call: bool, record: &Record, rank: i64) {
        let place = Place {
            last_call,
            seq: if record.p2p { record.p2p_seq } else { record.seq },
            shape: record.shape,
            stack: record.stack,
            group: record.group,
        };
        self.ranks.entry(place).or_default().push(rank);
    }

    /// The call sites: those of the finding first, in the order of their first rank.
    pub(crate) fn finish(self) -> Vec<CallSite> {
        let mut sites: Vec<(Place, Vec<i64>)> = self.ranks.into_iter().collect();
        for (_, ranks) in &mut sites {
            ranks.sort_unstable();
            ranks.dedup();
        }
        sites.sort_by(|a, b| (a.0.last_call, &a.1, a.0).cmp(&(b.0.last_call, &b.1, b.0)));
        sites.truncate(MAX_SITES);
        let set = self.set;
        let site = |(place, ranks): (Place, Vec<i64>)| CallSite {
            about: if place.last_call { "last_call" } else { "call" },
            comm_uid_hash: set
                .groups
                .get(place.group as usize)
                .map(|group| group.name.to_string())
                .unwrap_or_default(),
            frames: set.stacks.get(place.stack as usize).cloned().unwrap_or_default(),
            profiling_name: shape(set, place.shape)
                .map(|shape| shape.name.to_string())
                .unwrap_or_default(),
            ranks,
            seq: place.seq,
        };
        sites.into_iter().map(site).collect()
    }
}

/// A record of a rank.
pub(crate) fn record(set: &DumpSet, rank: i64, number: u32) -> Option<Record> {
    set.dump(rank)?.records.get(number as usize).copied()
}

/// The latest record of a rank.
pub(crate) fn last_record(set: &DumpSet, rank: i64) -> Option<Record> {
    set.dump(rank)?.records.iter().max_by_key(|record| record.created_ns).copied()
}

pub(crate) fn shape(set: &DumpSet, number: u32) -> Option<&Shape> {
    set.shapes.get(number as usize)
}
