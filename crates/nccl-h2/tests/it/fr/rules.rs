//! The rules, one a test, and programs at random.

use deepxtrace_nccl_h2::fr::{Note, Report};
use proptest::prelude::*;
use serde_json::json;

use super::made::{Job, Tensors, same, tensors};
use super::{details, kinds};

const REDUCE: &str = "nccl:all_reduce";
const DONE: &str = "completed";
const OPEN: &str = "scheduled";

fn none() -> Vec<(&'static str, &'static str, i64)> {
    Vec::new()
}

#[test]
fn shapes_with_equal_elements_are_equal() {
    let mut job = Job::new(2);
    job.call(0, "0", REDUCE, &tensors(json!([[3, 4]]), json!([[3, 4]])), DONE);
    job.call(1, "0", REDUCE, &tensors(json!([[12]]), json!([[2, 2, 3]])), DONE);
    // A scalar has one element.
    job.call(0, "0", REDUCE, &tensors(json!([[]]), json!([[]])), DONE);
    job.call(1, "0", REDUCE, &tensors(json!([[1]]), json!([[1]])), DONE);
    assert_eq!(kinds(&job.judged()), none());
}

#[test]
fn names_of_one_function_are_one_call() {
    let gather = tensors(json!([[4]]), json!([[8]]));
    let mut job = Job::new(2);
    job.call(0, "0", "nccl:all_gather", &tensors(json!([[4]]), json!([[4], [4]])), DONE);
    job.call(1, "0", "nccl:_all_gather_base", &gather, DONE);
    job.call(0, "0", "nccl:broadcast", &same(4), DONE);
    job.call(1, "0", "nccl:_broadcast_oop", &same(4), DONE);
    assert_eq!(kinds(&job.judged()), none());
}

#[test]
fn an_uneven_reduce_scatter_is_a_group_of_reductions_with_equal_sizes() {
    let parts: Vec<(&str, Tensors)> =
        [10, 20, 30].map(|part| ("nccl:_reduce_oop", same(part))).into();
    let mut job = Job::new(3);
    for rank in 0..3 {
        job.coalesced(rank, "0", "nccl:REDUCE_SCATTER_coalesced", &parts, DONE);
    }
    job.all("0", REDUCE, &same(4), DONE);
    assert_eq!(kinds(&job.judged()), none());
}

#[test]
fn what_a_reduce_scatter_receives_must_be_equal() {
    let mut job = Job::new(2);
    job.call(0, "0", "nccl:_reduce_scatter_base", &tensors(json!([[8]]), json!([[4]])), OPEN);
    job.call(1, "0", "nccl:_reduce_scatter_base", &tensors(json!([[6]]), json!([[3]])), OPEN);
    let report = job.judged();
    assert_eq!(kinds(&report), [("collective_signature_mismatch", "0", 1)]);
    let details = details(&report.findings[0]);
    assert_eq!(details["signature_by_comm_rank"]["0"]["count"], 4);
    assert_eq!(details["signature_by_comm_rank"]["1"]["count"], 3);
}

#[test]
fn coalesced_broadcasts_are_compared_one_by_one() {
    let broadcasts = |sizes: &[i64]| -> Vec<(&'static str, Tensors)> {
        sizes.iter().map(|size| ("nccl:_broadcast_oop", same(*size))).collect()
    };
    let judged = |sizes: [&[i64]; 3]| {
        let mut job = Job::new(3);
        for (rank, sizes) in (0..).zip(sizes) {
            let end = "nccl:ALLGATHER_coalesced";
            job.coalesced(rank, "0", end, &broadcasts(sizes), DONE);
        }
        job.judged()
    };
    assert_eq!(kinds(&judged([&[1, 2, 3]; 3])), none());
    let report = judged([&[1, 2, 3], &[1, 2, 3], &[1, 5, 3]]);
    assert_eq!(kinds(&report), [("collective_signature_mismatch", "0", 1)]);
    let found = details(&report.findings[0]);
    assert_eq!(found["signature_by_comm_rank"]["2"]["count"], 5);
    assert_eq!(found["signature_by_comm_rank"]["0"]["count"], 2);
    // One broadcast less in the group of rank 1.
    let report = judged([&[1, 2, 3], &[1, 2], &[1, 2, 3]]);
    assert_eq!(kinds(&report), [("collective_signature_mismatch", "0", 1)]);
    let found = details(&report.findings[0]);
    let apis = json!({"0": "ncclBroadcast", "1": "", "2": "ncclBroadcast"});
    assert_eq!(found["api_by_comm_rank"], apis);
}

#[test]
fn tensors_of_one_call_are_compared_one_by_one() {
    let two = |a: i64, b: i64| tensors(json!([[a], [b]]), json!([[a], [b]]));
    let judged = |other: Tensors| {
        let mut job = Job::new(2);
        job.call(0, "0", "nccl:allreduce_coalesced", &two(4, 5), OPEN);
        job.call(1, "0", "nccl:allreduce_coalesced", &other, OPEN);
        job.judged()
    };
    assert_eq!(kinds(&judged(two(4, 5))), none());
    // Nine elements as well, and still another call.
    for other in [two(5, 4), same(9), tensors(json!([[4]]), json!([[4]]))] {
        let report = judged(other);
        assert_eq!(kinds(&report), [("collective_signature_mismatch", "0", 1)]);
    }
}

#[test]
fn outputs_of_a_gather_are_empty_but_on_its_root() {
    let mut job = Job::new(3);
    for (root, name) in [(0, "nccl:gather"), (2, "nccl:scatter")] {
        for rank in 0..3 {
            let list = json!([[7], [7], [7]]);
            // Some versions write an empty tensor there, others nothing.
            let empty = if rank == 1 { json!([]) } else { json!([[0]]) };
            let outputs = if rank == root { list } else { empty };
            job.call(rank, "0", name, &tensors(json!([[7]]), outputs), DONE);
        }
    }
    assert_eq!(kinds(&job.judged()), none());
}

#[test]
fn a_gather_without_a_root_is_a_root_mismatch() {
    let mut job = Job::new(2);
    job.all("0", "nccl:gather", &tensors(json!([[7]]), json!([[0]])), OPEN);
    let report = job.judged();
    assert_eq!(kinds(&report), [("collective_signature_mismatch", "0", 1)]);
    assert_eq!(details(&report.findings[0])["mismatch_type"], "root_mismatch");
    // Without the dump of a rank, that rank may be the root.
    assert_eq!(kinds(&job.judged_of(&[1])), none());
}

#[test]
fn sizes_of_an_all_to_all_may_differ_as_long_as_all_is_received() {
    let mut job = Job::new(2);
    let name = "nccl:all_to_all";
    job.call(0, "0", name, &tensors(json!([[1, 4]]), json!([[3]])), DONE);
    job.call(1, "0", name, &tensors(json!([[4]]), json!([[5]])), DONE);
    assert_eq!(kinds(&job.judged()), none());
    job.call(0, "0", name, &tensors(json!([[4]]), json!([[3]])), OPEN);
    job.call(1, "0", name, &tensors(json!([[4]]), json!([[6]])), OPEN);
    let report = job.judged();
    assert_eq!(kinds(&report), [("collective_signature_mismatch", "0", 2)]);
    assert_eq!(details(&report.findings[0])["confidence"], "suspected");
    // Before version 2.4 the sizes were not written.
    job.version = "2.3";
    assert_eq!(kinds(&job.judged()), none());
}

#[test]
fn a_barrier_is_no_all_reduce() {
    let mut job = Job::new(2);
    job.call(0, "0", "nccl:all_reduce_barrier", &same(1), OPEN);
    job.call(1, "0", REDUCE, &same(1), OPEN);
    let report = job.judged();
    assert_eq!(kinds(&report), [("collective_signature_mismatch", "0", 1)]);
    let apis = json!({"0": "nccl:all_reduce_barrier", "1": "ncclAllReduce"});
    assert_eq!(details(&report.findings[0])["api_by_comm_rank"], apis);
}

#[test]
fn other_backends_and_unknown_operations_are_compared_by_name() {
    let mut job = Job::new(2);
    job.all("0", "gloo:all_reduce", &same(3), DONE);
    job.all("0", "xccl:new_operation", &same(3), DONE);
    assert_eq!(kinds(&job.judged()), none());
    job.call(0, "0", "xccl:new_operation", &same(3), OPEN);
    job.call(1, "0", "xccl:other_operation", &same(3), OPEN);
    let report = job.judged();
    assert_eq!(kinds(&report), [("collective_signature_mismatch", "0", 3)]);
    // What must match in them is not known.
    assert_ne!(details(&report.findings[0])["confidence"], "confirmed");
}

#[test]
fn groups_of_one_name_and_other_ranks_are_other_groups() {
    // Both halves of a split have one name, as with split_group.
    let mut job = Job::new(4);
    let halves = [("s", [0, 1]), ("s", [2, 3])];
    for (name, ranks) in halves {
        job.groups.push((name.to_owned(), ranks.to_vec()));
    }
    for rank in [0, 1] {
        job.call(rank, "s", REDUCE, &same(4), DONE);
    }
    for rank in [2, 3] {
        job.call(rank, "s", REDUCE, &same(9), DONE);
    }
    assert_eq!(kinds(&job.judged()), none());
}

#[test]
fn every_group_is_judged_and_the_first_rank_is_trusted_no_more_than_others() {
    let mut job = Job::new(4);
    job.group("a", &[0, 1]);
    job.group("b", &[2, 3]);
    job.all("0", REDUCE, &same(1), DONE);
    for (rank, elements) in [(0, 5), (1, 6)] {
        job.call(rank, "a", REDUCE, &same(elements), OPEN);
    }
    job.call(2, "b", REDUCE, &same(5), OPEN);
    // Rank 0 alone differs from the three others.
    for (rank, elements) in [(0, 8), (1, 7), (2, 7), (3, 7)] {
        job.call(rank, "0", REDUCE, &same(elements), OPEN);
    }
    let report = job.judged();
    let expected = [
        ("collective_signature_mismatch", "a", 1),
        ("collective_missing_enter", "b", 1),
        ("collective_signature_mismatch", "0", 2),
    ];
    assert_eq!(kinds(&report), expected);
    let world = details(&report.findings[2]);
    assert_eq!(world["signature_by_comm_rank"]["0"]["count"], 8);
    assert_eq!(world["entered_comm_ranks"], json!([0, 1, 2, 3]));
    // Which of them is wrong is not said.
    assert_eq!(details(&report.findings[1])["missing_rank_status"][0]["rank"], 3);
}

#[test]
fn buffers_that_begin_at_different_records_are_aligned_by_their_numbers() {
    let mut job = Job::new(3);
    for round in 0..50 {
        job.all("0", REDUCE, &same(round + 1), DONE);
    }
    job.keep(0, 10);
    job.keep(1, 30);
    assert_eq!(kinds(&job.judged()), none());
    job.call(0, "0", REDUCE, &same(9), OPEN);
    job.call(1, "0", REDUCE, &same(9), OPEN);
    let report = job.judged();
    assert_eq!(kinds(&report), [("collective_missing_enter", "0", 51)]);
    assert_eq!(details(&report.findings[0])["missing_comm_ranks"], json!([2]));
}

#[test]
fn a_mismatch_is_seen_among_those_that_still_have_the_round() {
    let mut job = Job::new(3);
    for rank in 0..3 {
        job.call(rank, "0", REDUCE, &same(4 + i64::from(rank == 2)), DONE);
    }
    for _ in 0..20 {
        job.all("0", REDUCE, &same(4), DONE);
    }
    assert_eq!(kinds(&job.judged()), [("collective_signature_mismatch", "0", 1)]);
    job.keep(0, 5);
    assert_eq!(kinds(&job.judged()), [("collective_signature_mismatch", "0", 1)]);
    job.keep(2, 5);
    assert_eq!(kinds(&job.judged()), none());
}

#[test]
fn a_dump_that_was_taken_earlier_lacks_nothing() {
    // The all-reduces are over on rank 0, which cannot be without rank 1.
    let mut job = Job::new(2);
    job.all("0", REDUCE, &same(4), DONE);
    for _ in 0..3 {
        job.call(0, "0", REDUCE, &same(4), DONE);
    }
    assert_eq!(kinds(&job.judged()), none());
    // A broadcast may be over on its root alone.
    job.call(0, "0", "nccl:broadcast", &same(4), DONE);
    assert_eq!(kinds(&job.judged()), [("collective_missing_enter", "0", 5)]);
}

#[test]
fn a_call_that_ended_by_its_timeout_was_not_completed() {
    let mut job = Job::new(2);
    job.all("0", REDUCE, &same(4), DONE);
    job.call(0, "0", REDUCE, &same(4), DONE);
    assert_eq!(kinds(&job.judged()), none());
    let entry = job.entries.get_mut(&0).unwrap().last_mut().unwrap();
    let created = entry["time_created_ns"].as_i64().unwrap();
    entry["time_discovered_completed_ns"] = json!(created + 600_000 * 1_000_000);
    let report = job.judged();
    assert_eq!(kinds(&report), [("collective_missing_enter", "0", 2)]);
    let details = details(&report.findings[0]);
    assert_eq!((&details["waited_s"], &details["confidence"]), (&json!(600.0), &json!("observed")));
}

#[test]
fn a_buffer_without_a_call_of_the_group_proves_nothing() {
    // Rank 1 called on group "a" long ago; its buffer holds only later calls on "0".
    let mut job = Job::new(2);
    job.group("a", &[0, 1]);
    job.all("a", REDUCE, &same(4), DONE);
    for _ in 0..20 {
        job.all("0", REDUCE, &same(4), DONE);
    }
    job.keep(1, 5);
    assert_eq!(kinds(&job.judged()), none());
    // Rank 0 waits: rank 1 may have called before its buffer begins, and is only suspected.
    job.call(0, "a", REDUCE, &same(4), OPEN);
    let report = job.judged();
    assert_eq!(kinds(&report), [("collective_missing_enter", "a", 2)]);
    let details = details(&report.findings[0]);
    assert_eq!(details["confidence"], "suspected");
    assert_eq!(details["trace_event_loss_possible"], true);
}

#[test]
fn a_rank_that_never_called_has_not_entered() {
    let mut job = Job::new(2);
    job.call(0, "0", REDUCE, &same(4), OPEN);
    let report = job.judged();
    assert_eq!(kinds(&report), [("collective_missing_enter", "0", 1)]);
    assert_eq!(report.findings[0].call_sites.len(), 1);
}

#[test]
fn a_dump_of_open_calls_alone_proves_nothing_by_what_it_lacks() {
    let mut job = Job::new(2);
    for _ in 0..5 {
        job.all("0", REDUCE, &same(4), DONE);
    }
    job.call(0, "0", REDUCE, &same(4), OPEN);
    let entries = job.entries.get_mut(&1).unwrap();
    *entries = vec![entries[1].clone(), entries[4].clone()];
    let report = job.judged();
    assert_eq!(kinds(&report), none());
    assert!(report.notes.contains(&Note::PartialDumps { ranks: vec![1] }));
}

#[test]
fn late_ranks_are_told_once_a_set_of_ranks() {
    let mut job = Job::new(3);
    for _ in 0..4 {
        job.call(0, "0", REDUCE, &same(4), DONE);
        job.call(1, "0", REDUCE, &same(4), DONE);
        job.pass(31_000_000_000);
        job.call(2, "0", REDUCE, &same(4), DONE);
    }
    let report = job.judged();
    assert_eq!(kinds(&report), [("delayed_collective_enter", "0", 1)]);
    let details = details(&report.findings[0]);
    assert_eq!(details["slow_comm_ranks"], json!([2]));
    assert_eq!(details["enter_spread_s"], 31.002);
}

#[test]
fn sends_pair_with_receives_in_order_whatever_lies_between() {
    let mut job = Job::new(3);
    job.p2p("0", (0, 1), true, &same(1), DONE);
    job.p2p("0", (0, 2), true, &same(9), DONE);
    job.p2p("0", (0, 1), true, &same(2), DONE);
    job.all("0", REDUCE, &same(4), DONE);
    job.p2p("0", (0, 1), false, &same(1), DONE);
    job.p2p("0", (0, 2), false, &same(9), DONE);
    job.batch(1, "0", &[(0, 1, false, 2), (1, 0, true, 5)], DONE);
    job.batch(0, "0", &[(1, 0, false, 5)], DONE);
    let report = job.judged();
    assert_eq!((kinds(&report), report.pairs), (none(), 4));
    // The same in another order: sizes 2, 1 against 1, 2.
    let mut job = Job::new(2);
    for (sends, sizes) in [(true, [1, 2]), (false, [2, 1])] {
        for size in sizes {
            job.p2p("0", (0, 1), sends, &same(size), OPEN);
        }
    }
    let expected = [("p2p_call_mismatch", "0", 1), ("p2p_call_mismatch", "0", 2)];
    assert_eq!(kinds(&job.judged()), expected);
}

#[test]
fn ranks_of_sends_are_ranks_of_the_group() {
    let mut job = Job::new(4);
    job.group("pair", &[1, 3]);
    job.p2p("pair", (0, 1), true, &same(6), OPEN);
    let report = job.judged();
    assert_eq!(kinds(&report), [("p2p_missing_counterpart", "pair", 1)]);
    assert_eq!(details(&report.findings[0])["process_group"]["ranks"], json!([1, 3]));
    // The rank that has not received is told by its latest call, which it has none of.
    assert_eq!(report.findings[0].call_sites.len(), 1);
    assert_eq!(report.findings[0].call_sites[0].ranks, [1]);
}

#[test]
fn a_burst_of_lone_calls_is_one_finding() {
    let mut job = Job::new(2);
    for size in 1..=5 {
        job.p2p("0", (0, 1), true, &same(size), OPEN);
    }
    job.p2p("0", (1, 0), true, &same(3), OPEN);
    let report = job.judged();
    assert_eq!(kinds(&report), [("p2p_missing_counterpart", "0", 1)]);
    let details = details(&report.findings[0]);
    assert_eq!(details["aggregated_missing_call_count"], 6);
    assert_eq!(details["affected_directions"], json!(["0->1", "1->0"]));
    assert_eq!(details["local_p2p_op_index_range"], json!([0, 4]));
    assert_eq!((&details["count"], &details["observed_api"]), (&json!(1), &json!("ncclSend")));
}

#[test]
fn a_receive_that_is_over_had_its_send() {
    let mut job = Job::new(2);
    job.p2p("0", (0, 1), false, &same(3), DONE);
    assert_eq!(kinds(&job.judged()), none());
    job.p2p("0", (0, 1), false, &same(3), OPEN);
    let report = job.judged();
    assert_eq!(kinds(&report), [("p2p_missing_counterpart", "0", 2)]);
    assert_eq!(details(&report.findings[0])["expected_api"], "ncclSend");
}

#[test]
fn sends_of_cut_buffers_are_paired_only_where_their_numbers_agree() {
    let mut job = Job::new(2);
    for size in 1..=30 {
        job.batch(0, "0", &[(0, 1, true, size), (1, 0, false, size)], DONE);
        job.batch(1, "0", &[(0, 1, false, size), (1, 0, true, size)], DONE);
    }
    job.keep(0, 20);
    job.keep(1, 50);
    let report = job.judged();
    assert_eq!((kinds(&report), report.notes.len()), (none(), 0));
    // 20 entries are 6 batches and a torn one.
    assert_eq!(report.pairs, 12);
    job.batch(0, "0", &[(0, 1, true, 7)], OPEN);
    assert_eq!(kinds(&job.judged()), [("p2p_missing_counterpart", "0", 31)]);
}

#[test]
fn sends_that_cannot_be_lined_up_are_noted_and_not_judged() {
    // Rank 1 also exchanges with rank 2, so that its numbers say nothing about rank 0's.
    let mut job = Job::new(3);
    for size in 1..=30 {
        job.p2p("0", (0, 1), true, &same(size), DONE);
        job.p2p("0", (0, 1), false, &same(size), DONE);
        job.p2p("0", (1, 2), true, &same(size), DONE);
        job.p2p("0", (1, 2), false, &same(size), DONE);
    }
    assert_eq!(kinds(&job.judged()), none());
    for rank in 0..3 {
        job.keep(rank, 10);
    }
    let report = job.judged();
    assert_eq!(kinds(&report), none());
    let undecided = |note: &&Note| matches!(note, Note::UndecidedP2p { .. });
    assert_eq!(report.notes.iter().filter(undecided).count(), 2);
}

#[test]
fn open_sends_of_cut_buffers_are_judged_once_they_are_overdue() {
    let mut job = Job::new(3);
    for size in 1..=30 {
        job.p2p("0", (0, 1), true, &same(size), DONE);
        job.p2p("0", (0, 1), false, &same(size), DONE);
    }
    for rank in 0..3 {
        job.keep(rank, 10);
    }
    job.p2p("0", (0, 1), true, &same(5), OPEN);
    assert_eq!(kinds(&job.judged()), none());
    // Rank 2 goes on for longer than the timeout.
    job.pass(61_000_000_000);
    job.p2p("0", (2, 0), true, &same(5), DONE);
    job.p2p("0", (2, 0), false, &same(5), DONE);
    // The receiver has no open receive: all that it called is over.
    let report = job.judged();
    assert_eq!(kinds(&report), [("p2p_missing_counterpart", "0", 31)]);
    assert_eq!(details(&report.findings[0])["local_p2p_op_index"], json!(null));
    // With an open receive, too, nobody knows what belongs together.
    job.p2p("0", (0, 1), false, &same(6), OPEN);
    let report = job.judged();
    assert_eq!(kinds(&report), [("ambiguous_p2p_match", "0", 31)]);
    assert_eq!(details(&report.findings[0])["confidence"], "unknown");
}

#[test]
fn a_dump_that_is_named_after_another_rank_is_noted() {
    let mut job = Job::new(2);
    job.p2p("0", (0, 1), true, &same(4), DONE);
    job.p2p("0", (0, 1), false, &same(4), DONE);
    let swapped = [job.entries[&1].clone(), job.entries[&0].clone()];
    for (rank, entries) in (0..).zip(swapped) {
        job.entries.insert(rank, entries);
    }
    let report = job.judged();
    assert_eq!(kinds(&report), none());
    let expected = [Note::OtherRank { rank: 0 }, Note::OtherRank { rank: 1 }];
    assert_eq!(report.notes, expected);
}

#[test]
fn a_call_that_all_have_entered_and_that_is_not_over_is_a_note() {
    let mut job = Job::new(3);
    job.all("0", REDUCE, &same(4), DONE);
    job.call(0, "0", REDUCE, &same(4), DONE);
    job.call(1, "0", REDUCE, &same(4), OPEN);
    job.call(2, "0", REDUCE, &same(4), "started");
    let report = job.judged();
    assert_eq!(kinds(&report), none());
    let api = "ncclAllReduce".to_owned();
    let group = "0".to_owned();
    let (ranks, without_dump) = (vec![1, 2], vec![]);
    assert_eq!(report.notes, [Note::NotCompleted { group, api, seq: 2, ranks, without_dump }]);
    let alone = job.judged_of(&[1]);
    assert_eq!((alone.rounds, &alone.notes[0]), (0, &Note::OneDump { rank: 1 }));
    let text = alone.notes[2].to_string();
    assert!(
        text.contains("not over on rank 1; if the job hangs there, it waits for ranks 0, 2, or"),
        "{text}"
    );
}

#[test]
fn one_rank_alone_has_nothing_to_differ_from() {
    let mut job = Job::new(1);
    job.all("0", REDUCE, &same(4), DONE);
    assert_eq!(kinds(&job.judged()), none());
}

#[test]
fn the_largest_and_unusable_sizes_do_no_harm() {
    let mut job = Job::new(2);
    let huge = json!([[i64::MAX, i64::MAX]]);
    job.all("0", "nccl:broadcast", &tensors(huge.clone(), huge), DONE);
    let odd = json!([[-1], "x", [null], [[1]]]);
    job.all("0", REDUCE, &tensors(odd.clone(), odd), DONE);
    assert_eq!(kinds(&job.judged()), none());
}

/// One step of a program.
#[derive(Debug, Clone)]
enum Step {
    Collective { group: usize, kind: usize, elements: i64 },
    Exchange { a: i64, b: i64, elements: i64 },
}

fn steps(ranks: i64) -> impl Strategy<Value = Vec<Step>> {
    let collective = (0..2_usize, 0..4_usize, 1..5_i64)
        .prop_map(|(group, kind, elements)| Step::Collective { group, kind, elements });
    let exchange = (0..ranks, 1..ranks, 1..5_i64)
        .prop_map(move |(a, by, elements)| Step::Exchange { a, b: (a + by) % ranks, elements });
    proptest::collection::vec(prop_oneof![3 => collective, 1 => exchange], 1..40)
}

const GROUPS: [&str; 2] = ["0", "sub"];

/// Runs a program on all ranks; `skip` leaves out one call of one rank.
fn run(ranks: i64, steps: &[Step], skip: Option<(i64, usize)>) -> Job {
    let mut job = Job::new(ranks);
    job.group("sub", &(0..ranks).filter(|rank| rank % 2 == 0).collect::<Vec<_>>());
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Collective { group, kind, elements } => {
                let group = GROUPS[*group];
                for rank in job.members(group) {
                    if skip != Some((rank, number)) {
                        collective(&mut job, rank, group, *kind, *elements);
                    }
                }
            }
            Step::Exchange { a, b, elements } => {
                let pair = (*a, *b);
                for (rank, back) in [(pair.0, false), (pair.1, true)] {
                    let calls = [(pair.0, pair.1, !back, *elements), (pair.1, pair.0, back, 7)];
                    job.batch(rank, "0", &calls, DONE);
                }
            }
        }
    }
    job
}

fn collective(job: &mut Job, rank: i64, group: &str, kind: usize, n: i64) {
    let ranks = i64::try_from(job.members(group).len()).unwrap();
    match kind {
        0 => job.call(rank, group, REDUCE, &same(n), DONE),
        1 => {
            let t = tensors(json!([[n]]), json!([[n * ranks]]));
            job.call(rank, group, "nccl:_all_gather_base", &t, DONE);
        }
        2 => {
            let outputs = if rank == 0 { json!(vec![[n]; 3]) } else { json!([[0]]) };
            job.call(rank, group, "nccl:gather", &tensors(json!([[n]]), outputs), DONE);
        }
        _ => {
            let calls = [("nccl:_broadcast_oop", same(n)), ("nccl:_broadcast_oop", same(n + 1))];
            job.coalesced(rank, group, "nccl:ALLGATHER_coalesced", &calls, DONE);
        }
    }
}

/// Notes apart from those on sends that cannot be lined up.
fn judged(job: &Job, ranks: &[i64]) -> (Report, Vec<Note>) {
    let report = job.judged_of(ranks);
    let notes = report.notes.iter().filter(|note| !matches!(note, Note::UndecidedP2p { .. }));
    let notes = notes.cloned().collect();
    (report, notes)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// A right program has no finding, whatever each buffer has lost and whoever has no dump.
    #[test]
    fn a_right_program_has_no_finding(
        ranks in 1..5_i64,
        program in steps(4),
        kept in proptest::collection::vec(1..60_usize, 5),
        dumped in proptest::collection::vec(any::<bool>(), 5),
    ) {
        let program: Vec<Step> = program
            .into_iter()
            .filter(|step| !matches!(step, Step::Exchange { a, b, .. } if *a >= ranks || *b >= ranks))
            .collect();
        let mut job = run(ranks, &program, None);
        for (rank, kept) in (0..ranks).zip(kept) {
            job.keep(rank, kept);
        }
        let with: Vec<i64> =
            (0..ranks).zip(dumped).filter(|(rank, dumped)| *dumped || *rank == 0).map(|(rank, _)| rank).collect();
        let (report, notes) = judged(&job, &with);
        prop_assert_eq!(kinds(&report), none());
        let missing: Vec<i64> = (0..ranks).filter(|rank| !with.contains(rank)).collect();
        let one = (with.len() == 1).then_some(Note::OneDump { rank: 0 });
        let missing = (!missing.is_empty()).then_some(Note::MissingDumps { ranks: missing });
        let expected: Vec<Note> = one.into_iter().chain(missing).collect();
        prop_assert_eq!(notes, expected);
    }

    /// A call that a rank left out at the end is one missing enter of that rank.
    #[test]
    fn the_last_call_left_out_is_a_missing_enter(
        program in steps(3),
        rank in 0..3_i64,
        kept in proptest::collection::vec(10..200_usize, 3),
    ) {
        let mut job = run(3, &program, None);
        for other in (0..3).filter(|other| *other != rank) {
            job.call(other, "0", REDUCE, &same(4), OPEN);
        }
        for (rank, kept) in (0..3).zip(kept) {
            job.keep(rank, kept);
        }
        let report = job.judged();
        prop_assert_eq!(report.findings.len(), 1, "{:?}", kinds(&report));
        let found = details(&report.findings[0]);
        prop_assert_eq!(&found["missing_comm_ranks"], &json!([rank]));
    }

    /// What is found does not depend on where the files lie and what else their names hold.
    #[test]
    fn names_and_folders_of_the_files_do_not_matter(
        program in steps(3),
        skip in 0..40_usize,
        prefixes in proptest::collection::vec("[a-z]{1,4}[0-9]{0,2}", 3),
    ) {
        let job = run(3, &program, Some((1, skip)));
        let folder = tempfile::TempDir::new().unwrap();
        for (rank, prefix) in (0..3).zip(&prefixes) {
            let place = folder.path().join(prefix);
            std::fs::create_dir_all(&place).unwrap();
            let file = place.join(format!("{prefix}_rank_{rank}.json"));
            std::fs::write(file, job.dump(rank).to_string()).unwrap();
        }
        let set = deepxtrace_nccl_h2::fr::DumpSet::read(&[folder.path().to_owned()]).unwrap();
        let report = set.analyze(&Default::default());
        let json = |report: &Report| {
            report.findings.iter().map(|found| found.to_json()).collect::<Vec<_>>()
        };
        prop_assert_eq!(json(&report), json(&job.judged()));
    }
}

#[test]
fn a_rank_that_several_groups_wait_for_is_one_root_blocker() {
    // A mesh of 2 x 2; rank 3 has stopped before its calls on both of its groups.
    let mut job = Job::new(4);
    for (name, ranks) in [("row0", [0, 1]), ("row1", [2, 3]), ("col0", [0, 2]), ("col1", [1, 3])] {
        job.group(name, &ranks);
        job.all(name, REDUCE, &same(4), DONE);
    }
    job.all("0", REDUCE, &same(4), DONE);
    job.call(2, "row1", REDUCE, &same(7), OPEN);
    job.call(1, "col1", REDUCE, &same(7), OPEN);
    job.call(0, "row0", REDUCE, &same(7), OPEN);
    let report = job.judged();
    let found: Vec<&str> = kinds(&report).iter().map(|found| found.0).collect();
    assert_eq!(found, ["root_blocker"]);
    let blocker = details(&report.findings[0]);
    assert_eq!(blocker["roots"][0]["rank"], 3);
    assert_eq!(blocker["roots"][0]["last_call"]["comm_uid_hash"], "0");
    assert_eq!(blocker["root_count"], 1);
    assert_eq!(blocker["waiting_rank_count"], 3);
    assert_eq!(blocker["explained_findings_count"], 3);
    let mut explained: Vec<_> = blocker["explained_findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|symptom| {
            (symptom["comm_uid_hash"].as_str().unwrap(), symptom["comm_seq"].as_i64().unwrap())
        })
        .collect();
    explained.sort_unstable();
    assert_eq!(explained, [("col1", 2), ("row0", 2), ("row1", 2)]);
    let last = report.findings[0].call_sites.last().unwrap();
    assert_eq!((last.about, &last.ranks[..]), ("last_call", &[3][..]));
    // Without rank 3's dump, row0 alone is known to be incomplete: rank 1 has not entered it.
    let report = job.judged_of(&[0, 1, 2]);
    assert_eq!(kinds(&report), [("collective_missing_enter", "row0", 2)]);
    assert_eq!(details(&report.findings[0])["missing_comm_ranks"], json!([1]));
}

#[test]
fn a_pipeline_behind_a_rank_that_does_not_receive_is_one_root_blocker() {
    let mut job = Job::new(3);
    job.all("0", REDUCE, &same(4), DONE);
    job.p2p("0", (0, 1), false, &same(8), OPEN);
    job.p2p("0", (1, 2), false, &same(8), OPEN);
    let report = job.judged();
    let found: Vec<&str> = kinds(&report).iter().map(|found| found.0).collect();
    assert_eq!(found, ["root_blocker"]);
    let blocker = details(&report.findings[0]);
    assert_eq!(blocker["roots"][0]["rank"], 0);
    assert_eq!(blocker["waiting_rank_count"], 2);
    let waits: Vec<_> = blocker["waits"]
        .as_array()
        .unwrap()
        .iter()
        .map(|edge| {
            (
                edge["kind"].as_str().unwrap(),
                edge["waiting_ranks"].clone(),
                edge["comm_seq"].clone(),
            )
        })
        .collect();
    assert_eq!(waits, [("p2p", json!([1]), json!(1)), ("p2p", json!([2]), json!(1))]);
}
