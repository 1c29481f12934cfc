//! What waits for ranks that are stuck where the calls of their group went apart: it has its cause
//! there.

use std::collections::{BTreeMap, BTreeSet};

use crate::fr::judged::Judged;
use crate::fr::p2p::Burst;
use crate::fr::record::State;
use crate::fr::replay::{Cause, Symptom};
use crate::fr::set::DumpSet;
use crate::fr::sites;

/// By the place of a group whose calls went apart: the symptoms elsewhere that follow from it.
pub(crate) type Followers = BTreeMap<usize, BTreeSet<Symptom>>;

/// Finds the symptoms that follow from calls that went apart, and takes the causes away of which
/// that is known.
pub(crate) fn followers(
    set: &DumpSet,
    judged: &[Judged<'_>],
    causes: &mut Vec<Cause>,
) -> Followers {
    let mut found = Followers::new();
    causes.retain(|cause| match stuck_in(judged, &cause.roots) {
        Some(place) => {
            found.entry(place).or_default().extend(&cause.explained);
            false
        }
        None => true,
    });
    let known: BTreeSet<Symptom> =
        causes.iter().flat_map(|cause| &cause.explained).copied().collect();
    for (place, group) in judged.iter().enumerate() {
        let missing = group.rounds.missing.iter().map(|missing| {
            let behind = missing.behind.iter().map(|rank| group.view.global(*rank)).collect();
            (Symptom::Missing(place), behind)
        });
        let bursts = group.pairs.bursts.iter().enumerate().filter_map(|(number, burst)| {
            let silent = group.view.global(silent(set, group, burst)?);
            Some((Symptom::Burst(place, number), vec![silent]))
        });
        for (symptom, ranks) in missing.chain(bursts) {
            let ranks: Vec<i64> = ranks;
            if let Some(cause) = stuck_in(judged, &ranks).filter(|_| !known.contains(&symptom)) {
                found.entry(cause).or_default().insert(symptom);
            }
        }
    }
    found
}

/// The first group whose calls went apart and in which all of these global ranks are stuck since.
fn stuck_in(judged: &[Judged<'_>], ranks: &[i64]) -> Option<usize> {
    if ranks.is_empty() {
        return None;
    }
    judged.iter().position(|group| {
        let apart = group.rounds.diverged.last().filter(|last| !last.recovered);
        apart.is_some_and(|apart| ranks.iter().all(|rank| is_stuck(group, *rank, apart.seq)))
    })
}

/// Whether a rank has a call from a number on that was not over.
fn is_stuck(group: &Judged<'_>, rank: i64, from: i64) -> bool {
    let mut own = group.view.timelines.iter().filter(|timeline| timeline.dump.rank == rank);
    own.any(|timeline| {
        timeline.calls.iter().any(|call| call.seq >= from && call.state != State::Completed)
    })
}

/// The rank of the group that the first call of a burst waits for.
fn silent(set: &DumpSet, group: &Judged<'_>, burst: &Burst) -> Option<i64> {
    let created = |rank: i64, record: u32| {
        sites::record(set, group.view.global(rank), record).map_or(i64::MAX, |r| r.created_ns)
    };
    let first = burst
        .calls
        .iter()
        .min_by_key(|lone| (created(lone.call.site.comm_rank, lone.call.site.record), lone.src))?;
    Some(if first.sends { first.dst } else { first.src })
}
