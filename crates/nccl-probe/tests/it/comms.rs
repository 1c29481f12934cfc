use serde_json::Value;

use crate::support::{Job, assert_complete, number, of_api, of_kind, text};

/// FNV-1a as published, over the stand-in's unique id: byte `i` is `7 i + 1`, less those changed.
fn hash(change: impl Fn(usize, u8) -> u8, rounds: usize) -> u64 {
    let mut hash = 14_695_981_039_346_656_037_u64;
    for _ in 0..rounds {
        for place in 0..128 {
            let byte = (place * 7 + 1) as u8;
            hash ^= u64::from(change(place, byte));
            hash = hash.wrapping_mul(1_099_511_628_211);
        }
    }
    hash
}

fn hex(hash: u64) -> String {
    format!("{hash:016x}")
}

/// Function, hash, rank and size of every communicator that came to be.
fn created(events: &[Value]) -> Vec<(String, String, i64, i64)> {
    let fields = |event: &&Value| {
        (
            text(event, "api").to_owned(),
            text(event, "comm_uid_hash").to_owned(),
            number(event, "comm_rank"),
            number(event, "comm_nranks"),
        )
    };
    of_kind(events, "comm_init").iter().map(fields).collect()
}

#[test]
fn a_communicator_is_named_by_its_unique_id() {
    let events = Job::new().quiet(&["all"]);
    let made = created(&events);
    let plain = hex(hash(|_, byte| byte, 1));
    assert_eq!(made[0], ("ncclCommInitRank".to_owned(), plain.clone(), 3, 8));
    assert_eq!(made[1], ("ncclCommInitRankConfig".to_owned(), plain, 1, 2));
    // Scalable: two ids, the second with its first byte 99.
    let mut both = hash(|_, byte| byte, 1);
    for place in 0..128 {
        let byte = if place == 0 { 99 } else { (place * 7 + 1) as u8 };
        both = (both ^ u64::from(byte)).wrapping_mul(1_099_511_628_211);
    }
    assert_eq!(made[2], ("ncclCommInitRankScalable".to_owned(), hex(both), 4, 5));
}

#[test]
fn all_of_init_all_share_one_name_of_their_own() {
    let events = Job::new().quiet(&["all"]);
    let made = created(&events);
    let all: Vec<_> = made.iter().filter(|made| made.0 == "ncclCommInitAll").collect();
    assert_eq!(all.iter().map(|made| (made.2, made.3)).collect::<Vec<_>>(), [(0, 2), (1, 2)]);
    assert_eq!(all[0].1, all[1].1);
    assert_eq!(all[0].1.len(), 16);
    assert_eq!(of_api(&events, "ncclCommInitAll", "enter").len(), 1);
    // A call on the second of them.
    let reduce = of_api(&events, "ncclAllReduce", "enter");
    let on_second = reduce.iter().find(|event| event["comm_uid_hash"] == *all[0].1).unwrap();
    assert_eq!((number(on_second, "comm_rank"), number(on_second, "comm_seq")), (1, 0));
}

#[test]
fn a_child_tells_its_parent_and_how_it_came_to_be() {
    let events = Job::new().quiet(&["all"]);
    let parent = created(&events)[0].1.clone();
    let splits = of_api(&events, "ncclCommSplit", "exit");
    let enters = of_api(&events, "ncclCommSplit", "enter");
    for (event, color, ordinal) in [(splits[0], 17, 0), (splits[1], -1, 1)] {
        assert_eq!(text(event, "parent_hash"), parent);
        assert_eq!((number(event, "color"), number(event, "parent_ordinal")), (color, ordinal));
        assert_eq!(text(event, "excluded"), "");
    }
    // The child's rank and size are the library's word, known once it returns.
    let members = |event: &Value| (number(event, "comm_rank"), number(event, "comm_nranks"));
    assert_eq!((members(enters[0]), members(splits[0])), ((-1, -1), (2, 4)));
    assert_eq!(enters[0]["comm_uid_hash"], splits[0]["comm_uid_hash"]);
    // No colour: no child.
    assert_eq!((text(splits[1], "comm_uid_hash"), members(splits[1])), ("", (-1, -1)));

    let shrink = of_api(&events, "ncclCommShrink", "exit")[0];
    assert_eq!((text(shrink, "excluded"), number(shrink, "parent_ordinal")), ("5,1", 0));
    assert_eq!(members(shrink), (2, 6));

    let grows = of_api(&events, "ncclCommGrow", "exit");
    let id = hash(|place, byte| if place == 0 { 99 } else { byte }, 1);
    // An old rank with the id tells both names; a new rank knows the id's only.
    assert_eq!(
        (text(grows[0], "parent_hash"), text(grows[0], "joined_hash")),
        (&*parent, &*hex(id))
    );
    assert_eq!(members(grows[0]), (3, 10));
    assert_eq!((text(grows[1], "comm_uid_hash"), members(grows[1])), (&*hex(id), (9, 10)));
    assert!(grows[1].get("parent_hash").is_none());

    let names: Vec<&str> =
        [splits[0], shrink, grows[0], grows[1]].map(|event| text(event, "comm_uid_hash")).into();
    for (place, name) in names.iter().enumerate() {
        assert_eq!(name.len(), 16);
        assert!(!names[..place].contains(name) && *name != parent);
    }
    // Calls on the children carry their names and begin at 0.
    let reduce = of_api(&events, "ncclAllReduce", "enter");
    for name in [names[0], names[1]] {
        let on_child = reduce.iter().find(|event| event["comm_uid_hash"] == name).unwrap();
        assert_eq!((number(on_child, "comm_seq"), number(on_child, "count")), (0, 3));
    }
}

#[test]
fn two_ranks_agree_on_names_without_talking() {
    let names = |rank: &str| {
        let mut job = Job::new();
        job.set("RANK", rank);
        let events = job.quiet(&["all"]);
        let made = created(&events).into_iter().filter(|made| made.0 != "ncclCommInitAll");
        made.map(|made| made.1).collect::<Vec<_>>()
    };
    assert_eq!(names("0"), names("5"));
}

#[test]
fn communicators_made_in_a_group_exist_when_it_ends() {
    let events = Job::new().quiet(&["groups"]);
    assert_complete(&events);
    let made = created(&events);
    let order: Vec<&str> = made.iter().map(|made| &*made.0).collect();
    assert_eq!(
        order,
        ["ncclCommInitRank", "ncclCommInitRank", "ncclCommInitRank", "ncclCommSplit"]
    );
    let other = hex(hash(|place, byte| if place == 127 { 1 } else { byte }, 1));
    assert_eq!((made[1].2, made[1].3), (0, 2));
    assert_eq!((&made[2].1, made[2].2, made[2].3), (&other, 1, 2));
    assert_eq!((made[3].2, made[3].3), (1, 2));
    // The calls themselves returned before; the communicators come with the end of the group.
    let returned = of_api(&events, "ncclCommInitRank", "exit");
    let kinds: Vec<&str> = returned.iter().map(|event| text(event, "event")).collect();
    assert_eq!(kinds, ["comm_init", "nccl_call", "nccl_call", "comm_init", "comm_init"]);
    let end = of_api(&events, "ncclGroupEnd", "exit");
    let end = number(end.last().unwrap(), "timestamp_mono_ns");
    assert!(number(returned[3], "timestamp_mono_ns") >= end);
    for (count, name) in [(60, &made[1].1), (61, &made[2].1), (62, &made[3].1)] {
        let reduce = of_api(&events, "ncclAllReduce", "enter");
        let reduce = reduce.iter().find(|event| number(event, "count") == count).unwrap();
        assert_eq!(text(reduce, "comm_uid_hash"), name);
    }
}

#[test]
fn a_communicator_that_comes_later_is_known_at_its_first_call() {
    let events = Job::new().quiet(&["not_blocking"]);
    assert_complete(&events);
    let made = created(&events);
    assert_eq!(made.len(), 2);
    let name = hex(hash(|_, byte| byte, 1));
    assert!(made.contains(&("ncclCommInitRankConfig".to_owned(), name.clone(), 5, 6)));
    let child = made.iter().find(|made| made.0 == "ncclCommSplit").unwrap();
    assert_eq!((child.2, child.3), (2, 3));
    let returned = of_api(&events, "ncclCommInitRankConfig", "exit");
    assert_eq!(text(returned[0], "event"), "nccl_call");
    assert_eq!(text(returned[0], "result_name"), "ncclInProgress");
    let calls = of_api(&events, "ncclAllReduce", "enter");
    let names: Vec<&str> = calls.iter().map(|event| text(event, "comm_uid_hash")).collect();
    assert_eq!(names, [&child.1, &name]);
}

#[test]
fn a_collective_of_nothing_takes_no_place_in_the_order() {
    let events = Job::new().quiet(&["groups"]);
    let name = created(&events)[0].1.clone();
    let calls = of_api(&events, "ncclAllReduce", "enter");
    let calls =
        calls.iter().filter(|event| event["comm_uid_hash"] == *name && event["comm_nranks"] == 4);
    let numbers: Vec<_> = calls.map(|e| (number(e, "count"), number(e, "comm_seq"))).collect();
    assert_eq!(numbers, [(0, 0), (63, 0)]);
}
