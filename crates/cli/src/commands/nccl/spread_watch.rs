//! `deepxtrace nccl watch --mpi`: a job that runs on several machines.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use deepxtrace_nccl_h2::spread::{Exchange as _, Options, Scanned, Watch};
use deepxtrace_nccl_h2::{Config, Finding, Moment, ReadError, RunFolder, TraceTail};
use serde::{Deserialize, Serialize};

use super::kept::Kept;
use super::live::{Wanted, moment};
use super::watch::{Ending, print};
use super::{left, warnings};
use crate::mpi::Mpi;
use crate::output::Output;

/// Bytes of files that are read between two exchanges; events are a tenth of that.
const POLL_BYTES: u64 = 64 << 20;

/// Findings that wait for a folder to be kept in.
const MOST_UNKEPT: usize = 10_000;

/// What is to be watched.
pub struct Wanting {
    /// Where this process looks for traces.
    pub folder: Option<PathBuf>,
    /// Where it looks for heartbeats of another writer.
    pub heartbeats: Option<PathBuf>,
    /// The run, the same on all processes.
    pub run_id: Option<String>,
    /// The settings, the same on all processes.
    pub config: Config,
    /// Where the root writes who waits for whom.
    pub dot: Option<PathBuf>,
    /// Whether the root prints JSON.
    pub json: bool,
}

/// What one process tells the others before each scan.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Beat {
    /// Nanoseconds on the process's own clocks; those of the root count.
    monotonic_ns: i64,
    unix_ns: i64,
    /// Runs of which there are files here that nobody reads yet.
    runs: BTreeSet<String>,
    /// The names of these files, where they are of one run.
    files: BTreeSet<String>,
    /// This process reads files of the run.
    reads: bool,
    /// It tells that the job has ended, and that it has failed.
    ended: bool,
    failed: bool,
    /// A signal came.
    stop: bool,
}

/// Where the files are that this process can read.
enum Place {
    /// None are there yet.
    Sought,
    /// Another process reads them.
    Elsewhere,
    /// It reads them.
    Here(Box<Here>),
}

/// The part of the run that is here.
struct Here {
    path: PathBuf,
    ending: Ending,
    tail: TraceTail,
    /// Why it could not be read, the last time.
    unread: Option<String>,
}

/// What the root does with what is found.
#[derive(Default)]
struct Sink {
    kept: Option<Kept>,
    /// Findings that were printed before there was a folder to keep them in.
    unkept: Vec<Finding>,
    limited: bool,
    found: bool,
}

/// Watches until the job ends or a signal comes. At the root, whether anything was found, or what all
/// know to be wrong.
///
/// # Errors
///
/// When this process cannot go on, so that the others would wait for it.
pub fn watch(
    mpi: &mut Mpi,
    wanting: Wanting,
    output: &mut Output,
) -> anyhow::Result<anyhow::Result<bool>> {
    let wanted = Wanted::listen()?;
    let seconds = |seconds| Duration::try_from_secs_f64(seconds).unwrap_or_default();
    let interval = seconds(wanting.config.scan_interval_s);
    let grace = seconds(wanting.config.failure_grace_period_s);
    mpi.expect_pauses(interval);
    let began = Instant::now();
    let mut here = Place::Sought;
    let mut run_id = wanting.run_id.clone();
    let mut watch: Option<Watch> = None;
    let mut taken = BTreeSet::new();
    let mut sink = Sink::default();
    let mut told = false;
    loop {
        let (beat, run) = beat(&wanting, run_id.as_deref(), &mut here, &wanted, began)?;
        let beats = mpi.share(&beat)?;
        let runs: BTreeSet<&String> = beats.iter().flat_map(|beat| &beat.runs).collect();
        match runs.first() {
            Some(_) if runs.len() > 1 && watch.is_none() => {
                let runs: Vec<&str> = runs.iter().map(|run| run.as_str()).collect();
                let runs = runs.join(", ");
                let why = format!("several runs, name one of them with --run-id: {runs}");
                return Ok(if mpi.is_root() { Err(anyhow::anyhow!(why)) } else { Ok(false) });
            }
            Some(run) if watch.is_none() => {
                run_id = Some((*run).clone());
                watch = Some(Watch::new(run, wanting.config, Options::default(), mpi));
            }
            _ => {}
        }
        if let (Some(reads), Some(run)) = (who_reads(&beats, &mut taken, mpi.rank()), run) {
            here = match reads {
                true => Place::Here(Box::new(Here::new(run, wanting.heartbeats.clone(), grace))),
                false => Place::Elsewhere,
            };
        }
        let last = beats.iter().any(|beat| beat.stop) || have_ended(&beats);
        if let (Some(watch), Some(run)) = (&mut watch, &run_id) {
            if let Some(here) = here.get() {
                left::take_up(&here.path);
            }
            let Some(root) = beats.first() else { bail!("there is no process") };
            let now = Moment { monotonic_ns: root.monotonic_ns, unix_ns: root.unix_ns };
            read(mpi, watch, here.get(), now, last)?;
            if let Some(scanned) = watch.scan(now, mpi)? {
                sink.open(here.get().map(|here| &*here.path), run)?;
                let new = sink.take(scanned, wanting.dot.as_deref())?;
                print(&new, wanting.json, output)?;
            }
        } else if mpi.is_root() && !std::mem::replace(&mut told, true) {
            warnings::waiting(wanting.folder.as_deref().unwrap_or(Path::new(".")));
        }
        if last {
            break;
        }
        wanted.wait(interval, || here.get().is_some_and(|here| here.ending.reached()));
    }
    if let Some(kept) = sink.kept {
        kept.close();
    }
    Ok(Ok(sink.found))
}

/// What this process tells the others, and the run that it has found.
fn beat(
    wanting: &Wanting,
    run_id: Option<&str>,
    here: &mut Place,
    wanted: &Wanted,
    began: Instant,
) -> anyhow::Result<(Beat, Option<RunFolder>)> {
    let Moment { monotonic_ns, unix_ns } = moment(began);
    let mut beat = Beat { monotonic_ns, unix_ns, stop: wanted.stop(), ..Beat::default() };
    let mut found = None;
    match here {
        Place::Here(here) => {
            beat.reads = true;
            beat.ended = here.ending.reached();
            beat.failed = here.ending.has_failed();
        }
        Place::Sought => {
            (found, beat.runs) = runs(wanting, run_id)?;
            if let Some(run) = &found {
                let names = run.files()?.into_iter().filter_map(|path| {
                    path.file_name().map(|name| name.to_string_lossy().into_owned())
                });
                beat.files = names.collect();
            }
        }
        Place::Elsewhere => {}
    }
    Ok((beat, found))
}

/// Whether a process begins to read what it has found; `None` where it has found nothing. Names of
/// files tell rank and process: of processes that have found files of one name, such as on a shared
/// file system, the first reads. All come to the same.
fn who_reads(beats: &[Beat], taken: &mut BTreeSet<String>, rank: usize) -> Option<bool> {
    let mut mine = None;
    for (other, beat) in beats.iter().enumerate().filter(|(_, beat)| !beat.files.is_empty()) {
        let reads = beat.files.is_disjoint(taken);
        if reads {
            taken.extend(beat.files.iter().cloned());
        }
        if other == rank {
            mine = Some(reads);
        }
    }
    mine
}

/// Whether the job has ended: everywhere, or somewhere with a failure.
fn have_ended(beats: &[Beat]) -> bool {
    let mut with_run = beats.iter().filter(|beat| beat.reads).peekable();
    let all = with_run.peek().is_some() && with_run.all(|beat| beat.ended);
    all || beats.iter().any(|beat| beat.ended && beat.failed)
}

/// The run that is here, and the names of all that are.
fn runs(
    wanting: &Wanting,
    run_id: Option<&str>,
) -> anyhow::Result<(Option<RunFolder>, BTreeSet<String>)> {
    let Some(folder) = &wanting.folder else {
        bail!("name the folder of the traces, or a configuration file with log_dir");
    };
    match RunFolder::find(folder, run_id) {
        Ok(run) => {
            let name = run.run_id.clone();
            Ok((Some(run), BTreeSet::from([name])))
        }
        Err(ReadError::NoTrace { .. } | ReadError::NoSuchRun { .. }) => Ok((None, BTreeSet::new())),
        Err(ReadError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok((None, BTreeSet::new()))
        }
        Err(ReadError::SeveralRuns { runs, .. }) => Ok((None, runs.into_iter().collect())),
        Err(error) => Err(error.into()),
    }
}

impl Place {
    fn get(&mut self) -> Option<&mut Here> {
        match self {
            Self::Here(here) => Some(here),
            Self::Sought | Self::Elsewhere => None,
        }
    }
}

impl Here {
    fn new(run: RunFolder, heartbeats: Option<PathBuf>, grace: Duration) -> Self {
        let folders = std::iter::once(run.path.clone()).chain(heartbeats).collect();
        let ending = Ending::new(&run.path, grace);
        Self { path: run.path, ending, tail: TraceTail::new(folders), unread: None }
    }

    /// Reads some of what is new; whether there is more.
    fn poll(&mut self, watch: &mut Watch, now: Moment) -> anyhow::Result<bool> {
        let mut failed = None;
        let more = self.tail.poll_within(POLL_BYTES, |event| {
            if failed.is_none() {
                failed = watch.take_in(event, now).err();
            }
        });
        failed.map_or(Ok(()), Err)?;
        match more {
            Ok(more) => {
                self.unread = None;
                Ok(more)
            }
            Err(error) => {
                // It may be there again at the next scan; the others go on.
                let why = error.to_string();
                if self.unread.as_ref() != Some(&why) {
                    warnings::warn(&why);
                    self.unread = Some(why);
                }
                Ok(false)
            }
        }
    }
}

/// Reads what is new everywhere, and moves it to where it belongs.
fn read(
    mpi: &mut Mpi,
    watch: &mut Watch,
    mut here: Option<&mut Here>,
    now: Moment,
    last: bool,
) -> anyhow::Result<()> {
    loop {
        let mut more = false;
        if let Some(here) = here.as_deref_mut() {
            more = here.poll(watch, now)?;
            if last && !more {
                let mut failed = None;
                here.tail.finish(|event| {
                    if failed.is_none() {
                        failed = watch.take_in(event, now).err();
                    }
                });
                failed.map_or(Ok(()), Err)?;
            }
        }
        watch.round(mpi)?;
        if !mpi.share(&more)?.contains(&true) {
            return Ok(());
        }
    }
}

impl Sink {
    /// Opens the files of the run once its folder is here.
    fn open(&mut self, folder: Option<&Path>, run_id: &str) -> anyhow::Result<()> {
        if let (None, Some(folder)) = (&self.kept, folder) {
            let mut kept = Kept::open(folder, run_id)?;
            kept.append(std::mem::take(&mut self.unkept))?;
            self.kept = Some(kept);
        }
        Ok(())
    }

    /// Keeps what a scan has found, and gives back what is new.
    fn take(&mut self, scanned: Scanned, dot: Option<&Path>) -> anyhow::Result<Vec<Finding>> {
        let new = match &mut self.kept {
            Some(kept) => kept.append(scanned.findings)?,
            None => {
                let room = MOST_UNKEPT.saturating_sub(self.unkept.len());
                self.unkept.extend(scanned.findings.iter().take(room).cloned());
                scanned.findings
            }
        };
        if let (Some(path), false) = (dot, new.is_empty()) {
            std::fs::write(path, scanned.graph.to_dot())
                .with_context(|| path.display().to_string())?;
        }
        if scanned.limits.any() && !std::mem::replace(&mut self.limited, true) {
            warnings::of_limits(scanned.limits);
        }
        self.found |= !new.is_empty();
        Ok(new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn beat(files: &[&str]) -> Beat {
        Beat { files: files.iter().map(|&name| name.to_owned()).collect(), ..Beat::default() }
    }

    #[test]
    fn of_processes_that_have_the_same_files_the_first_reads() {
        let beats = [beat(&[]), beat(&["a", "b"]), beat(&["b", "c"]), beat(&["d"])];
        let mut told = Vec::new();
        let mut later = Vec::new();
        for rank in 0..4 {
            let mut taken = BTreeSet::new();
            told.push(who_reads(&beats, &mut taken, rank));
            // The first process has found the same files since.
            later.push(who_reads(&[beat(&["a", "b", "e"])], &mut taken, rank));
        }
        assert_eq!(told, [None, Some(true), Some(false), Some(true)]);
        assert_eq!(later, [Some(false), None, None, None]);
    }

    #[test]
    fn a_job_has_ended_when_it_has_everywhere_or_has_failed_somewhere() {
        let beat = |reads, ended, failed| Beat { reads, ended, failed, ..Beat::default() };
        let none = beat(false, false, false);
        assert!(!have_ended(&[beat(false, false, false)]));
        assert!(!have_ended(&[beat(true, true, false), beat(true, false, false)]));
        assert!(have_ended(&[none, beat(true, true, false), beat(true, true, false)]));
        assert!(have_ended(&[beat(true, true, true), beat(true, false, false)]));
    }
}
