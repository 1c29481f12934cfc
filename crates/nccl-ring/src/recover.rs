//! What processes that are gone left in their rings.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::drain::Drainer;
use crate::file::{NAME_SUFFIX, RingFile, name_prefix};
use crate::layout::header;
use crate::map::effective_user;

/// Where ring files are unless a variable names another folder.
pub const RING_FOLDER: &str = "/dev/shm";
/// Variable that names another folder for ring files; it must be a file system in memory.
pub const RING_FOLDER_VARIABLE: &str = "DEEPXTRACE_RING_DIR";

/// How long to wait for another drainer of the same file.
const PATIENCE: Duration = Duration::from_secs(10);

/// What [`recover`] found.
#[derive(Debug, Default)]
pub struct Recovered {
    /// Processes whose rings were written to the trace to the end.
    pub drained: usize,
    /// Processes that live and write their own trace.
    pub living: usize,
    /// Ring files that could not be written out, each with the reason.
    pub failed: Vec<(PathBuf, io::Error)>,
}

/// Writes what dead processes of this host left in their rings to the trace in `folder`.
///
/// Processes that live are left alone. Doing it twice, or in two processes at once, writes nothing
/// twice. `rings` is where ring files are, see [`ring_folder`].
///
/// # Errors
///
/// When one of the folders cannot be read.
pub fn recover(folder: &Path, rings: &Path) -> io::Result<Recovered> {
    let wanted = fs::metadata(folder)?;
    let mut found = Recovered::default();
    for path in ring_files(rings)? {
        let Ok(file) = RingFile::open(&path) else { continue };
        if !belongs(&file, folder, &wanted) {
            continue;
        }
        match finish(&file, Some(folder)) {
            Ok(true) => found.drained += 1,
            Ok(false) => found.living += 1,
            Err(error) => found.failed.push((path, error)),
        }
    }
    Ok(found)
}

/// Writes out and removes the ring files of all dead processes of this user, whatever their trace
/// folder, so that none stays in memory. Files whose trace folder is gone are removed.
///
/// `own` is left alone: closing a second descriptor of it would give its lock up.
pub fn sweep(rings: &Path, own: &Path) {
    for path in ring_files(rings).unwrap_or_default() {
        if path == own {
            continue;
        }
        let Ok(file) = RingFile::open(&path) else { continue };
        // What cannot be written now is left for the next one, or for a reader.
        let _ = finish(&file, None);
    }
}

/// The folder for ring files that the environment names, or the usual one.
#[must_use]
pub fn ring_folder() -> PathBuf {
    std::env::var_os(RING_FOLDER_VARIABLE)
        .filter(|folder| !folder.is_empty())
        .map_or_else(|| PathBuf::from(RING_FOLDER), PathBuf::from)
}

fn ring_files(rings: &Path) -> io::Result<Vec<PathBuf>> {
    // Root may read what others left; everybody else only their own.
    let prefix = if effective_user() == 0 { "deepxtrace-".to_owned() } else { name_prefix() };
    let mut found: Vec<PathBuf> = fs::read_dir(rings)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            name.starts_with(&prefix) && name.ends_with(NAME_SUFFIX)
        })
        .collect();
    found.sort();
    Ok(found)
}

/// The same folder by its numbers, which hold across mounts, or by its path.
fn belongs(file: &RingFile, folder: &Path, wanted: &fs::Metadata) -> bool {
    let numbers = (file.get(header::FOLDER_DEVICE), file.get(header::FOLDER_INODE));
    let theirs = file.identity().folder;
    if numbers != (0, 0) {
        return numbers == (wanted.dev(), wanted.ino());
    }
    theirs == folder
        || matches!((theirs.canonicalize(), folder.canonicalize()), (Ok(a), Ok(b)) if a == b)
}

/// Drains a dead process's file to the end and removes it; false if the process lives.
fn finish(file: &RingFile, folder: Option<&Path>) -> io::Result<bool> {
    if file.owner_lives()? {
        return Ok(false);
    }
    let begun = Instant::now();
    while !file.take_drainer()? {
        if begun.elapsed() > PATIENCE {
            return Err(io::ErrorKind::TimedOut.into());
        }
        sleep(Duration::from_millis(10));
    }
    if file.is_unlinked() {
        return Ok(true);
    }
    let mut drainer = Drainer::new(file, false);
    if let Some(folder) = folder {
        drainer.set_folder(folder);
    } else if !drainer.folder().is_dir() {
        file.unlink();
        return Ok(true);
    }
    if file.rings() > 0 || file.get(header::STARTED) != 0 {
        drainer.drain(file)?;
        drainer.finish(file)?;
    }
    file.unlink();
    Ok(true)
}
