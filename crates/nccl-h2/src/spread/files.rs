//! Which place reads which file.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{Damaged, Exchange, SpreadError, share};
use crate::reader::{FileName, Numbered};

/// Bytes at the start and the end of a file by which it is known again.
const MARK_BYTES: u64 = 4096;

/// The files of a trace that one place can read. Several places may have the same file, such as on a
/// shared file system: one of them reads it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Files {
    /// Trace files.
    pub trace: Vec<PathBuf>,
    /// Files with heartbeats of another writer, from a folder of their own.
    pub heartbeats: Vec<PathBuf>,
}

/// A file as it is announced to the other places.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Listed {
    heartbeats: bool,
    name: FileName,
    /// The name in its folder, for names that tell the same.
    text: String,
    /// Tells files of one name apart; `None` for one that cannot be read.
    mark: Option<(u64, u64)>,
}

/// A file and where it can be read.
struct Held {
    name: FileName,
    /// Bytes of it.
    length: u64,
    /// Places, and the file's number there.
    at: Vec<(usize, usize)>,
}

/// What this place does.
#[derive(Debug)]
pub(super) struct Plan {
    /// The files to read.
    pub(super) files: Vec<Numbered>,
    pub(super) homes: Homes,
}

/// Which place follows a process, and which places the calls of a communicator.
#[derive(Debug, Default)]
pub(super) struct Homes {
    places: usize,
    /// By rank and process number, where a file is named after them.
    processes: HashMap<(i64, i64), usize, foldhash::fast::RandomState>,
}

impl Homes {
    /// Homes by hash alone, for files that nobody knows before they are written.
    pub(super) fn by_hash_of(places: usize) -> Self {
        Self { places, ..Self::default() }
    }

    pub(super) fn of_process(&self, rank: i64, pid: i64, host: &str) -> usize {
        match self.processes.get(&(rank, pid)) {
            Some(&place) => place,
            None => self.by_hash(&(rank, pid, if rank < 0 { host } else { "" })),
        }
    }

    pub(super) fn of_comm(&self, name: &str) -> usize {
        self.by_hash(name)
    }

    fn by_hash<T: std::hash::Hash + ?Sized>(&self, value: &T) -> usize {
        // Its keys are fixed: all places agree, as they run the same program.
        let mut hasher = DefaultHasher::new();
        value.hash(&mut hasher);
        // Below the number of places: it fits.
        (hasher.finish() % self.places.max(1) as u64) as usize
    }
}

impl Files {
    /// Agrees with all places on who reads what.
    pub(super) fn plan<X: Exchange + ?Sized>(
        self,
        exchange: &mut X,
    ) -> Result<Plan, SpreadError<X::Error>> {
        let (paths, listed) = self.listed();
        let mine = postcard::to_stdvec(&listed).map_err(Damaged::from)?;
        let mut all: Vec<Vec<Listed>> = Vec::with_capacity(exchange.size());
        for listed in share(exchange, &mine).map_err(SpreadError::Exchange)? {
            all.push(postcard::from_bytes(&listed).map_err(Damaged::from)?);
        }
        let (rank, size) = (exchange.rank(), exchange.size());
        let held = held(&all);
        if u32::try_from(held.len()).is_err() {
            return Err(SpreadError::TooManyFiles(held.len()));
        }
        Ok(plan(&held, &paths, rank, size))
    }

    /// The own files, with their paths.
    fn listed(self) -> (Vec<PathBuf>, Vec<Listed>) {
        let trace = self.trace.into_iter().map(|path| (false, path));
        let files = trace.chain(self.heartbeats.into_iter().map(|path| (true, path)));
        let listed = |(heartbeats, path): (bool, PathBuf)| {
            let name = FileName::of(&path)?;
            let text = path.file_name()?.to_string_lossy().into_owned();
            let mark = mark(&path).ok();
            Some((path, Listed { heartbeats, name, text, mark }))
        };
        files.filter_map(listed).unzip()
    }
}

/// What tells a file from others of its name: its length and a hash of its beginning and end.
fn mark(path: &Path) -> io::Result<(u64, u64)> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let mut hasher = DefaultHasher::new();
    let mut bytes = Vec::new();
    file.by_ref().take(MARK_BYTES).read_to_end(&mut bytes)?;
    file.seek(SeekFrom::Start(length.saturating_sub(MARK_BYTES)))?;
    file.take(MARK_BYTES).read_to_end(&mut bytes)?;
    bytes.hash(&mut hasher);
    Ok((length, hasher.finish()))
}

/// All files, in the order in which one place would read them.
fn held(all: &[Vec<Listed>]) -> Vec<Held> {
    let mut files: BTreeMap<(bool, &FileName, &str), Vec<Held>> = BTreeMap::new();
    let mut marks: HashMap<&Listed, usize> = HashMap::new();
    for (place, listed) in all.iter().enumerate() {
        for (number, file) in listed.iter().enumerate() {
            let same = files.entry((file.heartbeats, &file.name, &file.text)).or_default();
            let known = *marks.entry(file).or_insert(same.len());
            match same.get_mut(known) {
                Some(held) => held.at.push((place, number)),
                None => same.push(Held {
                    name: file.name.clone(),
                    length: file.mark.map_or(0, |(length, _)| length),
                    at: vec![(place, number)],
                }),
            }
        }
    }
    files.into_values().flatten().collect()
}

fn plan(held: &[Held], paths: &[PathBuf], rank: usize, size: usize) -> Plan {
    let mut homes = Homes { places: size, ..Homes::default() };
    let mut bytes = vec![0_u64; size];
    let mut readers: Vec<(usize, usize)> = Vec::with_capacity(held.len());
    let mut continues: Vec<bool> = Vec::with_capacity(held.len());
    let mut before: Option<(&Held, usize)> = None;
    for file in held {
        let after = before.is_some_and(|(before, _)| file.name.continues(&before.name));
        // A file is best read where the one that it continues is, else where there is least to do.
        let last = before.filter(|_| after).map(|(_, place)| place);
        let here = file.at.iter().find(|(place, _)| Some(*place) == last);
        let least = || file.at.iter().min_by_key(|(place, _)| (bytes.get(*place), *place));
        let (place, number) = here.or_else(least).copied().unwrap_or_default();
        if let Some(bytes) = bytes.get_mut(place) {
            *bytes = bytes.saturating_add(file.length);
        }
        homes.processes.entry((file.name.rank, file.name.pid)).or_insert(place);
        readers.push((place, number));
        continues.push(after);
        before = Some((file, place));
    }
    let mut files = Vec::new();
    for (at, &(place, number)) in readers.iter().enumerate() {
        let continues_here = |at: usize| continues.get(at).copied().unwrap_or(false);
        let after = readers.get(at + 1).filter(|_| continues_here(at + 1));
        // There are fewer files than a u32 has numbers.
        let order = at as u32;
        if let (true, Some(path)) = (place == rank, paths.get(number)) {
            files.push(Numbered {
                path: path.clone(),
                number: order,
                continues: continues_here(at),
                is_continued_elsewhere: after.is_some_and(|after| after.0 != place),
            });
        }
    }
    Plan { files, homes }
}
