//! `ll analyze` on matrices.

use std::io::Cursor;

use deepxtrace_npz::Writer;
use serde_json::{Value, json};

use crate::{Scratch, data, run};

fn analyze(path: &str) -> Vec<Value> {
    let run = run(["ll", "analyze", "--json", path]);
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""));
    run.json()
}

/// The published matrix in other forms must give what its text gives.
fn without_source(mut value: Value) -> Value {
    value.as_object_mut().unwrap().remove("source").unwrap();
    value
}

fn published() -> Vec<i64> {
    let text = std::fs::read_to_string(data("ll_ep16_wait_rank4_slow.txt")).unwrap();
    text.split_whitespace().map(|word| word.parse().unwrap()).collect()
}

/// Figures computed from the published matrix with NumPy.
#[test]
fn the_published_matrix_gives_column_4_by_both_rules() {
    let path = data("ll_ep16_wait_rank4_slow.txt");
    let found = analyze(path.to_str().unwrap());
    assert_eq!(found.len(), 1);
    let matrix = &found[0];
    assert_eq!(matrix["shape"], json!([16, 16]));
    assert_eq!(
        matrix["mean_ratio"],
        json!({"abnormal_cols": [[4, 7936226405.0625, 6.710544362224643]],
               "abnormal_rows": [], "abnormal_points": []})
    );
    let findings = matrix["topology"]["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 2);
    assert_eq!(findings[0]["kind"], "column");
    assert_eq!((&findings[0]["rank"], &findings[0]["arrival"]), (&4.into(), &"late".into()));
    assert!((findings[0]["ratio"].as_f64().unwrap() - 81.4).abs() < 0.05);
    assert_eq!(findings[1]["kind"], "node_block");
    assert_eq!((&findings[1]["waiter_node"], &findings[1]["awaited_node"]), (&1.into(), &0.into()));
    assert!((2.27..=2.28).contains(&findings[1]["ratio"].as_f64().unwrap()));

    let text = run(["ll", "analyze", path.to_str().unwrap()]);
    assert!(text.out.contains("all wait for rank 4"), "{}", text.out);
    assert!(text.out.contains("look at what rank 4 computes"), "{}", text.out);
    assert!(!text.out.contains('\x1b'), "no colour without a terminal");
}

#[test]
fn every_form_of_a_matrix_gives_the_same_findings() {
    let expected =
        without_source(analyze(data("ll_ep16_wait_rank4_slow.txt").to_str().unwrap()).remove(0));
    let cells = published();
    let same = |file: &Scratch| {
        assert_eq!(without_source(analyze(file.text()).remove(0)), expected, "{}", file.text());
    };
    let rows = |separator: &str, form: fn(&i64) -> String| {
        let rows =
            cells.chunks(16).map(|row| row.iter().map(form).collect::<Vec<_>>().join(separator));
        rows.collect::<Vec<_>>().join("\n")
    };
    same(&Scratch::new("m.csv", format!("# waits\n\n{}\n", rows(", ", i64::to_string))));
    same(&Scratch::new("m.txt", rows("\t", i64::to_string).replace('\n', "\r\n")));
    // As numpy.savetxt writes it.
    same(&Scratch::new("m.txt", rows(" ", |cell| format!("{:.18e}", *cell as f64))));

    let mut writer = Writer::new(Cursor::new(Vec::new()));
    writer.array("combine_wait", &[16, 16], &cells[..]).unwrap();
    writer.array("time", &[], &[5_i64][..]).unwrap();
    let npz = Scratch::new("no_suffix", writer.finish().unwrap().into_inner());
    same(&npz);
    let source = &analyze(npz.text())[0]["source"];
    assert_eq!((&source["entry"], &source["phase"]), (&"combine_wait".into(), &"combine".into()));

    let header = "{'descr': '>i8', 'fortran_order': False, 'shape': (16, 16), }";
    let big_endian: Vec<u8> = cells.iter().flat_map(|cell| cell.to_be_bytes()).collect();
    same(&Scratch::new("m.npy", crate::bad_input::npy(header, &big_endian)));
}

#[test]
fn several_files_and_all_matrices_of_an_archive_are_taken() {
    let mut writer = Writer::new(Cursor::new(Vec::new()));
    writer.array("dispatch", &[2, 2], &[0_i64, 1, 1, 0][..]).unwrap();
    writer.array("combine", &[3, 3], &[1_i64; 9][..]).unwrap();
    let npz = Scratch::new("a.npz", writer.finish().unwrap().into_inner());
    let text = Scratch::new("b.txt", "0 5\n5 0\n");
    let run = run(["ll", "analyze", "--json", npz.text(), text.text()]);
    assert_eq!(run.code, Some(0));
    let shapes: Vec<_> = run.json().iter().map(|m| m["shape"].to_string()).collect();
    assert_eq!(shapes, ["[3,3]", "[2,2]", "[2,2]"], "entries in the order of their names");
}

#[test]
fn flags_reach_the_rules() {
    let mut rows = vec![vec![1; 8]; 8];
    rows[2][5] = 40;
    let text: Vec<_> =
        rows.iter().map(|r| r.iter().map(i32::to_string).collect::<Vec<_>>().join(" ")).collect();
    let file = Scratch::new("m.txt", text.join("\n"));
    let found = |flags: &[&str], key: &str| {
        let run = run([&["ll", "analyze", "--json", file.text()], flags].concat());
        assert_eq!(run.code, Some(0), "{}", run.err);
        run.json()[0]["mean_ratio"][key].as_array().unwrap().len()
    };
    // The mean is 103 / 64 = 1.609; row 2 and column 5 have 47 / 8 = 5.875, 3.65x; the cell 24.9x.
    assert_eq!(found(&[], "abnormal_cols"), 1);
    assert_eq!(found(&["--threshold-col", "3.7"], "abnormal_cols"), 0);
    assert_eq!(found(&["--threshold-row", "3.6"], "abnormal_rows"), 1);
    assert_eq!(found(&[], "abnormal_points"), 0, "it is in an abnormal row");
    assert_eq!(found(&["--keep-points"], "abnormal_points"), 1);
    assert_eq!(found(&["--keep-points", "--threshold-point", "25"], "abnormal_points"), 0);

    let topology = |per_node: &str| {
        let run = run(["ll", "analyze", "--ranks-per-node", per_node, file.text()]);
        (run.code, run.out.contains("8 ranks, 4 a node"))
    };
    assert_eq!(topology("4"), (Some(0), true));
    assert_eq!(topology("0").0, Some(2));
    assert_eq!(run(["ll", "analyze", "--fail-on-findings", file.text()]).code, Some(1));
    let flat = Scratch::new("flat.txt", "0 1 1\n1 0 1\n1 1 0\n");
    assert_eq!(run(["ll", "analyze", "--fail-on-findings", flat.text()]).code, Some(0));
    let refused = run(["ll", "analyze", "--threshold-col=-1", file.text()]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.err.contains("threshold_col is -1"), "{}", refused.err);
}

#[test]
fn a_file_that_cannot_be_used_is_named_and_the_others_are_diagnosed() {
    let (good, bad) = (Scratch::new("good.txt", "0 5\n5 0\n"), Scratch::new("bad.txt", "0 5\n"));
    let run = run(["ll", "analyze", "--json", bad.text(), good.text()]);
    assert_eq!((run.code, run.json().len()), (Some(2), 1));
    let lines: Vec<_> = run.err.lines().collect();
    assert_eq!(lines.len(), 2, "{}", run.err);
    let expected = format!(
        "deepxtrace: warning: {}: found 1 rows of 2 values, expected a square matrix of at most \
         4096 ranks",
        bad.text()
    );
    assert_eq!(lines, [expected.as_str(), "deepxtrace: 1 of 2 files could not be used"]);
}

#[test]
fn printed_lists_and_a_byte_order_mark_are_read() {
    for text in
        ["[[1, 2],\n [3, 4]]\n", "\u{feff}1 2\n3 4\n", "\u{feff}rank=0 [1 2]\nrank=1 [3 4]\n"]
    {
        let file = Scratch::new("m.txt", text);
        let run = run(["ll", "analyze", "--json", file.text()]);
        assert_eq!((run.code, run.err.as_str()), (Some(0), ""), "{text:?}");
        assert_eq!(run.json()[0]["shape"], serde_json::json!([2, 2]));
    }
}
