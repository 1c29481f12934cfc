//! Ranks whose calls go apart: what one of them left out or made in addition is one finding.

use deepxtrace_nccl_h2::fr::Report;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::made::{Job, Tensors, same, tensors};
use super::{analyzed, details, kinds, unpacked};

const REDUCE: &str = "nccl:all_reduce";
const GATHER: &str = "nccl:_all_gather_base";
const BROADCAST: &str = "nccl:broadcast";
const DONE: &str = "completed";
const OPEN: &str = "scheduled";

/// A call by its size: each is of another size than the others.
fn call(job: &mut Job, rank: i64, size: i64, state: &str) {
    let gathered = tensors(json!([[size]]), json!([[size], [size]]));
    let (name, tensors): (&str, Tensors) = match size % 3 {
        0 => (REDUCE, same(size)),
        1 => (GATHER, gathered),
        _ => (BROADCAST, same(size)),
    };
    job.call(rank, "0", name, &tensors, state);
}

/// A job in which each rank makes calls of these sizes, those of the first `done` rounds being over.
fn job(done: usize, ranks: &[Vec<i64>]) -> Job {
    let mut job = Job::new(i64::try_from(ranks.len()).unwrap());
    let longest = ranks.iter().map(Vec::len).max().unwrap();
    for number in 0..longest {
        for (rank, sizes) in (0..).zip(ranks) {
            let state = if number < done { DONE } else { OPEN };
            if let Some(size) = sizes.get(number) {
                call(&mut job, rank, *size, state);
            }
        }
    }
    job
}

/// Calls `1..=last`, without some.
fn without(last: i64, left_out: &[i64]) -> Vec<i64> {
    (1..=last).filter(|size| !left_out.contains(size)).collect()
}

/// The details of the only finding, a divergence at a number.
#[track_caller]
fn only(report: &Report, seq: i64) -> Value {
    assert_eq!(kinds(report), [("sequence_divergence", "0", seq)]);
    details(&report.findings[0])
}

#[test]
fn a_recorded_skip_is_one_finding_with_the_call_and_what_follows_from_it() {
    // Rank 1 left out the all-gather that is call 10 of rank 0. The twelve calls that both have
    // made since are other ones, and rank 0 has made one more.
    let report = analyzed(unpacked("skip").path());
    let found = only(&report, 10);
    let explanations = found["explanations"].as_array().unwrap();
    // Of two ranks, nobody knows which is right.
    assert_eq!(explanations.len(), 2);
    assert_eq!(found["confidence"], "unknown");
    let [extra, skipped] = &explanations[..] else { panic!() };
    assert_eq!((&extra["kind"], &extra["comm_ranks"]), (&json!("extra"), &json!([0])));
    assert_eq!((&skipped["kind"], &skipped["comm_ranks"]), (&json!("skipped"), &json!([1])));
    let gather = json!({"api": "ncclAllGather", "count": 64, "datatype": 7, "op": -1, "root": -1});
    for one in explanations {
        assert_eq!((&one["call"], &one["calls"]), (&gather, &json!(1)));
        assert_eq!(one["others_position"], json!([10, 10]));
    }
    assert_eq!((&found["last_agreed_seq"], &found["explained_rounds"]), (&json!(9), &json!(13)));
    assert_eq!(found["last_agreed_call"]["api"], "ncclBroadcast");
    let symptoms = found["explained_findings"].as_array().unwrap();
    let kinds: Vec<&str> =
        symptoms.iter().map(|symptom| symptom["hang_type"].as_str().unwrap()).collect();
    let mut expected = vec!["collective_signature_mismatch"; 12];
    expected.push("collective_missing_enter");
    assert_eq!(kinds, expected);
    assert_eq!(symptoms[12]["comm_seq"], 22);
    let [gathers, reduces] = &report.findings[0].call_sites[..] else { panic!() };
    assert_eq!((&gathers.ranks[..], gathers.seq), (&[0][..], 10));
    assert_eq!(gathers.profiling_name, "nccl:_all_gather_base");
    assert_eq!((&reduces.ranks[..], reduces.seq), (&[1][..], 10));
    assert_eq!(reduces.profiling_name, "nccl:all_reduce");
    assert_eq!(report.notes, []);
}

#[test]
fn one_of_three_that_leaves_out_two_calls_is_named() {
    let report = job(4, &[without(12, &[]), without(12, &[5, 6]), without(12, &[])]).judged();
    let found = only(&report, 5);
    let [one] = &found["explanations"].as_array().unwrap()[..] else { panic!() };
    assert_eq!((&one["kind"], &one["comm_ranks"]), (&json!("skipped"), &json!([1])));
    assert_eq!((&one["calls"], &one["call"]["count"]), (&json!(2), &json!(5)));
    assert_eq!(found["confidence"], "suspected");
    // Calls 5 to 10 differ, 11 and 12 have not been entered by rank 1.
    assert_eq!(found["explained_rounds"], 8);
}

#[test]
fn an_additional_call_and_two_in_the_other_order_are_told_apart() {
    let mut extra = without(9, &[]);
    extra.insert(3, 77);
    let report = job(3, &[without(9, &[]), without(9, &[]), extra]).judged();
    let found = only(&report, 4);
    let one = &found["explanations"][0];
    assert_eq!((&one["kind"], &one["comm_ranks"]), (&json!("extra"), &json!([2])));
    assert_eq!((&one["call"]["count"], &one["position"]), (&json!(77), &json!([4, 4])));
    let mut swapped = without(9, &[]);
    swapped.swap(3, 4);
    let report = job(3, &[without(9, &[]), swapped, without(9, &[])]).judged();
    let found = only(&report, 4);
    let one = &found["explanations"][0];
    assert_eq!((&one["kind"], &one["comm_ranks"]), (&json!("swapped"), &json!([1])));
    assert_eq!((&one["position"], &found["explained_rounds"]), (&json!([4, 5]), &json!(2)));
}

#[test]
fn single_wrong_calls_stay_mismatches() {
    let mut wrong = without(30, &[]);
    wrong[4] = 99;
    wrong[25] = 98;
    let report = job(30, &[without(30, &[]), wrong.clone(), without(30, &[])]).judged();
    let mismatch = "collective_signature_mismatch";
    assert_eq!(kinds(&report), [(mismatch, "0", 5), (mismatch, "0", 26)]);
    // A call that is left out between them is another matter.
    wrong.remove(14);
    let report = job(14, &[without(30, &[]), wrong, without(30, &[])]).judged();
    let divergence = "sequence_divergence";
    assert_eq!(kinds(&report), [(mismatch, "0", 5), (divergence, "0", 15)]);
}

#[test]
fn a_wrong_call_of_another_rank_behind_a_skip_is_told_too() {
    let mut wrong = without(30, &[]);
    wrong[19] = 99;
    let report = job(4, &[without(30, &[]), without(30, &[5]), wrong, without(30, &[])]).judged();
    let found = [("sequence_divergence", "0", 5), ("collective_signature_mismatch", "0", 20)];
    assert_eq!(kinds(&report), found);
    assert_eq!(details(&report.findings[0])["explanations"][0]["comm_ranks"], json!([1]));
}

#[test]
fn ranks_without_a_dump_and_buffers_that_begin_later_do_not_matter() {
    let mut job = job(
        9,
        &[1, 2, 3, 4, 5].map(|rank| match rank {
            2 => without(40, &[10]),
            _ => without(40, &[]),
        }),
    );
    // Rank 3's buffer begins with call 31; what it called before is not known.
    job.keep(3, 10);
    let report = job.judged_of(&[0, 1, 2, 3]);
    let found = only(&report, 10);
    let [one] = &found["explanations"].as_array().unwrap()[..] else { panic!() };
    assert_eq!((&one["kind"], &one["comm_ranks"]), (&json!("skipped"), &json!([1])));
    assert_eq!((&one["call"]["count"], &found["explained_rounds"]), (&json!(10), &json!(31)));
    assert_eq!(found["ranks_without_dump"], json!([4]));
}

#[test]
fn a_rank_that_left_out_the_same_call_is_named_though_its_buffer_begins_later() {
    let skipped = without(40, &[10]);
    let all = without(40, &[]);
    let mut job = job(35, &[skipped.clone(), skipped, all.clone(), all.clone(), all]);
    job.keep(0, 10);
    let found = only(&job.judged(), 10);
    let [one] = &found["explanations"].as_array().unwrap()[..] else { panic!() };
    assert_eq!((&one["comm_ranks"], &one["position"]), (&json!([0, 1]), &json!([10, 10])));
}

#[test]
fn a_call_left_out_before_a_buffer_begins_is_not_named() {
    let mut job = job(30, &[without(40, &[]), without(40, &[10]), without(40, &[])]);
    // Rank 1 has its calls 22 to 39, which are the others' 23 to 40, and one that may be torn.
    job.keep(1, 19);
    let found = only(&job.judged(), 22);
    let [one] = &found["explanations"].as_array().unwrap()[..] else { panic!() };
    assert_eq!((&one["kind"], &one["comm_ranks"]), (&json!("skipped"), &json!([1])));
    assert_eq!((&one["calls"], &one["call"]), (&json!(1), &json!(null)));
    assert_eq!(one["others_position"], json!([-1, 22]));
    assert_eq!((&found["last_agreed_seq"], &found["explained_rounds"]), (&json!(-1), &json!(19)));
}

#[test]
fn dumps_of_open_calls_alone_show_that_a_rank_is_behind() {
    let mut job = job(9, &[without(40, &[]), without(40, &[10]), without(40, &[])]);
    // All keep their calls from the tenth on, which may be torn.
    for (rank, kept) in [(0, 31), (1, 30), (2, 31)] {
        job.keep(rank, kept);
    }
    let found = only(&job.judged(), 11);
    let [one] = &found["explanations"].as_array().unwrap()[..] else { panic!() };
    assert_eq!((&one["kind"], &one["comm_ranks"]), (&json!("skipped"), &json!([1])));
    assert_eq!((&one["calls"], &one["call"]), (&json!(1), &json!(null)));
    // That rank 1 has not entered call 40 cannot be known.
    assert_eq!(found["explained_rounds"], 29);
}

#[test]
fn a_coalesced_group_that_is_left_out_is_one_call() {
    let mut job = Job::new(3);
    for size in 1..=9 {
        for rank in 0..3 {
            let state = if size < 4 { DONE } else { OPEN };
            if size != 4 {
                call(&mut job, rank, size, state);
            } else if rank != 2 {
                let parts = [1, 2, 3].map(|part| ("nccl:_broadcast_oop", same(part)));
                job.coalesced(rank, "0", "nccl:ALLGATHER_coalesced", &parts, state);
            }
        }
    }
    let found = only(&job.judged(), 4);
    let one = &found["explanations"][0];
    assert_eq!((&one["kind"], &one["comm_ranks"]), (&json!("skipped"), &json!([2])));
    // All that the group moves.
    assert_eq!((&one["call"]["api"], &one["call"]["count"]), (&json!("ncclBroadcast"), &json!(6)));
}

#[test]
fn another_datatype_of_equal_bytes_is_no_other_call() {
    let mut job = Job::new(3);
    let halves = Tensors { datatype: "Half", ..same(4) };
    for rank in 0..3 {
        call(&mut job, rank, 1, DONE);
        if rank != 1 {
            call(&mut job, rank, 3, OPEN);
        }
        let two = same(2);
        job.call(rank, "0", BROADCAST, if rank == 0 { &halves } else { &two }, OPEN);
        call(&mut job, rank, 6, OPEN);
    }
    let found = only(&job.judged(), 2);
    let [one] = &found["explanations"].as_array().unwrap()[..] else { panic!() };
    assert_eq!((&one["kind"], &one["comm_ranks"]), (&json!("skipped"), &json!([1])));
}

/// A job in whose group of ranks 0 to 2 rank 1 left out call 4 and all that follows hangs, with ranks
/// 3 and 4 in more groups, in which one call is over.
fn meshed(groups: &[(&str, &[i64])]) -> Job {
    let mut job = job(3, &[without(9, &[]), without(9, &[4]), without(9, &[])]);
    job.entries.insert(3, Vec::new());
    job.entries.insert(4, Vec::new());
    for (name, ranks) in groups {
        job.group(name, ranks);
        job.all(name, REDUCE, &same(1), DONE);
    }
    job
}

/// Group, number and kind of what a finding explains on other groups.
fn elsewhere(found: &Value) -> Vec<(String, i64, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = found["explained_findings"].as_array().unwrap().iter();
    all.filter(|one| one["comm_uid_hash"] != "0")
        .map(|one| {
            let seq = one["comm_seq"].as_i64().unwrap();
            (text(&one["comm_uid_hash"]), seq, text(&one["hang_type"]))
        })
        .collect()
}

#[test]
fn what_waits_for_a_rank_that_is_stuck_there_is_explained() {
    // Rank 3 waits for rank 0, which is stuck in group 0.
    let mut job = meshed(&[("side", &[0, 3])]);
    job.call(3, "side", REDUCE, &same(5), OPEN);
    let expected = ("side".to_owned(), 2, "collective_missing_enter".to_owned());
    assert_eq!(elsewhere(&only(&job.judged(), 4)), std::slice::from_ref(&expected));
    // Rank 4 waits for rank 3, which waits for rank 0.
    let mut job = meshed(&[("side", &[0, 3]), ("far", &[3, 4])]);
    job.call(3, "side", REDUCE, &same(5), OPEN);
    job.call(4, "far", REDUCE, &same(6), OPEN);
    let far = ("far".to_owned(), 2, "collective_missing_enter".to_owned());
    assert_eq!(elsewhere(&only(&job.judged(), 4)), [far, expected]);
    // A receive from rank 2.
    let mut job = meshed(&[("pair", &[2, 3])]);
    job.p2p("pair", (0, 1), false, &same(3), OPEN);
    let lone = ("pair".to_owned(), 1, "p2p_missing_counterpart".to_owned());
    assert_eq!(elsewhere(&only(&job.judged(), 4)), [lone]);
}

#[test]
fn what_waits_for_a_rank_that_is_not_stuck_there_is_a_finding_of_its_own() {
    let mut job = meshed(&[("side", &[3, 4])]);
    job.call(3, "side", REDUCE, &same(5), OPEN);
    let report = job.judged();
    let mut found = kinds(&report);
    found.sort_unstable();
    let side = ("collective_missing_enter", "side", 2);
    assert_eq!(found, [side, ("sequence_divergence", "0", 4)]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever call a rank leaves out, whatever it is and however much the others have lost.
    #[test]
    fn a_skip_is_named(
        ranks in 3..6_i64,
        guilty in 0..3_i64,
        last in 2..60_i64,
        place in 0.0..1.0_f64,
        kept in proptest::collection::vec(1..80_usize, 6),
    ) {
        let skip = 1 + (place * (last - 1) as f64) as i64;
        let program = |rank| if rank == guilty { without(last, &[skip]) } else { without(last, &[]) };
        let done = usize::try_from(skip - 1).unwrap();
        let mut job = job(done, &(0..ranks).map(program).collect::<Vec<_>>());
        // The guilty one and the two after it have everything.
        for (rank, kept) in (0..ranks).zip(kept) {
            if (rank + ranks - guilty) % ranks > 2 {
                job.keep(rank, kept);
            }
        }
        let report = job.judged();
        prop_assert_eq!(kinds(&report), [("sequence_divergence", "0", skip)]);
        let found = details(&report.findings[0]);
        let explanations = found["explanations"].as_array().unwrap();
        prop_assert_eq!(explanations.len(), 1);
        let one = &explanations[0];
        prop_assert_eq!((&one["kind"], &one["comm_ranks"]), (&json!("skipped"), &json!([guilty])));
        prop_assert_eq!(&one["call"]["count"], &json!(skip));
        prop_assert_eq!(&one["others_position"], &json!([skip, skip]));
        // Rounds `skip` to the last, which the guilty one has not entered.
        prop_assert_eq!(&found["explained_rounds"], &json!(last - skip + 1));
    }
}
