//! Finds and reads the dumps of a job.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::fr::dump;
use crate::fr::error::{Fault, FrError, Limits};
use crate::fr::json;
use crate::fr::name;
use crate::fr::pickle::Machine;
use crate::fr::record::Dump;
use crate::fr::value::{Arena, View};

/// Folders below the one that is given, and files of one set.
const MAX_DEPTH: usize = 4;
const MAX_FILES: usize = 65_536;

/// Threads that read: more would hold more files in memory at once.
const MAX_THREADS: usize = 4;

/// The memory that reading takes, kept from dump to dump.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    machine: Machine,
    arena: Arena,
    text: Vec<u8>,
}

impl Reader {
    /// Reads one dump, a pickle or JSON.
    ///
    /// # Errors
    /// What is wrong with it; [`Fault::NoDump`] for something else than a dump.
    pub(crate) fn read(&mut self, bytes: &[u8], limits: &Limits) -> Result<Dump, Fault> {
        match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
            Some(0x80) if bytes.first() == Some(&0x80) => {
                let root = self.machine.read(bytes, &mut self.arena, limits)?;
                let view = View { arena: &self.arena, text: bytes };
                dump::interpret(&view, root, limits)
            }
            Some(b'{') => {
                let root = json::read(bytes, &mut self.arena, &mut self.text, limits)?;
                let view = View { arena: &self.arena, text: &self.text };
                dump::interpret(&view, root, limits)
            }
            _ => Err(Fault::NoDump),
        }
    }
}

/// A file that was read, or why not.
pub(crate) struct Loaded {
    pub(crate) path: PathBuf,
    pub(crate) rank: i64,
    pub(crate) dump: Dump,
}

/// Reads all dumps under the paths, in the order of their ranks, and what could not be read.
///
/// # Errors
/// [`FrError`] where a path cannot be listed or two files are of one rank.
pub(crate) fn load(
    paths: &[PathBuf],
    limits: &Limits,
) -> Result<(Vec<Loaded>, Vec<FrError>), FrError> {
    let mut files = Vec::new();
    for path in paths {
        find(path, 0, &mut files)?;
    }
    files.sort();
    files.dedup();
    let mut loaded = Vec::new();
    let mut problems = Vec::new();
    for (path, result) in files.iter().zip(read_all(&files, limits)) {
        let named = path.file_name().and_then(|name| name.to_str()).and_then(name::rank);
        match (result, named) {
            (Ok(None), _) => {}
            (Err(problem), _) => problems.push(problem),
            (Ok(Some(_)), None) => problems.push(FrError::NoRank { path: path.clone() }),
            (Ok(Some(dump)), Some(rank)) => {
                loaded.push(Loaded { path: path.clone(), rank, dump });
            }
        }
    }
    loaded.sort_by_key(|loaded| loaded.rank);
    for pair in loaded.windows(2) {
        if let [first, second] = pair
            && first.rank == second.rank
        {
            return Err(FrError::SameRank {
                rank: first.rank,
                first: first.path.clone(),
                second: second.path.clone(),
            });
        }
    }
    Ok((loaded, problems))
}

/// Bytes at the beginning of a file that tell what it is.
const HEAD: u64 = 4096;

/// Whether a file, or the first file of a folder that could be, looks like a dump: a pickle or JSON
/// object with the keys of one.
pub fn is_dump(path: &Path) -> bool {
    let mut files = Vec::new();
    if find(path, 0, &mut files).is_err() {
        return false;
    }
    files.sort();
    files.iter().any(|file| looks_like_dump(file).unwrap_or(false))
}

fn looks_like_dump(path: &Path) -> std::io::Result<bool> {
    let mut head = Vec::new();
    File::open(path)?.take(HEAD).read_to_end(&mut head)?;
    let pickle = matches!(head.as_slice(), [0x80, 2..=5, ..]);
    let json = head.first() == Some(&b'{');
    Ok((pickle || json) && has_dump_keys(&head))
}

/// Whether the beginning of a file has the keys of a dump.
fn has_dump_keys(bytes: &[u8]) -> bool {
    let head = bytes.get(..HEAD as usize).unwrap_or(bytes);
    let has = |key: &[u8]| head.windows(key.len()).any(|bytes| bytes == key);
    let keys: [&[u8]; 4] = [b"pg_config", b"pg_status", b"profiling_name", b"comm_lib_version"];
    keys.iter().any(|key| has(key))
}

/// Whether a file holds lines of JSON by its name, as traces and logs do.
fn is_of_lines(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "jsonl")
}

fn io(path: &Path) -> impl FnOnce(std::io::Error) -> FrError + '_ {
    move |source| FrError::Io { path: path.to_owned(), source }
}

/// Collects the files under a path. Hidden files and links that lead nowhere are left out.
fn find(path: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Result<(), FrError> {
    let kind = fs::metadata(path).map_err(io(path))?;
    if kind.is_file() {
        files.push(path.to_owned());
        return Ok(());
    }
    if !kind.is_dir() || depth >= MAX_DEPTH {
        return Ok(());
    }
    for entry in fs::read_dir(path).map_err(io(path))? {
        let entry = entry.map_err(io(path))?;
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        if !hidden && files.len() < MAX_FILES && fs::metadata(entry.path()).is_ok() {
            find(&entry.path(), depth.saturating_add(1), files)?;
        }
    }
    Ok(())
}

/// Reads files on a few threads. The results stand in the order of the files; `None` for a file
/// that is something else than a dump.
fn read_all(files: &[PathBuf], limits: &Limits) -> Vec<Result<Option<Dump>, FrError>> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let threads = threads.min(MAX_THREADS).min(files.len()).max(1);
    let next = AtomicUsize::new(0);
    let work = || {
        let mut reader = Reader::default();
        let mut bytes = Vec::new();
        let mut results = Vec::new();
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(path) = files.get(number) else { return results };
            results.push((number, read_file(path, &mut reader, &mut bytes, limits)));
        }
    };
    let mut results = thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut results = work();
        for other in others {
            // A thread that panicked leaves its files out; none of this code panics.
            results.extend(other.join().unwrap_or_default());
        }
        results
    });
    results.sort_by_key(|(number, _)| *number);
    results.into_iter().map(|(_, result)| result).collect()
}

fn read_file(
    path: &Path,
    reader: &mut Reader,
    bytes: &mut Vec<u8>,
    limits: &Limits,
) -> Result<Option<Dump>, FrError> {
    bytes.clear();
    let file = File::open(path).map_err(io(path))?;
    let mut head = [0_u8; 1];
    let limit = u64::try_from(limits.bytes).unwrap_or(u64::MAX).saturating_add(1);
    let mut file = file.take(limit);
    if file.read(&mut head).map_err(io(path))? == 0 || !may_be_dump(head) {
        return Ok(None);
    }
    bytes.extend_from_slice(&head);
    file.read_to_end(bytes).map_err(io(path))?;
    match reader.read(bytes, limits) {
        Ok(dump) => Ok(Some(dump)),
        Err(Fault::NoDump) => Ok(None),
        Err(_) if is_of_lines(path) && !has_dump_keys(bytes) => Ok(None),
        Err(fault) => Err(FrError::Dump { path: path.to_owned(), fault }),
    }
}

fn may_be_dump(head: [u8; 1]) -> bool {
    matches!(head, [0x80 | b'{' | b' ' | b'\t' | b'\r' | b'\n'])
}
