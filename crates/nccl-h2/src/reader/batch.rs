//! Reading files to their end, several at a time where there are several cores.

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use super::chunk::{last_timestamp, parse};
use super::lines::{Block, Lines};
use super::name::FileName;
use super::report::{FileReport, ReadReport};
use crate::analyzer::Moment;
use crate::event::Event;

/// Files that stay open; above this number each is opened again for every chunk.
pub(super) const MAX_OPEN_FILES: usize = 256;

/// Reads files from start to end, in turn: always the one that is furthest back in time, so that
/// what the ranks did at the same time is met at nearly the same time, and memory does not grow with
/// the trace.
#[derive(Debug)]
pub struct TraceReader {
    sources: Vec<Source>,
    keep_open: bool,
}

/// One file on its way to its end.
#[derive(Debug)]
pub(super) struct Source {
    file: Option<File>,
    lines: Lines,
    /// Bytes read, and bytes that there were when the reader was made.
    pub(super) position: u64,
    length: u64,
    /// Wall clock up to which the file was read.
    pub(super) time: i64,
    pub(super) done: bool,
    /// The file that this one continues: it is read first.
    pub(super) after: Option<usize>,
    pub(super) report: FileReport,
}

/// One block with its place in the order.
struct Ticket {
    number: u64,
    source: usize,
    /// Wall clock of the file before this block.
    time: i64,
}

/// What the workers share.
struct Shared<'r, S> {
    claims: Mutex<Claims<'r>>,
    order: Mutex<Order<S>>,
    turn: Condvar,
}

struct Claims<'r> {
    sources: &'r mut [Source],
    keep_open: bool,
    next: u64,
}

struct Order<S> {
    sink: S,
    next: u64,
    reports: Vec<FileReport>,
}

impl TraceReader {
    /// A reader of files. Bytes that are added later are not read. Segments of one process stand in
    /// their order, as [`super::RunFolder::files`] gives them.
    pub fn new(files: Vec<PathBuf>) -> Self {
        let names: Vec<Option<FileName>> = files.iter().map(|path| FileName::of(path)).collect();
        let after = |at: usize| {
            let (before, this) = (names.get(at.checked_sub(1)?)?.as_ref()?, names[at].as_ref()?);
            this.continues(before).then(|| at - 1)
        };
        let keep_open = files.len() <= MAX_OPEN_FILES;
        let sources =
            files.into_iter().enumerate().map(|(at, path)| Source::new(path, after(at))).collect();
        Self { sources, keep_open }
    }

    /// Bytes of all files.
    pub fn total_bytes(&self) -> u64 {
        self.sources.iter().map(|source| source.length).sum()
    }

    /// Reads everything and hands each event to `sink`, with the moment that the event itself tells
    /// as its receipt. Lines are parsed on up to `threads` threads; the sink is called by one at a
    /// time, in an order that depends on the files alone. `progress` is told how many bytes a step
    /// has read.
    pub fn read(
        mut self,
        threads: usize,
        sink: impl FnMut(&Event<'_>, Moment) + Send,
        progress: impl Fn(u64) + Sync,
    ) -> ReadReport {
        let reports = self.sources.iter_mut().map(|source| source.report.clone()).collect();
        let shared = Shared {
            claims: Mutex::new(Claims {
                sources: &mut self.sources,
                keep_open: self.keep_open,
                next: 0,
            }),
            order: Mutex::new(Order { sink, next: 0, reports }),
            turn: Condvar::new(),
        };
        let threads = threads.max(1);
        if threads == 1 {
            shared.work(&progress);
        } else {
            thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| shared.work(&progress));
                }
            });
        }
        let order = shared.order.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut files = order.reports;
        for (report, source) in files.iter_mut().zip(&self.sources) {
            report.bytes = source.position;
            report.error.clone_from(&source.report.error);
        }
        ReadReport { files }
    }
}

impl<S: FnMut(&Event<'_>, Moment) + Send> Shared<'_, S> {
    /// Takes block after block: parses it, waits for its turn, hands its events on.
    fn work(&self, progress: &(impl Fn(u64) + Sync)) {
        let mut block = Block::default();
        let mut capacity = 0;
        let _alarm = Alarm(&self.turn);
        loop {
            let claimed = lock(&self.claims).claim(&mut block);
            let Some((ticket, read)) = claimed else { return };
            let parsed = parse(&block, capacity);
            capacity = parsed.events.len();
            let mut order = lock(&self.order);
            while order.next != ticket.number {
                let Ok(woken) = self.turn.wait(order) else { return };
                order = woken;
            }
            parsed.each(ticket.time, |event, moment| (order.sink)(event, moment));
            if let Some(report) = order.reports.get_mut(ticket.source) {
                parsed.note(report);
            }
            order.next += 1;
            drop(order);
            self.turn.notify_all();
            progress(read);
        }
    }
}

/// Wakes the others when a thread panics: its turn will never end.
struct Alarm<'c>(&'c Condvar);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.notify_all();
        }
    }
}

impl Claims<'_> {
    /// Reads the next block of the file that is furthest back in time.
    fn claim(&mut self, block: &mut Block) -> Option<(Ticket, u64)> {
        loop {
            let at = self
                .sources
                .iter()
                .enumerate()
                .filter(|(_, source)| !source.done)
                .filter(|(_, source)| source.after.is_none_or(|before| self.sources[before].done))
                .min_by_key(|(at, source)| (source.time, *at))?
                .0;
            let begun = self.sources[at].after.map_or(i64::MIN, |before| self.sources[before].time);
            let source = &mut self.sources[at];
            source.time = source.time.max(begun);
            let time = source.time;
            let read = source.next(block, self.keep_open);
            if block.bytes.is_empty() && block.too_long.is_empty() {
                continue;
            }
            let number = self.next;
            self.next += 1;
            return Some((Ticket { number, source: at, time }, read));
        }
    }
}

impl Source {
    /// A file from its start. `after` is the file that it continues.
    pub(super) fn new(path: PathBuf, after: Option<usize>) -> Self {
        let length = std::fs::metadata(&path).map(|metadata| metadata.len());
        let mut report = FileReport::new(path);
        report.error = length.as_ref().err().map(ToString::to_string);
        Self {
            file: None,
            lines: Lines::default(),
            position: 0,
            done: length.is_err(),
            length: length.unwrap_or(0),
            time: i64::MIN,
            after,
            report,
        }
    }

    /// Fills a block, and notes the end of the file or what keeps it from being read.
    pub(super) fn next(&mut self, block: &mut Block, keep_open: bool) -> u64 {
        let before = self.position;
        match self.read(block, keep_open) {
            Ok(0) => {
                self.done = true;
                self.file = None;
                self.lines.finish(block);
            }
            Ok(_) => {
                // A file without any clock must not be read ahead of all others.
                self.time = last_timestamp(&block.bytes).unwrap_or(self.time).max(self.time);
            }
            Err(error) => {
                self.report.error = Some(error.to_string());
                self.done = true;
                self.file = None;
                self.lines.finish(block);
            }
        }
        self.position - before
    }

    fn read(&mut self, block: &mut Block, keep_open: bool) -> io::Result<usize> {
        use std::io::Seek as _;
        let left = usize::try_from(self.length - self.position).unwrap_or(usize::MAX);
        if left == 0 && self.position > 0 {
            // Nothing more to open the file for.
            return Ok(0);
        }
        let mut file = match self.file.take() {
            Some(file) => file,
            None => {
                let mut file = File::open(&self.report.path)?;
                file.seek(io::SeekFrom::Start(self.position))?;
                file
            }
        };
        let read = self.lines.read(&mut file, left, block)?;
        self.position += read as u64;
        if keep_open {
            self.file = Some(file);
        }
        Ok(read)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic of another thread ends the scope anyway.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
