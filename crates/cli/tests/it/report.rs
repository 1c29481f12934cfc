//! `report`.

use serde_json::json;

use crate::artifact::{copies, demo};
use crate::run;

fn page(folder: &std::path::Path, more: &[&str]) -> (serde_json::Value, String) {
    let out = folder.join("page.html");
    let arguments = ["report", folder.to_str().unwrap(), "--json", "--out", out.to_str().unwrap()];
    let run = run(arguments.iter().chain(more));
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""));
    (run.json()[0].clone(), std::fs::read_to_string(out).unwrap())
}

#[test]
fn the_page_shows_every_incident_its_worst_window_and_what_it_means() {
    let folder = copies(&[1, 2, 8, 9, 10, 17, 18, 25, 26, 33, 34, 40]);
    let (summary, html) = page(folder.path(), &[]);
    assert_eq!(summary["windows"], 12);
    assert_eq!(summary["windows_with_incidents"], 9);
    for text in [
        "rank 9 arrives late: look at what runs before dispatch (notify_dispatch)",
        "rank 9 arrives late: look at what runs before combine (cached_notify_combine)",
        "the whole data path is slow",
        "slow paths, tokens of ranks 0, 1, 8, 9",
        "2 of 12 windows",
        "<dt>late rank</dt>",
        "<dt>global_data_path_slowdown</dt>",
        "<dt>source rank</dt>",
    ] {
        assert!(html.contains(text), "no {text:?}");
    }
    assert_eq!(html.matches("<section>").count(), 6);
    assert!(html.matches("<svg xmlns").count() >= 12, "the pictures are in the page");
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let folder = copies(&[12, 40]);
    let (_, html) = page(folder.path(), &[]);
    for foreign in ["<script", "<link", "<img", "<iframe", "@import", "src=", "href="] {
        assert!(!html.contains(foreign), "{foreign}");
    }
    // The only address is the name of the SVG language.
    let addresses = html.matches("http").count();
    assert_eq!(addresses, html.matches("xmlns=\"http://www.w3.org/2000/svg\"").count() + 1);
    assert!(html.contains("http-equiv=\"Content-Security-Policy\""));
}

#[test]
fn the_same_folder_gives_the_same_page() {
    let folder = copies(&[12, 40]);
    assert_eq!(page(folder.path(), &[]).1, page(folder.path(), &[]).1);
}

#[test]
fn findings_of_nccl_calls_are_listed_and_their_text_is_escaped() {
    let folder = copies(&[1]);
    let finding = json!({
        "comm_seq": 12, "comm_uid_hash": "0xabc", "run_id": "<i>r</i>",
        "details": {"confidence": "observed", "note": "</pre><script>alert(1)</script>"},
        "detected_at_unix_ns": 1_796_028_000_000_000_000_i64, "hang_type": "collective_missing_enter",
    });
    let lines = format!("{finding}\n{{\"another\": \"object\"}}\nnot json\n");
    std::fs::write(folder.path().join("findings.jsonl"), lines).unwrap();
    let (summary, html) = page(folder.path(), &[]);
    assert_eq!(summary["nccl_findings"], 1);
    for text in [
        "<b>collective_missing_enter</b>",
        "2026-11-30 08:40:00.000",
        "&lt;i&gt;r&lt;/i&gt;",
        "&lt;/pre&gt;&lt;script&gt;alert(1)&lt;/script&gt;",
    ] {
        assert!(html.contains(text), "no {text:?}");
    }
    assert!(!html.contains("<script"));
}

#[test]
fn the_number_of_pictured_windows_is_the_users() {
    let folder = copies(&[12, 20, 40]);
    assert_eq!(page(folder.path(), &["--worst", "1"]).1.matches("<section>").count(), 1);
    assert_eq!(page(folder.path(), &["--worst", "0"]).1.matches("<section>").count(), 0);
}

#[test]
fn a_folder_without_anything_and_a_page_that_cannot_be_written_are_errors() {
    let empty = tempfile::tempdir().unwrap();
    let run_empty = run(["report", empty.path().to_str().unwrap()]);
    assert_eq!(run_empty.code, Some(2));
    assert!(run_empty.err.contains("no windows"), "{}", run_empty.err);
    let out = "/nonexistent/page.html";
    let run_out = run(["report", demo().to_str().unwrap(), "--worst", "0", "--out", out]);
    assert_eq!(run_out.code, Some(2));
    assert!(run_out.err.starts_with("deepxtrace: /nonexistent/page.html: "), "{}", run_out.err);
}

#[test]
fn a_damaged_window_is_named_and_the_page_is_about_the_others() {
    let folder = copies(&[12, 20, 40]);
    let damaged = std::fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let bytes = std::fs::read(&damaged).unwrap();
    std::fs::write(&damaged, &bytes[..bytes.len() / 2]).unwrap();
    let out = folder.path().join("page.html");
    let text = folder.path().to_str().unwrap();
    let run_page = run(["report", text, "--json", "--out", out.to_str().unwrap()]);
    assert_eq!(run_page.code, Some(2));
    assert_eq!(run_page.json()[0]["windows"], 2);
    let lines: Vec<_> = run_page.err.lines().collect();
    assert_eq!(lines.len(), 2, "{}", run_page.err);
    let start = format!("deepxtrace: warning: {}: ", damaged.display());
    assert!(lines[0].starts_with(&start), "{}", lines[0]);
    assert_eq!(lines[1], "deepxtrace: 1 of 3 files could not be used");
    assert!(out.is_file());

    let again = run(["normal", "analyze", "--json", text]);
    assert_eq!((again.code, again.json().len()), (Some(2), 2), "{}", again.err);
    assert_eq!(again.err, run_page.err);
}
