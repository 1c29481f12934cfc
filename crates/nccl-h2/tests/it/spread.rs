//! A trace whose files lie in several places gives what it gives in one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use deepxtrace_nccl_h2::spread::{self, Exchange as _, Files, InMemory, Options, Spread, Watch};
use deepxtrace_nccl_h2::{Analyzer, Config, LimitsReached, Moment, RunFolder, TraceReader};
use deepxtrace_sim::nccl::{Call, Fault, Job, Step, write_folder};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::support::unpack;

/// Everything that an analysis tells.
#[derive(Debug, PartialEq)]
struct Told {
    findings: Vec<String>,
    graph: String,
    processes: usize,
    communicators: usize,
    open: (usize, usize),
    newest: Option<i64>,
    limits: LimitsReached,
    /// By name of the file: lines, bad lines and what could not be read.
    files: Vec<(String, u64, u64, Option<String>)>,
}

fn told(mut analyzer: Analyzer, reports: Vec<deepxtrace_nccl_h2::ReadReport>) -> Told {
    let newest = analyzer.newest_receipt_ns();
    let end = Moment { monotonic_ns: newest.unwrap_or(0), unix_ns: newest.unwrap_or(0) };
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let mut files: Vec<_> = reports
        .into_iter()
        .flat_map(|report| report.files)
        .map(|file| (name(&file.path), file.lines, file.bad_lines, file.error))
        .collect();
    files.sort();
    Told {
        processes: analyzer.process_count(),
        communicators: analyzer.communicator_count(),
        open: (analyzer.open_rounds(), analyzer.open_p2p_calls()),
        graph: analyzer.wait_graph(end).to_dot(),
        newest,
        limits: analyzer.limits_reached(),
        findings: analyzer
            .finish_after(end, Duration::from_secs(70))
            .iter()
            .map(deepxtrace_nccl_h2::Finding::to_json)
            .collect(),
        files,
    }
}

/// What one place that reads all files tells.
fn whole(folder: &Path, heartbeats: Option<&Path>, run_id: &str) -> Told {
    let files =
        |path: &Path| RunFolder { path: path.to_owned(), run_id: String::new() }.files().unwrap();
    let mut paths = files(folder);
    paths.extend(heartbeats.map(files).unwrap_or_default());
    let mut analyzer = Analyzer::new(run_id, config());
    let sink = |event: &deepxtrace_nccl_h2::Event<'_>, receipt: Moment| {
        analyzer.ingest(event, receipt);
    };
    let report = TraceReader::new(paths).read(1, sink, |_| {});
    told(analyzer, vec![report])
}

fn config() -> Config {
    let mut config = Config::default();
    config.detect_heartbeat_timeouts = true;
    config
}

/// What places tell of which each has the files for which `place` gives its number.
fn spread(
    folder: &Path,
    heartbeats: Option<&Path>,
    run_id: &str,
    places: usize,
    chunk_bytes: usize,
    holds: impl Fn(usize, usize) -> bool,
) -> (Told, Vec<Spread>) {
    let files =
        |path: &Path| RunFolder { path: path.to_owned(), run_id: String::new() }.files().unwrap();
    let mut each: Vec<Files> = vec![Files::default(); places];
    let mut number = 0;
    for (path, is_trace) in [(Some(folder), true), (heartbeats, false)] {
        for file in path.map(files).unwrap_or_default() {
            for (place, has) in each.iter_mut().enumerate() {
                if holds(number, place) {
                    if is_trace { &mut has.trace } else { &mut has.heartbeats }.push(file.clone());
                }
            }
            number += 1;
        }
    }
    let mut options = Options::default();
    options.chunk_bytes = chunk_bytes;
    let mut all: Vec<Spread> = std::thread::scope(|scope| {
        let threads: Vec<_> = InMemory::places(places)
            .into_iter()
            .zip(each)
            .map(|(mut exchange, files)| {
                scope.spawn(move || {
                    spread::analyze(files, run_id, config(), options, &mut exchange).unwrap()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let analyzers: Vec<Analyzer> =
        all.iter_mut().filter_map(|spread| spread.analyzer.take()).collect();
    let [analyzer] = <[Analyzer; 1]>::try_from(analyzers).unwrap();
    let reports = all.iter().map(|spread| spread.report.clone()).collect();
    (told(analyzer, reports), all)
}

fn fault(ranks: usize, calls: usize) -> impl Strategy<Value = Option<Fault>> {
    let made = Call::all_reduce(99);
    let at = move || (0..ranks, 0..calls);
    prop_oneof![
        Just(None),
        at().prop_map(|(rank, call)| Some(Fault::Skip { rank, call })),
        at().prop_map(move |(rank, call)| Some(Fault::Extra { rank, call, made })),
        at().prop_map(move |(rank, call)| Some(Fault::Wrong { rank, call, made })),
        at().prop_map(|(rank, call)| Some(Fault::Dead { rank, call })),
        at().prop_map(|(rank, call)| Some(Fault::Stall { rank, call })),
        at().prop_map(|(rank, call)| Some(Fault::Late { rank, call, ns: 45_000_000_000 })),
    ]
}

/// Ranks with three communicators each, and sends and receives that are numbered or not.
fn job(indexed: bool, fault: Option<&Fault>) -> Job {
    let mut job = Job::mesh(2, 2, 2, 12).with_index(indexed);
    let comm = job.add_comm((0..8).collect());
    for rank in 0..8 {
        let (to, from) = ((rank + 1) % 8, (rank + 7) % 8);
        for round in 0..40 {
            job.push(rank, Step::GroupStart);
            job.push(rank, Step::Send { comm, to, count: 10 + round });
            job.push(rank, Step::Recv { comm, from, count: 10 + round });
            job.push(rank, Step::GroupEnd);
            job.push(rank, Step::Sync);
            job.push(rank, Step::Collective { comm, call: Call::all_gather(round) });
            job.push(rank, Step::Sync);
        }
    }
    if let Some(fault) = fault {
        // A call that a rank does not make changes nothing.
        let _ = job.plant(fault);
    }
    job
}

/// One change to a line: which, and how.
type Change = (usize, usize, u8, i64);

/// Changes one line of a trace into something that a sound job does not write.
fn change(lines: &mut Vec<String>, at: usize, how: u8, value: i64) {
    let at = at % lines.len();
    let mut event: Value = serde_json::from_str(&lines[at]).unwrap();
    match how {
        0 => {
            lines.remove(at);
            return;
        }
        1 => return lines.insert(at, lines[at].clone()),
        2 => {
            let half = lines[at].len() / 2;
            lines[at].truncate(half);
            return;
        }
        3 => event["count"] = json!(value),
        4 => event["api"] = json!(["ncclBroadcast", "ncclNew", "ncclSend"][value as usize % 3]),
        5 => event["datatype"] = json!(value),
        6 => (event["result"], event["result_name"]) = (json!(value), json!("ncclWrong")),
        7 => event["captured"] = json!(true),
        8 => event["comm_seq"] = json!(value),
        9 => event["p2p_op_index_scope"] = json!(""),
        10 => event["comm_uid_hash"] = json!("00000000000000ff"),
        11 => (event["event"], event["dropped_events"]) = (json!("probe_status"), json!(value)),
        12 => event["event"] = json!("process_end"),
        13 => event["event"] = json!("process_start"),
        14 => event["event"] = json!("checkpoint_start"),
        15 => event["event"] = json!("comm_destroy"),
        16 => {
            event["event"] = json!("nccl_call");
            event["phase"] = json!("enter");
            event["api"] = json!("ncclCommInitRank");
            event["comm_uid_hash"] = json!(["aa", "bb"][value as usize % 2]);
            event["comm_nranks"] = json!(4);
        }
        17 | 18 => {
            event["event"] = json!("nccl_call");
            event["phase"] = json!("enter");
            event["api"] = json!(["ncclCommSplit", "ncclCommShrink"][usize::from(how - 17)]);
            event["parent_hash"] = event["comm_uid_hash"].clone();
            event["comm_uid_hash"] = json!("");
            (event["parent_ordinal"], event["excluded"]) = (json!(value % 2), json!("1,3"));
        }
        19 => {
            event["event"] = json!("comm_init");
            event["phase"] = json!("exit");
            event["api"] = json!("ncclCommSplit");
            event["parent_hash"] = event["comm_uid_hash"].clone();
            event["comm_uid_hash"] = json!("cc");
            (event["parent_ordinal"], event["result"]) = (json!(value % 2), json!(0));
        }
        20 => event["rank"] = json!(value % 9),
        21 => (event["rank"], event["hostname"]) = (json!(-1), json!(format!("h{value}"))),
        22 => event["timestamp_unix_ns"] = json!(-1),
        23 => event["run_id"] = json!("another"),
        24 => event["peer"] = json!(value % 9),
        _ => event["timestamp_unix_ns"] = json!(1_700_000_000_000_000_000 + value * 1_000_000),
    }
    lines[at] = event.to_string();
}

/// Writes a job's trace with changes, its files cut into segments; heartbeats of some ranks come
/// from another writer.
fn write(job: &Job, folder: &Path, heartbeats: &Path, changes: &[Change], cuts: &[(usize, f64)]) {
    write_folder(job, folder).unwrap();
    fs::create_dir_all(heartbeats).unwrap();
    let files: Vec<PathBuf> =
        (0..job.ranks()).map(|r| folder.join(format!("rank_{r}_pid_{}.jsonl", 1000 + r))).collect();
    let mut beats = 0;
    for (rank, path) in files.iter().enumerate() {
        let text = fs::read_to_string(path).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for &(of, at, how, value) in changes {
            if of % job.ranks() == rank && !lines.is_empty() {
                let at = at % lines.len();
                if serde_json::from_str::<Value>(&lines[at]).is_ok() {
                    change(&mut lines, at, how, value);
                }
            }
        }
        if rank % 3 == 1 {
            let is_beat = |line: &String| line.contains("\"heartbeat\"");
            let (taken, kept): (Vec<String>, Vec<String>) = lines.into_iter().partition(is_beat);
            lines = kept;
            // Beside the traces, or in a folder of their own.
            beats += 1;
            let place = if beats % 2 == 0 { folder } else { heartbeats };
            let name = format!("rank_{rank}_pid_{}.heartbeat.jsonl", 1000 + rank);
            fs::write(place.join(name), taken.join("\n") + "\n").unwrap();
        }
        let mut ends: Vec<usize> = cuts
            .iter()
            .filter(|(of, _)| of % job.ranks() == rank)
            .map(|(_, part)| (lines.len() as f64 * part) as usize)
            .collect();
        ends.sort_unstable();
        ends.push(lines.len());
        let mut begin = 0;
        for (segment, end) in ends.into_iter().enumerate() {
            let name = match segment {
                0 => format!("rank_{rank}_pid_{}.jsonl", 1000 + rank),
                _ => format!("rank_{rank}_pid_{}.seg{segment:06}.jsonl", 1000 + rank),
            };
            // The last line of a file may lack its newline.
            let end_of_line = if segment % 2 == 0 { "\n" } else { "" };
            fs::write(folder.join(name), lines[begin..end].join("\n") + end_of_line).unwrap();
            begin = end;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn any_distribution_of_the_files_gives_the_same(
        fault in fault(8, 40),
        indexed in any::<bool>(),
        changes in prop::collection::vec((0_usize..8, 0_usize..600, 0_u8..26, 0_i64..40), 0..24),
        cuts in prop::collection::vec((0_usize..8, 0.0_f64..1.0), 0..8),
        places in prop::sample::select(vec![1_usize, 2, 3, 4, 8]),
        holders in prop::collection::vec((0_usize..8, 0_usize..8), 32),
        chunk_bytes in prop::sample::select(vec![1_usize, 20_000, 16 << 20]),
    ) {
        let job = job(indexed, fault.as_ref());
        let folder = tempfile::tempdir().unwrap();
        let (traces, heartbeats) = (folder.path().join("t"), folder.path().join("h"));
        write(&job, &traces, &heartbeats, &changes, &cuts);
        let expected = whole(&traces, Some(&heartbeats), job.run_id());
        // Each file lies in one place or two.
        let holds = |file: usize, place: usize| {
            let (one, other) = holders[file % holders.len()];
            one % places == place || other % places == place
        };
        let (told, _) =
            spread(&traces, Some(&heartbeats), job.run_id(), places, chunk_bytes, holds);
        prop_assert_eq!(told, expected);
    }
}

#[test]
fn a_call_without_a_clock_and_without_a_number_gives_the_same_in_several_places() {
    let late = Fault::Late { rank: 0, call: 1, ns: 45_000_000_000 };
    let job = job(false, Some(&late));
    let folder = tempfile::tempdir().unwrap();
    let (traces, heartbeats) = (folder.path().join("t"), folder.path().join("h"));
    // The start of rank 0 is not told, so its calls have no number. One of its sends is on another
    // communicator, one has no clock.
    let changes = [(0, 0, 11, 0), (0, 90, 10, 0), (0, 320, 22, 0)];
    write(&job, &traces, &heartbeats, &changes, &[]);
    let expected = whole(&traces, Some(&heartbeats), job.run_id());
    for places in [2, 3, 8] {
        // One place reads everything, and the communicators are placed by their names.
        let (told, _) =
            spread(&traces, Some(&heartbeats), job.run_id(), places, 20_000, |_, at| at == 0);
        assert_eq!(told, expected, "{places} places");
    }
    // Both sends and the receives that they were for, a receive that was made 45 s before the late
    // send and so out of its window, and the last of the sends after it: they move the same, so each
    // has met the receive after its own.
    assert_eq!(expected.open, (0, 6));
}

/// What a scan of a live job tells.
type Scan = (Vec<String>, String, LimitsReached);

/// The events of each rank of a job as texts.
fn texts(job: &Job) -> Vec<Vec<String>> {
    let mut all = vec![Vec::new(); job.ranks()];
    job.run(|rank, event| all[rank].push(serde_json::to_string(event).unwrap()));
    all
}

/// Steps of a live job: for each the place and the text of what comes, in this order.
fn steps(texts: &[Vec<String>], lines: &[usize], places: &[usize]) -> Vec<Vec<(usize, String)>> {
    let mut next = vec![0; texts.len()];
    let mut steps = Vec::new();
    for step in 0..60 {
        let mut came = Vec::new();
        for (rank, texts) in texts.iter().enumerate() {
            let until = (next[rank] + lines[(step + 3 * rank) % lines.len()]).min(texts.len());
            let new = texts[next[rank]..until].iter();
            came.extend(new.map(|text| (places[rank], text.clone())));
            next[rank] = until;
        }
        // Places are read one after the other.
        came.sort_by_key(|(place, _)| *place);
        steps.push(came);
    }
    steps
}

fn moment(step: usize) -> Moment {
    let ns = step as i64 * 7_000_000_000;
    Moment { monotonic_ns: ns, unix_ns: 1_700_000_000_000_000_000 + ns }
}

fn scan_of_one(run_id: &str, steps: &[Vec<(usize, String)>]) -> Vec<Scan> {
    let mut analyzer = Analyzer::new(run_id, config());
    let scan = |(step, came): (usize, &Vec<(usize, String)>)| {
        for (_, text) in came {
            let Ok(event) = deepxtrace_nccl_h2::Event::parse(text) else { continue };
            analyzer.ingest(&event, moment(step));
        }
        let graph = analyzer.wait_graph(moment(step)).to_dot();
        let findings = analyzer.scan(moment(step));
        let findings = findings.iter().map(deepxtrace_nccl_h2::Finding::to_json).collect();
        (findings, graph, analyzer.limits_reached())
    };
    steps.iter().enumerate().map(scan).collect()
}

fn scan_of_many(run_id: &str, places: usize, steps: &[Vec<(usize, String)>]) -> Vec<Scan> {
    let watch = |mut exchange: InMemory| {
        let mut options = Options::default();
        // What is open moves in several pieces.
        options.chunk_bytes = 3000;
        let mut watch = Watch::new(run_id, config(), options, &exchange);
        let mut scans = Vec::new();
        for (step, came) in steps.iter().enumerate() {
            for (_, text) in came.iter().filter(|(place, _)| *place == exchange.rank()) {
                let Ok(event) = deepxtrace_nccl_h2::Event::parse(text) else { continue };
                watch.take_in(&event, moment(step)).unwrap();
            }
            watch.round(&mut exchange).unwrap();
            if let Some(scanned) = watch.scan(moment(step), &mut exchange).unwrap() {
                let findings = scanned.findings.iter();
                let findings = findings.map(deepxtrace_nccl_h2::Finding::to_json).collect();
                scans.push((findings, scanned.graph.to_dot(), scanned.limits));
            }
        }
        scans
    };
    let scans: Vec<Vec<Scan>> = std::thread::scope(|scope| {
        let threads: Vec<_> = InMemory::places(places)
            .into_iter()
            .map(|exchange| scope.spawn(|| watch(exchange)))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    scans.into_iter().next().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_live_job_gives_the_same_at_every_scan(
        fault in fault(8, 40),
        indexed in any::<bool>(),
        changes in prop::collection::vec((0_usize..8, 0_usize..600, 0_u8..26, 0_i64..40), 0..16),
        lines in prop::collection::vec(prop_oneof![Just(0_usize), 1_usize..120], 1..9),
        places in prop::sample::select(vec![1_usize, 2, 3, 8]),
        holders in prop::collection::vec(0_usize..8, 8),
    ) {
        let job = job(indexed, fault.as_ref());
        let mut texts = texts(&job);
        for (rank, at, how, value) in changes {
            let lines = &mut texts[rank];
            if serde_json::from_str::<Value>(&lines[at % lines.len()]).is_ok() {
                change(lines, at, how, value);
            }
        }
        let holders: Vec<usize> = holders.iter().map(|holder| holder % places).collect();
        let steps = steps(&texts, &lines, &holders);
        let expected = scan_of_one(job.run_id(), &steps);
        let told = scan_of_many(job.run_id(), places, &steps);
        for (step, (told, expected)) in told.iter().zip(&expected).enumerate() {
            prop_assert_eq!(told, expected, "step {}", step);
        }
        prop_assert_eq!(told.len(), expected.len());
    }
}

#[test]
fn a_live_job_with_a_dead_rank_has_a_finding_once() {
    let job = job(true, Some(&Fault::Dead { rank: 5, call: 20 }));
    let steps = steps(&texts(&job), &[50], &[0, 0, 1, 1, 0, 1, 0, 1]);
    let scans = scan_of_many(job.run_id(), 2, &steps);
    let found: Vec<&String> = scans.iter().flat_map(|(findings, ..)| findings).collect();
    let causes: Vec<_> =
        found.iter().filter(|finding| !finding.contains("heartbeat_timeout")).collect();
    assert_eq!(causes.len(), 1, "{found:#?}");
    assert!(causes[0].contains("\"roots\":[{") && causes[0].contains("\"rank\":5"), "{causes:?}");
}

#[test]
fn recordings_of_real_jobs_give_the_same() {
    let folder = tempfile::tempdir().unwrap();
    unpack("real/h200x2.tar.gz", folder.path());
    let mut found = 0;
    for name in ["healthy_split", "graph", "api", "count", "missing"] {
        let run = RunFolder::find(&folder.path().join(name), None).unwrap();
        let expected = whole(&run.path, None, &run.run_id);
        found += expected.findings.len();
        for places in [1, 2, 4, 8] {
            let here = |file: usize, place: usize| file % places == place;
            let (told, all) = spread(&run.path, None, &run.run_id, places, 16 << 20, here);
            assert_eq!(told, expected, "{name} in {places} places");
            let moved = |spread: &Spread| spread.traffic.event_bytes;
            assert_eq!(all.iter().map(moved).sum::<u64>() > 0, places > 1);
        }
    }
    assert!(found >= 3, "the recordings have faults: {found}");
}

#[test]
fn one_place_of_several_that_have_a_file_reads_it() {
    let folder = tempfile::tempdir().unwrap();
    let job = Job::collectives(8, 600);
    write_folder(&job, folder.path()).unwrap();
    let expected = whole(folder.path(), None, job.run_id());
    let (told, all) = spread(folder.path(), None, job.run_id(), 4, 16 << 20, |_, _| true);
    assert_eq!(told, expected);
    let files: Vec<usize> = all.iter().map(|spread| spread.report.files.len()).collect();
    assert_eq!(files, [2, 2, 2, 2], "the work is shared");
}

#[test]
fn a_file_that_cannot_be_read_is_told_and_the_others_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let job = Job::collectives(4, 20);
    write_folder(&job, folder.path()).unwrap();
    // A folder of the name of a file: even root cannot read it.
    let bad = folder.path().join("rank_2_pid_1002.jsonl");
    fs::remove_file(&bad).unwrap();
    fs::create_dir(&bad).unwrap();
    let expected = whole(folder.path(), None, job.run_id());
    assert_eq!(expected.processes, 3);
    assert!(expected.files[2].3.is_some(), "{:?}", expected.files);
    let (told, _) = spread(folder.path(), None, job.run_id(), 3, 16 << 20, |f, p| f % 3 == p);
    assert_eq!(told, expected);
}

#[test]
fn what_moves_is_a_small_part_of_the_text() {
    let folder = tempfile::tempdir().unwrap();
    let job = Job::collectives(8, 1000);
    write_folder(&job, folder.path()).unwrap();
    let half = |file: usize, place: usize| file / 4 == place;
    let (_, all) = spread(folder.path(), None, job.run_id(), 2, 16 << 20, half);
    let text: u64 = all.iter().map(|spread| spread.report.bytes()).sum();
    let moved: u64 = all.iter().map(|spread| spread.traffic.event_bytes).sum();
    // One communicator: half of the calls on their way in must move, and nothing else.
    let lines: u64 = all.iter().map(|spread| spread.report.lines()).sum();
    assert!(moved > lines / 4 * 10, "{moved} bytes for {lines} lines");
    assert!(moved < text / 20, "{moved} of {text}");
}

#[test]
fn splits_of_one_parent_that_wait_are_told_by_their_ordinal() {
    use crate::support::{Session, at, call, reduce};

    let mut session = Session::new();
    let ranks = 9;
    for rank in 0..ranks {
        session.done(0.0, reduce("p", rank, ranks, 0));
    }
    for rank in 0..ranks - 1 {
        let mut split = call("ncclCommSplit", "", rank, ranks, -1);
        split.call.parent_hash = "p".into();
        split.call.parent_ordinal = ranks - rank;
        session.made(1.0, split);
    }
    let graph = session.analyzer.wait_graph(at(2.0));
    let waiting: Vec<i64> =
        graph.waits.iter().flat_map(|wait| wait.waiting_ranks.clone()).collect();
    assert_eq!(waiting, [7, 6, 5, 4, 3, 2, 1, 0]);
}
