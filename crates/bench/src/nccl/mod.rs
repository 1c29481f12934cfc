//! Traces of NCCL calls: reading and analyzing a folder, beside plain parsing of the same bytes, and
//! how that grows.

mod plain;

use std::error::Error;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use deepxtrace_nccl_h2::{Analyzer, Config, Event, Moment, RunFolder, TraceReader};
use deepxtrace_sim::nccl::{Call, Job, Step, write_folder};

use crate::machine::{Scratch, Spent, cpu_seconds, peak_kib};

/// Threads of both sides.
const THREADS: usize = 2;
/// Each is run so often; the best of them counts.
const TURNS: usize = 5;
/// Lines of the traces that show growth.
const LINES: usize = 256_000;
/// Bytes of a segment of a process.
const SEGMENT_BYTES: u64 = 64 << 20;

/// The tables; traces are `part` percent of their full length.
pub fn table(part: usize) -> Result<(), Box<dyn Error>> {
    let of = |calls: usize| (calls * part / 100).max(1);
    println!("NCCL traces: reading and analyzing, {THREADS} threads, best of {TURNS}");
    println!("floor: serde_json over the same bytes on as many threads\n");
    header();
    row("64 ranks, AllReduce", &Job::all_reduces(64, of(10_000)))?;
    row("64 ranks, AllReduce, a tenth of it", &Job::all_reduces(64, of(1_000)))?;
    row("64 ranks, ring", &Job::ring(64, of(5_000)))?;
    row("64 ranks, ring without index", &Job::ring(64, of(5_000)).with_index(false))?;
    segments(of(400_000))?;
    println!("\nGrowth with the number of ranks, about as many lines each\n");
    header();
    for ranks in [16, 64, 256, 1024] {
        let calls = of(LINES) / ranks;
        row(&format!("{ranks} ranks, AllReduce"), &Job::all_reduces(ranks, (calls / 2).max(1)))?;
    }
    for ranks in [16, 64, 256, 1024] {
        let rounds = of(LINES) / ranks;
        row(&format!("{ranks} ranks, ring"), &Job::ring(ranks, (rounds / 4).max(1)))?;
    }
    row("1,024 ranks in 10,000 communicators of 8", &many_comms(1024, of(10_000), 8))?;
    println!();
    linear(part)
}

fn header() {
    println!(
        "| trace | lines | MB | analyze | floor | x floor | CPU, ns a line | x floor | peak memory |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
}

fn row(name: &str, job: &Job) -> Result<(), Box<dyn Error>> {
    let folder = Scratch::new(name)?;
    write_folder(job, &folder.0)?;
    measure(name, &folder.0)
}

fn measure(name: &str, folder: &Path) -> Result<(), Box<dyn Error>> {
    let bytes: u64 = files(folder)?.iter().map(|path| length(path)).sum();
    let mut work = Spent::NONE;
    let mut floor = Spent::NONE;
    let (mut lines, mut memory) = (0, 0);
    for _ in 0..TURNS {
        let before = cpu_seconds();
        let seconds = plain::plain(folder)?;
        floor = floor.least(Spent { seconds, cpu: cpu_seconds() - before });
        let once = child(folder)?;
        work = work.least(once.spent);
        lines = once.lines;
        memory = memory.max(once.peak_kib);
    }
    println!(
        "| {name} | {lines} | {:.0} | {:.2} s | {:.2} s | {:.2} | {:.0} | {:.2} | {:.1} MB |",
        bytes as f64 / 1e6,
        work.seconds,
        floor.seconds,
        work.seconds / floor.seconds,
        work.cpu * 1e9 / lines as f64,
        work.cpu / floor.cpu,
        memory as f64 * 1024.0 / 1e6,
    );
    Ok(())
}

/// One process alone, whose trace is cut into segments: they are read in their order, and parsed on
/// all threads.
fn segments(calls: usize) -> Result<(), Box<dyn Error>> {
    let whole = Scratch::new("whole")?;
    write_folder(&Job::all_reduces(1, calls), &whole.0)?;
    let cut = Scratch::new("segments")?;
    for path in files(&whole.0)? {
        let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut lines = BufReader::new(File::open(&path)?);
        for segment in 0.. {
            let name = match segment {
                0 => format!("{stem}.jsonl"),
                _ => format!("{stem}.seg{segment:06}.jsonl"),
            };
            if !fill_segment(&mut lines, &cut.0.join(name))? {
                break;
            }
        }
    }
    measure("1 rank, in segments of 64 MiB", &cut.0)
}

/// Writes the next lines into a file, until it is full. False when none were left.
fn fill_segment(lines: &mut BufReader<File>, path: &Path) -> std::io::Result<bool> {
    let mut line = Vec::new();
    if lines.read_until(b'\n', &mut line)? == 0 {
        return Ok(false);
    }
    let mut out = BufWriter::new(File::create(path)?);
    let mut written = 0;
    while !line.is_empty() && written < SEGMENT_BYTES {
        out.write_all(&line)?;
        written += line.len() as u64;
        line.clear();
        if written < SEGMENT_BYTES {
            lines.read_until(b'\n', &mut line)?;
        }
    }
    out.flush()?;
    Ok(true)
}

/// Ranks in many communicators of `size` ranks each, all in use: two collectives on each.
fn many_comms(ranks: usize, comms: usize, size: usize) -> Job {
    let mut job = Job::new(ranks);
    for number in 0..comms {
        // Neighbours, then ranks further and further apart: no two communicators are equal.
        let stride = 1 + number / ranks * 2;
        let members: Vec<usize> = (0..size).map(|at| (number + at * stride) % ranks).collect();
        let comm = job.add_comm(members.clone());
        for call in [Call::all_reduce(1 << 20), Call::all_gather(4096)] {
            for &member in &members {
                job.push(member, Step::Collective { comm, call });
                job.push(member, Step::Sync);
            }
        }
    }
    job
}

/// Sends and receives without index, 32,000 lines and twice as many.
fn linear(part: usize) -> Result<(), Box<dyn Error>> {
    println!("| sends and receives without index | analyze | CPU |\n|---|---|---|");
    for rounds in [4_000, 8_000] {
        let folder = Scratch::new("pairs")?;
        write_folder(&Job::ring(2, rounds * part / 100).with_index(false), &folder.0)?;
        let (mut best, mut lines) = (Spent::NONE, 0);
        for _ in 0..TURNS {
            let once = child(&folder.0)?;
            (best, lines) = (best.least(once.spent), once.lines);
        }
        println!("| {lines} lines | {:.1} ms | {:.0} ms |", best.seconds * 1e3, best.cpu * 1e3);
    }
    println!();
    Ok(())
}

/// What one analysis in a process of its own took.
struct Once {
    spent: Spent,
    lines: u64,
    peak_kib: u64,
}

fn child(folder: &Path) -> Result<Once, Box<dyn Error>> {
    let output = Command::new(std::env::current_exe()?).arg("nccl-once").arg(folder).output()?;
    let text = String::from_utf8(output.stdout)?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned().into());
    }
    let mut words = text.split_whitespace();
    let mut word = || words.next().ok_or_else(|| format!("the child said {text:?}"));
    let spent = Spent { seconds: word()?.parse()?, cpu: word()?.parse()? };
    Ok(Once { spent, lines: word()?.parse()?, peak_kib: word()?.parse()? })
}

/// Analyzes a folder once and prints seconds, those of the processors, lines and peak memory in KiB.
pub fn once(folder: &str) -> Result<(), Box<dyn Error>> {
    let begin = Instant::now();
    let lines = analyze(Path::new(folder), THREADS)?;
    let seconds = begin.elapsed().as_secs_f64();
    println!("{seconds} {} {lines} {}", cpu_seconds(), peak_kib());
    Ok(())
}

/// Reads and analyzes the healthy trace in a folder; answers how many lines it has.
fn analyze(folder: &Path, threads: usize) -> Result<u64, Box<dyn Error>> {
    let run = RunFolder::find(folder, None)?;
    let mut analyzer = Analyzer::new(run.run_id.clone(), Config::default());
    let report = TraceReader::new(run.files()?).read(
        threads,
        |event, receipt| {
            analyzer.ingest(event, receipt);
        },
        |_| {},
    );
    let end = analyzer.newest_receipt_ns().unwrap_or(0);
    let found = analyzer.finish(Moment { monotonic_ns: end, unix_ns: end });
    if !found.is_empty() || report.bad_lines() > 0 || analyzer.limits_reached().any() {
        return Err(format!("a healthy trace gave {} findings", found.len()).into());
    }
    Ok(report.lines())
}

/// One piece of the work on a trace of eight ranks, `repeats` times: for instruction counts.
///
/// `parse` turns lines into events, `rounds`, `pairs` and `unnumbered` take events of collectives,
/// of sends and receives, and of those without index into an analyzer, `reader` does both for a
/// folder.
pub fn repeat(kind: &str, calls: usize, repeats: usize) -> Result<(), Box<dyn Error>> {
    let job = match kind {
        "pairs" => Job::ring(8, calls),
        "unnumbered" => Job::ring(8, calls).with_index(false),
        _ => Job::all_reduces(8, calls),
    };
    if kind == "reader" {
        let folder = Scratch::new("reader")?;
        write_folder(&job, &folder.0)?;
        return (0..repeats).try_for_each(|_| analyze(&folder.0, 1).map(drop));
    }
    let lines = lines(&job)?;
    if kind == "parse" {
        for _ in 0..repeats {
            for line in &lines {
                std::hint::black_box(Event::parse(line)?);
            }
        }
        return Ok(());
    }
    let events: Vec<Event<'_>> =
        lines.iter().map(|line| Event::parse(line)).collect::<Result<_, _>>()?;
    for _ in 0..repeats {
        let mut analyzer = Analyzer::new(job.run_id(), Config::default());
        for event in &events {
            let at = event.header.timestamp_unix_ns;
            analyzer.ingest(event, Moment { monotonic_ns: at, unix_ns: at });
        }
        std::hint::black_box(analyzer.open_rounds());
    }
    Ok(())
}

/// The lines of a job, in the order of their times.
fn lines(job: &Job) -> Result<Vec<String>, Box<dyn Error>> {
    let mut lines = Vec::new();
    let mut failed = None;
    job.run(|_, event| match serde_json::to_string(event) {
        Ok(line) => lines.push((event.header.timestamp_unix_ns, line)),
        Err(error) => failed = Some(error),
    });
    lines.sort();
    failed.map_or(Ok(()), Err)?;
    Ok(lines.into_iter().map(|(_, line)| line).collect())
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    Ok(RunFolder::find(folder, None)?.files()?)
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}
