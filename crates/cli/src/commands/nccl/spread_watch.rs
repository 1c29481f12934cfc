//! `deepxtrace nccl watch --mpi`: a job that runs on several machines.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use deepxtrace_nccl_h2::spread::{Options, Scanned, Watch};
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
    /// Runs of which there are files here.
    runs: BTreeSet<String>,
    /// The folder of the run is here.
    has_run: bool,
    /// It tells that the job has ended, and that it has failed.
    ended: bool,
    failed: bool,
    /// A signal came.
    stop: bool,
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
    let began = Instant::now();
    let first_of_host = mpi.is_first_of_host()?;
    let mut here: Option<Here> = None;
    let mut run_id = wanting.run_id.clone();
    let mut place: Option<Watch> = None;
    let mut sink = Sink::default();
    let mut told = false;
    loop {
        let beat = beat(&wanting, run_id.as_deref(), here.as_mut(), &wanted, began)?;
        let beats = mpi.share(&beat)?;
        let runs: BTreeSet<&String> = beats.iter().flat_map(|beat| &beat.runs).collect();
        match runs.first() {
            Some(_) if runs.len() > 1 && place.is_none() => {
                let runs: Vec<&str> = runs.iter().map(|run| run.as_str()).collect();
                let why =
                    format!("several runs, name one of them with --run-id: {}", runs.join(", "));
                return Ok(if mpi.is_root() { Err(anyhow::anyhow!(why)) } else { Ok(false) });
            }
            Some(run) if place.is_none() => {
                run_id = Some((*run).clone());
                place = Some(Watch::new(run, wanting.config, Options::default(), mpi));
            }
            _ => {}
        }
        if here.is_none() {
            here = Here::find(&wanting, run_id.as_deref(), grace)?;
        }
        let last = beats.iter().any(|beat| beat.stop) || have_ended(&beats);
        if let (Some(place), Some(run)) = (&mut place, &run_id) {
            if let (true, Some(here)) = (first_of_host, &here) {
                left::take_up(&here.path);
            }
            let Some(root) = beats.first() else { bail!("there is no process") };
            let now = Moment { monotonic_ns: root.monotonic_ns, unix_ns: root.unix_ns };
            read(mpi, place, here.as_mut(), now, last)?;
            if let Some(scanned) = place.scan(now, mpi)? {
                sink.open(here.as_ref().map(|here| &*here.path), run)?;
                let new = sink.take(scanned, wanting.dot.as_deref())?;
                print(&new, wanting.json, output)?;
            }
        } else if mpi.is_root() && !std::mem::replace(&mut told, true) {
            warnings::waiting(wanting.folder.as_deref().unwrap_or(Path::new(".")));
        }
        if last {
            break;
        }
        wanted.wait(interval, || here.as_mut().is_some_and(|here| here.ending.reached()));
    }
    if let Some(kept) = sink.kept {
        kept.close();
    }
    Ok(Ok(sink.found))
}

/// What this process tells the others.
fn beat(
    wanting: &Wanting,
    run_id: Option<&str>,
    here: Option<&mut Here>,
    wanted: &Wanted,
    began: Instant,
) -> anyhow::Result<Beat> {
    let Moment { monotonic_ns, unix_ns } = moment(began);
    let mut beat = Beat { monotonic_ns, unix_ns, stop: wanted.stop(), ..Beat::default() };
    match here {
        Some(here) => {
            beat.has_run = true;
            beat.ended = here.ending.reached();
            beat.failed = here.ending.has_failed();
        }
        None => beat.runs = runs(wanting, run_id)?.1,
    }
    Ok(beat)
}

/// Whether the job has ended: everywhere, or somewhere with a failure.
fn have_ended(beats: &[Beat]) -> bool {
    let mut with_run = beats.iter().filter(|beat| beat.has_run).peekable();
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

impl Here {
    fn find(
        wanting: &Wanting,
        run_id: Option<&str>,
        grace: Duration,
    ) -> anyhow::Result<Option<Self>> {
        let Some(run_id) = run_id else { return Ok(None) };
        let Some(run) = runs(wanting, Some(run_id))?.0 else { return Ok(None) };
        let mut folders = vec![run.path.clone()];
        folders.extend(wanting.heartbeats.clone());
        let ending = Ending::new(&run.path, grace);
        Ok(Some(Self { path: run.path, ending, tail: TraceTail::new(folders), unread: None }))
    }

    /// Reads some of what is new; whether there is more.
    fn poll(&mut self, place: &mut Watch, now: Moment) -> anyhow::Result<bool> {
        let mut failed = None;
        let more = self.tail.poll_within(POLL_BYTES, |event| {
            if failed.is_none() {
                failed = place.take_in(event, now).err();
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
    place: &mut Watch,
    mut here: Option<&mut Here>,
    now: Moment,
    last: bool,
) -> anyhow::Result<()> {
    loop {
        let mut more = false;
        if let Some(here) = here.as_deref_mut() {
            more = here.poll(place, now)?;
            if last && !more {
                let mut failed = None;
                here.tail.finish(|event| {
                    if failed.is_none() {
                        failed = place.take_in(event, now).err();
                    }
                });
                failed.map_or(Ok(()), Err)?;
            }
        }
        place.round(mpi)?;
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
