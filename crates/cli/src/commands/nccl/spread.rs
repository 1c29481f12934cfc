//! `deepxtrace nccl analyze --mpi`: each process reads the files of its own machine.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

use anyhow::bail;
use deepxtrace_nccl_h2::spread::{self, Files, Options, Spread};
use deepxtrace_nccl_h2::{Config, ReadError, RunFolder};
use serde::{Deserialize, Serialize};

use super::analyze::Reading;
use super::{left, warnings};
use crate::mpi::Mpi;

/// What is to be read.
pub struct Wanted {
    /// Where this process looks for traces.
    pub folders: Vec<PathBuf>,
    /// Where it looks for heartbeats of another writer.
    pub heartbeats: Option<PathBuf>,
    /// The run, the same on all processes.
    pub run_id: Option<String>,
    /// The settings, the same on all processes.
    pub config: Config,
}

/// What came of it, in one process.
pub enum Joint {
    /// What all processes have read, at the root.
    Whole(Box<Reading>),
    /// Another process has it, or the reason why there is nothing.
    Elsewhere,
    /// At the root: why nothing can be read, which all know.
    Refused(anyhow::Error),
}

/// What one process has of the run.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Found {
    /// The folders, and whether there is such a folder here.
    folders: Vec<(String, bool)>,
    /// Runs of which there are files.
    runs: BTreeSet<String>,
    /// What cannot be read.
    problems: Vec<String>,
}

/// What one process has read.
#[derive(Debug, Serialize, Deserialize)]
struct Told {
    lines: u64,
    /// Bytes that it sent to others.
    sent: u64,
    problems: Vec<String>,
}

/// Reads what all processes have of a run.
///
/// # Errors
///
/// When this process cannot go on, so that the others would wait for it.
pub fn read(mpi: &mut Mpi, wanted: Wanted) -> anyhow::Result<Joint> {
    let Wanted { folders, heartbeats, run_id, config } = wanted;
    let run_id = run_id.as_deref();
    // The rings are taken up by one process, before anybody looks for files.
    mpi.first_to_name(&folders)?.iter().for_each(|folder| left::take_up(folder));
    mpi.share(&())?;
    let (mut found, runs) = find(&folders, run_id);
    let paths: Vec<PathBuf> = runs.iter().map(|run| run.path.clone()).collect();
    mpi.first_to_name(&paths)?.iter().for_each(|path| left::take_up(path));
    mpi.share(&())?;
    let mut files = Files::default();
    for run in &runs {
        match run.files() {
            Ok(paths) => files.trace.extend(paths),
            Err(error) => found.problems.push(error.to_string()),
        }
    }
    if let Some(path) = heartbeats {
        let run = RunFolder { path, run_id: String::new() };
        match run.files() {
            Ok(paths) => files.heartbeats = paths,
            Err(ReadError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Err(error) => found.problems.push(error.to_string()),
        }
    }
    let all = mpi.share(&found)?;
    let run_id = match the_run(run_id, &all) {
        Ok(run_id) => run_id,
        Err(error) if mpi.is_root() => return Ok(Joint::Refused(error)),
        Err(_) => return Ok(Joint::Elsewhere),
    };
    let spread = spread::analyze(files, &run_id, config, Options::default(), mpi)?;
    let Spread { analyzer, report, traffic, .. } = spread;
    let sent = traffic.event_bytes + traffic.open_bytes;
    let name = mpi.name();
    warnings::of_reading(&report);
    let unread = report.files.iter().filter_map(|file| {
        file.error.as_ref().map(|error| format!("{}: {error}", file.path.display()))
    });
    let problems = found.problems.into_iter().chain(unread);
    let problems: Vec<String> = problems.map(|problem| format!("{name}: {problem}")).collect();
    problems.iter().for_each(|problem| warnings::warn(problem));
    let told = mpi.share(&Told { lines: report.lines(), sent, problems })?;
    let Some(analyzer) = analyzer else { return Ok(Joint::Elsewhere) };
    Ok(Joint::Whole(Box::new(Reading {
        place: shown(&all, told.iter().map(|told| told.sent).sum()),
        run_id,
        analyzer,
        lines: told.iter().map(|told| told.lines).sum(),
        unread: told.into_iter().find_map(|told| told.problems.into_iter().next()),
    })))
}

/// What this process has of the run in the folders.
fn find(folders: &[PathBuf], run_id: Option<&str>) -> (Found, Vec<RunFolder>) {
    let mut found = Found::default();
    let mut runs: Vec<RunFolder> = Vec::new();
    for folder in folders {
        found.folders.push((folder.display().to_string(), folder.exists()));
        match RunFolder::find(folder, run_id) {
            Ok(run) => {
                found.runs.insert(run.run_id.clone());
                runs.push(run);
            }
            Err(ReadError::NoTrace { .. }) => {}
            Err(ReadError::SeveralRuns { runs, .. }) => found.runs.extend(runs),
            Err(ReadError::NoSuchRun { .. }) => {}
            Err(ReadError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            Err(error) => found.problems.push(error.to_string()),
        }
    }
    (found, runs)
}

/// The run that all processes have. All come to the same.
fn the_run(run_id: Option<&str>, all: &[Found]) -> anyhow::Result<String> {
    let mut folders: BTreeMap<&str, bool> = BTreeMap::new();
    for (folder, present) in all.iter().flat_map(|found| &found.folders) {
        *folders.entry(folder).or_default() |= *present;
    }
    if folders.is_empty() {
        bail!("name the folder of the traces, or a configuration file with log_dir");
    }
    if let Some((folder, _)) = folders.iter().find(|(_, present)| !**present) {
        bail!("{folder}: no process has such a folder");
    }
    let runs: BTreeSet<&String> = all.iter().flat_map(|found| &found.runs).collect();
    match runs.first() {
        Some(run) if runs.len() == 1 => Ok((*run).clone()),
        Some(_) => {
            let runs: Vec<&str> = runs.iter().map(|run| run.as_str()).collect();
            bail!("several runs, name one of them with --run-id: {}", runs.join(", "))
        }
        None => {
            let of = run_id.map(|id| format!(" of run {id:?}")).unwrap_or_default();
            let folders: Vec<&str> = folders.into_keys().collect();
            let none = format!("{}: no process has a trace file{of} here", folders.join(", "));
            match all.iter().flat_map(|found| &found.problems).next() {
                Some(problem) => bail!("{none}; {problem}"),
                None => bail!(none),
            }
        }
    }
}

/// Where the traces are, and what was moved to analyze them, for people.
fn shown(all: &[Found], sent: u64) -> String {
    let folders: BTreeSet<&str> =
        all.iter().flat_map(|found| &found.folders).map(|(folder, _)| folder.as_str()).collect();
    let folders: Vec<&str> = folders.into_iter().collect();
    let folders = folders.join(", ");
    match all.len() {
        1 => format!("{folders} (read by one process)"),
        many => {
            let sent = match sent {
                0..1_000_000 => format!("{:.0} kB", sent as f64 / 1e3),
                _ => format!("{:.1} MB", sent as f64 / 1e6),
            };
            format!("{folders} (read by {many} processes, which exchanged {sent})")
        }
    }
}
