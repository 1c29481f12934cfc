//! Forms of dumps: protocols, JSON, file names, what is refused.

use std::fs;

use deepxtrace_nccl_h2::fr::{DumpSet, Fault, FrError, Limits, Options};
use proptest::prelude::*;
use tempfile::TempDir;

use super::{analyzed, kinds, recording, unpacked};

fn data(name: &str) -> Vec<u8> {
    let path = format!("{}/tests/data/fr/protocols/{name}", env!("CARGO_MANIFEST_DIR"));
    fs::read(path).unwrap()
}

/// Reads one file as the dump of rank 0.
fn read(bytes: &[u8]) -> Result<DumpSet, FrError> {
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("dump_rank_0");
    fs::write(&file, bytes).unwrap();
    DumpSet::read(&[file])
}

#[track_caller]
fn fault(bytes: &[u8]) -> Fault {
    match read(bytes) {
        Err(FrError::Dump { fault, .. }) => fault,
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_protocol_and_json_give_the_same_dump() {
    // The same dump under two ranks: whatever differs between the forms would be a finding.
    for form in ["protocol_2.pickle", "protocol_3.pickle", "protocol_4.pickle", "protocol_5.pickle"]
    {
        let folder = TempDir::new().unwrap();
        fs::write(folder.path().join("a_rank_0"), data("dump.json")).unwrap();
        fs::write(folder.path().join("a_rank_1"), data(form)).unwrap();
        let set = DumpSet::read(&[folder.path().to_owned()]).unwrap();
        assert_eq!(set.entries(), 6, "{form}");
        let report = set.analyze(&Options::default());
        assert_eq!(kinds(&report), [], "{form}");
        // Entries 0 and 1; the number of entry 2 is beyond 64 bits and so unusable.
        assert_eq!(report.rounds, 2, "{form}");
    }
}

#[test]
fn the_recorder_s_own_json_and_pickle_give_the_same_dump() {
    let folder = TempDir::new().unwrap();
    for ((name, bytes), rank) in
        [recording("mix")[0].clone(), recording("mix_json")[1].clone()].into_iter().zip([0, 1])
    {
        assert!(name.contains(&format!("rank_{rank}")));
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    let report = analyzed(folder.path());
    assert_eq!(kinds(&report), []);
    // Of 39 rounds three are of groups of one rank: these are compared with nothing.
    assert_eq!((report.rounds, report.pairs), (36, 8));
}

#[test]
fn nothing_in_a_pickle_is_run() {
    let fault = fault(&data("runs_code.pickle"));
    assert!(matches!(fault, Fault::WouldRunCode { opcode: b'c', name: "GLOBAL", .. }), "{fault}");
}

#[test]
fn versions_that_are_not_known_are_refused_by_name() {
    let dump = |version: &str| format!(r#"{{"version": {version}, "entries": []}}"#);
    for good in ["\"2.0\"", "\"2.10\"", "\"2.99\"", "2.5", "2"] {
        assert!(read(dump(good).as_bytes()).is_ok(), "{good}");
    }
    for (bad, named) in [("\"1.9\"", "1.9"), ("\"3.0\"", "3.0"), ("\"two\"", "two"), ("1", "1.0")] {
        let found = named.to_owned();
        assert_eq!(fault(dump(bad).as_bytes()), Fault::Version { found }, "{bad}");
    }
    let text = fault(dump("\"3.1\"").as_bytes()).to_string();
    assert_eq!(text, "it has version 3.1 of the dump format; versions 2.x are read");
}

#[test]
fn what_is_wrong_in_an_entry_is_named_with_its_place() {
    let with = |entries: &str| format!(r#"{{"version": "2.1", "entries": {entries}}}"#);
    let text = |entries: &str| fault(with(entries).as_bytes()).to_string();
    assert_eq!(text("3"), "entries is no list");
    assert_eq!(text("[5]"), "entries[0]  is no dictionary");
    let good = r#"{"profiling_name": "nccl:all_reduce"}"#;
    assert_eq!(text(&format!("[{good}, {{}}]")), "entries[1].profiling_name is missing or no text");
    let config = r#"{"version": "2.1", "pg_config": {"0": {"ranks": "0 1"}}, "entries": []}"#;
    assert_eq!(fault(config.as_bytes()).to_string(), "pg_config has no list of ranks for group 0");
}

#[test]
fn other_files_of_a_folder_are_passed_over_and_broken_dumps_are_named() {
    let folder = unpacked("missing");
    let put = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).unwrap();
    put("README.md", b"# dumps");
    put("empty", b"");
    put("rank_0_pid_9.jsonl", b"{\"event\":\"process_start\"}\n{\"event\":\"process_end\"}\n");
    put(".hidden_rank_7", b"\x80\x02broken");
    put("fr_rank_2.pickle", b"\x80\x02}(X");
    let set = DumpSet::read(&[folder.path().to_owned()]).unwrap();
    assert_eq!(set.ranks().collect::<Vec<_>>(), [0, 1]);
    assert_eq!(set.problems().len(), 1);
    let problem = &set.problems()[0];
    assert!(problem.to_string().contains("fr_rank_2.pickle"), "{problem}");
    let why = std::error::Error::source(problem).unwrap().to_string();
    assert!(why.contains("cut short"), "{why}");
    assert_eq!(kinds(&set.analyze(&Options::default())), [("collective_missing_enter", "0", 81)]);
}

#[test]
fn a_folder_without_dumps_and_two_dumps_of_a_rank_are_errors() {
    let folder = TempDir::new().unwrap();
    let paths = [folder.path().to_owned()];
    fs::write(folder.path().join("notes.txt"), "nothing").unwrap();
    assert!(matches!(DumpSet::read(&paths), Err(FrError::NoDumps { .. })));
    assert!(matches!(DumpSet::read(&[folder.path().join("none")]), Err(FrError::Io { .. })));
    let dump = br#"{"version": "2.1", "entries": []}"#;
    fs::write(folder.path().join("host1_rank_3"), dump).unwrap();
    fs::create_dir(folder.path().join("host2")).unwrap();
    fs::write(folder.path().join("host2/host2_rank_3"), dump).unwrap();
    match DumpSet::read(&paths) {
        Err(FrError::SameRank { rank: 3, first, second }) => assert_ne!(first, second),
        other => panic!("{other:?}"),
    }
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("dump"), dump).unwrap();
    assert!(matches!(DumpSet::read(&[folder.path().to_owned()]), Err(FrError::NoRank { .. })));
}

#[test]
fn limits_are_errors_that_name_them() {
    let folder = unpacked("missing");
    let read = |limits: Limits| match DumpSet::read_within(
        &[folder.path().join("fr_rank_0.pickle")],
        &limits,
    ) {
        Err(FrError::Dump { fault, .. }) => fault,
        other => panic!("{other:?}"),
    };
    let default = Limits::default();
    assert_eq!(read(Limits { bytes: 1000, ..default }), Fault::TooLarge { limit: 1000 });
    assert_eq!(read(Limits { values: 1000, ..default }), Fault::TooManyValues { limit: 1000 });
    assert_eq!(read(Limits { depth: 3, ..default }), Fault::TooDeep { limit: 3 });
}

#[test]
fn entries_that_are_all_one_value_are_counted_each() {
    // One entry of many frames, used again and again by number: work is limited, not only bytes.
    let mut bytes = b"\x80\x02}(X\x07\0\0\0versionX\x03\0\0\x002.1X\x07\0\0\0entries](".to_vec();
    bytes.extend(b"}(X\x0e\0\0\0profiling_nameX\x01\0\0\0aX\x06\0\0\0frames](");
    bytes.extend(b"N".repeat(100_000));
    bytes.extend(b"eu\x94");
    bytes.extend(b"h\x00".repeat(100_000));
    bytes.extend(b"eu.");
    let start = std::time::Instant::now();
    assert!(matches!(fault(&bytes), Fault::TooManyValues { .. }));
    assert!(start.elapsed() < std::time::Duration::from_secs(20), "{:?}", start.elapsed());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens to the bytes of a dump, reading and judging it ends.
    #[test]
    fn a_damaged_dump_ends(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        cut in any::<prop::sample::Index>(),
        json in any::<bool>(),
    ) {
        let (_, mut bytes) = recording(if json { "mix_json" } else { "mix" }).remove(0);
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        bytes.truncate(cut.index(bytes.len()) + bytes.len() / 2);
        if let Ok(set) = read(&bytes) {
            set.analyze(&Options::default());
        }
    }
}
