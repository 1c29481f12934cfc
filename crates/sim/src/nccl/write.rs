//! Writing a job's trace as a folder of files.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use super::job::Job;

/// Runs a job and writes one file a rank, `rank_<rank>_pid_<pid>.jsonl`, into a folder that is made
/// if it is absent. Returns the wall clock of the latest event.
///
/// # Errors
///
/// When the folder or a file cannot be written.
pub fn write_folder(job: &Job, folder: &Path) -> io::Result<i64> {
    fs::create_dir_all(folder)?;
    let mut files = Vec::with_capacity(job.ranks());
    for rank in 0..job.ranks() {
        let path = folder.join(format!("rank_{rank}_pid_{}.jsonl", 1000 + rank));
        files.push(BufWriter::new(File::create(path)?));
    }
    let mut failed = None;
    let end = job.run(|rank, event| {
        let Some(file) = files.get_mut(rank) else { return };
        let written = serde_json::to_writer(&mut *file, event)
            .map_err(io::Error::from)
            .and_then(|()| file.write_all(b"\n"));
        if let Err(error) = written {
            failed.get_or_insert(error);
        }
    });
    for mut file in files {
        file.flush()?;
    }
    failed.map_or(Ok(end), Err)
}
