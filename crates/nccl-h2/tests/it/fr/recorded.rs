//! Dumps that PyTorch 2.11 wrote on two H200s. What is wrong in each is what was done there.

use serde_json::json;

use super::{analyzed, details, kinds, unpacked};
use deepxtrace_nccl_h2::fr::{CallSite, Note};

/// The first frame of a call site that is in the script of the recording.
fn line_of_script(site: &CallSite) -> (String, i64) {
    let frame = site.frames.iter().find(|frame| frame.file.ends_with("nccl_scenarios.py"));
    let frame = frame.unwrap();
    (frame.function.clone(), frame.line)
}

#[test]
fn healthy_jobs_have_no_finding() {
    for name in ["healthy", "mix", "lazymix", "mix_json"] {
        let report = analyzed(unpacked(name).path());
        assert_eq!(kinds(&report), [], "{name}");
        assert_eq!(report.notes, [], "{name}");
    }
    let report = analyzed(unpacked("healthy").path());
    // 490 collectives on the default group and 10 on the other; 402 sends and receives in each dump.
    assert_eq!((report.rounds, report.pairs), (500, 402));
}

#[test]
fn another_count_is_one_parameter_mismatch_with_the_line_of_the_script() {
    let report = analyzed(unpacked("count").path());
    assert_eq!(kinds(&report), [("collective_signature_mismatch", "0", 81)]);
    let found = &report.findings[0];
    let details = details(found);
    assert_eq!(details["mismatch_type"], "parameter_mismatch");
    assert_eq!(details["confidence"], "confirmed");
    assert_eq!(details["signature_by_comm_rank"]["0"]["count"], 1024);
    assert_eq!(details["signature_by_comm_rank"]["1"]["count"], 2048);
    assert_eq!(details["signature_by_comm_rank"]["0"]["api"], "ncclAllReduce");
    assert_eq!(details["process_group"]["description"], "default_pg");
    let [first, second] = &found.call_sites[..] else { panic!() };
    assert_eq!((&first.ranks[..], &second.ranks[..]), (&[0][..], &[1][..]));
    for site in [first, second] {
        assert_eq!(line_of_script(site), ("<module>".to_owned(), 65));
        assert_eq!(site.profiling_name, "nccl:all_reduce");
    }
}

#[test]
fn one_call_less_is_one_missing_enter_of_that_rank() {
    let report = analyzed(unpacked("missing").path());
    assert_eq!(kinds(&report), [("collective_missing_enter", "0", 81)]);
    let found = &report.findings[0];
    let details = details(found);
    assert_eq!(details["missing_comm_ranks"], json!([1]));
    assert_eq!(details["entered_comm_ranks"], json!([0]));
    // The dumps were taken a fraction of a second later: nothing is proved.
    assert_eq!(details["confidence"], "suspected");
    assert_eq!(details["trace_ended_early"], true);
    let [call, last] = &found.call_sites[..] else { panic!() };
    assert_eq!((call.about, line_of_script(call)), ("call", ("<module>".to_owned(), 74)));
    assert_eq!((last.about, line_of_script(last)), ("last_call", ("p2p".to_owned(), 47)));
    assert_eq!(last.ranks, [1]);
}

#[test]
fn datatypes_matter_where_the_values_are_computed_with() {
    let report = analyzed(unpacked("dtype").path());
    assert_eq!(kinds(&report), [("collective_signature_mismatch", "0", 10)]);
    let report = analyzed(unpacked("bdtype").path());
    assert_eq!(kinds(&report), [("datatype_contract", "0", 10)]);
    assert_eq!(details(&report.findings[0])["bytes"], 4096);
    let report = analyzed(unpacked("p2pdtype").path());
    assert_eq!(kinds(&report), [("datatype_contract", "0", 1)]);
    assert_eq!(details(&report.findings[0])["bytes"], 16);
}

#[test]
fn a_send_and_a_larger_receive_are_a_mismatch() {
    let report = analyzed(unpacked("p2psize").path());
    assert_eq!(kinds(&report), [("p2p_call_mismatch", "0", 1)]);
    let details = details(&report.findings[0]);
    assert_eq!((&details["send"]["count"], &details["recv"]["count"]), (&json!(4), &json!(5)));
    assert_eq!((&details["src_comm_rank"], &details["dst_comm_rank"]), (&json!(0), &json!(1)));
}

#[test]
fn a_send_without_its_receive_is_named_alone_and_in_a_batch() {
    for name in ["p2pmiss", "batchmiss"] {
        let report = analyzed(unpacked(name).path());
        assert_eq!(kinds(&report), [("p2p_missing_counterpart", "0", 1)], "{name}");
        let details = details(&report.findings[0]);
        assert_eq!(details["expected_api"], "ncclRecv");
        assert_eq!(details["affected_directions"], json!(["0->1"]));
        assert_eq!(details["aggregated_missing_call_count"], 1);
    }
}

#[test]
fn two_roots_of_a_gather_are_a_root_mismatch() {
    let report = analyzed(unpacked("gather").path());
    assert_eq!(kinds(&report), [("collective_signature_mismatch", "0", 10)]);
    let details = details(&report.findings[0]);
    assert_eq!(details["mismatch_type"], "root_mismatch");
    assert_eq!(details["signature_by_comm_rank"]["0"]["root"], 0);
    assert_eq!(details["signature_by_comm_rank"]["1"]["root"], 1);
}

#[test]
fn the_root_of_a_broadcast_is_not_in_a_dump() {
    let report = analyzed(unpacked("root").path());
    assert_eq!(kinds(&report), []);
}

#[test]
fn an_even_gather_against_an_uneven_one_is_another_function() {
    let report = analyzed(unpacked("uneven").path());
    assert_eq!(kinds(&report), [("collective_signature_mismatch", "0", 10)]);
    let details = details(&report.findings[0]);
    assert_eq!(details["api_by_comm_rank"], json!({"0": "ncclBroadcast", "1": "ncclAllGather"}));
}

#[test]
fn a_missing_dump_is_named_and_nothing_is_concluded_from_it() {
    for name in ["healthy", "count", "missing", "p2pmiss", "cycle"] {
        let folder = unpacked(name);
        std::fs::remove_file(folder.path().join("fr_rank_1.pickle")).unwrap();
        let report = analyzed(folder.path());
        assert_eq!(kinds(&report), [], "{name}");
        assert!(report.notes.contains(&Note::MissingDumps { ranks: vec![1] }), "{name}");
    }
}

#[test]
fn stood_still_makes_a_suspicion_an_observation() {
    let folder = unpacked("missing");
    let set = deepxtrace_nccl_h2::fr::DumpSet::read(&[folder.path().to_owned()]).unwrap();
    let options = deepxtrace_nccl_h2::fr::Options { stood_still_s: 600.0, ..Default::default() };
    let report = set.analyze(&options);
    let details = details(&report.findings[0]);
    assert_eq!(
        (&details["confidence"], &details["trace_ended_early"]),
        (&json!("observed"), &json!(false))
    );
}

#[test]
fn two_groups_in_opposite_order_are_one_deadlock() {
    let report = analyzed(unpacked("cycle").path());
    let found: Vec<&str> = kinds(&report).iter().map(|found| found.0).collect();
    assert_eq!(found, ["communicator_deadlock"]);
    let details = details(&report.findings[0]);
    assert_eq!(details["ranks"], json!([0, 1]));
    let cycle: Vec<_> = details["cycle"]
        .as_array()
        .unwrap()
        .iter()
        .map(|edge| {
            (
                &edge["comm_uid_hash"],
                &edge["comm_seq"],
                &edge["waiting_ranks"],
                &edge["waits_for_ranks"],
            )
        })
        .collect();
    let (a, b) = (json!("1"), json!("2"));
    let (two, zero, one) = (json!(2), json!([0]), json!([1]));
    assert_eq!(cycle, [(&a, &two, &zero, &one), (&b, &two, &one, &zero)]);
    // Both ranks call in the same loop of the script.
    assert_eq!(report.findings[0].call_sites.len(), 2);
}
