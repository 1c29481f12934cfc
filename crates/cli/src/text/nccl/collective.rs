//! Findings about rounds of a communicator.

use deepxtrace_nccl_h2::{
    CollectiveMissingEnter, CommInitMissingEnter, DatatypeContract, DelayedCollectiveEnter,
    Finding, MismatchType, MissingRankStatus, Signature, SignatureMismatch,
};

use super::{Told, heartbeats, named, place, seconds};
use crate::text::{count, shown};

/// Different calls that are shown.
const MOST_CALLS: usize = 8;
/// Missing ranks whose status is shown.
const MOST_RANKS: usize = 8;

pub fn mismatch(finding: &Finding, details: &SignatureMismatch) -> Told {
    let differs = match details.mismatch_type {
        MismatchType::ApiMismatch => "different functions",
        MismatchType::RootMismatch => "the same function with different roots",
        MismatchType::ParameterMismatch => "the same function with different parameters",
    };
    let mut facts = match (&details.api_by_comm_rank, &details.signature_by_comm_rank) {
        (Some(apis), _) => grouped(apis, Clone::clone),
        (None, Some(signatures)) => grouped(signatures, call),
        _ => Vec::new(),
    };
    let entered = details.entered_comm_ranks.len() as i64;
    if entered < details.expected_nranks {
        facts.push(format!("{entered} of {} ranks have entered", details.expected_nranks));
    }
    if !details.explained_findings.is_empty() {
        facts.push(match details.explained_findings.len() {
            1 => "1 wait elsewhere follows from it".to_owned(),
            waits => format!("{waits} waits elsewhere follow from it"),
        });
    }
    Told {
        what: format!("The ranks call {differs} in {}.", place(finding)),
        facts,
        next: "find the place in the program where these ranks take different ways or sizes; that \
               few ranks differ from many does not make them the wrong ones"
            .to_owned(),
    }
}

/// One line for each different call, with its ranks.
fn grouped<T: PartialEq>(calls: &[(i64, T)], show: impl Fn(&T) -> String) -> Vec<String> {
    let mut groups: Vec<(&T, Vec<i64>)> = Vec::new();
    for (rank, call) in calls {
        match groups.iter_mut().find(|(known, _)| *known == call) {
            Some((_, members)) => members.push(*rank),
            None => groups.push((call, vec![*rank])),
        }
    }
    let (few, more) = shown(&groups, MOST_CALLS);
    let mut lines: Vec<String> =
        few.iter().map(|(call, members)| format!("{}: {}", named(members), show(call))).collect();
    if more > 0 {
        lines.push(format!("and {}", count(more, "more different call")));
    }
    lines
}

/// A call with its parameters.
pub fn call(call: &Signature) -> String {
    let mut text = match (call.count, call.datatype) {
        (..0, _) => call.api.clone(),
        (elements, ..0) => format!("{} of {}", call.api, count(elements, "element")),
        (count, number) => format!("{} of {count} x {}", call.api, datatype(number)),
    };
    if call.op >= 0 {
        text.push_str(&format!(", {}", reduction(call.op)));
    }
    if call.root >= 0 {
        text.push_str(&format!(", root {}", call.root));
    }
    text
}

/// The name of an `ncclDataType_t`.
pub fn datatype(datatype: i64) -> String {
    const NAMES: [&str; 12] = [
        "int8",
        "uint8",
        "int32",
        "uint32",
        "int64",
        "uint64",
        "float16",
        "float32",
        "float64",
        "bfloat16",
        "float8e4m3",
        "float8e5m2",
    ];
    let name = usize::try_from(datatype).ok().and_then(|at| NAMES.get(at));
    name.map_or_else(|| format!("datatype {datatype}"), |name| (*name).to_owned())
}

/// The name of an `ncclRedOp_t`.
fn reduction(op: i64) -> &'static str {
    match op {
        0 => "sum",
        1 => "product",
        2 => "max",
        3 => "min",
        4 => "average",
        _ => "a user-defined reduction",
    }
}

pub fn missing(finding: &Finding, details: &CollectiveMissingEnter) -> Told {
    let mut facts = vec![format!(
        "entered: {}; missing: {}",
        named(&details.entered_comm_ranks),
        named(&details.missing_comm_ranks),
    )];
    facts.extend(statuses(&details.missing_rank_status));
    facts.push(format!(
        "waited {}, timeout {}{}",
        seconds(details.waited_s),
        seconds(details.detection_threshold_s),
        match details.threshold_reason {
            "heartbeat_phase_checkpointing" => " (a missing rank writes a checkpoint)",
            _ => "",
        },
    ));
    Told {
        what: format!(
            "{} {} not entered {} in {}.",
            capital(&named(&details.missing_comm_ranks)),
            if details.missing_comm_ranks.len() == 1 { "has" } else { "have" },
            details.api,
            place(finding),
        ),
        facts,
        next: next(details.reason),
    }
}

pub fn creation(finding: &Finding, details: &CommInitMissingEnter) -> Told {
    let of = match &details.parent_hash {
        Some(parent) => format!("a communicator made from {parent}"),
        None => place(finding),
    };
    let mut facts = vec![format!(
        "called {}: {}; missing: {}",
        details.api,
        named(&details.entered_comm_ranks),
        named(&details.missing_comm_ranks),
    )];
    facts.extend(statuses(&details.missing_rank_status));
    facts.push(format!("waited {}", seconds(details.waited_s)));
    Told {
        what: format!("Not all ranks take part in the creation of {of}."),
        facts,
        next: next(details.reason),
    }
}

/// What is known of missing ranks.
fn statuses(statuses: &[MissingRankStatus]) -> Vec<String> {
    let (few, more) = shown(statuses, MOST_RANKS);
    let mut lines: Vec<String> = few
        .iter()
        .map(|status| {
            let global = match status.rank {
                Some(rank) => format!(" is rank {rank} of the job"),
                None => " has written nothing".to_owned(),
            };
            let lost = match status.probe_dropped_events {
                Some(lost) if lost > 0 => format!(", {} lost", count(lost, "event")),
                _ => String::new(),
            };
            let life = heartbeats(status.heartbeat, status.heartbeat_age_s);
            format!("rank {}{global}: {life}{lost}", status.comm_rank)
        })
        .collect();
    if more > 0 {
        lines.push(format!("and {more} more"));
    }
    lines
}

/// What to do about ranks that have not entered, by what is known of them.
pub fn next(reason: &str) -> String {
    match reason {
        "probe_event_loss_possible" => {
            "events may be lost: look at the stack of the missing ranks (py-spy dump --pid PID) before \
             you conclude anything"
        }
        "rank_exit_or_crash_suspected" => {
            "the missing rank may have exited or crashed: look at its log and at dmesg (out of memory, \
             Xid)"
        }
        "rank_alive_but_not_entered" => {
            "the missing rank lives: look at where it is (py-spy dump --pid PID): data loading, a \
             branch that the others did not take, another communicator"
        }
        _ => "look at whether the process of the missing rank lives, and at its stack",
    }
    .to_owned()
}

pub fn delayed(finding: &Finding, details: &DelayedCollectiveEnter) -> Told {
    Told {
        what: format!(
            "{} entered {} in {} up to {} after the first rank.",
            capital(&named(&details.slow_comm_ranks)),
            details.api,
            place(finding),
            seconds(details.enter_spread_s),
        ),
        facts: vec![format!("this holds if the {}", details.clock_assumption)],
        next: "look at what these ranks do before the call: data loading, checkpoint, compilation"
            .to_owned(),
    }
}

pub fn datatypes(finding: &Finding, details: &DatatypeContract) -> Told {
    Told {
        what: format!(
            "The ranks move the same {} bytes in {} under different datatypes.",
            details.bytes,
            place(finding),
        ),
        facts: grouped(&details.signature_by_comm_rank, call),
        next: "this works and is no cause of a hang, but the program's sides disagree".to_owned(),
    }
}

/// The text with its first letter large.
pub fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters
        .next()
        .map_or(String::new(), |first| first.to_uppercase().collect::<String>() + letters.as_str())
}
