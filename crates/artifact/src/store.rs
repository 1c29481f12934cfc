//! A folder of artifacts: writing, listing, keeping the newest.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::{ArtifactError, Reason};
use crate::model::Artifact;
use crate::name::{ArtifactName, Kind};

/// Windows that are kept by default.
pub const DEFAULT_KEEP: usize = 128;
/// Ends of the names of unfinished files.
const TEMPORARY: &str = ".tmp";
/// Unfinished files that cannot be locked count as left behind after this time.
const ABANDONED: Duration = Duration::from_secs(3600);
/// How often a file is written again when something took it away before it was renamed.
const ATTEMPTS: usize = 3;

/// A folder that artifacts are written to.
///
/// Several processes may write to one folder. What is not named like an artifact of the instance
/// that is written is never touched.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    keep: usize,
    written: AtomicU64,
}

impl Store {
    /// A store in `folder` that keeps the `keep` newest windows of each kind of an instance (at
    /// least one). The folder is made when the first window is written.
    pub fn new(folder: impl Into<PathBuf>, keep: usize) -> Self {
        Self { folder: folder.into(), keep: keep.max(1), written: AtomicU64::new(0) }
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes an artifact under its name, in place of one that is there, then removes the oldest
    /// of its kind and instance beyond the number to keep, and unfinished files of writers that
    /// are gone.
    ///
    /// # Errors
    ///
    /// - the instance cannot be part of a file name
    /// - the folder cannot be made, the file cannot be written or renamed, or the old ones cannot be listed or removed
    pub fn write(&self, artifact: &Artifact<'_>) -> Result<PathBuf, ArtifactError> {
        let in_folder = |reason: Reason| ArtifactError::new(self.folder.display(), reason);
        let name = artifact.name().map_err(|error| in_folder(error.into()))?;
        let path = self.folder.join(name.to_string());
        let failed = |reason: Reason| ArtifactError::new(path.display(), reason);
        let bytes = artifact.to_bytes().map_err(failed)?;
        let mut attempts = ATTEMPTS;
        loop {
            attempts -= 1;
            match self.write_once(&name, &path, &bytes) {
                // Another process took the file for one that was left behind, or the folder is gone.
                Err(error) if error.kind() == ErrorKind::NotFound && attempts > 0 => {
                    fs::create_dir_all(&self.folder).map_err(|error| failed(error.into()))?;
                }
                Err(error) => return Err(failed(error.into())),
                Ok(()) => break,
            }
        }
        self.tidy(&name)?;
        Ok(path)
    }

    fn write_once(&self, name: &ArtifactName, path: &Path, bytes: &[u8]) -> std::io::Result<()> {
        let (temporary, mut file) = self.create(name)?;
        // The lock tells other processes that the writer lives. Where there are no locks, the age
        // of the file tells it.
        let _ = file.lock();
        let result = file.write_all(bytes).and_then(|()| fs::rename(&temporary, path));
        if result.is_err() {
            let _ = fs::remove_file(&temporary);
        }
        result
    }

    /// Makes an unfinished file that no other writer uses.
    fn create(&self, name: &ArtifactName) -> std::io::Result<(PathBuf, File)> {
        loop {
            let number = self.written.fetch_add(1, Ordering::Relaxed);
            let process = std::process::id();
            let path = self.folder.join(format!(".{}.{process}-{number}{TEMPORARY}", name.stem()));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => return Ok((path, file)),
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn tidy(&self, name: &ArtifactName) -> Result<(), ArtifactError> {
        let found = scan(&self.folder)?;
        for temporary in &found.temporaries {
            remove_abandoned(&self.folder.join(temporary));
        }
        prune_names(&self.folder, found.names, name.kind(), name.instance(), self.keep)?;
        Ok(())
    }
}

/// What a folder holds of this crate.
struct Found {
    names: Vec<ArtifactName>,
    temporaries: Vec<String>,
}

fn scan(folder: &Path) -> Result<Found, ArtifactError> {
    let failed = |error| ArtifactError::new(folder.display(), Reason::Io(error));
    let mut found = Found { names: Vec::new(), temporaries: Vec::new() };
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let file_name = entry.file_name();
        let Some(file_name) = file_name.to_str() else { continue };
        if let Some(name) = ArtifactName::parse(file_name) {
            // Folders and links of that name are somebody else's.
            if entry.file_type().is_ok_and(|kind| kind.is_file()) {
                found.names.push(name);
            }
        } else if is_temporary(file_name) {
            found.temporaries.push(file_name.to_owned());
        }
    }
    found.names.sort();
    found.temporaries.sort();
    Ok(found)
}

/// Whether this is the name of an unfinished artifact: `.<stem>.<process>-<number>.tmp`.
fn is_temporary(file_name: &str) -> bool {
    let Some(rest) = file_name.strip_prefix('.').and_then(|s| s.strip_suffix(TEMPORARY)) else {
        return false;
    };
    let Some((stem, writer)) = rest.rsplit_once('.') else { return false };
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    writer.split_once('-').is_some_and(|(a, b)| number(a) && number(b))
        && ArtifactName::parse(&format!("{stem}.npz")).is_some()
}

/// Removes an unfinished file whose writer is gone: the lock of one that lives cannot be had.
fn remove_abandoned(path: &Path) {
    let Ok(file) = File::open(path) else { return };
    let gone = match file.try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock) => false,
        Err(TryLockError::Error(_)) => file
            .metadata()
            .and_then(|metadata| metadata.modified())
            .is_ok_and(|time| time.elapsed().is_ok_and(|age| age > ABANDONED)),
    };
    if gone {
        // Another process may be faster.
        let _ = fs::remove_file(path);
    }
}

/// The artifacts in `folder`, by kind, instance and number of the window. Other files, folders and
/// links are left out.
///
/// # Errors
///
/// The folder cannot be read.
pub fn list(folder: impl AsRef<Path>) -> Result<Vec<ArtifactName>, ArtifactError> {
    scan(folder.as_ref()).map(|found| found.names)
}

/// Removes all but the `keep` newest artifacts of one kind and instance from `folder`; gives what
/// was removed, oldest first.
///
/// # Errors
///
/// The folder cannot be read, or a file cannot be removed.
pub fn prune(
    folder: impl AsRef<Path>,
    kind: Kind,
    instance: &str,
    keep: usize,
) -> Result<Vec<ArtifactName>, ArtifactError> {
    let folder = folder.as_ref();
    let names = scan(folder)?.names;
    prune_names(folder, names, kind, instance, keep)
}

fn prune_names(
    folder: &Path,
    mut names: Vec<ArtifactName>,
    kind: Kind,
    instance: &str,
    keep: usize,
) -> Result<Vec<ArtifactName>, ArtifactError> {
    names.retain(|name| name.kind() == kind && name.instance() == instance);
    names.truncate(names.len().saturating_sub(keep));
    for name in &names {
        let path = folder.join(name.to_string());
        match fs::remove_file(&path) {
            // Another process was faster.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            result => result.map_err(|error| ArtifactError::new(path.display(), error))?,
        }
    }
    Ok(names)
}
