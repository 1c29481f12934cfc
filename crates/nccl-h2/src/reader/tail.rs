//! Following files that grow.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;
use std::time::SystemTime;

use super::chunk::parse;
use super::folder::{ReadError, trace_files};
use super::lines::{Block, Lines};
use super::name::FileName;
use super::report::{FileReport, ReadReport};
use crate::event::Event;

/// Bytes at the start of a file, and before the position, that are compared to notice that a file
/// was replaced.
const MARK_BYTES: u64 = 512;

/// Bytes of one file that one poll reads at most: other files get their turn, and so does a scan.
const POLL_BYTES: u64 = 8 << 20;

/// Follows the trace files of a folder while they grow, and takes in files that appear.
///
/// A line counts when its newline is there. A file that becomes shorter, is replaced by another, or
/// whose content changes before the position, is read again from its start.
#[derive(Debug)]
pub struct TraceTail {
    folders: Vec<PathBuf>,
    files: Vec<Followed>,
    block: Block,
}

#[derive(Debug)]
struct Followed {
    name: FileName,
    lines: Lines,
    position: u64,
    identity: Option<Identity>,
    /// The first bytes, and those before the position.
    head: Vec<u8>,
    before: Vec<u8>,
    report: FileReport,
}

/// What tells whether a file must be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Identity {
    length: u64,
    modified: Option<SystemTime>,
    number: (u64, u64),
}

impl TraceTail {
    /// Follows the trace files of folders: that of the run, and perhaps one with heartbeat files.
    pub fn new(folders: Vec<PathBuf>) -> Self {
        Self { folders, files: Vec::new(), block: Block::default() }
    }

    /// Reads what is new, and hands each event to `sink`. Answers whether there is more to read at
    /// once.
    ///
    /// # Errors
    ///
    /// When a folder cannot be read. A file that cannot be read is noted in the report, and tried
    /// again at the next poll.
    pub fn poll(&mut self, sink: impl FnMut(&Event<'_>)) -> Result<bool, ReadError> {
        self.poll_within(u64::MAX, sink)
    }

    /// As [`TraceTail::poll`], and reads no more than some bytes, but at least one block of each
    /// file (128 KiB).
    ///
    /// # Errors
    ///
    /// As [`TraceTail::poll`].
    pub fn poll_within(
        &mut self,
        bytes: u64,
        mut sink: impl FnMut(&Event<'_>),
    ) -> Result<bool, ReadError> {
        for folder in &self.folders {
            for path in trace_files(folder)? {
                let Some(name) = FileName::of(&path) else { continue };
                let known = self
                    .files
                    .binary_search_by(|file| (&file.name, &file.report.path).cmp(&(&name, &path)));
                if let Err(at) = known {
                    self.files.insert(at, Followed::new(name, path));
                }
            }
        }
        let most = (bytes / self.files.len().max(1) as u64).clamp(1, POLL_BYTES);
        let mut more = false;
        let mut unread: Option<FileName> = None;
        for file in &mut self.files {
            if unread.as_ref().is_some_and(|before| file.name.continues(before)) {
                // The segment before comes first.
                continue;
            }
            match file.poll(most, &mut self.block, &mut sink) {
                Ok(left) => {
                    more |= left;
                    unread = left.then(|| file.name.clone());
                    file.report.error = None;
                }
                Err(error) => file.report.error = Some(error.to_string()),
            }
        }
        Ok(more)
    }

    /// Takes the last lines that have no newline: no file grows any more.
    pub fn finish(&mut self, mut sink: impl FnMut(&Event<'_>)) {
        for file in &mut self.files {
            if file.lines.finish(&mut self.block) {
                file.take(&self.block, &mut sink);
            }
        }
    }

    /// What was read so far.
    pub fn report(&self) -> ReadReport {
        ReadReport { files: self.files.iter().map(|file| file.report.clone()).collect() }
    }
}

impl Followed {
    fn new(name: FileName, path: PathBuf) -> Self {
        Self {
            name,
            lines: Lines::default(),
            position: 0,
            identity: None,
            head: Vec::new(),
            before: Vec::new(),
            report: FileReport::new(path),
        }
    }

    fn poll(
        &mut self,
        most: u64,
        block: &mut Block,
        sink: &mut impl FnMut(&Event<'_>),
    ) -> io::Result<bool> {
        let identity = Identity::of(&fs::metadata(&self.report.path)?);
        if self.identity.as_ref() == Some(&identity) && self.position >= identity.length {
            return Ok(false);
        }
        let mut file = File::open(&self.report.path)?;
        if self.is_another(&identity, &mut file)? {
            self.restart();
        }
        file.seek(SeekFrom::Start(self.position))?;
        let mut read = 0;
        while self.position < identity.length && read < most {
            let left = usize::try_from(identity.length - self.position).unwrap_or(usize::MAX);
            let count = self.lines.read(&mut file, left, block)? as u64;
            if count == 0 {
                break;
            }
            self.position += count;
            read += count;
            self.take(block, sink);
        }
        self.report.bytes += read;
        self.remember(&mut file)?;
        let more = self.position < identity.length;
        self.identity = Some(identity);
        Ok(more)
    }

    /// Whether this is not the file that was read before.
    fn is_another(&self, identity: &Identity, file: &mut File) -> io::Result<bool> {
        let Some(known) = &self.identity else { return Ok(false) };
        Ok(identity.number != known.number
            || identity.length < self.position
            || bytes_at(file, 0, self.head.len())? != self.head
            || bytes_at(file, self.position - self.before.len() as u64, self.before.len())?
                != self.before)
    }

    fn restart(&mut self) {
        self.lines = Lines::default();
        self.position = 0;
        self.report.restarts += 1;
    }

    fn remember(&mut self, file: &mut File) -> io::Result<()> {
        let length = self.position.min(MARK_BYTES);
        self.head = bytes_at(file, 0, length as usize)?;
        self.before = bytes_at(file, self.position - length, length as usize)?;
        Ok(())
    }

    fn take(&mut self, block: &Block, sink: &mut impl FnMut(&Event<'_>)) {
        let parsed = parse(block, 0);
        for event in &parsed.events {
            sink(event);
        }
        parsed.note(&mut self.report);
    }
}

fn bytes_at(file: &mut File, position: u64, length: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(length);
    file.seek(SeekFrom::Start(position))?;
    file.take(length as u64).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Identity {
    #[cfg(unix)]
    fn of(metadata: &Metadata) -> Self {
        use std::os::unix::fs::MetadataExt as _;
        Self {
            length: metadata.len(),
            modified: metadata.modified().ok(),
            number: (metadata.dev(), metadata.ino()),
        }
    }

    #[cfg(not(unix))]
    fn of(metadata: &Metadata) -> Self {
        Self { length: metadata.len(), modified: metadata.modified().ok(), number: (0, 0) }
    }
}
