//! A ring written by a thread and drained to a trace: what is there, once.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use proptest::prelude::*;
use serde_json::Value;
use tempfile::TempDir;

use crate::layout::{MIN_SLOTS, flag, header, ring};
use crate::{Api, Call, Drainer, Identity, RingFile, Writer, recover};

struct Place {
    rings: TempDir,
    trace: TempDir,
}

impl Place {
    fn new() -> Self {
        Self {
            rings: tempfile::tempdir_in("/dev/shm").unwrap(),
            trace: tempfile::tempdir().unwrap(),
        }
    }

    fn file(&self, max_bytes: u64) -> RingFile {
        let identity = Identity {
            run_id: "r".to_owned(),
            hostname: "h \"1\"".to_owned(),
            folder: self.trace.path().to_owned(),
            stem: "rank_0_pid_1".to_owned(),
            rank: 0,
            local_rank: -1,
            world_size: 4,
            pid: 1,
        };
        RingFile::create(self.rings.path(), MIN_SLOTS, max_bytes, &identity).unwrap()
    }

    fn text(&self) -> String {
        let mut files: Vec<_> =
            fs::read_dir(self.trace.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files.iter().map(|path| fs::read_to_string(path).unwrap()).collect()
    }

    fn events(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Number and phase of each call event.
    fn calls(&self) -> Vec<(u64, bool)> {
        let events = self.events();
        let calls = events.iter().filter(|event| event.get("api").is_some());
        calls.map(|e| (e["call_seq"].as_u64().unwrap(), e["phase"] == "exit")).collect()
    }
}

fn writer(file: &RingFile) -> Writer {
    Writer::new(file.add_ring().unwrap().1)
}

fn call(number: u64) -> Call {
    Call { call_seq: number, enter_ns: 1000 + 10 * number, ..Call::new(Api::AllReduce) }
}

fn whole(writer: &mut Writer, number: u64) {
    assert!(writer.begin(&call(number)));
    writer.finish(1005 + 10 * number, 0);
}

fn both(numbers: std::ops::Range<u64>) -> Vec<(u64, bool)> {
    numbers.flat_map(|number| [(number, false), (number, true)]).collect()
}

#[test]
fn a_call_inside_the_library_has_an_enter_and_later_its_exit() {
    let place = Place::new();
    let file = place.file(1 << 30);
    let mut writer = writer(&file);
    let mut drainer = Drainer::new(&file, true);
    whole(&mut writer, 0);
    assert!(writer.begin(&call(1)));
    drainer.drain(&file).unwrap();
    drainer.drain(&file).unwrap();
    assert_eq!(place.calls(), [(0, false), (0, true), (1, false)]);
    writer.finish(2000, 5);
    drainer.drain(&file).unwrap();
    assert_eq!(place.calls(), both(0..2));
    let events = place.events();
    assert_eq!(events.last().unwrap()["result_name"], "ncclInvalidUsage");
    assert_eq!(events[0]["hostname"], "h \"1\"");
}

#[test]
fn a_call_that_never_returned_gives_way_to_the_next() {
    let place = Place::new();
    let file = place.file(1 << 30);
    let mut writer = writer(&file);
    assert!(writer.begin(&call(0)));
    whole(&mut writer, 1);
    Drainer::new(&file, true).drain(&file).unwrap();
    assert_eq!(place.calls(), [(0, false), (1, false), (1, true)]);
}

#[test]
fn a_ring_goes_round_and_a_full_one_drops_whole_calls() {
    let place = Place::new();
    let file = place.file(1 << 30);
    let mut writer = writer(&file);
    let mut drainer = Drainer::new(&file, true);
    let slots = MIN_SLOTS as u64;
    for round in 0..5 {
        for number in 0..slots {
            whole(&mut writer, round * slots + number);
        }
        assert!(!writer.begin(&call(0)), "full");
        drainer.drain(&file).unwrap();
    }
    assert_eq!(place.calls(), both(0..5 * slots));
    assert_eq!(drainer.dropped(&file), 5 * 2);
}

#[test]
fn the_ranks_that_a_shrink_leaves_out_are_told() {
    let place = Place::new();
    let file = place.file(1 << 30);
    let mut writer = writer(&file);
    // Beside one slot's 30 ranks: none, some, exactly one slot, several.
    let lists: Vec<Vec<i32>> =
        [0, 1, 29, 30, 31, 100].map(|count| (0..count).map(|rank| rank * 7 - 3).collect()).into();
    for (number, list) in (0..).zip(&lists) {
        let shrink = Call {
            api: Api::CommShrink,
            flags: flag::PARENT | flag::PARENT_HASH,
            comm_seq: 0xab,
            ..call(number)
        };
        assert!(writer.begin_shrink(&shrink, list));
        writer.finish_creation(1005 + 10 * number, 0, (1, 2));
    }
    whole(&mut writer, 6);
    Drainer::new(&file, true).drain(&file).unwrap();
    assert_eq!(place.calls(), both(0..7));
    let events = place.events();
    for (number, list) in lists.iter().enumerate() {
        let texts: Vec<String> = list.iter().map(ToString::to_string).collect();
        for event in events.iter().filter(|event| event["call_seq"] == number) {
            assert_eq!(event["excluded"], texts.join(","));
            assert_eq!(event["parent_hash"], "00000000000000ab");
        }
    }
}

/// Leaves the file as a drainer does that dies in the middle of writing a batch: the first
/// `arrived` bytes of it are in the trace.
fn die_while_writing(place: &Place, file: &RingFile, arrived: usize) {
    let mut drainer = Drainer::new(file, true);
    drainer.drain(file).unwrap();
    let path = place.trace.path().join("rank_0_pid_1.jsonl");
    let before = fs::read(&path).unwrap().len();
    let map = file.ring(0).unwrap();
    let word = |at: usize| &map.words()[at];
    let (cursor, written) = (word(ring::CURSOR).load(Acquire), file.get(header::WRITTEN));
    let events = file.get(header::SEGMENT_EVENTS);
    let mut more = Writer::new(file.ring(0).unwrap());
    (10..20).for_each(|number| whole(&mut more, number));
    drainer.drain(file).unwrap();
    let bytes = fs::read(&path).unwrap().len() - before;
    word(ring::NEXT_CURSOR).store(word(ring::CURSOR).load(Acquire), Relaxed);
    word(ring::CURSOR).store(cursor, Relaxed);
    file.set(header::WRITTEN, written);
    file.set(header::SEGMENT_EVENTS, events);
    file.set(header::INTENT_FROM, before as u64);
    file.set(header::INTENT_BYTES, bytes as u64);
    file.set(header::INTENT_EVENTS, 20);
    file.word(header::INTENT).store(1, Release);
    let kept = before + arrived.min(bytes);
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(kept as u64).unwrap();
}

#[test]
fn a_batch_that_was_cut_short_is_written_once_and_whole() {
    for arrived in [0, 1, 700, usize::MAX] {
        let place = Place::new();
        let file = place.file(1 << 30);
        let mut first = writer(&file);
        (0..10).for_each(|number| whole(&mut first, number));
        die_while_writing(&place, &file, arrived);
        let mut second = Drainer::new(&file, false);
        second.drain(&file).unwrap();
        second.finish(&file).unwrap();
        assert_eq!(place.calls(), both(0..20), "{arrived} bytes had arrived");
        let events = place.events();
        let last = events.last().unwrap();
        assert_eq!((&last["event"], &last["written_events"]), (&"probe_status".into(), &40.into()));
    }
}

#[test]
fn a_trace_that_cannot_be_written_loses_nothing_by_the_attempt() {
    let place = Place::new();
    let file = place.file(1 << 30);
    let mut writer = writer(&file);
    let mut drainer = Drainer::new(&file, true);
    whole(&mut writer, 0);
    let gone = place.trace.path().to_owned();
    fs::remove_dir_all(&gone).unwrap();
    assert!(drainer.drain(&file).is_err());
    fs::create_dir(&gone).unwrap();
    drainer.drain(&file).unwrap();
    assert_eq!(place.calls(), both(0..1));
}

#[test]
fn the_oldest_segment_goes_first_and_is_counted() {
    let place = Place::new();
    // Sixteen segments of 64 KiB.
    let file = place.file(1);
    let mut writer = writer(&file);
    let mut drainer = Drainer::new(&file, true);
    for number in 0..10_000 {
        whole(&mut writer, number);
        if number % 50 == 0 {
            drainer.drain(&file).unwrap();
        }
    }
    drainer.drain(&file).unwrap();
    drainer.finish(&file).unwrap();
    let calls = place.calls();
    assert_eq!(fs::read_dir(place.trace.path()).unwrap().count(), 16);
    assert!(calls.contains(&(9_999, true)));
    let events = place.events();
    let told = events.iter().rfind(|event| event["event"] == "probe_status").unwrap();
    assert_eq!(told["written_events"], 20_000);
    assert_eq!(told["discarded_events"], 20_000 - calls.len());
}

#[test]
fn files_that_are_no_ring_are_left_alone() {
    let place = Place::new();
    let user = crate::map::effective_user();
    for (name, bytes) in [("a", 0), ("b", 10), ("c", 100_000)] {
        let path = place.rings.path().join(format!("deepxtrace-{user}-{name}.ring"));
        fs::write(path, vec![0x5a; bytes]).unwrap();
    }
    let found = recover(place.trace.path(), place.rings.path()).unwrap();
    assert_eq!((found.drained, found.living, found.failed.len()), (0, 0, 0));
    assert_eq!(fs::read_dir(place.rings.path()).unwrap().count(), 3);
}

#[test]
fn a_folder_that_is_no_memory_is_refused() {
    let place = Place::new();
    let identity = place.file(1).identity();
    let refused = RingFile::create(Path::new("/proc"), MIN_SLOTS, 1, &identity).unwrap_err();
    assert!(refused.to_string().contains("not a file system in memory"), "{refused}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever stands in the words of a ring, a drain ends, and writes only JSON.
    #[test]
    fn any_ring_is_drained_without_harm(
        words in prop::collection::vec((0_usize..4096, any::<u64>()), 0..200),
        head in prop_oneof![0_u64..3000, any::<u64>()],
        cursor in prop_oneof![0_u64..6000, any::<u64>()],
    ) {
        let place = Place::new();
        let file = place.file(1 << 30);
        let (_, map) = file.add_ring().unwrap();
        for (at, value) in words {
            map.words()[512 + at].store(value, Relaxed);
        }
        map.words()[ring::CURSOR].store(cursor, Relaxed);
        map.words()[ring::HEAD].store(head, Relaxed);
        let mut drainer = Drainer::new(&file, false);
        drainer.drain(&file).unwrap();
        prop_assert!(place.events().len() <= 2 * MIN_SLOTS + 2);
    }
}
