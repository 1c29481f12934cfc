//! Folders that hold traces beside something else.

use std::path::Path;

use deepxtrace_nccl_h2::{ReadError, RunFolder};

/// Folders below that are looked into, and how deep they lie.
const MAX_FOLDERS: usize = 1000;
const MAX_DEPTH: usize = 4;

/// Whether there are traces in a folder or below it.
pub fn has_traces(folder: &Path) -> bool {
    let mut left = MAX_FOLDERS;
    search(folder, 0, &mut left)
}

fn search(folder: &Path, depth: usize, left: &mut usize) -> bool {
    if *left == 0 || depth > MAX_DEPTH {
        return false;
    }
    *left -= 1;
    match RunFolder::find(folder, None) {
        Ok(_) | Err(ReadError::SeveralRuns { .. } | ReadError::Scattered { .. }) => return true,
        Err(_) => {}
    }
    let Ok(entries) = std::fs::read_dir(folder) else { return false };
    let mut folders: Vec<_> =
        entries.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    folders.sort();
    folders.iter().any(|folder| search(folder, depth + 1, left))
}
