//! Findings about calls that did not return, and about processes.

use deepxtrace_nccl_h2::{
    ErrorExit, Finding, MissingExit, NoProgress, RankHeartbeatTimeout, RoundMissingExit,
};

use super::collective::capital;
use super::{Told, heartbeats, named, place, seconds};

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
            "No rank has called anything for {}, though nothing is open and {} processes live.",
            seconds(details.silent_s),
            details.live_processes,
        ),
        facts: details
            .last_calls
            .iter()
            .take(4)
            .map(|call| format!("rank {}: {} {}", call.rank, call.api, call.phase))
            .collect(),
        next:
            "the hang is on the device or outside NCCL: look at the stacks, at nvidia-smi, and for \
               calls on one stream in another order than on the other ranks"
                .to_owned(),
    }
}
