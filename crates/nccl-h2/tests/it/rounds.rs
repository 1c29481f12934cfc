//! Rounds: mismatches, missing and late ranks.

use deepxtrace_nccl_h2::{Confidence, HangType, Heartbeats, MismatchType, Settings};

use crate::only;
use crate::support::{Session, call, kinds, recv, reduce, send};

#[test]
fn a_complete_round_of_equal_calls_gives_nothing_and_leaves_nothing() {
    let mut session = Session::new();
    for rank in 0..3 {
        session.done(0.1 * rank as f64, reduce("c", rank, 3, 0).numbered(1));
    }
    assert_eq!(session.analyzer.open_rounds(), 0);
    assert_eq!(session.scan(1000.0), []);
}

#[test]
fn entered_ranks_of_one_round_that_differ_are_a_confirmed_mismatch() {
    let mut session = Session::new();
    session.done(0.0, reduce("c", 0, 2, 7));
    session.done(0.0, call("ncclAllGather", "c", 1, 2, 7));
    let found = session.scan(0.1);
    assert_eq!((found[0].comm_seq, &*found[0].comm_uid_hash), (7, "c"));
    let details = only!(found, SignatureMismatch);
    assert_eq!(details.mismatch_type, MismatchType::ApiMismatch);
    assert_eq!(details.confidence, Confidence::Confirmed);
    assert_eq!((&details.entered_comm_ranks[..], details.expected_nranks), (&[0, 1][..], 2));
    assert_eq!(session.scan(500.0), [], "a finding is given once");
}

#[test]
fn an_api_mismatch_comes_first_then_roots_then_parameters() {
    let mismatch = |made: [crate::support::Made; 2]| {
        let mut session = Session::new();
        made.into_iter().for_each(|made| session.done(0.0, made));
        only!(session.scan(1.0), SignatureMismatch).mismatch_type
    };
    let broadcast = |rank| call("ncclBroadcast", "c", rank, 2, 0).root(0);
    let with = |other| mismatch([broadcast(0), other]);
    assert_eq!(with(reduce("c", 1, 2, 0).count(5)), MismatchType::ApiMismatch);
    assert_eq!(with(broadcast(1).root(1).count(5)), MismatchType::RootMismatch);
    assert_eq!(with(broadcast(1).count(5)), MismatchType::ParameterMismatch);
}

#[test]
fn a_mismatch_never_hides_a_rank_that_has_not_entered() {
    let mut session = Session::new();
    for rank in 0..3 {
        session.start(0.0, rank);
        session.done(0.0, reduce("c", rank, 3, 0));
    }
    session.done(1.0, reduce("c", 0, 3, 1).count(10));
    session.done(1.0, reduce("c", 1, 3, 1).count(20));
    let mismatch = only!(session.scan(2.0), SignatureMismatch);
    assert_eq!(mismatch.entered_comm_ranks, [0, 1]);
    let missing = only!(session.scan(61.0), CollectiveMissingEnter);
    assert_eq!((missing.missing_comm_ranks, missing.expected_nranks), (vec![2], 3));
    assert_eq!(session.scan(500.0), []);
}

#[test]
fn in_one_scan_an_incomplete_round_with_a_mismatch_gives_both_findings() {
    let mut session = Session::new();
    session.done(1.0, reduce("c", 0, 3, 0).count(10));
    session.done(1.0, reduce("c", 1, 3, 0).count(20));
    let both = [HangType::CollectiveSignatureMismatch, HangType::CollectiveMissingEnter];
    assert_eq!(kinds(&session.scan(61.0)), both);
}

#[test]
fn a_complete_round_with_a_mismatch_gives_the_mismatch_alone() {
    let mut session = Session::new();
    session.made(0.0, reduce("c", 0, 2, 0).count(10).numbered(1));
    session.made(50.0, reduce("c", 1, 2, 0).count(20).numbered(1));
    assert_eq!(kinds(&session.scan(500.0)), [HangType::CollectiveSignatureMismatch]);
}

#[test]
fn user_defined_reductions_that_differ_by_value_give_nothing() {
    let mut session = Session::new();
    session.done(0.0, reduce("c", 0, 2, 0).op(812_748_662));
    session.done(0.0, reduce("c", 1, 2, 0).op(110_148_945));
    assert_eq!(session.scan(500.0), []);
}

#[test]
fn equal_bytes_under_another_datatype_are_a_contract_warning_given_once() {
    let mut session = Session::new();
    for seq in 0..3 {
        session.done(0.0, call("ncclAllGather", "c", 0, 2, seq).count(8).datatype(7));
        session.done(0.0, call("ncclAllGather", "c", 1, 2, seq).count(4).datatype(8));
    }
    let details = only!(session.scan(1.0), DatatypeContract);
    assert_eq!((details.bytes, details.confidence), (32, Confidence::Observed));
}

#[test]
fn a_collective_of_nothing_on_all_ranks_is_healthy_in_both_numberings() {
    for own_number in [false, true] {
        let mut session = Session::new();
        for rank in 0..2 {
            session.done(0.0, reduce("c", rank, 2, 0).numbered(1));
            session.done(0.0, reduce("c", rank, 2, 1).count(0).numbered(2));
            session.done(0.0, reduce("c", rank, 2, 1 + i64::from(own_number)).numbered(3));
        }
        assert_eq!(session.analyzer.open_rounds(), 0, "own number: {own_number}");
        assert_eq!(session.scan(500.0), [], "own number: {own_number}");
    }
}

#[test]
fn nothing_on_some_ranks_and_something_on_others_is_a_mismatch_in_both_numberings() {
    for own_number in [false, true] {
        let mut session = Session::new();
        session.done(0.0, reduce("c", 0, 2, 0).numbered(1));
        session.done(0.0, reduce("c", 1, 2, 0).count(0).numbered(1));
        if own_number {
            session.done(0.0, reduce("c", 0, 2, 1).numbered(2));
            session.done(0.0, reduce("c", 1, 2, 1).numbered(2));
        }
        let found = session.scan(1.0);
        assert_eq!(found[0].comm_seq, 0);
        let details = only!(found, SignatureMismatch);
        let counts: Vec<_> = details.signature_by_comm_rank.unwrap();
        let counts: Vec<_> = counts.iter().map(|(rank, call)| (*rank, call.count)).collect();
        assert_eq!(counts, [(0, 1024), (1, 0)], "own number: {own_number}");
        assert_eq!(session.scan(500.0), [], "own number: {own_number}");
    }
}

#[test]
fn a_rank_that_died_after_a_collective_of_nothing_is_missing_in_the_next() {
    let mut session = Session::new();
    for rank in 0..2 {
        session.done(0.0, reduce("c", rank, 2, 0).count(0).numbered(1));
    }
    session.done(1.0, reduce("c", 0, 2, 0).numbered(2));
    assert_eq!(only!(session.scan(61.0), CollectiveMissingEnter).missing_comm_ranks, [1]);
}

#[test]
fn an_unknown_function_is_never_guilty_for_certain() {
    let mut session = Session::new();
    // Equal everywhere: nothing. On one rank only: nothing either, it may be no collective.
    for rank in 0..2 {
        session.done(0.0, call("ncclNewThing", "c", rank, 2, 0).numbered(1));
    }
    session.done(0.0, call("ncclNewThing", "c", 0, 2, 1).numbered(2));
    assert_eq!(session.scan(500.0), []);
    // Beside a known function: suspected, once nobody has made the known call instead.
    session.done(600.0, call("ncclNewThing", "d", 0, 2, 0).numbered(3));
    session.done(600.0, reduce("d", 1, 2, 0).numbered(2));
    assert_eq!(session.scan(601.0), []);
    let details = only!(session.scan(700.0), SignatureMismatch);
    assert_eq!(details.confidence, Confidence::Suspected);
}

#[test]
fn an_unknown_function_that_was_not_numbered_gives_its_place_back() {
    let mut session = Session::new();
    session.done(0.0, call("ncclNewThing", "c", 0, 2, 0).numbered(1));
    session.done(0.1, reduce("c", 1, 2, 0).numbered(1));
    session.done(0.2, reduce("c", 0, 2, 0).numbered(2));
    assert_eq!(session.scan(500.0), []);
    assert_eq!(session.analyzer.open_rounds(), 0);
}

#[test]
fn one_sided_and_management_calls_are_recorded_and_not_matched() {
    let mut session = Session::new();
    for api in ["ncclPutSignal", "ncclSignal", "ncclWaitSignal", "ncclCommRegister"] {
        session.done(0.0, call(api, "c", 0, 2, 0));
    }
    assert_eq!(session.scan(500.0), []);
}

#[test]
fn some_ranks_that_have_not_entered_are_missing_after_the_timeout() {
    let mut session = Session::new();
    for rank in 0..4 {
        session.start(0.0, rank);
        session.done(0.0, reduce("c", rank, 4, 0));
    }
    for rank in [0, 2] {
        session.done(10.0, reduce("c", rank, 4, 1));
    }
    assert_eq!(session.scan(69.9), []);
    let details = only!(session.scan(70.0), CollectiveMissingEnter);
    assert_eq!(details.entered_comm_ranks, [0, 2]);
    assert_eq!(details.missing_comm_ranks, [1, 3]);
    assert_eq!(details.confidence, Confidence::Observed);
    assert_eq!(details.reason, "missing_rank_status_unknown");
    assert_eq!((details.waited_s, details.detection_threshold_s), (60.0, 60.0));
    assert!(!details.trace_ended_early && !details.trace_event_loss_possible);
    assert_eq!(session.scan(1000.0), [], "a finding is given once");
}

#[test]
fn the_age_of_a_round_counts_from_its_first_receipt() {
    let mut session = Session::new();
    session.done(10.0, reduce("c", 0, 3, 0).host(-500.0));
    session.done(60.0, reduce("c", 1, 3, 0));
    assert_eq!(session.scan(69.0), []);
    assert_eq!(session.scan(70.0).len(), 1);
}

#[test]
fn a_rank_of_which_nothing_was_ever_seen_is_suspected_only() {
    let mut session = Session::new();
    session.done(0.0, reduce("c", 0, 3, 0));
    let details = only!(session.scan(60.0), CollectiveMissingEnter);
    assert_eq!(details.confidence, Confidence::Suspected);
    assert!(details.missing_rank_status.iter().all(|status| status.rank.is_none()));
}

#[test]
fn dropped_events_on_a_missing_rank_downgrade_absence_to_suspected() {
    let mut session = Session::new();
    session.start(0.0, 1);
    session.dropped(0.0, 1, 3);
    session.done(0.0, reduce("c", 0, 2, 0));
    session.done(0.0, reduce("c", 1, 2, 0));
    session.done(1.0, reduce("c", 0, 2, 1));
    let details = only!(session.scan(61.0), CollectiveMissingEnter);
    assert_eq!(details.confidence, Confidence::Suspected);
    assert_eq!(details.reason, "probe_event_loss_possible");
    assert!(details.trace_event_loss_possible);
    assert_eq!(details.missing_rank_status[0].probe_dropped_events, Some(3));
}

#[test]
fn heartbeats_tell_a_crashed_rank_from_one_that_lives() {
    let reason = |last_beat: Option<f64>| {
        let mut session = Session::new();
        for rank in 0..2 {
            session.done(0.0, reduce("c", rank, 2, 0));
        }
        session.done(1.0, reduce("c", 0, 2, 1));
        last_beat.into_iter().for_each(|at| session.beat(at, 1, "train"));
        let details = only!(session.scan(61.0), CollectiveMissingEnter);
        let status = &details.missing_rank_status[0];
        (details.reason, status.heartbeat, status.heartbeat_age_s)
    };
    let alive = ("rank_alive_but_not_entered", Heartbeats::Alive, Some(30.0));
    assert_eq!(reason(Some(31.0)), alive, "30 s old: not above the timeout");
    let stale = ("rank_exit_or_crash_suspected", Heartbeats::Stale, Some(31.0));
    assert_eq!(reason(Some(30.0)), stale);
    assert_eq!(reason(None), ("missing_rank_status_unknown", Heartbeats::Unknown, None));
}

#[test]
fn a_rank_that_writes_a_checkpoint_gets_the_checkpoint_timeout() {
    let mut session = Session::new();
    for rank in 0..2 {
        session.done(0.0, reduce("c", rank, 2, 0));
    }
    session.beat(0.5, 1, "checkpointing");
    session.done(1.0, reduce("c", 0, 2, 1));
    assert_eq!(session.scan(100.0), []);
    session.beat(1790.0, 1, "train");
    assert_eq!(session.scan(1800.0), [], "it stays once seen in a round");
    session.beat(1795.0, 1, "train");
    let details = only!(session.scan(1801.0), CollectiveMissingEnter);
    assert_eq!(details.detection_threshold_s, 1800.0);
    assert_eq!(details.threshold_reason, "heartbeat_phase_checkpointing");
    assert_eq!(details.detection_phase, "train");
}

#[test]
fn the_detection_phase_is_mixed_where_missing_ranks_differ() {
    let mut session = Session::new();
    for rank in 0..3 {
        session.done(0.0, reduce("c", rank, 3, 0));
    }
    session.beat(30.0, 1, "train");
    session.beat(30.0, 2, "eval");
    session.done(1.0, reduce("c", 0, 3, 1));
    let details = only!(session.scan(61.0), CollectiveMissingEnter);
    assert_eq!(details.detection_phase, "mixed");
    assert_eq!(details.threshold_reason, "normal_collective_phase");
}

#[test]
fn ranks_that_enter_much_later_than_the_first_are_delayed() {
    let mut session = Session::new();
    for (rank, seconds) in [(0, 0.0), (1, 30.0), (2, 30.5), (3, 31.0)] {
        session.done(seconds, reduce("c", rank, 4, 0));
    }
    let details = only!(session.scan(32.0), DelayedCollectiveEnter);
    assert_eq!(details.slow_comm_ranks, [2, 3], "30 s is not above the threshold");
    assert_eq!(details.enter_spread_s, 31.0);
    assert_eq!(details.confidence, Confidence::Suspected);
}

#[test]
fn a_spread_of_exactly_the_threshold_is_no_delay() {
    let mut session = Session::new();
    session.done(0.0, reduce("c", 0, 2, 0));
    session.done(30.0, reduce("c", 1, 2, 0));
    assert_eq!(session.scan(31.0), []);
}

#[test]
fn a_rank_that_is_late_in_round_after_round_is_one_finding_until_it_is_in_time() {
    let mut session = Session::new();
    for seq in 0..6 {
        let late = if seq == 4 { 1.0 } else { 40.0 };
        session.done(seq as f64, reduce("c", 0, 2, seq).host(100.0 * seq as f64));
        session.done(seq as f64, reduce("c", 1, 2, seq).host(100.0 * seq as f64 + late));
    }
    let found = session.scan(7.0);
    let rounds: Vec<i64> = found.iter().map(|finding| finding.comm_seq).collect();
    assert_eq!(rounds, [0, 5]);
}

#[test]
fn whether_a_rank_lived_is_judged_at_the_end_of_the_trace() {
    let mut session = Session::new();
    for rank in 0..2 {
        session.done(0.0, reduce("c", rank, 2, 0));
        session.beat(5.0, rank, "train");
    }
    session.done(6.0, reduce("c", 0, 2, 1));
    let end = crate::support::at(7.0);
    let found = session.analyzer.finish_after(end, std::time::Duration::from_secs(100));
    let details = only!(found, CollectiveMissingEnter);
    assert_eq!(details.reason, "rank_alive_but_not_entered");
    assert_eq!(details.missing_rank_status[0].heartbeat_age_s, Some(2.0));
    assert_eq!((details.waited_s, details.trace_ended_early), (101.0, false));
}

#[test]
fn a_delay_compares_the_wall_clocks_of_the_hosts() {
    let mut session = Session::new();
    session.done(0.0, reduce("c", 0, 2, 0).host(0.0));
    session.done(0.1, reduce("c", 1, 2, 0).host(-40.0));
    let details = only!(session.scan(1.0), DelayedCollectiveEnter);
    assert_eq!(details.slow_comm_ranks, [0]);
    assert_eq!(details.clock_assumption, "hosts have synchronized wall clocks");
}

#[test]
fn later_rounds_that_wait_for_the_same_rank_are_not_repeated() {
    let mut session = Session::new();
    for rank in 0..2 {
        session.done(0.0, reduce("c", rank, 2, 0));
    }
    for seq in 1..20 {
        session.done(seq as f64, reduce("c", 0, 2, seq));
    }
    let found = session.scan(61.0);
    assert_eq!(found[0].comm_seq, 1);
    only!(found, CollectiveMissingEnter);
    assert_eq!(session.scan(500.0), []);
}

#[test]
fn the_same_cause_after_a_recovery_is_a_new_finding() {
    let mut session = Session::new();
    for rank in 0..2 {
        session.done(0.0, reduce("c", rank, 2, 0).numbered(1));
    }
    session.done(0.0, reduce("c", 0, 2, 1).numbered(2));
    assert_eq!(session.scan(60.0).len(), 1);
    session.done(70.0, reduce("c", 1, 2, 1).numbered(2));
    assert_eq!((session.scan(71.0), session.analyzer.open_rounds()), (Vec::new(), 0));
    session.done(80.0, reduce("c", 0, 2, 2).numbered(3));
    let found = session.scan(140.0);
    assert_eq!(found[0].comm_seq, 2);
    only!(found, CollectiveMissingEnter);
}

#[test]
fn a_replayed_line_of_a_finished_round_does_not_reopen_it() {
    let mut session = Session::new();
    for turn in 0..3 {
        for seq in 0..50 {
            for rank in 0..2 {
                session.done(turn as f64, reduce("c", rank, 2, seq).numbered(seq));
            }
        }
    }
    // The file of one rank alone.
    for seq in 0..50 {
        session.done(5.0, reduce("c", 1, 2, seq).numbered(seq));
    }
    assert_eq!(session.analyzer.open_rounds(), 0);
    assert_eq!(session.scan(1000.0), []);
}

#[test]
fn a_reported_round_is_dropped_when_its_processes_ended_or_left_the_communicator() {
    let mut session = Session::new();
    for rank in 0..3 {
        session.done(0.0, reduce("c", rank, 3, 0).numbered(1));
    }
    for rank in 0..2 {
        session.done(0.0, reduce("c", rank, 3, 1).numbered(2));
    }
    assert_eq!(session.scan(60.0).len(), 1);
    assert_eq!(session.analyzer.open_rounds(), 1);
    let end = call("ncclCommAbort", "c", 0, 3, 0).numbered(3).destroyed();
    session.made(61.0, end);
    session.scan(62.0);
    assert_eq!(session.analyzer.open_rounds(), 1, "rank 1 is still in it");
    session.event(63.0, 1, deepxtrace_nccl_h2::EventKind::ProcessEnd);
    session.scan(64.0);
    assert_eq!(session.analyzer.open_rounds(), 0);
}

#[test]
fn a_rank_in_later_rounds_has_only_lost_the_event_of_an_earlier_one() {
    let mut session = Session::new();
    for rank in 0..2 {
        session.start(0.0, rank);
        session.done(0.0, reduce("c", rank, 2, 0));
    }
    for seq in 1..10 {
        session.done(1.0, reduce("c", 0, 2, seq));
        if seq != 4 {
            session.done(1.0, reduce("c", 1, 2, seq));
        }
    }
    assert_eq!(session.scan(500.0), []);
    assert_eq!(session.analyzer.open_rounds(), 0);
}

#[test]
fn ranks_that_go_on_for_longer_than_the_timeout_tell_of_lost_events() {
    let mut session = Session::new();
    for rank in 0..2 {
        session.start(0.0, rank);
        session.done(0.0, reduce("c", rank, 2, 0));
    }
    for seq in 1..100 {
        session.done(seq as f64, reduce("c", 0, 2, seq));
    }
    let details = only!(session.scan(99.0), CollectiveMissingEnter);
    assert_eq!(details.confidence, Confidence::Suspected);
    assert!(details.trace_event_loss_possible);
}

#[test]
fn a_captured_call_is_recorded_and_not_executed() {
    let mut session = Session::new();
    for rank in 0..2 {
        session.start(0.0, rank);
        session.done(0.0, reduce("c", rank, 2, 0));
    }
    // Captured much later on rank 1: nobody waited meanwhile.
    session.done(1.0, reduce("c", 0, 2, 1).captured());
    session.done(50.0, reduce("c", 1, 2, 1).captured());
    assert_eq!(session.scan(51.0), []);
    session.done(60.0, reduce("c", 0, 2, 2).captured());
    let details = only!(session.scan(120.0), CollectiveMissingEnter);
    assert_eq!(details.confidence, Confidence::Suspected);
}

#[test]
fn events_of_another_run_and_unknown_events_are_not_accepted() {
    let mut session = Session::new();
    let mut event = reduce("c", 0, 2, 0).event(0.0);
    event.header.run_id = "other".into();
    assert!(!session.analyzer.ingest(&event, crate::support::at(0.0)));
    let unknown = deepxtrace_nccl_h2::EventKind::Unknown("weather".into());
    assert!(!session.event(0.0, 0, unknown));
    assert_eq!(session.scan(500.0), []);
}

#[test]
fn calls_that_cannot_be_placed_are_not_accepted() {
    let mut session = Session::new();
    assert!(!session.made(0.0, reduce("c", 2, 2, 0)), "no such rank");
    assert!(!session.made(0.0, reduce("d", -1, 2, 0)));
    assert!(!session.made(0.0, reduce("e", 0, -1, 0)));
    assert!(!session.made(0.0, reduce("e", 0, i64::MAX, 0)));
    assert!(!session.made(0.0, send("f", 0, 2, 2, 0)));
    assert!(!session.made(0.0, recv("f", 0, 2, -1, 0)));
    assert!(session.made(0.0, reduce("", 0, 2, 0)), "a call on no communicator");
    assert_eq!(session.scan(50.0), []);
}

#[test]
fn nothing_is_said_later_of_calls_that_were_not_accepted() {
    let mut session = Session::new();
    for impossible in [-1, 0, i64::MAX] {
        assert!(!session.made(0.0, reduce("c", 0, impossible, 0)));
        assert!(!session.made(0.0, send("d", 0, impossible, 1, 0)));
    }
    assert!(!session.made(0.0, reduce("e", 2, 2, 0)), "no such rank");
    assert_eq!(session.scan(500.0), []);
    assert_eq!(session.finish(900.0), []);
}

#[test]
fn a_one_rank_communicator_never_waits() {
    let mut session = Session::new();
    session.done(0.0, reduce("c", 0, 1, 0));
    session.done(0.0, send("c", 0, 1, 0, 0));
    session.done(0.0, recv("c", 0, 1, 0, 0));
    assert_eq!(session.scan(500.0), []);
    assert_eq!((session.analyzer.open_rounds(), session.analyzer.open_p2p_calls()), (0, 0));
}

#[test]
fn the_extreme_numbers_of_calls_are_survived() {
    let mut session = Session::new();
    for seq in [i64::MAX, i64::MAX - 1, i64::MIN, -1, 0] {
        for rank in 0..2 {
            session.done(0.0, reduce("c", rank, 2, seq).numbered(seq).count(i64::MAX));
        }
    }
    assert_eq!(session.scan(500.0), []);
}

#[test]
fn bounds_of_the_state_are_reported_when_reached() {
    let mut session = Session::with(Settings::default());
    let mut limits = deepxtrace_nccl_h2::Limits::default();
    limits.round_entries = 160;
    let config = *session.analyzer.config();
    session.analyzer = deepxtrace_nccl_h2::Analyzer::with_limits("r", config, limits);
    for seq in 0..20 {
        session.done(0.0, reduce("c", 0, 2, seq));
    }
    assert_eq!(session.analyzer.open_rounds(), 10);
    assert_eq!(session.analyzer.limits_reached().rounds, 10);
    let details = only!(session.scan(60.0), CollectiveMissingEnter);
    assert!(details.trace_event_loss_possible);
}
