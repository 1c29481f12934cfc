//! Artifacts: single files and folders of them.

use std::path::{Path, PathBuf};

use anyhow::bail;
use deepxtrace::artifact::{Artifact, ArtifactName, Kind, NormalArtifact, Reason, list, read};

/// Reads `path` as an artifact; `None` when it is a file of another kind, to be read as such.
///
/// # Errors
///
/// It is an artifact, but damaged, of a newer schema or against the schema, or cannot be read.
pub fn try_read(path: &Path) -> anyhow::Result<Option<Artifact<'static>>> {
    if !path.is_file() {
        return Ok(None);
    }
    match read(path) {
        Ok(artifact) => Ok(Some(artifact)),
        Err(error) => match error.reason() {
            Reason::Foreign(_) | Reason::NotAnArchive(_) => Ok(None),
            _ => Err(error.into()),
        },
    }
}

/// The Normal-mode windows in a folder by instance, each in order; of one instance where it is given.
///
/// # Errors
///
/// The folder cannot be read, or has no such window.
pub fn windows_of(
    folder: &Path,
    instance: Option<&str>,
) -> anyhow::Result<Vec<(String, Vec<PathBuf>)>> {
    let mut instances: Vec<(String, Vec<PathBuf>)> = Vec::new();
    for name in list(folder)?.into_iter().filter(|name| name.kind() == Kind::Normal) {
        if instance.is_some_and(|instance| instance != name.instance()) {
            continue;
        }
        let path = folder.join(name.to_string());
        match instances.last_mut() {
            Some((last, paths)) if last == name.instance() => paths.push(path),
            _ => instances.push((name.instance().to_owned(), vec![path])),
        }
    }
    if instances.is_empty() {
        let whose = instance.map_or(String::new(), |instance| format!(" of instance {instance}"));
        bail!("{}: no file normal_window_<instance>_<window>.npz{whose}", folder.display());
    }
    Ok(instances)
}

/// Reads a file that must hold a Normal-mode window.
///
/// # Errors
///
/// It cannot be read, or holds something else.
pub fn read_normal(path: &Path) -> anyhow::Result<NormalArtifact<'static>> {
    match read(path)? {
        Artifact::Normal(artifact) => Ok(artifact),
        Artifact::LowLatency(_) => {
            bail!("{}: a low-latency window, expected one of the Normal mode", path.display())
        }
    }
}

/// What the names of files that are made of `artifact` begin with.
pub fn stem(artifact: &Artifact<'_>) -> anyhow::Result<String> {
    Ok(artifact.name().map(|name: ArtifactName| name.stem())?)
}
