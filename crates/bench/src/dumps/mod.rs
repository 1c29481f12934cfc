//! Flight Recorder dumps: reading and judging a set, beside the least that a reader has to do.

mod write;

use std::error::Error;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use deepxtrace_nccl_h2::fr::{DumpSet, Limits, Options};
use serde::Deserialize;

use crate::machine::{Scratch, Spent, cpu_seconds, peak_kib};
use write::{Json, Pickle, write_dump};

/// Threads of both sides: as many as the library takes here.
const MOST_THREADS: usize = 4;
const TURNS: usize = 3;
const RANKS: usize = 64;
const ENTRIES: usize = 10_000;

/// The table; dumps have `part` percent of their entries.
pub fn table(part: usize) -> Result<(), Box<dyn Error>> {
    let entries = (ENTRIES * part / 100).max(1);
    println!("Flight Recorder dumps of {RANKS} ranks: reading and judging, best of {TURNS}");
    println!(
        "floor of JSON: serde_json over the same bytes; of pickles: reading the files and one"
    );
    println!("pass over their bytes; each on as many threads\n");
    println!(
        "| form | entries | MB | analyze | floor | x floor | CPU, us an entry | x floor | peak memory |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    row("pickle", entries, write_dump::<Pickle<File>, File>, pass_over)?;
    row("JSON", entries, write_dump::<Json<File>, File>, parse)?;
    println!();
    Ok(())
}

type Writes = fn(File, usize, usize, usize) -> std::io::Result<()>;
type Floor = fn(&[u8]) -> Result<(), String>;

fn row(form: &str, entries: usize, write: Writes, floor_of: Floor) -> Result<(), Box<dyn Error>> {
    let folder = Scratch::new(form)?;
    let mut bytes = 0;
    for rank in 0..RANKS {
        let path = folder.0.join(format!("fr_rank_{rank}"));
        write(File::create(&path)?, rank, RANKS, entries)?;
        bytes += fs::metadata(&path)?.len();
    }
    let (mut work, mut floor, mut memory) = (Spent::NONE, Spent::NONE, 0);
    for _ in 0..TURNS {
        let before = cpu_seconds();
        let seconds = over_files(&folder.0, floor_of)?;
        floor = floor.least(Spent { seconds, cpu: cpu_seconds() - before });
        let (spent, peak_kib) = child(&folder.0)?;
        work = work.least(spent);
        memory = memory.max(peak_kib);
    }
    let all = RANKS * entries;
    println!(
        "| {form} | {all} | {:.0} | {:.2} s | {:.2} s | {:.2} | {:.2} | {:.2} | {:.0} MB |",
        bytes as f64 / 1e6,
        work.seconds,
        floor.seconds,
        work.seconds / floor.seconds,
        work.cpu * 1e6 / all as f64,
        work.cpu / floor.cpu,
        memory as f64 * 1024.0 / 1e6,
    );
    Ok(())
}

/// Time and peak memory, KiB, of one analysis in a process of its own.
fn child(folder: &Path) -> Result<(Spent, u64), Box<dyn Error>> {
    let output = Command::new(std::env::current_exe()?).arg("dumps-once").arg(folder).output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned().into());
    }
    let text = String::from_utf8(output.stdout)?;
    let mut words = text.split_whitespace();
    let mut word = || words.next().ok_or_else(|| format!("the child said {text:?}"));
    Ok((Spent { seconds: word()?.parse()?, cpu: word()?.parse()? }, word()?.parse()?))
}

/// Judges the dumps of a folder once; prints seconds, those of the processors, and peak memory in KiB.
pub fn once(folder: &str) -> Result<(), Box<dyn Error>> {
    let begin = Instant::now();
    let set = DumpSet::read(&[folder.into()])?;
    let found = set.analyze(&Options::default()).findings.len();
    let seconds = begin.elapsed().as_secs_f64();
    if found > 0 || !set.problems().is_empty() {
        return Err(format!("healthy dumps gave {found} findings").into());
    }
    println!("{seconds} {} {}", cpu_seconds(), peak_kib());
    Ok(())
}

/// The dumps of two ranks in memory, as JSON or as pickles, judged `repeats` times: for instruction
/// counts.
pub fn repeat(json: bool, entries: usize, repeats: usize) -> Result<(), Box<dyn Error>> {
    let dump = |rank| -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        if json {
            write_dump::<Json<&mut Vec<u8>>, _>(&mut bytes, rank, 2, entries)?;
        } else {
            write_dump::<Pickle<&mut Vec<u8>>, _>(&mut bytes, rank, 2, entries)?;
        }
        Ok(bytes)
    };
    let (first, second) = (dump(0)?, dump(1)?);
    for _ in 0..repeats {
        let set = DumpSet::from_memory(&[(0, &first), (1, &second)], &Limits::default())
            .map_err(|(_, fault)| fault)?;
        std::hint::black_box(set.analyze(&Options::default()).findings.len());
    }
    Ok(())
}

/// Seconds of some work on the bytes of each file of a folder.
fn over_files(folder: &Path, work: Floor) -> Result<f64, Box<dyn Error>> {
    let files: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    let next = AtomicUsize::new(0);
    let all = || -> Result<(), String> {
        while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            work(&fs::read(path).map_err(|error| error.to_string())?)?;
        }
        Ok(())
    };
    let begin = Instant::now();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(all)).collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err("a thread failed".to_owned()))
        })
    })?;
    Ok(begin.elapsed().as_secs_f64())
}

fn pass_over(bytes: &[u8]) -> Result<(), String> {
    std::hint::black_box(bytes.iter().fold(0_u8, |sum, &byte| sum.wrapping_add(byte)));
    Ok(())
}

/// What the diagnosis uses of a dump, as serde derives it.
#[derive(Deserialize)]
#[allow(dead_code, reason = "parsed, not used")]
struct Plain<'a> {
    #[serde(borrow)]
    version: &'a str,
    entries: Vec<Entry<'a>>,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "parsed, not used")]
struct Entry<'a> {
    #[serde(borrow)]
    frames: Vec<Frame<'a>>,
    record_id: i64,
    process_group: (&'a str, &'a str),
    collective_seq_id: i64,
    p2p_seq_id: i64,
    op_id: i64,
    profiling_name: &'a str,
    time_created_ns: i64,
    input_sizes: Vec<Vec<i64>>,
    input_dtypes: Vec<&'a str>,
    output_sizes: Vec<Vec<i64>>,
    output_dtypes: Vec<&'a str>,
    state: &'a str,
    time_discovered_completed_ns: Option<i64>,
    timeout_ms: i64,
    is_p2p: bool,
}

#[derive(Deserialize)]
#[allow(dead_code, reason = "parsed, not used")]
struct Frame<'a> {
    name: &'a str,
    filename: &'a str,
    line: i64,
}

fn parse(bytes: &[u8]) -> Result<(), String> {
    let text = std::str::from_utf8(bytes).map_err(|error| error.to_string())?;
    let plain: Plain<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    std::hint::black_box(plain.entries.len());
    Ok(())
}
