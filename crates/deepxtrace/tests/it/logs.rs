use std::fs;
use std::path::Path;

use deepxtrace::collect::LocalGroup;
use deepxtrace::config::Config;
use deepxtrace::counters::Topology;
use deepxtrace::{Counters, Notice, Report};
use deepxtrace_sim::{Fault, Workload, WorkloadConfig};

use super::{build, every_step, start_all, step_all};

/// The log of a rank, by line.
fn log(folder: &Path, rank: usize) -> Vec<String> {
    let text = fs::read_to_string(folder.join(format!("diagnose_rank{rank}.log"))).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// What follows the fields that every line has; a panic for lines without them.
fn rest<'a>(line: &'a str, instance: &str, ep_size: usize, window: u64) -> &'a str {
    let (stamp, rest) = line.split_once("] ").unwrap();
    let digits: String = stamp.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(digits, "[0000-00-00T00:00:00.000", "{line}");
    let fields =
        format!("[Diagnose] InstanceID: {instance} EPSize: {ep_size} WindowIndex: {window} ");
    rest.strip_prefix(&fields).unwrap_or_else(|| panic!("{line}"))
}

/// The numbers of a row as existing parsers find it: `\[([\d\s]+)\]`.
fn row(line: &str) -> Option<Vec<i64>> {
    line.match_indices('[').find_map(|(start, _)| {
        let inside = &line[start + 1..][..line[start + 1..].find(']')?];
        let digits = inside.chars().all(|c| c.is_ascii_digit() || c.is_whitespace());
        (digits && !inside.is_empty())
            .then(|| inside.split_whitespace().map(|number| number.parse().unwrap()).collect())
    })
}

#[test]
fn level_zero_is_one_summary_line_a_window() {
    let folder = tempfile::tempdir().unwrap();
    let topology = Topology::new(4, 2).unwrap();
    let mut workload = Workload::new(WorkloadConfig::new(topology), 3).unwrap();
    workload.phase([Fault::LateBeforeDispatch { rank: 3, ns: 5_000_000 }]).unwrap();
    let config = Config { ranks_per_node: 2, ..every_step(folder.path()) };
    let (mut ranks, _) = start_all(4, &config);
    for _ in 0..3 {
        for (i, rank) in ranks.iter().enumerate() {
            rank.set_all(workload.snapshot().vector(i).unwrap());
        }
        step_all(&mut ranks);
        workload.run_window();
    }
    let instance = ranks[0].diagnose.instance().to_string();
    assert!(ranks.iter().all(|rank| rank.diagnose.instance().to_string() == instance));
    drop(ranks);
    let lines = log(folder.path(), 0);
    assert!(rest(&lines[0], &instance, 4, 0).starts_with("started, rank 0 (global rank 0"));
    let summaries: Vec<_> = lines.iter().filter(|line| line.contains("Normal state=")).collect();
    assert_eq!(summaries.len(), 2, "{lines:#?}");
    for (window, line) in (1..).zip(summaries) {
        let text = rest(line, &instance, 4, window);
        let begin = "Normal state=diagnosed missing_ranks=[] notify_dispatch=anomalous \
                     cached_notify_dispatch=anomalous cached_notify_combine=";
        assert!(text.starts_with(begin), "{text}");
        assert!(
            text.contains("incidents=[pre_stage_arrival_skew notify_dispatch ranks 3; "),
            "{text}"
        );
        assert!(text.contains("findings=[notify_dispatch: rank 3 arrives late"), "{text}");
        assert!(text.contains("where=[rank 3 (global rank 3"), "{text}");
    }
    // Suspected in the first window, confirmed in the second, for each of the two.
    let changes: Vec<_> = lines.iter().filter(|line| line.contains("Normal incident ")).collect();
    assert_eq!(changes.len(), 4, "{lines:#?}");
    assert!(rest(lines.last().unwrap(), &instance, 4, 2).ends_with("stopped"));
    // The others have their own file, with what concerns them.
    assert!(rest(&log(folder.path(), 2)[0], &instance, 4, 0).starts_with("started, rank 2"));
}

#[test]
fn details_are_six_lines_each_directly_followed_by_its_values() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { log_details: true, ranks_per_node: 1, ..every_step(folder.path()) };
    let (mut ranks, _) = start_all(2, &config);
    step_all(&mut ranks);
    // By hand, the layout of two ranks: Notify at 0, dispatch_final at 6, each 2 elements a part.
    for (rank, wait) in ranks.iter().zip([1_000, 3_000]) {
        rank.set(0, wait);
        rank.set(1, 2);
    }
    // Destination 1 received from source 0: 3 samples of 1,000 cycles in all.
    ranks[1].set(6, 1_000);
    ranks[1].set(8, 3);
    step_all(&mut ranks);
    let instance = ranks[0].diagnose.instance().to_string();
    drop(ranks);
    let lines = log(folder.path(), 0);
    let first = lines.iter().position(|line| line.contains("Normal detail")).unwrap();
    let expected = [
        ("notify_dispatch", vec![vec![500, 1_500]]),
        ("cached_notify_dispatch", vec![vec![0, 0]]),
        ("cached_notify_combine", vec![vec![0, 0]]),
        ("dispatch_final", vec![vec![0, 333], vec![0, 0]]),
        ("dispatch_rdma_recv", vec![vec![0, 0], vec![0, 0]]),
        ("combine_logical_recv", vec![vec![0, 0], vec![0, 0]]),
    ];
    let mut at = first;
    for (probe, values) in expected {
        let heading = rest(&lines[at], &instance, 2, 1);
        assert!(heading.starts_with(&format!("Normal detail {probe} status=")), "{heading}");
        assert_eq!(row(&lines[at]), None, "a heading is no row");
        for (rank, value) in values.iter().enumerate() {
            let line = &lines[at + 1 + rank];
            assert!(rest(line, &instance, 2, 1).starts_with(probe), "{line}");
            assert_eq!(row(line).as_ref(), Some(value), "{line}");
        }
        at += 1 + values.len();
    }
    // Low-latency rows begin like this, and parsers of those read the same file.
    assert!(lines.iter().all(|line| !line.contains("rank=")), "{lines:#?}");
}

#[test]
fn low_latency_lines_keep_the_form_that_existing_parsers_read() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config { log_details: true, ..every_step(folder.path()) };
    let real: Vec<Vec<i64>> = include_str!("../data/ll_ep16_wait_rank4_slow.txt")
        .lines()
        .map(|line| line.split_whitespace().map(|value| value.parse().unwrap()).collect())
        .collect();
    let mut ranks: Vec<_> =
        super::build_all(vec![config; 16], |_, builder| builder.counters(Counters::LowLatency))
            .into_iter()
            .map(|rank| rank.unwrap().unwrap())
            .collect();
    ranks.iter_mut().for_each(|rank| rank.diagnose.start().unwrap());
    let step = |ranks: &mut Vec<super::Rank>| {
        std::thread::scope(|scope| {
            for rank in ranks.iter_mut() {
                scope.spawn(|| rank.diagnose.diagnose_ll_sync().unwrap());
            }
        });
    };
    step(&mut ranks);
    for (rank, waits) in ranks.iter().zip(&real) {
        rank.set_all(waits);
    }
    step(&mut ranks);
    let instance = ranks[0].diagnose.instance().to_string();
    drop(ranks);
    let lines = log(folder.path(), 0);
    let at = lines.iter().position(|line| line.contains("diagnose: {")).unwrap();
    let heading = rest(&lines[at], &instance, 16, 1);
    let json = heading.strip_prefix("diagnose: ").unwrap();
    let json = json
        .strip_suffix(", Dispatch Wait Recv Cost Per Token Matrix[src_rank, dst_rank]")
        .unwrap();
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    // The published result for this matrix: column 4, 6.71 times the mean of all columns.
    assert_eq!(json["abnormal_cols"][0][0], 4);
    assert_eq!((json["abnormal_cols"][0][2].as_f64().unwrap() * 100.0).round(), 671.0);
    assert_eq!(json["abnormal_cols"].as_array().unwrap().len(), 1);
    for (rank, waits) in real.iter().enumerate() {
        let line = &lines[at + 1 + rank];
        assert!(line.starts_with(&format!("rank={rank} [")), "{line}");
        assert_eq!(row(line).as_ref(), Some(waits));
    }
    assert!(lines[at + 17].contains("Combine Wait Recv Cost Per Token Matrix[src_rank, dst_rank]"));
    assert_eq!(row(&lines[at + 18]), Some(vec![0; 16]));
    let summary = lines.iter().find(|line| line.contains("LL state=")).unwrap();
    let summary = rest(summary, &instance, 16, 1);
    assert!(summary.contains("all wait for rank 4"), "{summary}");
    assert!(summary.contains("where=[rank 4 (global rank 4"), "{summary}");
}

#[cfg(unix)]
#[test]
fn a_log_that_cannot_be_written_is_told_once_and_windows_go_on() {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/full", folder.path().join("diagnose_rank0.log")).unwrap();
    let (send, receive) = std::sync::mpsc::channel();
    let group = LocalGroup::new(1).unwrap().remove(0);
    let mut rank = build(group, every_step(folder.path()), |builder| {
        builder.on_report(move |report| {
            if let Report::Notice(notice @ Notice::Log(_)) = report {
                let _ = send.send(notice.to_string());
            }
        })
    })
    .unwrap()
    .unwrap();
    rank.diagnose.start().unwrap();
    for _ in 0..5 {
        rank.diagnose.diagnose_normal_sync().unwrap();
    }
    let health = rank.diagnose.health();
    assert_eq!(health.windows, 4);
    assert!(health.log_lines_lost >= 5, "{health:?}");
    let told: Vec<_> = receive.try_iter().collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("diagnose_rank0.log"), "{told:?}");
}
