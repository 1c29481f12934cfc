//! Input that cannot be used: exit code 2 and one line that says what, where and what is right.

use std::fs::File;
use std::io::Cursor;

use deepxtrace::counters::{Snapshot, Topology, Windows};
use deepxtrace::normal::{Diagnoser, Policy};
use deepxtrace_npz::{Values, Writer};
use proptest::prelude::*;

use crate::normal::Recording;
use crate::{Scratch, data, run};

/// The bytes of an NPY array with this header.
pub fn npy(header: &str, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(header.len() + 1).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), b"\n", data].concat()
}

fn npz(arrays: &[(&str, &[usize], Values<'_>)]) -> Vec<u8> {
    let mut writer = Writer::new(Cursor::new(Vec::new()));
    for (name, shape, values) in arrays {
        writer.array(name, shape, *values).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

/// What the command says about a file, after the name of the file.
fn refused(command: &str, file: &str, bytes: impl AsRef<[u8]>) -> String {
    let file = Scratch::new(file, bytes);
    let run = run([command, "analyze", "--json", file.text()]);
    assert_eq!(run.code, Some(2), "{}{}", run.out, run.err);
    assert_eq!(run.err.lines().count(), 1, "one line: {}", run.err);
    assert_eq!(run.out, "", "nothing on standard output");
    let start = format!("deepxtrace: {}: ", file.text());
    run.err.strip_prefix(&start).unwrap_or_else(|| panic!("{}", run.err)).trim_end().to_owned()
}

/// A right file of two snapshots of two ranks, with one array in place of its own.
fn with(name: &str, shape: &[usize], values: Values<'_>) -> Vec<u8> {
    let counters = [0_i64; 96];
    let mut arrays: Vec<(&str, &[usize], Values<'_>)> = vec![
        ("counters", &[2, 2, 24], (&counters[..]).into()),
        ("timestamps_unix_ns", &[2], (&[1_i64, 2][..]).into()),
        ("ranks_per_node", &[], (&[8_i64][..]).into()),
    ];
    match arrays.iter_mut().find(|array| array.0 == name) {
        Some(array) => (array.1, array.2) = (shape, values),
        None => arrays.push((name, shape, values)),
    }
    npz(&arrays)
}

fn normal(bytes: impl AsRef<[u8]>) -> String {
    refused("normal", "snapshots.npz", bytes)
}

#[test]
fn snapshots_of_a_wrong_shape_are_refused() {
    let zeros = [0_i64; 96];
    let counters = |shape: &[usize]| {
        let length = shape.iter().product();
        normal(with("counters", shape, (&zeros[..length]).into()))
    };
    assert_eq!(
        counters(&[2, 48]),
        "entry counters: found <i8 of shape [2, 48], expected shape [W, N, 6 + 9N]"
    );
    assert_eq!(
        counters(&[2, 2, 23]),
        "entry counters: found <i8 of shape [2, 2, 23], expected shape [W, N, 6 + 9N], that is \
         [2, 2, 24]"
    );
    assert_eq!(
        counters(&[0, 2, 24]),
        "entry counters: found <i8 of shape [0, 2, 24], expected at least one snapshot"
    );
    assert_eq!(
        counters(&[16, 0, 6]),
        "entry counters: found <i8 of shape [16, 0, 6], expected shape [W, N, 6 + 9N] with N from \
         1 to 4096"
    );
    assert_eq!(
        counters(&[1, 2, 24]),
        "entry timestamps_unix_ns: found <i8 of shape [2], expected shape [1]"
    );
    assert_eq!(
        normal(with("ranks_per_node", &[2], (&[8_i64, 8][..]).into())),
        "entry ranks_per_node: found <i8 of shape [2], expected one integer"
    );
    assert_eq!(
        normal(with("present", &[2], (&[true, true][..]).into())),
        "entry present: found |b1 of shape [2], expected shape [2, 2]"
    );
}

#[test]
fn snapshots_of_a_wrong_type_or_order_are_refused() {
    assert_eq!(
        normal(with("counters", &[2, 2, 24], (&[0.5; 96][..]).into())),
        "entry counters: found <f8 of shape [2, 2, 24], expected integers"
    );
    assert_eq!(
        normal(with("present", &[2, 2], (&[1_i64; 4][..]).into())),
        "entry present: found <i8 of shape [2, 2], expected booleans"
    );
    let fortran = npy("{'descr': '<i8', 'fortran_order': True, 'shape': (2, 2, 24), }", &[0; 768]);
    let zip = with_raw_entry("counters", &fortran);
    assert_eq!(
        normal(zip),
        "entry counters: found <i8 of shape [2, 2, 24] in Fortran order, expected C order \
         (numpy.ascontiguousarray gives it), not Fortran order"
    );
    let unsigned = npy(
        "{'descr': '<u8', 'fortran_order': False, 'shape': (2, 2, 24), }",
        &[[0; 760].as_slice(), &[255; 8]].concat(),
    );
    assert_eq!(
        normal(with_raw_entry("counters", &unsigned)),
        "entry counters: element [1, 1, 23] is 18446744073709551615, expected at most \
         9223372036854775807"
    );
}

/// The right file with an entry of any bytes.
fn with_raw_entry(name: &str, npy: &[u8]) -> Vec<u8> {
    use std::io::Write as _;
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    let mut entry = |entry: &str, bytes: &[u8]| {
        let name = format!("{entry}.npy");
        zip.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
    };
    entry(name, npy);
    let times = npy_of("(2,)", &[1, 2]);
    let per_node = npy_of("()", &[8]);
    for (other, bytes) in [("timestamps_unix_ns", times), ("ranks_per_node", per_node)] {
        if other != name {
            entry(other, &bytes);
        }
    }
    zip.finish().unwrap().into_inner()
}

fn npy_of(shape: &str, values: &[i64]) -> Vec<u8> {
    let header = format!("{{'descr': '<i8', 'fortran_order': False, 'shape': {shape}, }}");
    npy(&header, &values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>())
}

#[test]
fn values_that_cannot_be_are_refused_with_their_place() {
    let mut recording = Recording::new(Topology::new(3, 2).unwrap());
    recording.windows(1, []);
    // Snapshot 1, rank 2, offset 6: the cost of dispatch_final from rank 0.
    recording.counters[99 + 2 * 33 + 6] = -5;
    let file = recording.write("negative");
    let text = run(["normal", "analyze", file.text()]);
    assert_eq!(text.code, Some(2));
    assert!(
        text.err.ends_with(
            "entry counters: snapshot 1, rank 2, probe dispatch_final, cost[0] is -5, expected 0 \
             or more: cumulative counters begin at 0\n"
        ),
        "{}",
        text.err
    );
    // The vector of a rank that is absent is not read.
    recording.present[3 + 2] = false;
    assert_eq!(run(["normal", "analyze", recording.write("absent").text()]).code, Some(0));
    for (value, text) in [(0, "0"), (-3, "-3")] {
        assert_eq!(
            normal(with("ranks_per_node", &[], (&[value][..]).into())),
            format!("entry ranks_per_node: found {text}, expected 1 or more")
        );
    }
    let huge = [i64::MAX; 96];
    let file = Scratch::new("huge.npz", with("counters", &[2, 2, 24], (&huge[..]).into()));
    assert_eq!(run(["normal", "analyze", file.text()]).code, Some(0), "an idle window");
}

#[test]
fn files_that_are_no_archive_or_lack_an_entry_are_refused() {
    assert!(normal("").starts_with("not a readable NPZ (ZIP) archive: the file is empty"));
    assert!(normal("counters\n1 2 3\n").starts_with("not a readable NPZ (ZIP) archive: "));
    assert!(normal(npy_of("(2,)", &[1, 2])).starts_with("not a readable NPZ (ZIP) archive: "));
    assert_eq!(
        normal(npz(&[("counters", &[1, 1, 15], (&[0_i64; 15][..]).into())])),
        "no entry ranks_per_node, the file has: counters"
    );
    assert_eq!(normal(npz(&[])), "no entry counters, the file has: no arrays");
    let whole = std::fs::read(data("normal_five_phases_h200x2.npz")).unwrap();
    for end in [whole.len() / 2, whole.len() - 20, 10] {
        assert!(normal(&whole[..end]).starts_with("not a readable NPZ (ZIP) archive: "));
    }
    // A byte of the deflated counters changed: the data or their checksum say so. What was
    // diagnosed before that stands on standard output.
    let mut damaged = whole;
    damaged[200_000] ^= 0x55;
    let file = Scratch::new("damaged.npz", damaged);
    let run = run(["normal", "analyze", "--json", file.text()]);
    assert_eq!(run.code, Some(2), "{}", run.err);
    assert!(run.err.contains("damaged.npz: entry counters: "), "{}", run.err);
}

#[test]
fn missing_files_and_folders_are_refused_by_both_commands() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.npz");
    let folders = [("normal", "no file normal_window_"), ("ll", "it is a folder")];
    for (command, folder_text) in folders {
        for (path, text) in [(missing.as_path(), "No such file"), (folder.path(), folder_text)] {
            let run = run([command, "analyze", path.to_str().unwrap()]);
            assert_eq!(run.code, Some(2), "{}", run.out);
            assert!(run.err.contains(path.to_str().unwrap()), "{}", run.err);
            assert!(run.err.contains(text), "{}", run.err);
            assert_eq!(run.err.lines().count(), 1, "{}", run.err);
        }
    }
}

#[test]
fn matrices_that_are_none_are_refused() {
    let ll = |name: &str, bytes: &[u8]| refused("ll", name, bytes);
    assert_eq!(ll("a.txt", b""), "the file is empty, expected a wait matrix or a log");
    assert_eq!(
        ll("a.txt", b"1 2 3\n4 5 6\n"),
        "found 2 rows of 3 values, expected a square matrix of at most 4096 ranks"
    );
    assert_eq!(
        ll("a.txt", b"1 2\n3 4\n5 6\n"),
        "found 3 or more rows of 2 values, expected a square matrix of at most 4096 ranks"
    );
    assert_eq!(ll("a.txt", b"1 2\n3\n"), "line 2: found 1 values, expected 2 as in the first row");
    assert_eq!(
        ll("a.txt", b"1 2\n3 -4\n"),
        "line 2: found \"-4\", expected an integer that is 0 or more"
    );
    assert_eq!(
        ll("a.txt", b"1.5 2\n3 4\n"),
        "line 1: found \"1.5\", expected an integer that is 0 or more"
    );
    assert_eq!(
        ll("a.txt", b"1 99999999999999999999\n3 4\n"),
        "line 1: found \"99999999999999999999\", expected an integer that is 0 or more"
    );
    for binary in [&b"ab\0cd"[..], b"\x7fELF\x02\x01\x00", b"c\xff\n1 2\n"] {
        assert_eq!(ll("a.bin", binary), "line 1 is no text, expected .npy, .npz or text");
    }
    // 3 MB of one digit.
    let wide = ll("a.txt", &vec![b'1'; 3 << 20]);
    assert!(wide.starts_with("line 1: found \"1111") && wide.len() < 150, "{wide}");
    assert_eq!(
        ll("a.npy", &npy_of("(1, 2)", &[1, 2])),
        "found <i8 of shape [1, 2], expected shape [N, N], N from 1 to 4096"
    );
    assert_eq!(
        ll("a.npy", &npy_of("(2, 2)", &[1, 2, -3, 4])),
        "cell [1, 0] is -3, expected 0 or more"
    );
    assert_eq!(
        ll("a.npy", &npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1, 1), }", &[0; 8])),
        "found <f8 of shape [1, 1], expected integers"
    );
    assert_eq!(
        ll("a.npy", &npy("{'descr': '<i8', 'fortran_order': True, 'shape': (2, 2), }", &[0; 32])),
        "found <i8 of shape [2, 2] in Fortran order, expected C order (numpy.ascontiguousarray \
         gives it), not Fortran order"
    );
    assert_eq!(
        ll("a.npy", &npy_of("(2, 2)", &[1, 2, 3])),
        "24 bytes of data, 32 expected for <i8 of shape [2, 2]"
    );
    assert_eq!(
        ll("a.npz", &npz(&[("waits", &[4], (&[1_i64; 4][..]).into())])),
        "no square matrix, the file has: waits"
    );
    assert!(ll("a.npz", b"PK\x03\x04 not really").starts_with("not a readable NPZ (ZIP) archive"));
}

/// Counters of any size: sums, ratios and logarithms must not overflow or panic.
fn any_counter() -> impl Strategy<Value = i64> {
    prop_oneof![
        3 => Just(0),
        3 => 0..10_000_i64,
        2 => 0..=i64::MAX,
        1 => Just(i64::MAX),
        1 => Just(i64::MAX - 1),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arbitrary_snapshots_are_diagnosed_without_a_panic(
        (ep_size, counters) in (1..7_usize).prop_flat_map(|n| {
            (Just(n), prop::collection::vec(any_counter(), 3 * n * (6 + 9 * n)))
        }),
        ranks_per_node in 1..5_usize,
        signs in any::<[bool; 3]>(),
        cumulative in any::<bool>(),
        present in prop::collection::vec(prop::bool::weighted(0.9), 18),
    ) {
        let topology = Topology::new(ep_size, ranks_per_node).unwrap();
        let mut windows = Windows::new(topology);
        let mut diagnoser = Diagnoser::new(topology, Policy::default()).unwrap();
        let mut last = vec![0_i64; counters.len() / 3];
        for (i, chunk) in counters.chunks(counters.len() / 3).enumerate() {
            for (last, &counter) in last.iter_mut().zip(chunk) {
                // Either a series that only grows, or one that goes anywhere.
                *last = if cumulative {
                    last.saturating_add(counter)
                } else if signs[i] {
                    counter
                } else {
                    -counter
                };
            }
            let flags = present.iter().copied().skip(i * ep_size).take(ep_size).collect();
            let mut snapshot = Snapshot::new(topology, i as i64, last.clone(), Some(flags)).unwrap();
            let report = match windows.advance(&mut snapshot) {
                Ok(deepxtrace::counters::Step::Window(window)) => diagnoser.diagnose(window),
                Ok(_) => continue,
                Err(error) => diagnoser.refuse(windows.next_index() - 1, &error, &[]),
            };
            let json = serde_json::to_string(report).unwrap();
            serde_json::from_str::<serde_json::Value>(&json).unwrap();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn arbitrary_snapshot_files_end_with_0_or_2(
        counters in prop::collection::vec(any_counter(), 96),
        per_node in prop_oneof![Just(1_i64), Just(2), Just(i64::MAX), any::<i64>()],
        times in any::<[i64; 2]>(),
    ) {
        let file = Scratch::new("any.npz", "");
        let mut writer = Writer::new(File::create(&file.path).unwrap());
        writer.array("counters", &[2, 2, 24], &counters[..]).unwrap();
        writer.array("timestamps_unix_ns", &[2], &times[..]).unwrap();
        writer.array("ranks_per_node", &[], &[per_node][..]).unwrap();
        writer.finish().unwrap();
        let run = run(["normal", "analyze", file.text()]);
        prop_assert_eq!(run.code, Some(if per_node > 0 { 0 } else { 2 }), "{}", run.err);
    }

    #[test]
    fn arbitrary_text_ends_with_0_or_2_and_one_line(
        text in "([0-9]{1,3}|rank=|\\[|\\]|\n| |,|-|[.]|Dispatch Wait Recv Cost|Matrix|EPSize: [0-9]|:){0,60}",
    ) {
        let file = Scratch::new("any.log", &text);
        let run = run(["ll", "analyze", file.text()]);
        match run.code {
            Some(0) => prop_assert!(run.err.is_empty() && !run.out.is_empty()),
            code => {
                prop_assert_eq!(code, Some(2));
                prop_assert_eq!(run.err.lines().count(), 1, "{}", run.err);
            }
        }
    }
}
