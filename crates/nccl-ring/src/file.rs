//! The ring file of one process: creating it, opening it, what its header says.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::layout::{HEADER_BYTES, MAGIC, MAX_RINGS, MIN_SLOTS, VERSION, header, ring_bytes};
use crate::map::{Lock, Map, effective_user, memory_space, monotonic_ns, reserve};

/// The ring is at most this part of the free memory file system, so that the job keeps the rest.
const SHARE_OF_FREE_SPACE: u64 = 64;

/// What a process says of itself when it begins to record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Run that the trace belongs to.
    pub run_id: String,
    /// Host name.
    pub hostname: String,
    /// Folder that the trace is written to.
    pub folder: PathBuf,
    /// Name of the trace files before `.jsonl`.
    pub stem: String,
    /// Global rank.
    pub rank: i64,
    /// Rank within the host, -1 where unknown.
    pub local_rank: i64,
    /// Ranks of the run, -1 where unknown.
    pub world_size: i64,
    /// Process number.
    pub pid: i64,
}

/// The header of a ring file, mapped.
#[derive(Debug)]
pub struct RingFile {
    path: PathBuf,
    file: File,
    header: Map,
}

impl RingFile {
    /// Creates a ring file in the memory file system `folder` with the owner's lock on it.
    ///
    /// `slots` calls fit into a ring; the number is halved until a ring is small beside the free
    /// space and there is room for the first one.
    ///
    /// # Errors
    ///
    /// When the folder is no memory file system or is full, or has no locks.
    pub fn create(
        folder: &Path,
        slots: usize,
        max_bytes: u64,
        identity: &Identity,
    ) -> io::Result<Self> {
        let (free, memory) = memory_space(&File::open(folder)?)?;
        if !memory {
            let message = format!("{} is not a file system in memory", folder.display());
            return Err(io::Error::new(io::ErrorKind::Unsupported, message));
        }
        let path = folder.join(new_name());
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let file = options.open(&path)?;
        let made = Self::fill(&path, file, slots, free, max_bytes, identity);
        if made.is_err() {
            // Nothing else knows the name yet.
            let _ = std::fs::remove_file(&path);
        }
        made
    }

    fn fill(
        path: &Path,
        file: File,
        slots: usize,
        free: u64,
        max_bytes: u64,
        identity: &Identity,
    ) -> io::Result<Self> {
        if !Lock::Owner.take(&file)? {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let mut slots = slots.max(MIN_SLOTS).next_power_of_two();
        let too_large = |slots: usize| {
            u64::try_from(ring_bytes(slots)).is_ok_and(|bytes| bytes > free / SHARE_OF_FREE_SPACE)
        };
        while slots > MIN_SLOTS && too_large(slots) {
            slots /= 2;
        }
        reserve(&file, 0, HEADER_BYTES)?;
        let made =
            Self { path: path.to_owned(), header: Map::new(&file, 0, HEADER_BYTES, true)?, file };
        made.write_identity(identity);
        made.set(header::SLOTS, u64::try_from(slots).unwrap_or(0));
        made.set(header::MAX_BYTES, max_bytes);
        made.set(header::START, monotonic_ns());
        made.set(header::VERSION, VERSION);
        made.word(header::MAGIC).store(MAGIC, Release);
        Ok(made)
    }

    fn write_identity(&self, identity: &Identity) {
        for (word, value) in [
            (header::PID, identity.pid),
            (header::RANK, identity.rank),
            (header::LOCAL_RANK, identity.local_rank),
            (header::WORLD_SIZE, identity.world_size),
            (header::CLOCK_OFFSET, crate::map::clock_offset_ns()),
        ] {
            self.set(word, value.cast_unsigned());
        }
        let folder = identity.folder.as_os_str().as_encoded_bytes();
        self.set_text(header::RUN_ID, identity.run_id.as_bytes());
        self.set_text(header::HOSTNAME, identity.hostname.as_bytes());
        self.set_text(header::FOLDER, folder);
        self.set_text(header::STEM, identity.stem.as_bytes());
    }

    /// Opens an existing ring file.
    ///
    /// # Errors
    ///
    /// When it is no ring file of this version, belongs to another user (unless this one is root),
    /// or cannot be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags(libc::O_NOFOLLOW);
        let file = options.open(path)?;
        let owner = file.metadata()?.uid();
        if owner != effective_user() && effective_user() != 0 {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let header = Map::new(&file, 0, HEADER_BYTES, false)?;
        let opened = Self { path: path.to_owned(), file, header };
        let magic = opened.word(header::MAGIC).load(Acquire);
        let slots = opened.slots();
        let sound = magic == MAGIC
            && opened.get(header::VERSION) == VERSION
            && slots.is_power_of_two()
            && (MIN_SLOTS..=1 << 28).contains(&slots)
            && opened.get(header::RINGS) <= MAX_RINGS as u64;
        if sound { Ok(opened) } else { Err(io::ErrorKind::InvalidData.into()) }
    }

    /// Adds a ring and returns its number and the mapping, all pages in place.
    ///
    /// # Errors
    ///
    /// When there are [`MAX_RINGS`] already, or no room for one more.
    pub fn add_ring(&self) -> io::Result<(usize, Map)> {
        let number = usize::try_from(self.get(header::RINGS)).unwrap_or(MAX_RINGS);
        if number >= MAX_RINGS {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        let bytes = ring_bytes(self.slots());
        let offset = HEADER_BYTES + number * bytes;
        reserve(&self.file, offset, bytes)?;
        let map = Map::new(&self.file, offset, bytes, true)?;
        self.word(header::RINGS).store(number as u64 + 1, Release);
        Ok((number, map))
    }

    /// Maps a ring that exists.
    ///
    /// # Errors
    ///
    /// When the file does not hold it.
    pub fn ring(&self, number: usize) -> io::Result<Map> {
        let bytes = ring_bytes(self.slots());
        let offset = number.checked_mul(bytes).and_then(|offset| offset.checked_add(HEADER_BYTES));
        Map::new(&self.file, offset.ok_or(io::ErrorKind::InvalidInput)?, bytes, false)
    }

    /// Rings that are ready.
    #[must_use]
    pub fn rings(&self) -> usize {
        let rings = self.word(header::RINGS).load(Acquire);
        usize::try_from(rings).unwrap_or(MAX_RINGS).min(MAX_RINGS)
    }

    /// Slots of every ring.
    #[must_use]
    pub fn slots(&self) -> usize {
        usize::try_from(self.get(header::SLOTS)).unwrap_or(0)
    }

    /// What the process says of itself.
    #[must_use]
    pub fn identity(&self) -> Identity {
        let text = |place| String::from_utf8_lossy(&self.text(place)).into_owned();
        let number = |word| self.get(word).cast_signed();
        Identity {
            run_id: text(header::RUN_ID),
            hostname: text(header::HOSTNAME),
            folder: path_of(self.text(header::FOLDER)),
            stem: text(header::STEM),
            rank: number(header::RANK),
            local_rank: number(header::LOCAL_RANK),
            world_size: number(header::WORLD_SIZE),
            pid: number(header::PID),
        }
    }

    /// Whether the process that records into this file still lives.
    ///
    /// # Errors
    ///
    /// When the file system cannot say.
    pub fn owner_lives(&self) -> io::Result<bool> {
        Lock::Owner.is_held_elsewhere(&self.file)
    }

    /// Takes the drainer's lock; says whether it did.
    ///
    /// # Errors
    ///
    /// When the file system has no locks.
    pub fn take_drainer(&self) -> io::Result<bool> {
        Lock::Drainer.take(&self.file)
    }

    /// Where the file is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the name of the file, if it is still this file's name.
    pub fn unlink(&self) {
        let mine = |other: std::fs::Metadata| {
            self.file
                .metadata()
                .is_ok_and(|own| (own.dev(), own.ino()) == (other.dev(), other.ino()))
        };
        if std::fs::symlink_metadata(&self.path).is_ok_and(mine) {
            // Someone else may have been faster, which is as good.
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// Whether the file has lost its name: somebody has drained it to the end.
    #[must_use]
    pub fn is_unlinked(&self) -> bool {
        self.file.metadata().is_ok_and(|own| own.nlink() == 0)
    }

    /// A word of the header.
    pub(crate) fn get(&self, word: usize) -> u64 {
        self.word(word).load(Relaxed)
    }

    pub(crate) fn set(&self, word: usize, value: u64) {
        self.word(word).store(value, Relaxed);
    }

    /// A word of the header, to be shared between threads and processes.
    #[must_use]
    pub fn word(&self, word: usize) -> &AtomicU64 {
        static NOWHERE: AtomicU64 = AtomicU64::new(0);
        self.header.words().get(word).unwrap_or(&NOWHERE)
    }

    /// Counts events that no ring could take.
    pub fn count_dropped(&self, events: u64) {
        self.word(header::DROPPED).fetch_add(events, Ordering::Relaxed);
    }

    pub(crate) fn set_text(&self, (word, room): (usize, usize), text: &[u8]) {
        let text = text.get(..text.len().min(room)).unwrap_or_default();
        for (place, piece) in text.chunks(8).enumerate() {
            let mut bytes = [0; 8];
            bytes.iter_mut().zip(piece).for_each(|(to, from)| *to = *from);
            self.set(word + 1 + place, u64::from_le_bytes(bytes));
        }
        self.word(word).store(text.len() as u64, Release);
    }

    fn text(&self, (word, room): (usize, usize)) -> Vec<u8> {
        let length = usize::try_from(self.word(word).load(Acquire)).unwrap_or(0).min(room);
        let words = (0..length.div_ceil(8)).map(|place| self.get(word + 1 + place));
        let mut text: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        text.truncate(length);
        text
    }
}

fn path_of(bytes: Vec<u8>) -> PathBuf {
    use std::os::unix::ffi::OsStringExt;
    std::ffi::OsString::from_vec(bytes).into()
}

/// What the names of this user's ring files begin with.
pub(crate) fn name_prefix() -> String {
    format!("deepxtrace-{}-", effective_user())
}

/// What the names of ring files end with.
pub(crate) const NAME_SUFFIX: &str = ".ring";

fn new_name() -> String {
    use std::hash::{BuildHasher, Hasher};
    // Seeded by the system for each process; the counter and clock make it differ within one.
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
    hasher.write_u64(COUNTER.fetch_add(1, Relaxed));
    hasher.write_u64(monotonic_ns());
    hasher.write_u32(std::process::id());
    format!("{}{:016x}{NAME_SUFFIX}", name_prefix(), hasher.finish())
}
