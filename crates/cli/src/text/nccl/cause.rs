//! Findings that name a cause behind several symptoms.

use deepxtrace_nccl_h2::{
    CommunicatorDeadlock, Divergence, DivergenceKind, Finding, RootBlocker, SequenceDivergence,
    WaitEdge,
};

use super::collective::{call, capital, next};
use super::{Told, heartbeats, named, seconds};
use crate::text::{count, shown};

/// Steps of a chain that are shown.
const MOST_EDGES: usize = 8;
/// Roots that are shown.
const MOST_ROOTS: usize = 8;

pub fn divergence(finding: &Finding, details: &SequenceDivergence) -> Told {
    let what = match &details.explanations[..] {
        [only] => {
            format!("{} on communicator {}.", capital(&explained(only)), finding.comm_uid_hash)
        }
        several => format!(
            "The calls of the ranks of communicator {} go apart, and {} explanations are equally short.",
            finding.comm_uid_hash,
            several.len(),
        ),
    };
    let mut facts = Vec::new();
    if details.explanations.len() > 1 {
        facts.extend(details.explanations.iter().map(|one| format!("either {}", explained(one))));
    }
    facts.push(match &details.last_agreed_call {
        Some(agreed) => {
            format!("all ranks agree up to call {}: {}", details.last_agreed_seq, call(agreed))
        }
        None if details.explanations.iter().any(|one| one.position[0] < 0) => {
            "what they called before is not recorded any more".to_owned()
        }
        None => "the ranks never agree".to_owned(),
    });
    facts.push(match details.explained_rounds {
        1 => "1 round is explained by it".to_owned(),
        rounds => format!("{} are explained by it", count(rounds, "round")),
    });
    Told {
        what,
        facts,
        next: "find the branch of the program that these ranks took and the others did not"
            .to_owned(),
    }
}

fn explained(one: &Divergence) -> String {
    let who = named(&one.comm_ranks);
    let what = one.call.as_ref().map_or("a call".to_owned(), call);
    let other = one.other_call.as_ref().map_or("a call".to_owned(), call);
    let times = if one.calls > 1 { format!("{} calls from ", one.calls) } else { String::new() };
    // Which call it was is not known.
    let (what, times) = match (&one.call, one.calls) {
        (None, 2..) => (format!("{} calls", one.calls), String::new()),
        _ => (what, times),
    };
    match one.kind {
        DivergenceKind::Skipped => {
            format!("{who} left out {times}{what}, {}", at(one.others_position))
        }
        DivergenceKind::Extra => {
            format!("{who} made {times}{what} in addition, {}", at(one.position))
        }
        DivergenceKind::Swapped => {
            format!("{who} made {what} before {other}, {}", at(one.position))
        }
        DivergenceKind::Branched => {
            format!("{who} went another way with {what} instead of {other}, {}", at(one.position))
        }
    }
}

fn at([first, last]: [i64; 2]) -> String {
    if first < 0 {
        format!("before call {last} or as that call")
    } else if first == last {
        format!("as call {first}")
    } else {
        format!("among calls {first} to {last}")
    }
}

pub fn deadlock(details: &CommunicatorDeadlock) -> Told {
    let mut facts: Vec<String> = edges(&details.cycle);
    facts.push(format!("they have waited for {}", seconds(details.waited_s)));
    Told {
        what: format!("{} wait for each other in a circle.", capital(&named(&details.ranks))),
        facts,
        next:
            "the ranks use these communicators, or send and receive, in different orders: make the \
               order the same on all of them"
                .to_owned(),
    }
}

pub fn root(details: &RootBlocker) -> Told {
    let (few, more) = shown(&details.roots, MOST_ROOTS);
    let known: Vec<i64> = details.roots.iter().filter_map(|root| root.rank).collect();
    let mut facts: Vec<String> = few
        .iter()
        .map(|root| {
            let who = match (root.rank, root.pid) {
                (Some(rank), Some(pid)) => format!("rank {rank} (pid {pid})"),
                _ => {
                    format!("rank {} of a communicator, of which nothing was seen", root.comm_rank)
                }
            };
            let last = root.last_call.as_ref().map_or("no call seen".to_owned(), |call| {
                format!("last call {} {} (call {})", call.api, call.phase, call.comm_seq)
            });
            let phase =
                root.phase.as_ref().map_or(String::new(), |phase| format!(", phase {phase}"));
            format!("{who}: {}, {last}{phase}", heartbeats(root.heartbeat, root.heartbeat_age_s))
        })
        .collect();
    if more > 0 {
        facts.push(format!("and {more} more"));
    }
    facts.extend(edges(&details.waits));
    facts.push(format!(
        "{} and {} follow from it; longest {}",
        count(details.explained_findings_count, "wait"),
        count(details.waiting_rank_count, "waiting rank"),
        seconds(details.waited_s),
    ));
    let who =
        if known.is_empty() { "ranks of which nothing was seen".to_owned() } else { named(&known) };
    Told {
        what: format!("Everybody waits in the end for {who}."),
        facts,
        next: next(details.reason),
    }
}

/// Who waits for whom, a line a step.
fn edges(edges: &[WaitEdge]) -> Vec<String> {
    let (few, more) = shown(edges, MOST_EDGES);
    let mut lines: Vec<String> = few
        .iter()
        .map(|edge| {
            let mut whom = match &edge.waits_for_ranks[..] {
                [] => String::new(),
                known => named(known),
            };
            if edge.waits_for_unseen > 0 {
                let joint = if whom.is_empty() { "" } else { " and " };
                whom.push_str(&format!("{joint}{} unseen", edge.waits_for_unseen));
            }
            let wait = if edge.waiting_ranks.len() == 1 { "waits" } else { "wait" };
            let call = match edge.comm_seq {
                seq if seq < 0 => String::new(),
                seq => format!(", call {seq}"),
            };
            format!(
                "{} {wait} for {whom} in {} (communicator {}{call})",
                named(&edge.waiting_ranks),
                edge.api,
                edge.comm_uid_hash,
            )
        })
        .collect();
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}
