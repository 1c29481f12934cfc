//! Traces of NCCL calls: reading and analyzing a folder, beside plain parsing of the same bytes.

use std::borrow::Cow;
use std::error::Error;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use deepxtrace_nccl_h2::{Analyzer, Config, Moment, RunFolder, TraceReader};
use deepxtrace_sim::nccl::{Job, write_folder};
use serde::Deserialize;

/// Threads of both sides.
const THREADS: usize = 2;
/// Each is run so often; the best of them counts.
const TURNS: usize = 5;

/// One trace that is measured.
struct Shape {
    name: &'static str,
    job: fn(usize) -> Job,
    /// Calls, or rounds of a ring, of each rank.
    calls: usize,
}

const SHAPES: [Shape; 3] = [
    Shape { name: "64 ranks, AllReduce", job: |calls| Job::all_reduces(64, calls), calls: 10_000 },
    Shape { name: "64 ranks, ring", job: |rounds| Job::ring(64, rounds), calls: 5_000 },
    Shape {
        name: "64 ranks, ring without index",
        job: |rounds| Job::ring(64, rounds).with_index(false),
        calls: 5_000,
    },
];

/// The table; traces are `part` percent of the full length.
pub fn table(part: usize) -> Result<(), Box<dyn Error>> {
    println!("NCCL traces: reading and analyzing, {THREADS} threads, best of {TURNS}\n");
    println!("| trace | lines | MB | analyze | plain serde_json | ratio | peak memory |");
    println!("|---|---|---|---|---|---|---|");
    for shape in &SHAPES {
        row(shape, shape.calls * part / 100)?;
    }
    println!();
    linear(part)
}

fn row(shape: &Shape, calls: usize) -> Result<(), Box<dyn Error>> {
    let folder = Scratch::new(shape.name)?;
    write_folder(&(shape.job)(calls), &folder.0)?;
    let bytes: u64 = files(&folder.0)?.iter().map(|path| length(path)).sum();
    let (mut work, mut floor) = (f64::MAX, f64::MAX);
    let (mut lines, mut memory) = (0, 0);
    for _ in 0..TURNS {
        floor = floor.min(plain(&folder.0)?);
        let once = child(&folder.0)?;
        work = work.min(once.seconds);
        lines = once.lines;
        memory = memory.max(once.peak_kib);
    }
    println!(
        "| {} | {lines} | {:.0} | {work:.2} s | {floor:.2} s | {:.2} | {:.1} MB |",
        shape.name,
        bytes as f64 / 1e6,
        work / floor,
        memory as f64 * 1024.0 / 1e6,
    );
    Ok(())
}

/// Sends and receives without index, 32,000 lines and twice as many.
fn linear(part: usize) -> Result<(), Box<dyn Error>> {
    println!("| sends and receives without index | analyze |\n|---|---|");
    for rounds in [4_000, 8_000] {
        let folder = Scratch::new("pairs")?;
        write_folder(&Job::ring(2, rounds * part / 100).with_index(false), &folder.0)?;
        let mut best = f64::MAX;
        let mut lines = 0;
        for _ in 0..TURNS {
            let once = child(&folder.0)?;
            (best, lines) = (best.min(once.seconds), once.lines);
        }
        println!("| {lines} lines | {:.1} ms |", best * 1e3);
    }
    Ok(())
}

/// What one analysis in a process of its own took.
struct Once {
    seconds: f64,
    lines: u64,
    peak_kib: u64,
}

fn child(folder: &Path) -> Result<Once, Box<dyn Error>> {
    let output = Command::new(std::env::current_exe()?).arg("nccl-once").arg(folder).output()?;
    let text = String::from_utf8(output.stdout)?;
    let mut words = text.split_whitespace();
    let mut word = || words.next().ok_or_else(|| format!("the child said {text:?}"));
    Ok(Once { seconds: word()?.parse()?, lines: word()?.parse()?, peak_kib: word()?.parse()? })
}

/// Analyzes a folder once and prints seconds, lines and peak memory in KiB.
pub fn once(folder: &str) -> Result<(), Box<dyn Error>> {
    let begin = Instant::now();
    let run = RunFolder::find(Path::new(folder), None)?;
    let mut analyzer = Analyzer::new(run.run_id.clone(), Config::default());
    let report = TraceReader::new(run.files()?).read(
        THREADS,
        |event, receipt| {
            analyzer.ingest(event, receipt);
        },
        |_| {},
    );
    let end = analyzer.newest_receipt_ns().unwrap_or(0);
    let found = analyzer.finish(Moment { monotonic_ns: end, unix_ns: end });
    let seconds = begin.elapsed().as_secs_f64();
    if !found.is_empty() || report.bad_lines() > 0 {
        return Err(format!("a healthy trace gave {} findings", found.len()).into());
    }
    println!("{seconds} {} {}", report.lines(), peak_kib());
    Ok(())
}

/// Peak resident memory of this process; 0 where the system does not tell it.
fn peak_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// The fields of a call, as serde derives them.
#[derive(Deserialize)]
#[allow(dead_code, reason = "parsed, not used")]
struct Plain<'a> {
    schema_version: i64,
    #[serde(borrow)]
    event: Cow<'a, str>,
    #[serde(borrow)]
    run_id: Cow<'a, str>,
    timestamp_unix_ns: i64,
    timestamp_mono_ns: i64,
    #[serde(borrow)]
    hostname: Cow<'a, str>,
    rank: i64,
    local_rank: i64,
    world_size: i64,
    pid: i64,
    #[serde(borrow, default)]
    api: Cow<'a, str>,
    #[serde(borrow, default)]
    phase: Cow<'a, str>,
    #[serde(borrow, default)]
    comm_uid_hash: Cow<'a, str>,
    #[serde(default)]
    comm_rank: i64,
    #[serde(default)]
    comm_nranks: i64,
    #[serde(default)]
    comm_seq: i64,
    #[serde(default)]
    call_seq: i64,
    #[serde(default)]
    count: i64,
    #[serde(default)]
    datatype: i64,
    #[serde(default)]
    op: i64,
    #[serde(default)]
    root: i64,
    #[serde(default)]
    peer: i64,
    #[serde(default)]
    stream: i64,
    #[serde(default)]
    group_id: i64,
    #[serde(default)]
    group_op_index: i64,
    #[serde(default)]
    p2p_op_index: i64,
    #[serde(borrow, default)]
    p2p_op_index_scope: Cow<'a, str>,
    #[serde(default)]
    result: i64,
    #[serde(borrow, default)]
    result_name: Cow<'a, str>,
}

/// Seconds that serde_json alone needs for the lines of all files.
fn plain(folder: &Path) -> Result<f64, Box<dyn Error>> {
    let files = files(folder)?;
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let part = |at: usize| files.iter().skip(at).step_by(THREADS).collect::<Vec<_>>();
        let threads: Vec<_> = (0..THREADS)
            .map(|at| (at, part(at)))
            .map(|(_, files)| {
                scope.spawn(move || files.into_iter().try_for_each(|f| parse_plain(f)))
            })
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err("a thread failed".to_owned()))
        })
    })?;
    Ok(begin.elapsed().as_secs_f64())
}

fn parse_plain(path: &Path) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let mut file = BufReader::with_capacity(1 << 20, File::open(path).map_err(|e| failed(&e))?);
    let mut rest = Vec::new();
    loop {
        let chunk = file.fill_buf().map_err(|e| failed(&e))?;
        let read = chunk.len();
        if read == 0 {
            return Ok(());
        }
        let end = chunk.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
        rest.extend_from_slice(&chunk[..end]);
        let text = std::str::from_utf8(&rest).map_err(|e| failed(&e))?;
        for line in text.lines() {
            std::hint::black_box(serde_json::from_str::<Plain<'_>>(line).map_err(|e| failed(&e))?);
        }
        rest.clear();
        rest.extend_from_slice(&chunk[end..]);
        file.consume(read);
    }
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    Ok(RunFolder::find(folder, None)?.files()?)
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// A folder that is removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Result<Self, Box<dyn Error>> {
        let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        let folder =
            std::env::temp_dir().join(format!("deepxtrace-bench-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left of it does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}
