//! Calls that do not return, errors, heartbeats, progress, creations.

use deepxtrace_nccl_h2::{Confidence, EventKind, HangType, Settings};

use crate::only;
use crate::support::{Session, call, kinds, reduce, send};

#[test]
fn all_ranks_that_do_not_return_are_one_finding() {
    let mut session = Session::new();
    for rank in 0..3 {
        session.made(rank as f64, reduce("c", rank, 3, 4).numbered(10 + rank));
    }
    assert_eq!(session.scan(59.0), []);
    let found = session.scan(62.0);
    assert_eq!(found[0].hang_type, HangType::CollectiveAllRanksStuck);
    assert_eq!(found[0].comm_seq, 4);
    let details = only!(found, RoundMissingExit);
    assert_eq!(details.stuck_scope, "all_ranks");
    assert_eq!(details.missing_exit_comm_ranks, [0, 1, 2]);
    assert_eq!((details.root_comm_rank, details.root_rank, details.root_seq), (0, 0, 4));
    let durations = [(0, 62.0), (1, 61.0), (2, 60.0)];
    assert_eq!(details.stuck_duration_by_comm_rank, durations);
    assert_eq!(details.confidence, Confidence::Observed);
    assert_eq!(details.root_cause_status, "unknown");
    assert_eq!(session.scan(500.0), []);
}

#[test]
fn a_part_of_a_round_that_does_not_return_is_one_finding() {
    let mut session = Session::new();
    session.done(0.0, reduce("c", 0, 3, 0).numbered(1));
    session.made(1.0, reduce("c", 1, 3, 0).numbered(1));
    session.made(2.0, reduce("c", 2, 3, 0).numbered(1));
    let found = session.scan(70.0);
    assert_eq!(found[0].hang_type, HangType::CollectiveMissingExit);
    let details = only!(found, RoundMissingExit);
    assert_eq!(details.stuck_scope, "partial_ranks");
    assert_eq!(
        (&details.exited_comm_ranks[..], &details.missing_exit_comm_ranks[..]),
        (&[0][..], &[1, 2][..])
    );
}

#[test]
fn one_rank_inside_a_call_that_is_no_round_is_a_missing_exit() {
    let mut session = Session::new();
    let mut made = call("ncclCommFinalize", "c", 1, 2, 0).numbered(5);
    made.call.count = 0;
    session.made(0.0, made);
    let details = only!(session.scan(60.0), MissingExit);
    assert_eq!((details.rank, details.pid, details.call_seq), (1, 101, 5));
    assert_eq!(details.reason, "nccl_api_entered_but_did_not_return");
    assert_eq!(details.evidence, "api_enter_without_exit");
    assert_eq!(details.last_record.phase, "enter");
}

#[test]
fn the_end_of_a_group_stands_for_its_collective() {
    let mut session = Session::new();
    for rank in 0..2 {
        session.done(0.0, call("ncclGroupStart", "", rank, 2, 0).numbered(1).group(1));
        session.done(0.0, reduce("c", rank, 2, 0).numbered(2).group(1));
        session.made(0.0, call("ncclGroupEnd", "", rank, 2, 0).numbered(3).group(1));
    }
    assert_eq!(kinds(&session.scan(60.0)), [HangType::CollectiveAllRanksStuck]);
}

#[test]
fn a_missing_enter_is_not_repeated_as_missing_exits() {
    let mut session = Session::new();
    for rank in 0..3 {
        session.done(0.0, reduce("c", rank, 3, 0).numbered(1));
    }
    for rank in 0..2 {
        session.made(1.0, reduce("c", rank, 3, 1).numbered(2));
    }
    assert_eq!(kinds(&session.scan(100.0)), [HangType::CollectiveMissingEnter]);
    assert_eq!(session.scan(500.0), []);
}

#[test]
fn an_incomplete_round_is_no_missing_exit_even_where_that_timeout_is_shorter() {
    let mut session =
        Session::with(Settings { missing_exit_timeout_s: Some(5.0), ..Settings::default() });
    for rank in 0..2 {
        session.done(0.0, reduce("c", rank, 2, 0).numbered(1));
    }
    session.made(1.0, reduce("c", 0, 2, 1).numbered(2));
    assert_eq!(session.scan(30.0), []);
    assert_eq!(kinds(&session.scan(61.0)), [HangType::CollectiveMissingEnter]);
}

#[test]
fn a_mismatch_is_not_repeated_as_missing_exits() {
    let mut session = Session::new();
    session.made(0.0, reduce("c", 0, 2, 0).numbered(1).count(1));
    session.made(0.0, reduce("c", 1, 2, 0).numbered(1).count(2));
    assert_eq!(kinds(&session.scan(100.0)), [HangType::CollectiveSignatureMismatch]);
    assert_eq!(session.scan(500.0), []);
}

#[test]
fn a_send_without_receive_is_not_repeated_as_the_missing_exit_of_its_group() {
    let mut session = Session::new();
    session.done(0.0, call("ncclGroupStart", "", 0, 2, 0).numbered(1).group(1));
    session.done(0.0, send("c", 0, 2, 1, 0).numbered(2).group(1));
    session.made(0.0, call("ncclGroupEnd", "", 0, 2, 0).numbered(3).group(1));
    assert_eq!(kinds(&session.scan(60.0)), [HangType::P2pMissingCounterpart]);
}

#[test]
fn a_missing_exit_where_events_are_lost_is_suspected() {
    let mut session = Session::new();
    session.dropped(0.0, 0, 2);
    session.made(0.0, call("ncclCommFinalize", "c", 0, 1, 0).numbered(1));
    assert_eq!(only!(session.scan(60.0), MissingExit).confidence, Confidence::Suspected);
}

#[test]
fn a_call_that_returned_in_time_is_no_missing_exit_when_its_file_is_read_again() {
    let mut session = Session::new();
    session.done(0.0, reduce("c", 0, 1, 0).numbered(1));
    session.made(1.0, reduce("c", 0, 1, 0).numbered(1));
    assert_eq!(session.scan(500.0), []);
}

#[test]
fn an_error_result_is_given_at_once_and_by_category() {
    let categories = [
        (1, "cuda_error"),
        (2, "system_or_rdma_error"),
        (3, "nccl_internal_error"),
        (4, "invalid_argument"),
        (5, "invalid_usage"),
        (6, "remote_error"),
        (8, "unknown_error"),
        (99, "unknown_error"),
    ];
    for (result, category) in categories {
        let mut session = Session::new();
        session.made(1.0, reduce("c", 0, 1, 0).numbered(1));
        session.made(3.0, reduce("c", 0, 1, 0).numbered(1).exit(result));
        let details = only!(session.scan(4.0), ErrorExit);
        assert_eq!((details.error_category, details.result), (category, result));
        assert_eq!(details.reason, "nccl_api_returned_error");
        assert_eq!(details.stuck_duration_s, Some(2.0));
    }
}

#[test]
fn in_progress_is_a_state_and_no_failure() {
    let mut session = Session::new();
    session.made(1.0, reduce("c", 0, 1, 0).numbered(1));
    session.made(3.0, reduce("c", 0, 1, 0).numbered(1).exit(7));
    assert_eq!(session.scan(500.0), []);
}

#[test]
fn the_same_error_again_and_again_is_one_finding_until_a_call_succeeds() {
    let mut session = Session::new();
    let fail = |session: &mut Session, number| {
        session.made(1.0, reduce("c", 0, 1, number).numbered(number));
        session.made(1.0, reduce("c", 0, 1, number).numbered(number).exit(3));
    };
    (0..5).for_each(|number| fail(&mut session, number));
    assert_eq!(session.scan(2.0).len(), 1);
    session.done(3.0, reduce("c", 0, 1, 5).numbered(5));
    fail(&mut session, 6);
    assert_eq!(session.scan(4.0).len(), 1);
    // The file is read again.
    (0..5).for_each(|number| fail(&mut session, number));
    fail(&mut session, 6);
    assert_eq!(session.scan(5.0), []);
}

#[test]
fn heartbeat_timeouts_are_off_by_default() {
    let mut session = Session::new();
    session.start(0.0, 0);
    assert_eq!(session.scan(5_000.0), []);
}

fn with_heartbeats() -> Session {
    Session::with(Settings {
        detect_heartbeat_timeouts: Some(true),
        initial_heartbeat_timeout_s: Some(20.0),
        heartbeat_timeout_s: Some(10.0),
        ..Settings::default()
    })
}

#[test]
fn a_process_that_never_gives_a_heartbeat_is_found_after_the_initial_timeout() {
    let mut session = with_heartbeats();
    session.start(5.0, 3);
    session.event(5.0, 2, EventKind::CheckpointEnd);
    assert_eq!(session.scan(25.0), [], "stale is above the timeout");
    let found = session.scan(25.1);
    assert_eq!((found[0].comm_seq, &*found[0].comm_uid_hash), (-1, ""));
    let details = only!(found, RankHeartbeatTimeout);
    assert_eq!((details.rank, details.pid), (3, 103));
    assert_eq!(details.timeout_type, "initial_heartbeat");
    assert_eq!(details.reason, "probe_heartbeat_not_observed");
    assert_eq!(details.last_nccl_api, None);
}

#[test]
fn a_process_whose_heartbeats_end_is_found_once_until_they_come_back() {
    let mut session = with_heartbeats();
    session.start(0.0, 0);
    session.beat(1.0, 0, "train");
    assert_eq!(session.scan(11.0), []);
    let details = only!(session.scan(12.0), RankHeartbeatTimeout);
    assert_eq!(details.timeout_type, "subsequent_heartbeat");
    assert_eq!(details.reason, "rank_process_or_probe_thread_unresponsive");
    assert_eq!(session.scan(100.0), []);
    session.beat(101.0, 0, "train");
    assert_eq!(session.scan(102.0), []);
    assert_eq!(session.scan(112.0).len(), 1, "the same after a recovery is a new finding");
}

#[test]
fn a_process_that_said_goodbye_owes_no_heartbeat() {
    let mut session = with_heartbeats();
    session.start(0.0, 0);
    session.event(1.0, 0, EventKind::ProcessEnd);
    assert_eq!(session.scan(500.0), []);
}

#[test]
fn a_run_in_which_all_live_and_nobody_calls_has_no_progress() {
    let mut session = Session::new();
    let mut seconds = 0.0;
    for rank in 0..2 {
        session.start(0.0, rank);
        session.done(1.0, reduce("c", rank, 2, 0).numbered(1));
    }
    while seconds < 300.0 {
        seconds += 10.0;
        (0..2).for_each(|rank| session.beat(seconds, rank, "train"));
    }
    assert_eq!(session.scan(300.9), []);
    let details = only!(session.scan(301.0), NoProgress);
    assert_eq!(details.live_processes, 2);
    assert_eq!((details.silent_s, details.last_calls.len()), (300.0, 2));
    assert_eq!(details.confidence, Confidence::Suspected);
    assert_eq!(session.scan(302.0), []);
}

#[test]
fn silence_of_processes_that_do_not_live_is_no_lack_of_progress() {
    let mut session = Session::new();
    for rank in 0..2 {
        session.done(1.0, reduce("c", rank, 2, 0).numbered(1));
    }
    session.beat(290.0, 0, "train");
    assert_eq!(session.scan(301.0), [], "rank 1 gives no heartbeat");
    session.beat(301.0, 1, "train");
    assert_eq!(kinds(&session.scan(302.0)), [HangType::NoProgress]);
}

#[test]
fn silence_after_captured_calls_proves_nothing() {
    let mut session = Session::new();
    for rank in 0..2 {
        session.done(1.0, reduce("c", rank, 2, 0).numbered(1).captured());
        session.beat(300.0, rank, "train");
    }
    assert_eq!(session.scan(310.0), []);
}

/// A rank that begins to create a communicator.
fn init(rank: i64, nranks: i64) -> crate::support::Made {
    let mut made = call("ncclCommInitRankConfig", "n", rank, nranks, 0).numbered(0);
    (made.call.count, made.call.datatype) = (0, -1);
    made
}

#[test]
fn a_creation_that_some_ranks_have_not_entered_is_found() {
    let mut session = Session::new();
    for rank in 0..4 {
        session.start(0.0, rank);
    }
    session.made(1.0, init(0, 4));
    session.made(2.0, init(2, 4));
    session.made(3.0, init(3, 4));
    assert_eq!(session.scan(60.9), []);
    let found = session.scan(61.0);
    assert_eq!((found[0].comm_seq, &*found[0].comm_uid_hash), (-1, "n"));
    let details = only!(found, CommInitMissingEnter);
    assert_eq!(details.entered_comm_ranks, [0, 2, 3]);
    assert_eq!(details.missing_comm_ranks, [1]);
    assert_eq!(details.expected_nranks, 4);
    assert_eq!(details.missing_rank_status[0].rank, Some(1));
    assert_eq!(details.confidence, Confidence::Observed);
    assert_eq!(details.parent_hash, None);
    assert_eq!(session.scan(500.0), []);
}

#[test]
fn a_lone_send_hangs_in_the_creation_of_its_communicator() {
    let mut session = Session::new();
    session.start(0.0, 0);
    session.start(0.0, 1);
    session.made(1.0, init(0, 2).world(2));
    let details = only!(session.scan(61.0), CommInitMissingEnter);
    assert_eq!(details.missing_comm_ranks, [1]);
}

#[test]
fn a_creation_that_returned_is_complete() {
    let mut session = Session::new();
    session.made(1.0, init(0, 2));
    session.made(2.0, init(1, 2));
    session.made(3.0, init(0, 2).created());
    session.made(3.0, init(1, 2).created());
    assert_eq!(session.scan(500.0), []);
}

#[test]
fn a_creation_that_all_entered_and_that_does_not_return_is_a_missing_exit() {
    let mut session = Session::new();
    session.made(1.0, init(0, 2));
    session.made(2.0, init(1, 2));
    assert_eq!(kinds(&session.scan(100.0)), [HangType::NcclMissingExit; 2]);
}

/// A rank that begins to split communicator `p`.
fn split(rank: i64, ordinal: i64, color: i64, child: &'static str) -> crate::support::Made {
    let mut made = call("ncclCommSplit", child, -1, -1, 0).of_rank(rank).numbered(10 + ordinal);
    made.call.parent_hash = "p".into();
    (made.call.parent_ordinal, made.call.color) = (ordinal, color);
    made
}

#[test]
fn a_split_is_called_by_all_ranks_of_the_parent() {
    let mut session = Session::new();
    for rank in 0..4 {
        session.done(0.0, reduce("p", rank, 4, 0).numbered(1));
    }
    // All call, one without a colour: complete, though no child has all of them.
    session.made(1.0, split(0, 0, 0, "a"));
    session.made(1.0, split(1, 0, 0, "a"));
    session.made(1.0, split(2, 0, 1, "b"));
    session.made(1.0, split(3, 0, -1, ""));
    (0..4).for_each(|rank| {
        session.made(2.0, split(rank, 0, 0, "").exit(0));
    });
    assert_eq!(session.scan(100.0), []);
    // The next split lacks rank 3.
    (0..3).for_each(|rank| {
        session.made(100.0, split(rank, 1, 0, "d"));
    });
    let found = session.scan(160.0);
    assert_eq!(found[0].comm_uid_hash, "p");
    let details = only!(found, CommInitMissingEnter);
    assert_eq!(details.missing_comm_ranks, [3]);
    assert_eq!(details.parent_hash.as_deref(), Some("p"));
}

#[test]
fn only_survivors_call_a_shrink() {
    let mut session = Session::new();
    for rank in 0..4 {
        session.done(0.0, reduce("p", rank, 4, 0).numbered(1));
    }
    let shrink = |rank: i64| {
        let mut made = split(rank, 0, -1, "s");
        made.call.api = "ncclCommShrink".into();
        made.call.excluded = "1".into();
        made
    };
    session.made(1.0, shrink(0));
    session.made(1.0, shrink(2));
    let details = only!(session.scan(61.0), CommInitMissingEnter);
    assert_eq!((details.missing_comm_ranks, details.expected_nranks), (vec![3], 3));
    session.made(62.0, shrink(3));
    (0..4).filter(|&rank| rank != 1).for_each(|rank| {
        session.made(63.0, shrink(rank).exit(0));
    });
    assert_eq!(session.scan(500.0), []);
}

#[test]
fn all_ranks_of_one_process_are_created_by_one_call() {
    let mut session = Session::new();
    let mut made = init(0, 8);
    made.call.api = "ncclCommInitAll".into();
    session.made(0.0, made.clone());
    session.made(1.0, made.created());
    assert_eq!(session.scan(500.0), []);
}

#[test]
fn another_program_in_the_same_process_begins_anew() {
    let mut session = Session::new();
    session.start(0.0, 0);
    session.made(0.5, reduce("c", 0, 1, 0).numbered(1));
    session.start(10.0, 0);
    // The same numbers, and this time the call returns.
    session.done(11.0, reduce("d", 0, 1, 0).numbered(1));
    assert_eq!(session.scan(500.0), []);
}

#[test]
fn a_call_on_a_communicator_that_its_rank_has_destroyed_is_told_once() {
    let mut session = Session::new();
    session.done(0.0, reduce("c", 0, 4, 7).numbered(1));
    session.made(1.0, call("ncclCommDestroy", "c", 0, 4, -1).numbered(2).destroyed());
    session.made(2.0, reduce("c", 0, 4, 8).numbered(3));
    let scans = [1000.0, 2000.0, 9000.0].map(|seconds| session.scan(seconds));
    let found: Vec<_> = scans.into_iter().flatten().collect();
    assert_eq!(kinds(&found), [HangType::CollectiveMissingEnter]);
    assert_eq!(session.finish(10_000.0), []);
}

#[test]
fn what_a_rank_called_behind_its_lone_send_is_told_with_it() {
    let mut session = Session::new();
    session.made(0.0, send("c", 2, 4, 0, 0).numbered(1));
    session.made(1.0, call("ncclCommSplit", "b", 2, 4, 10).numbered(2));
    let scans = [1000.0, 2000.0, 9000.0].map(|seconds| session.scan(seconds));
    let found: Vec<_> = scans.into_iter().flatten().collect();
    assert_eq!(kinds(&found), [HangType::P2pMissingCounterpart]);
    assert_eq!(session.finish(10_000.0), []);
}

#[test]
fn the_call_in_which_a_named_root_is_stuck_is_told_once() {
    let mut session = Session::new();
    // A collective of nothing waits for nobody; its rank is what the creation of "c" waits for.
    session.made(0.0, reduce("c", 0, 4, 0).numbered(1).count(0));
    session.event(0.0, 1, EventKind::CommInit(call("ncclCommInitRank", "c", 1, 4, 7).call));
    session.made(0.0, reduce("a", 1, 4, 1).numbered(2));
    let scans = [1000.0, 2000.0, 9000.0].map(|seconds| session.scan(seconds));
    let found: Vec<_> = scans.into_iter().flatten().collect();
    assert_eq!(kinds(&found), [HangType::RootBlocker]);
    assert_eq!(session.finish(10_000.0), []);
}
