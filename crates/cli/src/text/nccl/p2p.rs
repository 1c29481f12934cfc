//! Findings about sends and receives.

use deepxtrace_nccl_h2::{AmbiguousP2p, Finding, P2pCallMismatch, P2pMissingCounterpart, P2pSide};

use super::collective::datatype;
use super::{Told, place, seconds};

pub fn missing(finding: &Finding, details: &P2pMissingCounterpart) -> Told {
    let (src, dst) = (details.src_comm_rank, details.dst_comm_rank);
    let number =
        details.local_p2p_op_index.map_or(String::new(), |index| format!(" number {index}"));
    let mut facts = vec![format!(
        "{}{number}, {} x {}, waits for {} for {}",
        details.observed_api,
        details.count,
        datatype(details.datatype),
        details.expected_api,
        seconds(details.waited_s),
    )];
    if details.aggregated_missing_call_count > 1 {
        facts.push(format!(
            "{} calls between these ranks have none ({})",
            details.aggregated_missing_call_count,
            details.affected_directions.join(", "),
        ));
    }
    let absent = if details.expected_api == "ncclRecv" { dst } else { src };
    Told {
        what: format!(
            "A {} from rank {src} to rank {dst} has no counterpart in {}.",
            if details.expected_api == "ncclRecv" { "send" } else { "receive" },
            place(finding),
        ),
        facts,
        next: format!(
            "look at rank {absent} of the communicator: whether it lives, and which peers and how \
             many calls its program has here"
        ),
    }
}

pub fn mismatch(finding: &Finding, details: &P2pCallMismatch) -> Told {
    Told {
        what: format!(
            "Rank {} sends something else than rank {} receives, in {}.",
            details.src_comm_rank,
            details.dst_comm_rank,
            place(finding),
        ),
        facts: vec![side("send", &details.send), side("receive", &details.recv)],
        next:
            "compare how both sides compute the size, and whether one side left out a call before"
                .to_owned(),
    }
}

pub fn ambiguous(finding: &Finding, details: &AmbiguousP2p) -> Told {
    Told {
        what: format!(
            "Sends from rank {} to rank {} cannot be matched with receives in {}.",
            details.src_comm_rank,
            details.dst_comm_rank,
            place(finding),
        ),
        facts: details.candidate_calls.iter().map(|call| side(&call.api, call)).collect(),
        next: "the trace is incomplete or has no numbers for these calls: nothing is certain here"
            .to_owned(),
    }
}

fn side(name: &str, side: &P2pSide) -> String {
    let number = side.p2p_op_index.map_or(String::new(), |index| format!(" number {index}"));
    format!("{name}{number}: {} x {}", side.count, datatype(side.datatype))
}
