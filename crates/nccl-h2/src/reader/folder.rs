//! Finding the files of a run.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};

use thiserror::Error;

use super::name::FileName;
use crate::event::Event;

/// Bytes of a file in which its first event mostly stands.
const FIRST_BYTES: usize = 4096;

/// Why a run cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReadError {
    /// A folder or file cannot be read.
    #[error("{path}: {source}")]
    Io {
        /// The folder or file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// There are no trace files.
    #[error("{path}: no trace file (rank_<rank>_pid_<pid>.jsonl) here or in its run folders")]
    NoTrace {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds several runs, and none was named.
    #[error("{path}: several runs, name one of them: {}", runs.join(", "))]
    SeveralRuns {
        /// The folder.
        path: PathBuf,
        /// Their identities.
        runs: Vec<String>,
    },
    /// The files of one run lie in several folders: reading one alone would make the ranks in the
    /// others look as if they were missing.
    #[error(
        "{first} and {second} both hold files of run {run_id:?}: put the files of a run into one \
         folder, or name one of these folders"
    )]
    Scattered {
        /// The run.
        run_id: String,
        /// One of the folders.
        first: PathBuf,
        /// Another.
        second: PathBuf,
    },
    /// The named run is not in the folder.
    #[error("{path}: no run {run_id:?}; there are: {}", runs.join(", "))]
    NoSuchRun {
        /// The folder.
        path: PathBuf,
        /// The run that was asked for.
        run_id: String,
        /// Those that are there.
        runs: Vec<String>,
    },
}

/// The folder of one run, and the run's identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFolder {
    /// The folder that holds the trace files.
    pub path: PathBuf,
    /// The run.
    pub run_id: String,
}

impl RunFolder {
    /// Finds a run in a folder: the folder of the run itself, the `tracing` folder above it, or the
    /// log folder above that. Without an identity, the only run that is there.
    ///
    /// # Errors
    ///
    /// - a folder that cannot be read or holds no trace file,
    /// - no identity and several runs,
    /// - files of the run in several folders,
    /// - an identity that is not there.
    pub fn find(path: &Path, run_id: Option<&str>) -> Result<Self, ReadError> {
        let candidates = candidates(path)?;
        let runs = || {
            let ids: BTreeSet<_> = candidates.iter().map(|run| &run.run_id).collect();
            ids.into_iter().cloned().collect()
        };
        let wanted = |run: &&Self| run_id.is_none_or(|id| run.run_id == id);
        let mut found = candidates.iter().filter(wanted);
        match (found.next(), run_id) {
            (None, Some(id)) if !candidates.is_empty() => Err(ReadError::NoSuchRun {
                path: path.to_owned(),
                run_id: id.to_owned(),
                runs: runs(),
            }),
            (None, _) => Err(ReadError::NoTrace { path: path.to_owned() }),
            (Some(first), _) => match found.next() {
                None => Ok(first.clone()),
                Some(second)
                    if candidates.iter().filter(wanted).all(|run| run.run_id == first.run_id) =>
                {
                    Err(ReadError::Scattered {
                        run_id: first.run_id.clone(),
                        first: first.path.clone(),
                        second: second.path.clone(),
                    })
                }
                Some(_) => Err(ReadError::SeveralRuns { path: path.to_owned(), runs: runs() }),
            },
        }
    }

    /// The trace files, sorted by rank and process.
    ///
    /// # Errors
    ///
    /// When the folder cannot be read.
    pub fn files(&self) -> Result<Vec<PathBuf>, ReadError> {
        trace_files(&self.path)
    }
}

/// Trace files and heartbeat files of a folder, in the order in which they are read.
pub(super) fn trace_files(path: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let failed = |source| ReadError::Io { path: path.to_owned(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if let Some(name) = FileName::of(&path) {
            files.push((name, path));
        }
    }
    files.sort();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

/// The runs of a folder, sorted.
fn candidates(path: &Path) -> Result<Vec<RunFolder>, ReadError> {
    let mut found = runs_in(path)?;
    if found.is_empty() {
        for folder in folders(path)? {
            found.append(&mut runs_in(&folder)?);
            if folder.file_name().is_some_and(|name| name == "tracing") {
                for run in folders(&folder)? {
                    found.append(&mut runs_in(&run)?);
                }
            }
        }
    }
    found.sort_by(|a, b| (&a.run_id, &a.path).cmp(&(&b.run_id, &b.path)));
    found.dedup_by(|a, b| a.run_id == b.run_id && same_folder(&a.path, &b.path));
    Ok(found)
}

/// Whether two paths lead to one folder, such as a link to the latest run and the run itself.
fn same_folder(a: &Path, b: &Path) -> bool {
    matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

fn folders(path: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let failed = |source| ReadError::Io { path: path.to_owned(), source };
    let mut folders = Vec::new();
    for entry in fs::read_dir(path).map_err(failed)? {
        let entry = entry.map_err(failed)?.path();
        if entry.is_dir() {
            folders.push(entry);
        }
    }
    folders.sort();
    Ok(folders)
}

/// The runs of which the files of a folder tell, by their first events.
fn runs_in(path: &Path) -> Result<Vec<RunFolder>, ReadError> {
    let files = trace_files(path)?;
    let mut ids: BTreeSet<String> = files.iter().filter_map(|file| run_of(file)).collect();
    if ids.is_empty() && !files.is_empty() {
        // Files without any event yet: the folder is named after its run.
        ids.extend(path.file_name().map(|name| name.to_string_lossy().into_owned()));
    }
    Ok(ids.into_iter().map(|run_id| RunFolder { path: path.to_owned(), run_id }).collect())
}

/// The run of the first event of a file.
fn run_of(file: &Path) -> Option<String> {
    let start = File::open(file).ok()?.take(super::CHUNK_BYTES as u64);
    let mut lines = BufReader::with_capacity(FIRST_BYTES, start).split(b'\n').map_while(Result::ok);
    lines.find_map(|line| {
        let event = Event::parse(std::str::from_utf8(&line).ok()?).ok()?;
        (!event.header.run_id.is_empty()).then(|| event.header.run_id.into_owned())
    })
}
