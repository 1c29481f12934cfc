use std::collections::{BTreeMap, BTreeSet};

use crate::support::{Job, assert_complete, assert_paired, number, of_api, of_kind, text};

#[test]
fn numbers_are_right_from_several_threads() {
    let job = Job::new();
    // Four threads, twice: the second round takes over the rings of the first.
    let events = job.quiet(&["threads", "4", "500"]);
    assert_complete(&events);
    assert_paired(&events, 0);
    let enters = of_api(&events, "ncclAllReduce", "enter");
    assert_eq!(enters.len(), 2 * 4 * 500);
    // All communicators have one id, so one name; the shared one got half of the calls.
    let mut sequences: BTreeMap<i64, usize> = BTreeMap::new();
    for enter in &enters {
        *sequences.entry(number(enter, "comm_seq")).or_default() += 1;
    }
    // Shared: 0..2000 once each. Own: 0..500 on four communicators.
    assert_eq!(sequences.len(), 2000);
    assert!(sequences.range(..500).all(|(_, times)| *times == 5));
    assert!(sequences.range(500..).all(|(_, times)| *times == 1));
    let times = events.iter().filter(|event| event.get("api").is_some());
    let calls: BTreeSet<i64> = times.map(|event| number(event, "call_seq")).collect();
    assert_eq!(calls.len(), 4000 + 5, "five communicators");
}

#[test]
fn the_lines_are_in_the_order_of_time_across_threads() {
    let job = Job::new();
    let events = job.quiet(&["threads", "8", "200"]);
    // Within one batch they are; a batch boundary may swap calls that are nanoseconds apart.
    let times: Vec<i64> = events
        .iter()
        .filter(|event| event.get("api").is_some())
        .map(|event| number(event, "timestamp_mono_ns"))
        .collect();
    let latest = times.iter().scan(0, |latest, time| {
        *latest = (*latest).max(*time);
        Some(*latest - time)
    });
    assert!(latest.max().unwrap() < 50_000_000);
}

#[test]
fn groups_number_their_calls() {
    let events = Job::new().quiet(&["groups"]);
    let places = |api| {
        of_api(&events, api, "enter")
            .iter()
            .map(|event| (number(event, "group_id"), number(event, "group_op_index")))
            .collect::<Vec<_>>()
    };
    // A group within a group is one group.
    assert_eq!(places("ncclSend"), [(1, 0), (1, 2), (1, 3), (0, 0)]);
    assert_eq!(places("ncclRecv"), [(1, 1)]);
    assert_eq!(places("ncclCommInitRank"), [(0, 0), (2, 0), (2, 1)]);
    assert_eq!(places("ncclCommSplit"), [(2, 2)]);
    let starts = of_api(&events, "ncclGroupStart", "exit");
    let groups: Vec<i64> = starts.iter().map(|event| number(event, "group_id")).collect();
    assert_eq!(groups, [1, 1, 2]);
    let ends = of_api(&events, "ncclGroupEnd", "enter");
    let groups: Vec<i64> = ends.iter().map(|event| number(event, "group_id")).collect();
    assert_eq!(groups, [1, 1, 2]);
    assert!(starts.iter().chain(&ends).all(|event| text(event, "comm_uid_hash").is_empty()));
}

#[test]
fn sends_and_receives_are_counted_by_peer_and_direction() {
    let events = Job::new().quiet(&["groups"]);
    let places = |api| {
        let calls = of_api(&events, api, "enter");
        assert!(calls.iter().all(|event| event["p2p_op_index_scope"] == "peer_direction"));
        let fields = |event: &&serde_json::Value| {
            (number(event, "peer"), number(event, "p2p_op_index"), number(event, "comm_seq"))
        };
        calls.iter().map(fields).collect::<Vec<_>>()
    };
    assert_eq!(places("ncclSend"), [(0, 0, 0), (0, 1, 2), (2, 0, 3), (0, 2, 4)]);
    assert_eq!(places("ncclRecv"), [(0, 0, 1)]);
    let reduce = of_api(&events, "ncclAllReduce", "enter");
    assert!(reduce.iter().all(|event| event.get("p2p_op_index_scope").is_none()));
}

#[test]
fn a_forked_child_begins_anew_and_leaves_its_parent_alone() {
    let job = Job::new();
    let events = job.quiet(&["fork"]);
    let files = job.files();
    assert_eq!(files.len(), 2, "the child that never calls NCCL has no file: {files:?}");
    let pids: BTreeSet<i64> = events.iter().map(|event| number(event, "pid")).collect();
    let mut counts = Vec::new();
    for pid in pids {
        let own: Vec<_> = events.iter().filter(|e| number(e, "pid") == pid).cloned().collect();
        assert_complete(&own);
        assert_paired(&own, 0);
        assert_eq!(of_kind(&own, "process_start").len(), 1);
        counts.push(of_api(&own, "ncclAllReduce", "exit").len());
    }
    counts.sort_unstable();
    assert_eq!(counts, [7, 10]);
    assert_eq!(job.ring_files(), 0);
}
