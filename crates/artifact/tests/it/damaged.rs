//! Files that are not what they should be: each says what is wrong, and none is believed.

use std::io::Cursor;

use deepxtrace_artifact::{ArtifactError, Reason, read};
use deepxtrace_npz::{Archive, Values, Writer};

use crate::sample::{low_latency, normal, read_bytes, window};

/// One array of a file, to be changed before it is written again.
#[derive(Debug, Clone)]
enum Content {
    Integers(Vec<i64>),
    Floats(Vec<f64>),
    Flags(Vec<bool>),
    Text(String),
}

#[derive(Debug, Clone)]
struct Entry {
    name: String,
    shape: Vec<usize>,
    content: Content,
}

fn entries(bytes: &[u8]) -> Vec<Entry> {
    let mut archive = Archive::new(Cursor::new(bytes), "a.npz").unwrap();
    let names: Vec<_> = archive.names().collect();
    let mut read = |name: String| {
        let array = archive.array(&name).unwrap();
        let shape = array.shape().to_vec();
        let content = match array.dtype() {
            "<i8" => Content::Integers(array.into_i64().unwrap()),
            "<f8" => Content::Floats(array.into_f64().unwrap()),
            "|b1" => Content::Flags(array.into_bool().unwrap()),
            _ => Content::Text(array.into_scalar_string().unwrap()),
        };
        Entry { name, shape, content }
    };
    names.into_iter().map(&mut read).collect()
}

fn write(entries: &[Entry]) -> Vec<u8> {
    let mut writer = Writer::new(Cursor::new(Vec::new()));
    for Entry { name, shape, content } in entries {
        match content {
            Content::Integers(values) => writer.array(name, shape, &values[..]),
            Content::Floats(values) => writer.array(name, shape, &values[..]),
            Content::Flags(values) => writer.array(name, shape, &values[..]),
            Content::Text(text) => writer.array(name, shape, Values::Text(&[text])),
        }
        .unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// The bytes of a window of four ranks after `change` of one of its arrays.
fn changed(key: &str, change: impl FnOnce(&mut Entry)) -> Vec<u8> {
    let mut entries = entries(&normal(window(4, 2, 7, Some(3))).to_bytes().unwrap());
    change(entries.iter_mut().find(|entry| entry.name == key).unwrap());
    write(&entries)
}

fn refused(bytes: &[u8]) -> ArtifactError {
    read_bytes(bytes).expect_err("it must be refused")
}

fn set(value: i64) -> impl FnOnce(&mut Entry) {
    move |entry| entry.content = Content::Integers(vec![value])
}

fn say(text: &str) -> impl FnOnce(&mut Entry) {
    move |entry| entry.content = Content::Text(text.into())
}

/// Puts one number of an array in place of another.
fn put(at: usize, value: i64) -> impl FnOnce(&mut Entry) {
    move |entry| {
        let Content::Integers(values) = &mut entry.content else { panic!("integers") };
        values[at] = value;
    }
}

#[test]
fn an_unchanged_file_that_was_written_again_is_read() {
    assert_eq!(read_bytes(&changed("kind", |_| ())).unwrap(), normal(window(4, 2, 7, Some(3))));
}

#[test]
fn a_newer_schema_is_refused_with_both_versions() {
    let error = refused(&changed("schema_version", set(2)));
    assert!(matches!(error.reason(), Reason::NewerSchema { found: 2 }));
    let text = "a.npz: schema version 2 is newer than 1, the newest that this program reads: \
                use a newer deepxtrace";
    assert_eq!(error.to_string(), text);
    let error = refused(&changed("schema_version", set(0)));
    assert_eq!(error.to_string(), "a.npz: schema_version: 0 is below 1");
}

#[test]
fn a_foreign_archive_is_refused_with_what_it_has() {
    let mut writer = Writer::new(Cursor::new(Vec::new()));
    writer.array("counters", &[1], &[1_i64][..]).unwrap();
    let error = refused(&writer.finish().unwrap().into_inner());
    assert!(matches!(error.reason(), Reason::Foreign(_)));
    let text = "a.npz: not a window artifact: no schema_version; the archive has counters";
    assert_eq!(error.to_string(), text);
    let error = refused(&changed("kind", say("lunch")));
    assert!(matches!(error.reason(), Reason::UnknownKind(kind) if kind == "lunch"), "{error}");
}

#[test]
fn what_is_no_archive_is_refused() {
    for bytes in [&b""[..], b"PK", b"hello, this is text and no archive at all"] {
        let error = refused(bytes);
        assert!(matches!(error.reason(), Reason::NotAnArchive(_)), "{error}");
    }
    let error = read("/nonexistent/a.npz").unwrap_err();
    assert!(matches!(error.reason(), Reason::Io(_)));
    assert!(error.to_string().starts_with("/nonexistent/a.npz: "), "{error}");
}

#[test]
fn a_truncated_file_is_refused_at_every_length() {
    let bytes = normal(window(2, 2, 1, None)).to_bytes().unwrap();
    for length in 0..bytes.len() {
        let error = refused(&bytes[..length]);
        assert!(matches!(error.reason(), Reason::NotAnArchive(_)), "{length}: {error}");
    }
}

#[test]
fn a_changed_byte_of_the_data_is_noticed() {
    let bytes = low_latency(4, 1).to_bytes().unwrap();
    let (mut damaged, mut other) = (0, 0);
    for at in 0..bytes.len() {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x10;
        match read_bytes(&bytes) {
            // Times, attributes and comments of an archive are nobody's data.
            Ok(found) => assert_eq!(found, low_latency(4, 1), "byte {at}"),
            Err(error) if matches!(error.reason(), Reason::Damaged(_)) => damaged += 1,
            Err(_) => other += 1,
        }
    }
    assert!(damaged > other, "{damaged} damaged, {other} other");
}

#[test]
fn absurd_groups_are_refused_before_anything_is_allocated() {
    for (key, value) in [
        ("ep_size", 0),
        ("ep_size", -4),
        ("ep_size", 4097),
        ("ep_size", i64::MAX),
        ("ranks_per_node", 0),
        ("ranks_per_node", i64::MIN),
    ] {
        let error = refused(&changed(key, set(value)));
        assert!(matches!(error.reason(), Reason::Group { .. }), "{error}");
        assert!(error.to_string().contains(&format!("{key} {value}")), "{error}");
    }
    // A possible size that is not that of the arrays.
    let error = refused(&changed("ep_size", set(4096)));
    assert!(matches!(error.reason(), Reason::Array(_)), "{error}");
    let text = "a.npz: valid: found |b1 of shape [4], expected shape [4096]";
    assert_eq!(error.to_string(), text);
}

#[test]
fn every_array_must_be_there_with_its_type_and_shape() {
    let all = [
        normal(window(4, 2, 7, Some(3))).to_bytes().unwrap(),
        low_latency(4, 1).to_bytes().unwrap(),
    ];
    for bytes in all {
        let entries = entries(&bytes);
        for at in 0..entries.len() {
            let name = &entries[at].name;
            let mut without = entries.clone();
            without.remove(at);
            let error = refused(&write(&without));
            let foreign = ["schema_version", "kind"].contains(&name.as_str());
            assert_eq!(matches!(error.reason(), Reason::Foreign(_)), foreign, "{error}");
            assert_eq!(matches!(error.reason(), Reason::Array(_)), !foreign, "{error}");
            assert!(error.to_string().contains(name), "{name}: {error}");

            let mut shaped = entries.clone();
            shaped[at].shape.push(1);
            let error = refused(&write(&shaped));
            assert!(matches!(error.reason(), Reason::Array(_)), "{name}: {error}");
            assert!(error.to_string().contains(name), "{name}: {error}");

            let mut typed = entries.clone();
            let elements = typed[at].shape.iter().product();
            typed[at].content = match &typed[at].content {
                Content::Integers(_) => Content::Floats(vec![1.0; elements]),
                _ => Content::Integers(vec![1; elements]),
            };
            let error = refused(&write(&typed));
            assert!(matches!(error.reason(), Reason::Array(_)), "{name}: {error}");
            assert!(error.to_string().contains(name), "{name}: {error}");
        }
    }
}

#[test]
fn counters_that_no_difference_has_are_refused_with_their_place() {
    // Cell [1, 2] of four columns, and rank 1.
    let error = refused(&changed("dispatch_final_cost", put(6, -5)));
    assert_eq!(error.to_string(), "a.npz: dispatch_final_cost: [1, 2] is -5, below 0");
    let error = refused(&changed("notify_dispatch_count", put(1, -1)));
    assert_eq!(error.to_string(), "a.npz: notify_dispatch_count: [1] is -1, below 0");
    // Rank 3 is missing: what it counted is 0.
    let error = refused(&changed("combine_logical_recv_token_count", put(7, 1)));
    let text = "a.npz: combine_logical_recv_token_count: [1, 3] is 1, but valid says that rank 3 \
                is missing";
    assert_eq!(error.to_string(), text);
}

#[test]
fn a_counter_that_was_edited_contradicts_its_average() {
    let error = refused(&changed("dispatch_final_cost", put(6, 999_000)));
    assert!(matches!(error.reason(), Reason::Inconsistent { key, .. }
        if key == "dispatch_final_cost_per_sample"));
    // Two samples in row 1: 999,000 / 2; before it was (1000 + 1 * 4 + 2) / 2.
    let text = "a.npz: dispatch_final_cost_per_sample: element 6 is 503, the counters give 499500";
    assert_eq!(error.to_string(), text);
}

#[test]
fn a_diagnosis_of_another_window_or_group_is_refused() {
    let error = refused(&changed("window_index", set(8)));
    assert_eq!(error.to_string(), "a.npz: diagnosis_json: is of window 7, the file of 8");
    let error = refused(&changed("window_index", set(-1)));
    assert_eq!(error.to_string(), "a.npz: window_index: -1 is below 0");
    let error = refused(&changed("diagnosis_json", say("{}")));
    assert!(error.to_string().starts_with("a.npz: diagnosis_json: missing field"), "{error}");
    let error = refused(&changed("policy_json", say("{\"axis_ratio\": 0.5}")));
    let text = "a.npz: policy_json: axis_ratio is 0.5, it must be a finite number above 1";
    assert_eq!(error.to_string(), text);
}

#[test]
fn an_instance_that_would_leave_the_folder_is_refused() {
    let error = refused(&changed("instance_id", say("../../etc")));
    assert!(matches!(error.reason(), Reason::Instance(_)), "{error}");
}

#[test]
fn a_name_of_absurd_length_is_refused_before_it_is_read() {
    let error = refused(&changed("kind", say(&"x".repeat(1025))));
    let text = "a.npz: kind: found <U1025 of shape [], expected a text of at most 1024 characters";
    assert_eq!(error.to_string(), text);
}

#[test]
fn unknown_arrays_are_ignored() {
    let artifact = normal(window(2, 2, 1, None));
    let mut entries = entries(&artifact.to_bytes().unwrap());
    let content = Content::Integers(vec![1, 2, 3]);
    entries.push(Entry { name: "comment_of_a_later_version".into(), shape: vec![3], content });
    assert_eq!(read_bytes(&write(&entries)).unwrap(), artifact);
}
