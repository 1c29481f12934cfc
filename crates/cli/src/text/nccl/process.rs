//! Findings about calls that did not return, and about processes.

use deepxtrace_nccl_h2::{
    ErrorExit, Finding, LastCall, MissingExit, NoProgress, RankHeartbeatTimeout, RoundMissingExit,
};

use super::collective::capital;
use super::{Told, heartbeats, named, place, seconds};
use crate::text::{count, shown};

/// Different latest calls that are shown.
const MOST_CALLS: usize = 8;

pub fn missing_exit(finding: &Finding, details: &MissingExit) -> Told {
    Told {
        what: format!(
            "Rank {} (pid {}) has been inside {} for {} ({}).",
            details.rank,
            details.pid,
            details.api,
            seconds(details.stuck_duration_s),
            place(finding),
        ),
        facts: vec![format!("its process: {}", heartbeats(details.process_liveness, None))],
        next:
            "the library itself does not return: look at the native stack (gdb -p PID, py-spy dump \
               --native), NCCL_DEBUG=INFO, the network"
                .to_owned(),
    }
}

pub fn round_missing_exit(finding: &Finding, details: &RoundMissingExit) -> Told {
    let stuck = named(&details.missing_exit_comm_ranks);
    Told {
        what: match details.stuck_scope {
            "all_ranks" => format!("All ranks are inside {} in {}.", details.api, place(finding)),
            _ => format!(
                "{} of {} have not returned from {} in {}.",
                capital(&stuck),
                details.expected_nranks,
                details.api,
                place(finding)
            ),
        },
        facts: vec![format!(
            "longest: rank {} of the job (pid {}), {}",
            details.root_rank,
            details.pid,
            seconds(details.stuck_duration_s),
        )],
        next:
            "all ranks made the call: look at the library and below: NCCL_DEBUG=INFO, the network, \
               Xid errors"
                .to_owned(),
    }
}

pub fn error_exit(finding: &Finding, details: &ErrorExit) -> Told {
    Told {
        what: format!(
            "{} of rank {} (pid {}) returned {} ({}) in {}.",
            details.api,
            details.rank,
            details.pid,
            if details.result_name.is_empty() { "an error" } else { &details.result_name },
            details.result,
            place(finding),
        ),
        facts: vec![format!("kind: {}", details.error_category.replace('_', " "))],
        next: match details.error_category {
            "cuda_error" => {
                "look at the CUDA error that was set before, and at Xid errors in dmesg"
            }
            "remote_error" => "another rank failed first: look for its error",
            "system_or_rdma_error" => "look at the network and at NCCL_DEBUG=WARN of this rank",
            _ => "NCCL_DEBUG=WARN tells the reason",
        }
        .to_owned(),
    }
}

pub fn heartbeat(details: &RankHeartbeatTimeout) -> Told {
    let since = match details.timeout_type {
        "initial_heartbeat" => "since its start",
        _ => "since the last one",
    };
    let call = match (&details.last_nccl_api, &details.last_nccl_phase) {
        (Some(api), Some(phase)) => vec![format!("its latest call: {api}, {phase}")],
        _ => Vec::new(),
    };
    Told {
        what: format!(
            "Rank {} (pid {}) gives no heartbeat, {} {since}.",
            details.rank,
            details.pid,
            seconds(details.heartbeat_age_s),
        ),
        facts: call,
        next: "look at whether the process lives, and whether its host answers".to_owned(),
    }
}

pub fn no_progress(details: &NoProgress) -> Told {
    Told {
        what: format!(
            "No rank has called anything for {}, though no call is open and {}.",
            seconds(details.silent_s),
            match details.live_processes {
                1 => "1 process lives".to_owned(),
                many => format!("{} live", count(many, "process")),
            },
        ),
        facts: last_calls(&details.last_calls),
        next:
            "the hang is on the device or outside NCCL: look at the stacks, at nvidia-smi, and for \
               calls on one stream in another order than on the other ranks"
                .to_owned(),
    }
}

/// The latest calls, one line for all ranks that made the same: all of them have returned, and what
/// the devices still have to do of them is not seen.
fn last_calls(calls: &[LastCall]) -> Vec<String> {
    let mut groups: Vec<(&LastCall, Vec<i64>)> = Vec::new();
    let same = |a: &LastCall, b: &LastCall| {
        (&a.api, a.comm_seq, &a.comm_uid_hash) == (&b.api, b.comm_seq, &b.comm_uid_hash)
    };
    for call in calls {
        match groups.iter_mut().find(|(known, _)| same(known, call)) {
            Some((_, ranks)) => ranks.push(call.rank),
            None => groups.push((call, vec![call.rank])),
        }
    }
    let (few, more) = shown(&groups, MOST_CALLS);
    let mut lines: Vec<String> = few
        .iter()
        .map(|(call, ranks)| {
            let on = match (call.comm_uid_hash.as_str(), call.comm_seq) {
                ("", _) => String::new(),
                (comm, ..0) => format!(" on communicator {comm}"),
                (comm, seq) => format!(", call {seq} on communicator {comm}"),
            };
            format!("{}: last {}{on}, which has returned", named(ranks), call.api)
        })
        .collect();
    if more > 0 {
        lines.push(format!("and {}", count(more, "more different call")));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_with_the_same_latest_call_are_one_line() {
        let call = |rank, api: &str, comm_seq, comm: &str| LastCall {
            api: api.to_owned(),
            comm_seq,
            comm_uid_hash: comm.to_owned(),
            phase: "exit",
            rank,
            timestamp_unix_ns: rank,
        };
        let calls = [
            call(0, "ncclAllReduce", 17, "c"),
            call(1, "ncclAllGather", 4, "d"),
            call(2, "ncclAllReduce", 17, "c"),
            call(3, "ncclGroupEnd", -1, ""),
        ];
        let expected = [
            "ranks 0, 2: last ncclAllReduce, call 17 on communicator c, which has returned",
            "rank 1: last ncclAllGather, call 4 on communicator d, which has returned",
            "rank 3: last ncclGroupEnd, which has returned",
        ];
        assert_eq!(last_calls(&calls), expected);
    }
}
