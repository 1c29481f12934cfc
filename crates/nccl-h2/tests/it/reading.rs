//! Files: growing, cut, replaced, broken.

use std::collections::HashSet;
use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use deepxtrace_nccl_h2::{
    Analyzer, Config, Event, EventKind, MAX_LINE_BYTES, Moment, ReadError, ReadReport, RunFolder,
    TraceReader, TraceTail,
};
use proptest::prelude::*;

use crate::support::{RUN, Session, reduce, unpack};

/// A line of a trace: a call of rank 0 with a number.
fn line(number: i64) -> String {
    serde_json::to_string(&reduce("c", 0, 1, number).numbered(number).event(number as f64)).unwrap()
}

fn append(path: &Path, bytes: &[u8]) {
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    file.write_all(bytes).unwrap();
}

/// The numbers of the calls in the events of a file.
fn numbers(event: &Event<'_>) -> i64 {
    match &event.kind {
        EventKind::NcclCall(call) => call.call_seq,
        _ => -1,
    }
}

/// Reads a folder to its end.
fn read(folder: &Path, threads: usize) -> (Vec<i64>, ReadReport) {
    let run = RunFolder { path: folder.to_owned(), run_id: RUN.to_owned() };
    let mut found = Vec::new();
    let reader = TraceReader::new(run.files().unwrap());
    let report = reader.read(threads, |event, _| found.push(numbers(event)), |_| {});
    (found, report)
}

#[test]
fn a_partial_last_line_waits_for_its_end() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rank_0_pid_1.jsonl");
    let mut tail = TraceTail::new(vec![folder.path().to_owned()]);
    let mut found = Vec::new();
    let text = format!("{}\n{}\n", line(1), line(2));
    let (first, rest) = text.as_bytes().split_at(text.len() - 40);
    append(&path, first);
    tail.poll(|event| found.push(numbers(event))).unwrap();
    assert_eq!(found, [1]);
    append(&path, rest);
    tail.poll(|event| found.push(numbers(event))).unwrap();
    assert_eq!(found, [1, 2]);
    assert_eq!(tail.report().bad_lines(), 0);
}

#[test]
fn the_last_line_of_a_file_that_will_not_grow_counts_without_its_newline() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rank_0_pid_1.jsonl");
    append(&path, format!("{}\n{}", line(1), line(2)).as_bytes());
    assert_eq!(read(folder.path(), 1).0, [1, 2]);
    let mut tail = TraceTail::new(vec![folder.path().to_owned()]);
    let mut found = Vec::new();
    tail.poll(|event| found.push(numbers(event))).unwrap();
    assert_eq!(found, [1]);
    tail.finish(|event| found.push(numbers(event)));
    assert_eq!(found, [1, 2]);
}

#[test]
fn a_last_line_that_was_cut_off_is_nothing_bad() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{}\n{}", line(1), &line(2)[..50]);
    append(&folder.path().join("rank_0_pid_1.jsonl"), text.as_bytes());
    let (found, report) = read(folder.path(), 1);
    assert_eq!((found, report.bad_lines()), (vec![1], 0));
}

#[test]
fn a_line_separator_of_unicode_inside_a_string_does_not_split_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let mut event = reduce("c", 0, 1, 5).numbered(5).event(0.0);
    event.header.hostname = "a\u{2028}b\u{85}c".into();
    let text = serde_json::to_string(&event).unwrap() + "\n" + &line(6) + "\n";
    assert!(text.contains('\u{2028}'), "not escaped");
    append(&folder.path().join("rank_0_pid_1.jsonl"), text.as_bytes());
    let (found, report) = read(folder.path(), 2);
    assert_eq!((found, report.bad_lines()), (vec![5, 6], 0));
}

#[test]
fn lines_that_are_no_json_or_no_object_are_counted_by_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = Vec::new();
    for bad in [&b"nonsense"[..], b"[1,2]", b"\"text\"", b"\xff\xfe{}", b"{\"a\":\x00}", b"17"] {
        text.extend_from_slice(line(1).as_bytes());
        text.push(b'\n');
        text.extend_from_slice(bad);
        text.push(b'\n');
    }
    text.extend_from_slice(b"\n  \n");
    append(&folder.path().join("rank_0_pid_1.jsonl"), &text);
    append(&folder.path().join("rank_1_pid_2.jsonl"), (line(9) + "\n").as_bytes());
    let (found, report) = read(folder.path(), 2);
    assert_eq!(found.len(), 7);
    assert_eq!((report.files[0].bad_lines, report.files[1].bad_lines), (6, 0));
    let lines: Vec<u64> = report.files[0].first_bad.iter().map(|bad| bad.line).collect();
    assert_eq!(lines, [2, 4, 6, 8, 10, 12]);
    assert_eq!(report.files[0].first_bad[3].reason, "not UTF-8");
    assert_eq!(report.lines(), 15);
}

#[test]
fn deep_nesting_is_a_bad_line_and_wide_values_are_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let deep = format!("{{\"a\":{}1{}}}\n", "[".repeat(100_000), "]".repeat(100_000));
    let wide = line(2).replacen('{', &format!("{{\"x\":[{}0],", "1,".repeat(1000)), 1);
    append(&folder.path().join("rank_0_pid_1.jsonl"), (deep + &wide + "\n").as_bytes());
    let (found, report) = read(folder.path(), 1);
    assert!(found.ends_with(&[2]), "{found:?}");
    assert!(report.bad_lines() <= 1);
}

#[test]
fn a_line_that_is_too_long_is_skipped_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let mut text = (line(1) + "\n").into_bytes();
    text.extend(std::iter::repeat_n(b'x', 3 * MAX_LINE_BYTES));
    text.extend_from_slice(format!("\n{}\n", line(2)).as_bytes());
    append(&folder.path().join("rank_0_pid_1.jsonl"), &text);
    let (found, report) = read(folder.path(), 2);
    assert_eq!(found, [1, 2]);
    assert_eq!(report.files[0].bad_lines, 1);
    assert_eq!(report.files[0].first_bad[0].line, 2);
}

#[test]
fn of_a_repeated_field_the_last_counts_and_strange_numbers_are_unknown() {
    let text = "{\"event\":\"nccl_call\",\"call_seq\":1,\"call_seq\":5,\"count\":1e300,\"op\":\"x\",\
                \"root\":18446744073709551616,\"peer\":18446744073709551615,\"stream\":null,\
                \"datatype\":{\"a\":[1]},\"comm_seq\":9223372036854775807,\"group_id\":true,\
                \"comm_rank\":-3,\"api\":17,\"phase\":[\"enter\"],\"hostname\":\"a\\u00e4\"}";
    let event = Event::parse(text).unwrap();
    assert_eq!(event.header.hostname, "a\u{e4}");
    let EventKind::NcclCall(call) = event.kind else { panic!() };
    assert_eq!((call.call_seq, call.comm_seq, call.comm_rank), (5, i64::MAX, -3));
    let unusable =
        [call.count, call.op, call.root, call.peer, call.stream, call.datatype, call.group_id];
    assert_eq!(unusable, [-1; 7]);
    assert_eq!((&*call.api, call.phase.as_str()), ("", ""));
}

#[test]
fn numbers_above_two_to_the_53_keep_their_value() {
    let text = r#"{"event":"nccl_call","count":9007199254740993,"stream":9223372036854775806}"#;
    let EventKind::NcclCall(call) = Event::parse(text).unwrap().kind else { panic!() };
    assert_eq!((call.count, call.stream), (9_007_199_254_740_993, i64::MAX - 1));
}

#[test]
fn what_is_written_reads_back() {
    let mut made = reduce("c", 3, 8, 4).numbered(7).group(2).captured();
    made.call.parent_hash = "p\"q".into();
    (made.call.parent_ordinal, made.call.color) = (2, -1);
    made.call.excluded = "1,2".into();
    for event in [made.event(1.5), made.clone().created().event(2.0), made.destroyed().event(3.0)] {
        let text = serde_json::to_string(&event).unwrap();
        assert_eq!(Event::parse(&text).unwrap(), event);
    }
}

#[test]
fn a_truncated_file_is_read_again_from_its_start() {
    replaced(|path| {
        fs::write(path, line(3) + "\n").unwrap();
        vec![3]
    });
}

#[test]
fn a_file_replaced_by_one_of_equal_size_is_noticed() {
    replaced(|path| {
        let same = fs::read(path).unwrap();
        let text = String::from_utf8(same.clone()).unwrap();
        let other = text.replace("\"call_seq\":1,", "\"call_seq\":7,");
        assert_eq!(other.len(), same.len());
        fs::write(path, other).unwrap();
        vec![7, 2]
    });
}

#[test]
fn a_file_replaced_by_a_larger_one_is_noticed() {
    replaced(|path| {
        let other = path.with_extension("new");
        fs::write(&other, format!("{}\n{}\n{}\n{}\n", line(3), line(4), line(5), line(6))).unwrap();
        fs::rename(&other, path).unwrap();
        vec![3, 4, 5, 6]
    });
}

/// A file with calls 1 and 2 is followed, changed, and polled again.
fn replaced(change: impl FnOnce(&Path) -> Vec<i64>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rank_0_pid_1.jsonl");
    append(&path, format!("{}\n{}\n", line(1), line(2)).as_bytes());
    let mut tail = TraceTail::new(vec![folder.path().to_owned()]);
    let mut found = Vec::new();
    tail.poll(|event| found.push(numbers(event))).unwrap();
    assert_eq!(found, [1, 2]);
    found.clear();
    let expected = change(&path);
    // The clock of the file system may be coarse.
    let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(2);
    fs::File::options().append(true).open(&path).unwrap().set_modified(soon).unwrap();
    tail.poll(|event| found.push(numbers(event))).unwrap();
    assert_eq!(found, expected);
    assert_eq!(tail.report().files[0].restarts, 1);
}

#[test]
fn files_that_appear_later_are_read_and_unreadable_ones_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut tail = TraceTail::new(vec![folder.path().to_owned()]);
    let mut found = Vec::new();
    tail.poll(|event| found.push(numbers(event))).unwrap();
    append(&folder.path().join("rank_1_pid_2.jsonl"), (line(4) + "\n").as_bytes());
    append(&folder.path().join("rank_0_pid_1.jsonl"), (line(3) + "\n").as_bytes());
    append(&folder.path().join("findings.jsonl"), b"{}\n");
    fs::create_dir(folder.path().join("rank_7_pid_7.jsonl")).unwrap();
    tail.poll(|event| found.push(numbers(event))).unwrap();
    assert_eq!(found, [3, 4]);
    let report = tail.report();
    assert_eq!(report.files.len(), 3);
    assert!(report.files[2].error.is_some());
    let (_, report) = read(folder.path(), 1);
    assert!(report.files[2].error.is_some() && report.files[0].error.is_none());
}

#[test]
fn segments_of_a_process_are_read_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let names = ["rank_0_pid_1.jsonl", "rank_0_pid_1.seg000001.jsonl", "rank_0_pid_1.g2.jsonl"];
    for (part, name) in (0..).zip(names) {
        let text: String = (0..2_000).map(|n| line(part * 2_000 + n) + "\n").collect();
        append(&folder.path().join(name), text.as_bytes());
    }
    append(&folder.path().join("rank_1_pid_2.jsonl"), (line(100_000) + "\n").as_bytes());
    for threads in [1, 2, 3] {
        let found: Vec<i64> =
            read(folder.path(), threads).0.into_iter().filter(|&n| n < 100_000).collect();
        assert!(found.iter().copied().eq(0..6_000), "{threads} threads");
    }
    let mut tail = TraceTail::new(vec![folder.path().to_owned()]);
    let mut found = Vec::new();
    while tail.poll(|event| found.push(numbers(event))).unwrap() {}
    found.retain(|&n| n < 100_000);
    assert!(found.into_iter().eq(0..6_000));
}

/// Writes a process's trace in thirteen segments of some blocks each; the calls are numbered.
fn many_segments(folder: &Path) -> i64 {
    for segment in 0..13 {
        let name = match segment {
            0 => "rank_0_pid_1.jsonl".to_owned(),
            _ => format!("rank_0_pid_1.seg{segment:06}.jsonl"),
        };
        let text: String = (0..3_000).map(|n| line(segment * 3_000 + n) + "\n").collect();
        assert!(text.len() > 3 * (128 << 10), "more than three blocks");
        append(&folder.join(name), text.as_bytes());
    }
    13 * 3_000
}

#[test]
fn many_segments_of_one_process_are_read_in_their_order_on_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    let calls = many_segments(folder.path());
    for threads in [1, 2, 5] {
        let (found, report) = read(folder.path(), threads);
        assert!(found.into_iter().eq(0..calls), "{threads} threads");
        assert_eq!((report.files.len(), report.lines(), report.bad_lines()), (13, 39_000, 0));
    }
    // The oldest segments are removed while a long job runs.
    fs::remove_file(folder.path().join("rank_0_pid_1.jsonl")).unwrap();
    assert!(read(folder.path(), 2).0.into_iter().eq(3_000..calls));
}

#[test]
fn one_process_alone_is_read_by_several_threads() {
    let folder = tempfile::tempdir().unwrap();
    many_segments(folder.path());
    let files = RunFolder::find(folder.path(), None).unwrap().files().unwrap();
    let (threads, more) = (Mutex::new(HashSet::new()), Condvar::new());
    TraceReader::new(files).read(
        2,
        |_, _| {},
        |_| {
            // Whoever is done with a block waits for another thread that is done with one.
            let mut threads = threads.lock().unwrap();
            threads.insert(std::thread::current().id());
            more.notify_all();
            let patience = Duration::from_secs(60);
            let alone = |threads: &mut HashSet<_>| threads.len() < 2;
            let (threads, _) = more.wait_timeout_while(threads, patience, alone).unwrap();
            assert_eq!(threads.len(), 2, "the other thread has no block to read");
        },
    );
}

#[test]
fn heartbeats_of_another_writer_are_read_too() {
    let mut session = Session::new();
    let text = r#"{"schema_version":2,"event":"heartbeat","rank":1,"pid":101,"progress_seq":4,
        "iteration":7,"phase":"train","checkpoint_active":true,"timestamp_unix_ns":5}"#;
    let event = Event::parse(text).unwrap();
    assert!(session.analyzer.ingest(&event, Moment { monotonic_ns: 5, unix_ns: 5 }));
    let EventKind::Heartbeat(beat) = &event.kind else { panic!() };
    assert_eq!((beat.progress_seq, beat.iteration, beat.checkpoint_active), (4, 7, Some(true)));
}

#[test]
fn a_run_is_found_in_its_folder_and_in_those_above() {
    let logs = tempfile::tempdir().unwrap();
    let run = |name: &str| logs.path().join("tracing").join(name);
    for name in ["one", "two"] {
        fs::create_dir_all(run(name)).unwrap();
        let mut event = reduce("c", 0, 1, 0).event(0.0);
        event.header.run_id = name.to_owned().into();
        let text = serde_json::to_string(&event).unwrap() + "\n";
        append(&run(name).join("rank_0_pid_1.jsonl"), text.as_bytes());
    }
    assert_eq!(RunFolder::find(&run("one"), None).unwrap().run_id, "one");
    for above in [logs.path().to_owned(), logs.path().join("tracing")] {
        let found = RunFolder::find(&above, Some("two")).unwrap();
        assert_eq!(found, RunFolder { path: run("two"), run_id: "two".to_owned() });
        let Err(ReadError::SeveralRuns { runs, .. }) = RunFolder::find(&above, None) else {
            panic!()
        };
        assert_eq!(runs, ["one", "two"]);
        let error = RunFolder::find(&above, Some("three")).unwrap_err().to_string();
        assert!(error.ends_with("no run \"three\"; there are: one, two"), "{error}");
    }
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(run("two"), run("latest")).unwrap();
        assert!(RunFolder::find(logs.path(), Some("two")).is_ok());
        fs::remove_file(run("latest")).unwrap();
    }
    // The files of one run in two folders: half of the ranks would look as if they were missing.
    fs::create_dir_all(run("one again")).unwrap();
    let file = "rank_0_pid_1.jsonl";
    fs::copy(run("one").join(file), run("one again").join(file)).unwrap();
    let error = RunFolder::find(logs.path(), Some("one")).unwrap_err();
    assert!(matches!(error, ReadError::Scattered { .. }), "{error}");
    assert!(matches!(RunFolder::find(logs.path(), None), Err(ReadError::SeveralRuns { .. })));
    assert_eq!(RunFolder::find(&run("one again"), Some("one")).unwrap().path, run("one again"));
    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(RunFolder::find(empty.path(), None), Err(ReadError::NoTrace { .. })));
    assert!(matches!(RunFolder::find(&empty.path().join("no"), None), Err(ReadError::Io { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_growing_file_polled_at_any_moments_gives_every_event_once(
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rank_0_pid_1.jsonl");
        let mut text = String::new();
        for number in 0..6 {
            let mut event = reduce("c", 0, 1, number).numbered(number).event(0.0);
            event.header.hostname = "h\u{f6}st\u{1F980}".into();
            text += &(serde_json::to_string(&event).unwrap() + "\n");
        }
        let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(text.len() + 1)).collect();
        places.push(text.len());
        places.sort_unstable();
        let mut tail = TraceTail::new(vec![folder.path().to_owned()]);
        let (mut found, mut start) = (Vec::new(), 0);
        for place in places {
            append(&path, &text.as_bytes()[start..place]);
            start = place;
            tail.poll(|event| found.push(numbers(event))).unwrap();
        }
        prop_assert_eq!(found, (0..6).collect::<Vec<i64>>());
        prop_assert_eq!(tail.report().bad_lines(), 0);
    }

    #[test]
    fn any_bytes_are_survived_and_good_lines_among_them_used(
        junk in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..12),
    ) {
        let folder = tempfile::tempdir().unwrap();
        let mut text = Vec::new();
        for (number, bytes) in junk.iter().enumerate() {
            text.extend(bytes.iter().filter(|&&byte| byte != b'\n'));
            text.extend_from_slice(format!("\n{}\n", line(number as i64)).as_bytes());
        }
        append(&folder.path().join("rank_0_pid_1.jsonl"), &text);
        let (found, report) = read(folder.path(), 2);
        prop_assert!((0..junk.len() as i64).all(|number| found.contains(&number)));
        prop_assert_eq!(report.lines(), 2 * junk.len() as u64);
    }

    #[test]
    fn any_fields_are_survived(
        fields in prop::collection::vec((0_usize..46, value()), 0..40),
        scans in 1_usize..4,
    ) {
        let mut analyzer = Analyzer::new(RUN, Config::default());
        let mut now = 0_i64;
        for part in fields.chunks(14) {
            let mut text = String::from("{\"run_id\":\"r\"");
            for (name, value) in part {
                text += &format!(",\"{}\":{value}", NAMES[*name % NAMES.len()]);
            }
            text.push('}');
            if let Ok(event) = Event::parse(&text) {
                for _ in 0..scans {
                    analyzer.ingest(&event, Moment { monotonic_ns: now, unix_ns: now });
                    now = now.saturating_add(i64::MAX / 8);
                    analyzer.scan(Moment { monotonic_ns: now, unix_ns: now });
                }
            }
        }
        analyzer.finish(Moment { monotonic_ns: i64::MAX, unix_ns: i64::MIN });
    }
}

const NAMES: [&str; 23] = [
    "event",
    "phase",
    "api",
    "comm_uid_hash",
    "comm_rank",
    "comm_nranks",
    "comm_seq",
    "call_seq",
    "count",
    "datatype",
    "op",
    "root",
    "peer",
    "group_id",
    "p2p_op_index",
    "p2p_op_index_scope",
    "result",
    "parent_hash",
    "rank",
    "pid",
    "timestamp_unix_ns",
    "dropped_events",
    "captured",
];

/// A JSON value, often one that a trace has.
fn value() -> impl Strategy<Value = String> {
    const WORDS: [&str; 14] = [
        "nccl_call",
        "comm_init",
        "heartbeat",
        "enter",
        "exit",
        "ncclAllReduce",
        "ncclSend",
        "ncclCommSplit",
        "ncclGroupEnd",
        "ncclBroadcast",
        "peer_direction",
        "c",
        "",
        "checkpointing",
    ];
    prop_oneof![
        4 => prop::sample::select(&WORDS[..]).prop_map(|word| format!("\"{word}\"")),
        3 => (-2_i64..4).prop_map(|number| number.to_string()),
        1 => any::<i64>().prop_map(|number| number.to_string()),
        1 => Just("null".to_owned()),
        1 => Just("true".to_owned()),
        1 => Just("[{\"a\":[]}]".to_owned()),
        1 => Just("1e400".to_owned()),
    ]
}

#[test]
fn the_recordings_read_the_same_with_any_number_of_threads() {
    let folder = tempfile::tempdir().unwrap();
    unpack("real/h200x2.tar.gz", folder.path());
    let path = folder.path().join("healthy_split");
    let one = read(&path, 1);
    assert_eq!(one.0.len(), 7638);
    assert_eq!(read(&path, 4), one);
}
