//! Sends and receives.

use deepxtrace_nccl_h2::{Confidence, HangType, Settings};

use crate::only;
use crate::support::{Made, Session, call, kinds, recv, reduce, send};

/// A pair that enters at a time.
fn pair(session: &mut Session, seconds: f64, (src, dst): (i64, i64), nranks: i64, index: i64) {
    session.done(seconds, send("c", src, nranks, dst, index));
    session.done(seconds, recv("c", dst, nranks, src, index));
}

#[test]
fn a_pair_leaves_nothing() {
    let mut session = Session::new();
    for index in 0..100 {
        pair(&mut session, 0.0, (0, 1), 2, index);
    }
    assert_eq!(session.analyzer.open_p2p_calls(), 0);
    assert_eq!(session.scan(1000.0), []);
}

#[test]
fn an_authoritative_pair_needs_no_time_window() {
    let mut session = Session::new();
    session.done(0.0, send("c", 0, 2, 1, 0).host(0.0));
    session.done(50.0, recv("c", 1, 2, 0, 0).host(9_000.0));
    assert_eq!(session.scan(500.0), []);
}

#[test]
fn sends_of_one_rank_to_several_ranks_are_separate() {
    // Rank 0 sends to 1 and 2 in turn; the receivers' indices are shifted against each other.
    let mut session = Session::new();
    for index in 0..10 {
        session.done(0.0, send("c", 0, 3, 1, index));
        session.done(0.0, send("c", 0, 3, 2, index));
    }
    for index in 0..10 {
        session.done(1.0, recv("c", 1, 3, 0, index));
    }
    for index in 0..10 {
        session.done(2.0, recv("c", 2, 3, 0, index).count(1024));
    }
    assert_eq!(session.scan(500.0), []);
    assert_eq!(session.analyzer.open_p2p_calls(), 0);
}

#[test]
fn a_side_that_is_never_seen_is_a_missing_counterpart_after_the_timeout() {
    let mut session = Session::new();
    let made = send("c", 0, 2, 1, 3).group(4).count(77).numbered(9);
    session.done(10.0, made);
    assert_eq!(session.scan(69.9), []);
    let found = session.scan(70.0);
    assert_eq!(found[0].comm_seq, 3);
    let details = only!(found, P2pMissingCounterpart);
    assert_eq!((details.src_comm_rank, details.dst_comm_rank), (0, 1));
    assert_eq!((&*details.observed_api, details.expected_api), ("ncclSend", "ncclRecv"));
    assert_eq!((details.count, details.local_group_id), (77, 4));
    assert_eq!(details.local_p2p_op_index, Some(3));
    assert_eq!(details.aggregated_missing_call_count, 1);
    assert_eq!(details.affected_directions, ["0->1"]);
    assert_eq!(details.confidence, Confidence::Suspected);
    assert_eq!(details.reason, "counterpart_not_observed_in_match_window");
    assert_eq!(session.scan(71.0), [], "a finding is given once");
}

#[test]
fn a_receive_without_send_names_the_send() {
    let mut session = Session::new();
    session.done(0.0, recv("c", 1, 2, 0, 0));
    let details = only!(session.scan(60.0), P2pMissingCounterpart);
    assert_eq!((details.src_comm_rank, details.dst_comm_rank), (0, 1));
    assert_eq!((&*details.observed_api, details.expected_api), ("ncclRecv", "ncclSend"));
}

#[test]
fn a_late_counterpart_is_absorbed_silently_and_gives_no_reverse_finding() {
    let mut session = Session::new();
    session.done(0.0, send("c", 0, 2, 1, 0));
    assert_eq!(session.scan(60.0).len(), 1);
    assert_eq!(session.analyzer.open_p2p_calls(), 1, "kept for one more timeout");
    session.done(110.0, recv("c", 1, 2, 0, 0));
    assert_eq!(session.analyzer.open_p2p_calls(), 0);
    assert_eq!(session.scan(1000.0), []);
}

#[test]
fn after_the_grace_of_one_timeout_the_state_is_gone() {
    let mut session = Session::new();
    session.done(0.0, send("c", 0, 2, 1, 0));
    assert_eq!(session.scan(60.0).len(), 1);
    session.scan(119.0);
    assert_eq!(session.analyzer.open_p2p_calls(), 1);
    session.scan(120.0);
    assert_eq!(session.analyzer.open_p2p_calls(), 0);
    // Even later: known to be done with.
    session.done(130.0, recv("c", 1, 2, 0, 0));
    assert_eq!(session.scan(1000.0), []);
    assert_eq!(session.analyzer.open_p2p_calls(), 0);
}

#[test]
fn a_burst_on_one_peer_pair_is_one_finding() {
    let mut session = Session::new();
    for index in 0..5 {
        session.done(0.0, send("c", 0, 3, 1, index));
    }
    for index in 2..4 {
        session.done(0.0, recv("c", 0, 3, 1, index));
    }
    let details = only!(session.scan(60.0), P2pMissingCounterpart);
    assert_eq!(details.aggregated_missing_call_count, 7);
    assert_eq!(details.comm_seq_range, [0, 4]);
    assert_eq!(details.local_p2p_op_index_range, Some([0, 4]));
    assert_eq!(details.affected_directions, ["0->1", "1->0"]);
    // More of the same burst, a little later.
    session.done(30.0, send("c", 0, 3, 1, 5));
    assert_eq!(session.scan(95.0), []);
}

#[test]
fn after_pairs_match_again_a_missing_counterpart_is_a_new_finding() {
    let mut session = Session::new();
    session.done(0.0, send("c", 0, 2, 1, 0));
    assert_eq!(session.scan(60.0).len(), 1);
    pair(&mut session, 70.0, (0, 1), 2, 1);
    session.done(80.0, send("c", 0, 2, 1, 2));
    let found = session.scan(140.0);
    assert_eq!(found[0].comm_seq, 2);
    only!(found, P2pMissingCounterpart);
}

#[test]
fn a_uniquely_matched_pair_that_differs_is_a_confirmed_mismatch() {
    for count in [4, 5] {
        let mut session = Session::new();
        session.done(0.0, send("c", 0, 2, 1, 0).count(3));
        session.done(0.0, recv("c", 1, 2, 0, 0).count(count));
        let details = only!(session.scan(1.0), P2pCallMismatch);
        assert_eq!(details.confidence, Confidence::Confirmed);
        assert_eq!(details.mismatch_type, "count_or_datatype_mismatch");
        assert_eq!((details.send.count, details.recv.count), (3, count));
        assert_eq!((details.src_comm_rank, details.dst_comm_rank), (0, 1));
        assert_eq!(session.scan(500.0), []);
    }
}

#[test]
fn equal_bytes_of_a_pair_under_another_datatype_are_a_contract_warning() {
    let mut session = Session::new();
    session.done(0.0, send("c", 0, 2, 1, 0).count(8).datatype(7));
    session.done(0.0, recv("c", 1, 2, 0, 0).count(16).datatype(6));
    assert_eq!(kinds(&session.scan(1.0)), [HangType::DatatypeContract]);
}

#[test]
fn a_send_of_nothing_takes_part_and_must_be_paired() {
    let mut session = Session::new();
    session.done(0.0, send("c", 0, 2, 1, 0).count(0));
    assert_eq!(kinds(&session.scan(60.0)), [HangType::P2pMissingCounterpart]);
    let mut session = Session::new();
    session.done(0.0, send("c", 0, 2, 1, 0).count(0));
    session.done(0.0, recv("c", 1, 2, 0, 0).count(0));
    assert_eq!(session.scan(500.0), []);
}

#[test]
fn a_shift_that_makes_all_later_pairs_differ_is_one_mismatch() {
    let mut session = Session::new();
    for index in 0..20 {
        session.done(0.0, send("c", 0, 2, 1, index).count(100 + index));
        session.done(0.0, recv("c", 1, 2, 0, index).count(101 + index));
    }
    assert_eq!(kinds(&session.scan(1.0)), [HangType::P2pCallMismatch]);
}

#[test]
fn the_kth_send_pairs_with_the_kth_receive_in_and_out_of_groups() {
    let mut session = Session::new();
    for index in 0..6 {
        session.done(0.0, send("c", 0, 2, 1, index).count(index).group(index % 2));
    }
    for index in 0..6 {
        session.done(0.0, recv("c", 1, 2, 0, index).count(index).group((index + 1) % 2));
    }
    assert_eq!(session.scan(500.0), []);
}

/// A call without a number, of a process whose trace has begun with its start.
fn bare(session: &mut Session, seconds: f64, made: Made, call_seq: i64) {
    session.done(seconds, made.unindexed().numbered(call_seq));
}

#[test]
fn without_an_index_complete_traces_are_numbered_in_order() {
    let mut session = Session::new();
    session.start(0.0, 0);
    session.start(0.0, 1);
    // Far apart in time, and the second pair differs: numbering finds both out.
    bare(&mut session, 0.0, send("c", 0, 2, 1, 0).count(5), 1);
    bare(&mut session, 1.0, send("c", 0, 2, 1, 1).count(6), 2);
    bare(&mut session, 50.0, recv("c", 1, 2, 0, 0).count(5), 1);
    bare(&mut session, 50.0, recv("c", 1, 2, 0, 1).count(7), 2);
    let details = only!(session.scan(51.0), P2pCallMismatch);
    assert_eq!((details.send.count, details.recv.count), (6, 7));
    assert_eq!(details.send.p2p_op_index, Some(1));
}

#[test]
fn a_clock_that_goes_back_for_one_call_keeps_no_other_from_its_pair() {
    // What was paired before must not matter.
    for before in 0..20 {
        let mut session = Session::new();
        for seq in 0..before {
            bare(&mut session, 0.0, send("c", 0, 2, 1, 0).count(100 + seq), seq);
            bare(&mut session, 0.0, recv("c", 1, 2, 0, 0).count(100 + seq), seq);
        }
        // Neither trace has a start: nothing is numbered. The clock of one send is 100 s back.
        for count in 0..8 {
            let clock = if count == 4 { -99.0 } else { 1.0 };
            let made = send("c", 0, 2, 1, 0).count(count).host(clock);
            bare(&mut session, 1.0, made, before + count);
        }
        for count in 0..8 {
            bare(&mut session, 2.0, recv("c", 1, 2, 0, 0).count(count), before + count);
        }
        assert_eq!(session.analyzer.open_p2p_calls(), 2, "that send and its receive, {before}");
        let late = recv("c", 1, 2, 0, 0).count(4).host(-98.0);
        bare(&mut session, 3.0, late, before + 8);
        assert_eq!(session.analyzer.open_p2p_calls(), 1, "the receive of the other time, {before}");
    }
}

#[test]
fn eight_thousand_healthy_pairs_without_index_give_nothing_at_a_cost_that_is_linear() {
    let cost = |pairs: i64| {
        let mut session = Session::new();
        session.start(0.0, 0);
        session.start(0.0, 1);
        // All sends first: the worst order for a search.
        for number in 0..pairs {
            bare(&mut session, 0.0, send("c", 0, 2, 1, number), number);
        }
        let begin = std::time::Instant::now();
        for number in 0..pairs {
            bare(&mut session, 0.0, recv("c", 1, 2, 0, number), number);
        }
        let taken = begin.elapsed();
        assert_eq!(session.scan(500.0), []);
        assert_eq!(session.analyzer.open_p2p_calls(), 0);
        taken
    };
    let (once, eight) = (cost(8_000), cost(64_000));
    assert!(eight < once * 40 + std::time::Duration::from_millis(20), "{once:?}, {eight:?}");
}

#[test]
fn eight_thousand_healthy_pairs_of_incomplete_traces_give_nothing() {
    let mut session = Session::new();
    for number in 0..8_000 {
        bare(&mut session, 0.0, send("c", 0, 2, 1, number), number);
    }
    for number in 0..8_000 {
        bare(&mut session, 0.0, recv("c", 1, 2, 0, number), number);
    }
    assert_eq!(session.scan(500.0), []);
    assert_eq!(session.analyzer.open_p2p_calls(), 0);
}

#[test]
fn without_index_and_start_only_calls_near_in_time_are_paired() {
    let mut session = Session::new();
    bare(&mut session, 0.0, send("c", 0, 2, 1, 0), 1);
    bare(&mut session, 10.0, recv("c", 1, 2, 0, 0).host(31.0), 1);
    assert_eq!(session.analyzer.open_p2p_calls(), 2);
    assert_eq!(kinds(&session.scan(100.0)), [HangType::P2pMissingCounterpart]);
}

#[test]
fn calls_that_might_belong_together_do_not_hide_what_their_ranks_are_stuck_in() {
    let mut session = Session::new();
    bare(&mut session, 0.0, send("c", 0, 2, 1, 0).count(5), 1);
    bare(&mut session, 1.0, recv("c", 1, 2, 0, 0).count(6), 1);
    bare(&mut session, 2.0, recv("c", 1, 2, 0, 1).count(7), 2);
    for rank in 0..2 {
        session.made(50.0, reduce("d", rank, 2, 4).numbered(9));
    }
    let scans = [62.0, 200.0, 900.0].map(|seconds| session.scan(seconds));
    let found: Vec<_> = scans.into_iter().flatten().collect();
    let expected = [HangType::AmbiguousP2pMatch, HangType::CollectiveAllRanksStuck];
    assert_eq!(kinds(&found), expected);
}

#[test]
fn several_candidates_none_attributable_are_ambiguous() {
    let mut session = Session::new();
    bare(&mut session, 0.0, send("c", 0, 2, 1, 0).count(5), 1);
    bare(&mut session, 1.0, recv("c", 1, 2, 0, 0).count(6), 1);
    bare(&mut session, 2.0, recv("c", 1, 2, 0, 1).count(7), 2);
    assert_eq!(session.scan(59.0), []);
    let details = only!(session.scan(62.0), AmbiguousP2p);
    assert_eq!(details.confidence, Confidence::Unknown);
    assert_eq!(details.reason, "multiple_time_window_candidates");
    assert_eq!(details.candidate_calls.len(), 3);
    assert_eq!(session.scan(200.0), []);
    assert_eq!(session.analyzer.open_p2p_calls(), 0);
}

#[test]
fn numbers_that_were_counted_are_not_trusted_once_events_are_lost() {
    let mut session = Session::new();
    session.start(0.0, 0);
    session.start(0.0, 1);
    // The receive that belongs to the first send was dropped: every later pair is shifted.
    for number in 0..4 {
        bare(&mut session, number as f64, send("c", 0, 2, 1, number).count(100 + number), number);
        if number > 0 {
            let made = recv("c", 1, 2, 0, number).count(100 + number);
            bare(&mut session, number as f64, made, number);
        }
    }
    session.dropped(5.0, 1, 1);
    let found = session.finish(500.0);
    assert!(
        found.iter().all(|finding| finding.confidence() <= Confidence::Suspected),
        "{found:#?}"
    );
}

#[test]
fn a_replayed_file_without_index_pairs_nothing_again() {
    let mut session = Session::new();
    for _ in 0..2 {
        session.start(0.0, 0);
        session.start(0.0, 1);
        for number in 0..50 {
            bare(&mut session, 0.0, send("c", 0, 2, 1, number).count(number), number);
            bare(&mut session, 0.0, recv("c", 1, 2, 0, number).count(number), number);
        }
    }
    // One file alone.
    for number in 0..50 {
        bare(&mut session, 0.0, send("c", 0, 2, 1, number).count(number), number);
    }
    assert_eq!(session.scan(500.0), []);
    assert_eq!(session.analyzer.open_p2p_calls(), 0);
}

#[test]
fn a_match_window_above_the_timeout_is_refused() {
    let settings =
        Settings { p2p_timeout_s: Some(5.0), p2p_match_window_s: Some(6.0), ..Settings::default() };
    let error = settings.resolve().unwrap_err().to_string();
    assert!(error.starts_with("p2p_match_window_s is 6"), "{error}");
}

#[test]
fn a_lone_receive_that_does_not_return_is_told_once_however_often_one_looks() {
    for (host_s, peer) in [(0.0, 1), (0.0, 2)] {
        let mut session = Session::new();
        session.made(0.0, recv("c", 2, 4, peer, 0).numbered(42).host(host_s));
        let found: Vec<_> =
            [100.0, 1000.0, 5000.0].into_iter().flat_map(|seconds| session.scan(seconds)).collect();
        assert_eq!(kinds(&found), [HangType::P2pMissingCounterpart], "from {peer}");
        assert_eq!(session.finish(9000.0), []);
    }
}

#[test]
fn the_end_of_a_group_with_a_lone_send_is_told_with_it() {
    let mut session = Session::new();
    session.done(0.0, send("c", 0, 2, 1, 0).group(3).numbered(1));
    session.made(0.0, call("ncclGroupEnd", "", 0, -1, -1).group(3).numbered(2));
    let found: Vec<_> =
        [100.0, 1000.0, 5000.0].into_iter().flat_map(|seconds| session.scan(seconds)).collect();
    assert_eq!(kinds(&found), [HangType::P2pMissingCounterpart]);
    assert_eq!(session.finish(9000.0), []);
}
