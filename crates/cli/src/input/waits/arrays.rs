//! Wait matrices in NumPy files.

use std::path::Path;

use anyhow::bail;
use deepxtrace::counters::{LlPhase, MAX_EP_SIZE};
use deepxtrace_npz::{Archive, Array};
use ndarray::Array2;

use super::{Source, Waits};

/// The matrix of an `.npy` file.
pub fn read_npy(path: &Path) -> anyhow::Result<Vec<Waits>> {
    let source = Source { file: path.display().to_string(), ..Source::default() };
    Ok(vec![matrix(Array::open(path)?, source)?])
}

/// The arrays of two axes of an archive, in the order of their names; they must all be matrices.
pub fn read_npz(path: &Path) -> anyhow::Result<Vec<Waits>> {
    let mut archive = Archive::open(path)?;
    let mut names: Vec<_> = archive.names().collect();
    names.sort();
    let mut found = Vec::new();
    for name in &names {
        let array = archive.array(name)?;
        if array.shape().len() != 2 {
            continue;
        }
        let source = Source {
            file: path.display().to_string(),
            phase: LlPhase::ALL.into_iter().find(|phase| name.contains(phase.name())),
            entry: Some(name.clone()),
            ..Source::default()
        };
        found.push(matrix(array, source)?);
    }
    if found.is_empty() {
        let names = if names.is_empty() { "no arrays".to_owned() } else { names.join(", ") };
        bail!("{}: no square matrix, the file has: {names}", path.display());
    }
    Ok(found)
}

fn matrix(array: Array<'_>, source: Source) -> anyhow::Result<Waits> {
    let array = array.expect_integers()?;
    let n = match *array.shape() {
        [rows, columns] if rows == columns && (1..=MAX_EP_SIZE).contains(&rows) => rows,
        _ => return Err(array.mismatch(format!("shape [N, N], N from 1 to {MAX_EP_SIZE}")).into()),
    };
    let cells = array.into_i64()?;
    if let Some(place) = cells.iter().position(|&wait| wait < 0) {
        let entry = source.entry.map(|entry| format!(" entry {entry}:")).unwrap_or_default();
        let (row, column, wait) = (place / n, place % n, cells[place]);
        bail!("{}:{entry} cell [{row}, {column}] is {wait}, expected 0 or more", source.file);
    }
    Ok(Waits { source, matrix: Array2::from_shape_vec((n, n), cells)? })
}
