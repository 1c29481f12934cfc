//! Builds the findings of RAS.

use std::collections::BTreeMap;

use crate::finding::{
    CollectiveMissingEnter, Confidence, Details, ErrorExit, HangType, Heartbeats, LastRecord,
    MismatchType, MissingRankStatus, NoProgress, RankHeartbeatTimeout, SignatureMismatch,
};
use crate::ras::answer::{Answer, Communicator, Rank};
use crate::ras::judge::{Difference, History, Options, World, finding, total};
use crate::ras::report::RasFinding;

/// Ranks of a communicator that have launched different things.
pub(crate) fn difference(
    history: &History<'_>,
    world: &World,
    difference: Difference,
    options: &Options,
) -> RasFinding {
    let communicator = history.last;
    let mut behind = Vec::new();
    let details = if difference.kind == HangType::CollectiveSignatureMismatch {
        Details::SignatureMismatch(mismatch(communicator, &difference))
    } else {
        for (rank, operations) in &difference.ranks {
            behind.extend(operations.iter().map(|(name, count)| (*rank, name.clone(), *count)));
        }
        Details::CollectiveMissingEnter(missing_enter(communicator, world, &difference, options))
    };
    RasFinding {
        finding: finding(difference.kind, &communicator.hash, details),
        behind,
        process: None,
        communicators: vec![communicator.hash.clone()],
    }
}

fn mismatch(communicator: &Communicator, difference: &Difference) -> SignatureMismatch {
    let apis = |(rank, operations): &(i64, Vec<(String, i64)>)| (*rank, api(operations));
    SignatureMismatch {
        api_by_comm_rank: Some(difference.ranks.iter().map(apis).collect()),
        confidence: Confidence::Suspected,
        entered_comm_ranks: ranks(communicator.ranks.iter()),
        expected_nranks: communicator.size,
        explained_findings: Vec::new(),
        mismatch_type: MismatchType::ApiMismatch,
        signature_by_comm_rank: None,
    }
}

fn missing_enter(
    communicator: &Communicator,
    world: &World,
    difference: &Difference,
    options: &Options,
) -> CollectiveMissingEnter {
    let missing: Vec<i64> = difference.ranks.iter().map(|(rank, _)| *rank).collect();
    let is_missing = |rank: &&Rank| missing.contains(&rank.rank);
    let most = communicator.ranks.iter().map(total).max().unwrap_or(0);
    let entered = communicator.ranks.iter().filter(|rank| total(rank) == most);
    // That RAS answers for a rank shows that its process lives.
    let status = |rank: &Rank| MissingRankStatus {
        comm_rank: rank.rank,
        heartbeat: Heartbeats::Alive,
        heartbeat_age_s: None,
        probe_dropped_events: None,
        rank: world.rank(&rank.host, rank.pid),
    };
    let mut operations: Vec<(String, i64)> =
        difference.ranks.iter().flat_map(|(_, operations)| operations.clone()).collect();
    operations.sort();
    operations.dedup_by(|a, b| a.0 == b.0);
    CollectiveMissingEnter {
        api: api(&operations),
        confidence: if difference.long { Confidence::Observed } else { Confidence::Suspected },
        detection_phase: "unknown".to_owned(),
        detection_threshold_s: options.config.collective_timeout_s,
        entered_comm_ranks: ranks(entered),
        expected_nranks: communicator.size,
        missing_rank_status: communicator.ranks.iter().filter(is_missing).map(status).collect(),
        missing_comm_ranks: missing,
        reason: "rank_alive_but_not_entered",
        threshold_reason: "normal_collective_phase",
        trace_ended_early: difference.still_s < options.config.collective_timeout_s,
        trace_event_loss_possible: false,
        waited_s: difference.still_s,
    }
}

fn ranks<'a>(ranks: impl Iterator<Item = &'a Rank>) -> Vec<i64> {
    let mut ranks: Vec<i64> = ranks.map(|rank| rank.rank).collect();
    ranks.sort_unstable();
    ranks
}

/// Functions of operations, joined by `|`.
fn api(operations: &[(String, i64)]) -> String {
    let names: Vec<String> = operations.iter().map(|(name, _)| format!("nccl{name}")).collect();
    names.join("|")
}

/// Ranks of a communicator that say that they are in error.
pub(crate) fn errors(communicator: &Communicator, world: &World) -> Vec<RasFinding> {
    let error = |rank: &Rank| {
        let status = rank.status;
        let (api, result) = match (is_error(status.async_error), is_error(status.init_state)) {
            (true, _) => ("", status.async_error),
            (false, true) => ("ncclCommInitRank", status.init_state),
            (false, false) => return None,
        };
        let details = Details::ErrorExit(error_exit(rank, world, api, result));
        Some(RasFinding {
            finding: finding(HangType::NcclErrorExit, &communicator.hash, details),
            behind: Vec::new(),
            process: Some((rank.host.clone(), rank.pid)),
            communicators: vec![communicator.hash.clone()],
        })
    };
    communicator.ranks.iter().filter_map(error).collect()
}

/// 0 is success, 7 is "in progress", which is no failure; an unknown value is none either.
fn is_error(result: i64) -> bool {
    result > 0 && result != 7
}

fn error_exit(rank: &Rank, world: &World, api: &str, result: i64) -> ErrorExit {
    let (result_name, error_category) = result_words(result);
    ErrorExit {
        api: api.to_owned(),
        call_seq: -1,
        comm_rank: Some(rank.rank),
        confidence: Confidence::Observed,
        enter_timestamp_unix_ns: None,
        error_category,
        evidence: "ras_error_state",
        last_record: LastRecord {
            api: String::new(),
            call_seq: -1,
            phase: "exit",
            timestamp_unix_ns: -1,
        },
        phase: "exit",
        pid: rank.pid,
        process_liveness: Heartbeats::Alive,
        rank: world.rank(&rank.host, rank.pid).unwrap_or(-1),
        reason: "nccl_api_returned_error",
        result,
        result_name: result_name.to_owned(),
        root_cause_status: "unknown",
        stuck_duration_s: None,
    }
}

/// Name and category of an `ncclResult_t`.
fn result_words(result: i64) -> (&'static str, &'static str) {
    match result {
        1 => ("ncclUnhandledCudaError", "cuda_error"),
        2 => ("ncclSystemError", "system_or_rdma_error"),
        3 => ("ncclInternalError", "nccl_internal_error"),
        4 => ("ncclInvalidArgument", "invalid_argument"),
        5 => ("ncclInvalidUsage", "invalid_usage"),
        6 => ("ncclRemoteError", "remote_error"),
        8 => ("ncclTimeout", "unknown_error"),
        _ => ("", "unknown_error"),
    }
}

/// Processes that do not answer in the last answer: one finding a process.
pub(crate) fn missing(answers: &[Answer], world: &World) -> Vec<RasFinding> {
    let Some(last) = answers.last() else { return Vec::new() };
    let mut processes: BTreeMap<(String, i64), (Vec<String>, i64)> = BTreeMap::new();
    for communicator in &last.communicators {
        for rank in &communicator.missing_ranks {
            let key = (rank.host.clone(), rank.pid);
            let (communicators, _) =
                processes.entry(key).or_insert_with(|| (Vec::new(), rank.rank));
            communicators.push(communicator.hash.clone());
        }
    }
    let found = |(process, (communicators, rank)): ((String, i64), (Vec<String>, i64))| {
        let (host, pid) = &process;
        let hash = match communicators.as_slice() {
            [only] => only.clone(),
            _ => String::new(),
        };
        let details = Details::RankHeartbeatTimeout(RankHeartbeatTimeout {
            confidence: Confidence::Suspected,
            dropped_events: None,
            heartbeat_age_s: missing_for(answers, &process),
            last_nccl_api: None,
            last_nccl_phase: None,
            last_nccl_seq: None,
            last_progress_mono_ns: None,
            pid: *pid,
            rank: world.rank(host, *pid).unwrap_or(rank),
            reason: "rank_process_or_probe_thread_unresponsive",
            timeout_type: "subsequent_heartbeat",
        });
        RasFinding {
            finding: finding(HangType::RankHeartbeatTimeout, &hash, details),
            behind: Vec::new(),
            process: Some(process),
            communicators,
        }
    };
    processes.into_iter().map(found).collect()
}

/// Seconds from the first of the answers that lack a process without a break to the last.
fn missing_for(answers: &[Answer], process: &(String, i64)) -> f64 {
    let lacks = |answer: &&Answer| {
        let mut missing =
            answer.communicators.iter().flat_map(|communicator| &communicator.missing_ranks);
        missing.any(|rank| rank.host == process.0 && rank.pid == process.1)
    };
    let first = answers.iter().rev().take_while(lacks).last().and_then(Answer::timestamp_s);
    let last = answers.last().and_then(Answer::timestamp_s);
    last.zip(first).map_or(0.0, |(last, first)| last.saturating_sub(first) as f64)
}

/// Nothing was launched anywhere for long, and all ranks have launched the same.
pub(crate) fn no_progress(last: &Answer, silent_s: f64) -> RasFinding {
    let mut processes: Vec<(&str, i64)> = last
        .communicators
        .iter()
        .flat_map(|communicator| &communicator.ranks)
        .map(|rank| (rank.host.as_str(), rank.pid))
        .collect();
    processes.sort_unstable();
    processes.dedup();
    let details = Details::NoProgress(NoProgress {
        confidence: Confidence::Suspected,
        last_calls: Vec::new(),
        live_processes: i64::try_from(processes.len()).unwrap_or(i64::MAX),
        reason: "launch_counts_equal_and_all_ranks_silent",
        silent_s,
    });
    RasFinding {
        finding: finding(HangType::NoProgress, "", details),
        behind: Vec::new(),
        process: None,
        communicators: last.communicators.iter().map(|found| found.hash.clone()).collect(),
    }
}
