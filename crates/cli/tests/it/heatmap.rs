//! `heatmap`.

use std::path::Path;

use crate::artifact::window;
use crate::{data, run};

/// Runs `heatmap FILE --out OUT` and more; gives the names of the files that it says it wrote.
fn draw(file: &Path, out: &Path, more: &[&str]) -> Vec<String> {
    let arguments = ["heatmap", file.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let run = run(arguments.iter().chain(more));
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""));
    run.out
        .lines()
        .map(|line| {
            assert!(std::fs::metadata(line).unwrap().len() > 1000, "{line}");
            Path::new(line).file_name().unwrap().to_str().unwrap().to_owned()
        })
        .collect()
}

/// The end of a name after the number of the window.
fn ends(names: &[String], number: &str) -> Vec<String> {
    let end = |name: &String| name.split_once(number).expect(name).1.to_owned();
    names.iter().map(end).collect()
}

#[test]
fn a_window_gives_the_pictures_in_which_something_was_found_or_all_four() {
    let out = tempfile::tempdir().unwrap();
    let names = draw(&window(12), out.path(), &["--format", "svg"]);
    assert_eq!(ends(&names, "_000012_"), ["notify_duration.svg"]);
    let names = draw(&window(1), out.path(), &["--format", "svg"]);
    assert_eq!(ends(&names, "_000001_"), ["dispatch_final_cost_per_sample.svg"]);
    let names = draw(&window(12), out.path(), &["--all"]);
    assert!(names.iter().all(|name| name.starts_with("normal_window_")), "{names:?}");
    assert_eq!(
        ends(&names, "_000012_"),
        [
            "notify_duration.png",
            "dispatch_final_cost_per_sample.png",
            "dispatch_rdma_recv_cost_per_sample.png",
            "combine_logical_recv_cost_per_sample.png",
        ]
    );
}

#[test]
fn the_format_follows_the_name_and_the_look_the_options() {
    let out = tempfile::tempdir().unwrap();
    let view = ["--view", "dispatch_final_cost_per_sample"];
    for (name, magic) in [("a.png", &b"\x89PNG"[..]), ("b.svg", b"<svg"), ("c.pdf", b"%PDF")] {
        let path = out.path().join(name);
        draw(&window(40), &path, &view);
        assert!(std::fs::read(path).unwrap().starts_with(magic), "{name}");
    }
    let path = out.path().join("look.svg");
    let look = [
        "--title",
        "A <b> title",
        "--figsize",
        "9,9",
        "--cell_ratio",
        "0.8",
        "--log",
        "--annotate",
        "never",
        "--colormap",
        "cividis",
    ];
    draw(&window(40), &path, &[&view[..], &look[..]].concat());
    let svg = std::fs::read_to_string(path).unwrap();
    for text in ["A &lt;b&gt; title", "width=\"864\" height=\"864\"", ", log scale", "#fee838"] {
        assert!(svg.contains(text), "no {text}");
    }
}

#[test]
fn a_log_gives_one_picture_a_phase_and_a_matrix_one() {
    let out = tempfile::tempdir().unwrap();
    let names = draw(&data("ll_ep16_wait_rank4_slow.txt"), out.path(), &["--format", "svg"]);
    assert_eq!(names, ["ll_ep16_wait_rank4_slow_wait.svg"]);
    let svg = std::fs::read_to_string(out.path().join(&names[0])).unwrap();
    assert!(svg.contains("all wait for rank 4, all paths: 81.38x"), "{svg}");

    let mut log = String::new();
    for phase in ["Dispatch", "Combine"] {
        log += "[2026-01-01T00:00:00.000] [Diagnose] InstanceID: 1 EPSize: 2 diagnose: {}, ";
        log += &format!("{phase} Wait Recv Cost Per Token Matrix[src_rank, dst_rank]\n");
        log += "rank=0 [0, 10]\nrank=1 [20, 0]\n";
    }
    let log = crate::Scratch::new("job.log", log);
    let names = draw(&log.path, out.path(), &["--format", "svg"]);
    assert_eq!(names, ["job_dispatch_wait.svg", "job_combine_wait.svg"]);
}

#[test]
fn what_cannot_be_drawn_as_asked_is_an_error() {
    let out = tempfile::tempdir().unwrap();
    let file = window(40);
    let file = file.to_str().unwrap();
    let png = out.path().join("a.png");
    for (more, why) in [
        (vec!["--all", "--out", png.to_str().unwrap()], "one file cannot hold 4 pictures"),
        (vec!["--figsize", "2,2"], "too small"),
        (vec!["--figsize", "wide"], "width and height in inches"),
        (vec!["--dpi", "5"], "dpi is 5, it must be from 10 to 1200"),
        (vec!["--colormap", "jet"], "is not one of viridis, cividis, magma, gray"),
        (vec!["--log", "--linear"], "cannot be used with"),
        (vec!["--all", "--view", "notify_duration"], "cannot be used with"),
    ] {
        let run = run([&["heatmap", file][..], &more[..]].concat());
        assert_eq!(run.code, Some(2), "{more:?}");
        assert!(run.err.contains(why), "{more:?}: {}", run.err);
    }
    let text = crate::Scratch::new("a.txt", "no matrix at all");
    assert_eq!(run(["heatmap", text.text()]).code, Some(2));
    let matrix = data("ll_ep16_wait_rank4_slow.txt");
    let all = run(["heatmap", matrix.to_str().unwrap(), "--all"]);
    assert!(all.err.contains("not a Normal-mode window"), "{}", all.err);
}
