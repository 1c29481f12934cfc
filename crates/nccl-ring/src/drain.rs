//! From the rings of one process to its trace files, each event once.
//!
//! A batch of events is written in four steps: the cursors after it and the place in the file are
//! noted in the ring file (the intent), the lines are appended, the cursors are moved, the intent
//! is taken back. Whoever finds an intent after a drainer died knows from the length of the file
//! whether the lines arrived: if they all did, the cursors are moved; otherwise the file is cut and
//! the batch is written again.

use std::io;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::api::Api;
use crate::file::RingFile;
use crate::json::{Completeness, Lines, Pulse};
use crate::layout::{MAX_EXCLUDED, MAX_SEGMENTS, SLOT_WORDS, header, ring, slot};
use crate::layout::{RING_HEADER_BYTES, flag};
use crate::map::{Map, clock_offset_ns, monotonic_ns};
use crate::output::Output;
use crate::record::Record;

/// Bytes after which a batch is written.
const BATCH_BYTES: usize = 1 << 20;
/// Segments that a process's share of bytes is cut into.
const SEGMENTS: u64 = 16;
/// No thread comes this far: a ring that says so was not written by a probe.
const MAX_HEAD: u64 = 1 << 62;
/// Smallest segment.
const MIN_SEGMENT_BYTES: u64 = 1 << 16;

/// Writes the rings of one process to its trace files.
///
/// Only one may be at work for a file, in the process itself or, once that is gone, elsewhere: take
/// [`RingFile::take_drainer`] first.
#[derive(Debug)]
pub struct Drainer {
    rings: Vec<Ring>,
    lines: Lines,
    output: Output,
    events: u64,
    last: Last,
    live: bool,
}

/// The latest event that was taken out.
#[derive(Debug, Clone, Copy, Default)]
struct Last {
    api: Option<Api>,
    exit: bool,
    seq: u64,
    time: u64,
}

#[derive(Debug)]
struct Ring {
    map: Map,
    mask: u64,
    head: u64,
    cursor: u64,
    next: Option<Next>,
}

/// The next event of a ring.
#[derive(Debug, Clone, Copy)]
struct Next {
    record: Record,
    exit: bool,
    time: u64,
}

impl Drainer {
    /// Begins with what the file says. `live` is true in the process that records: it keeps the
    /// clocks' difference up to date, a reader after its death takes the last one noted.
    #[must_use]
    pub fn new(file: &RingFile, live: bool) -> Self {
        let identity = file.identity();
        Self {
            rings: Vec::new(),
            lines: Lines::new(&identity),
            output: Output::new(&identity.folder, &identity.stem),
            events: 0,
            last: Last::default(),
            live,
        }
    }

    /// Writes to another folder than the one that the process named.
    pub fn set_folder(&mut self, folder: &std::path::Path) {
        self.output.move_to(folder);
    }

    /// Writes everything that is published by now to the trace.
    ///
    /// # Errors
    ///
    /// When the trace cannot be written; nothing is lost then, and the call may be repeated.
    pub fn drain(&mut self, file: &RingFile) -> io::Result<()> {
        self.start(file)?;
        self.map_new_rings(file)?;
        // What is published from here on waits for the next call, so that this one ends.
        for ring in &mut self.rings {
            ring.head = ring.word(ring::HEAD).load(Acquire).min(MAX_HEAD);
        }
        while self.take_batch() {
            self.write(file)?;
        }
        Ok(())
    }

    /// Writes a heartbeat. Call it after [`Drainer::drain`], so that it follows the older records.
    ///
    /// # Errors
    ///
    /// As [`Drainer::drain`].
    pub fn heartbeat(&mut self, file: &RingFile, phase: &str) -> io::Result<()> {
        let pulse = Pulse {
            phase: phase.to_owned(),
            last_api: self.last.api.map_or("", Api::name),
            last_phase: match self.last {
                Last { api: None, .. } => "",
                Last { exit: true, .. } => "exit",
                Last { .. } => "enter",
            },
            last_seq: self.last.api.map(|_| self.last.seq),
            last_progress_ns: self.last.time,
        };
        // A new segment first: it may have cost an old one, which this line tells.
        self.segment(file)?;
        let counts = self.completeness(file);
        self.lines.heartbeat(monotonic_ns(), &pulse, counts);
        self.write(file)
    }

    /// Writes the last line of a process that ends in order, or `probe_status` for one that is
    /// gone.
    ///
    /// # Errors
    ///
    /// As [`Drainer::drain`].
    pub fn finish(&mut self, file: &RingFile) -> io::Result<()> {
        if file.get(header::ENDED) != 0 {
            return Ok(());
        }
        self.segment(file)?;
        let counts = self.completeness(file);
        let now = monotonic_ns();
        self.lines.status(now, counts);
        if self.live {
            self.lines.process("process_end", now);
        }
        self.write(file)?;
        file.set(header::ENDED, 1);
        Ok(())
    }

    /// Events dropped by the process so far.
    #[must_use]
    pub fn dropped(&self, file: &RingFile) -> u64 {
        let rings = self.rings.iter().map(|ring| ring.word(ring::DROPPED).load(Acquire));
        rings.fold(file.get(header::DROPPED), u64::saturating_add)
    }

    /// Whether everything that is published has been written.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rings.iter().all(|ring| ring.cursor / 2 >= ring.word(ring::HEAD).load(Acquire))
    }

    fn completeness(&self, file: &RingFile) -> Completeness {
        Completeness {
            dropped: self.dropped(file),
            written: file.get(header::WRITTEN),
            discarded: file.get(header::DISCARDED),
        }
    }

    fn start(&mut self, file: &RingFile) -> io::Result<()> {
        if self.live {
            file.set(header::CLOCK_OFFSET, clock_offset_ns().cast_unsigned());
        }
        self.lines.set_clock_offset(file.get(header::CLOCK_OFFSET).cast_signed());
        if file.word(header::STARTED).load(Acquire) == 0 {
            let stem = self.output.create_first()?.to_owned();
            file.set_text(header::STEM, stem.as_bytes());
            file.word(header::STARTED).store(1, Release);
            let began = file.get(header::START);
            self.lines.process("process_start", began);
            let counts = self.completeness(file);
            self.lines.status(began, counts);
            return self.write(file);
        }
        if self.rings.is_empty() { self.settle_intent(file) } else { Ok(()) }
    }

    /// Brings a batch to its end that another drainer did not.
    fn settle_intent(&mut self, file: &RingFile) -> io::Result<()> {
        if file.word(header::INTENT).load(Acquire) == 0 {
            return Ok(());
        }
        self.map_new_rings(file)?;
        let segment = file.get(header::SEGMENT_LAST);
        let from = file.get(header::INTENT_FROM);
        let bytes = file.get(header::INTENT_BYTES);
        if self.output.length(segment)? >= from.saturating_add(bytes) {
            for ring in &mut self.rings {
                ring.cursor = ring.word(ring::NEXT_CURSOR).load(Acquire);
            }
            self.commit(file, file.get(header::INTENT_EVENTS), segment);
        } else {
            self.output.cut(segment, from)?;
            file.word(header::INTENT).store(0, Release);
        }
        Ok(())
    }

    fn map_new_rings(&mut self, file: &RingFile) -> io::Result<()> {
        let mask = (file.slots() as u64).wrapping_sub(1);
        for number in self.rings.len()..file.rings() {
            let map = file.ring(number)?;
            let mut ring = Ring { map, mask, head: 0, cursor: 0, next: None };
            ring.cursor = ring.word(ring::CURSOR).load(Acquire);
            self.rings.push(ring);
        }
        Ok(())
    }

    /// Fills the buffer with the next events in the order of their times; false if there are none.
    fn take_batch(&mut self) -> bool {
        for ring in &mut self.rings {
            ring.next = ring.peek();
        }
        let mut any = false;
        while self.lines.bytes().len() < BATCH_BYTES {
            let earliest = self.rings.iter_mut().filter(|ring| ring.next.is_some());
            let earliest = earliest.min_by_key(|ring| ring.next.map_or(u64::MAX, |next| next.time));
            let Some(ring) = earliest else { break };
            let Some(next) = ring.next.take() else { break };
            let excluded = ring.excluded(&next.record);
            self.lines.call(&next.record, next.exit, &excluded);
            ring.advance(&next);
            ring.next = ring.peek();
            self.events += 1;
            self.last = Last {
                api: next.record.api(),
                exit: next.exit,
                seq: next.record.call_seq(),
                time: next.time,
            };
            any = true;
        }
        any
    }

    /// Appends the buffer to the trace and moves the cursors.
    fn write(&mut self, file: &RingFile) -> io::Result<()> {
        let segment = self.segment(file)?;
        let from = self.output.length(segment)?;
        for ring in &self.rings {
            ring.word(ring::NEXT_CURSOR).store(ring.cursor, Release);
        }
        file.set(header::INTENT_FROM, from);
        file.set(header::INTENT_BYTES, self.lines.bytes().len() as u64);
        file.set(header::INTENT_EVENTS, self.events);
        file.word(header::INTENT).store(1, Release);
        if let Err(error) = self.output.append(segment, self.lines.bytes()) {
            self.take_back(file, segment, from);
            return Err(error);
        }
        self.commit(file, self.events, segment);
        self.lines.clear();
        self.events = 0;
        Ok(())
    }

    fn commit(&mut self, file: &RingFile, events: u64, segment: u64) {
        for ring in &self.rings {
            ring.word(ring::CURSOR).store(ring.cursor, Release);
        }
        file.set(header::WRITTEN, file.get(header::WRITTEN).saturating_add(events));
        let place = segment_events(segment);
        file.set(place, file.get(place).saturating_add(events));
        file.word(header::INTENT).store(0, Release);
    }

    /// After a failed write: the file and the cursors as before.
    fn take_back(&mut self, file: &RingFile, segment: u64, from: u64) {
        if self.output.cut(segment, from).is_ok() {
            file.word(header::INTENT).store(0, Release);
        }
        for ring in &mut self.rings {
            ring.cursor = ring.word(ring::CURSOR).load(Acquire);
        }
        self.lines.clear();
        self.events = 0;
    }

    /// The segment to write to. A full one is closed; the oldest goes if there are too many.
    fn segment(&mut self, file: &RingFile) -> io::Result<u64> {
        let last = file.get(header::SEGMENT_LAST);
        let room = (file.get(header::MAX_BYTES) / SEGMENTS).max(MIN_SEGMENT_BYTES);
        if self.output.length(last)? < room {
            return Ok(last);
        }
        let next = last.saturating_add(1);
        let mut first = file.get(header::SEGMENT_FIRST);
        while next.saturating_sub(first) >= SEGMENTS {
            self.output.remove(first)?;
            let gone = file.get(segment_events(first));
            file.set(header::DISCARDED, file.get(header::DISCARDED).saturating_add(gone));
            first += 1;
            file.set(header::SEGMENT_FIRST, first);
        }
        file.set(segment_events(next), 0);
        file.set(header::SEGMENT_LAST, next);
        Ok(next)
    }

    /// The folder that the trace is written to.
    #[must_use]
    pub fn folder(&self) -> &std::path::Path {
        self.output.folder()
    }
}

fn segment_events(segment: u64) -> usize {
    let place = segment % MAX_SEGMENTS as u64;
    header::SEGMENT_EVENTS + usize::try_from(place).unwrap_or(0)
}

impl Ring {
    fn word(&self, place: usize) -> &std::sync::atomic::AtomicU64 {
        &self.map.words()[place]
    }

    fn slot(&self, number: u64) -> &[std::sync::atomic::AtomicU64] {
        let place = usize::try_from(number & self.mask).unwrap_or(0);
        let from = RING_HEADER_BYTES / 8 + place * SLOT_WORDS;
        self.map.words().get(from..from + SLOT_WORDS).unwrap_or_default()
    }

    /// The next event, moving the cursor over what gives none.
    fn peek(&mut self) -> Option<Next> {
        loop {
            let number = self.cursor / 2;
            if number >= self.head {
                return None;
            }
            if self.head - number > self.mask + 1 {
                // A file that no probe wrote like that: begin where the ring can still be whole.
                self.cursor = 2 * (self.head - self.mask - 1);
                continue;
            }
            let record = Record::read(self.slot(number));
            let behind = number + 1 + record.continued_by();
            let entered = self.cursor % 2 == 1;
            if record.has(flag::CONTINUED) || record.api().is_none() {
                self.cursor = 2 * (number + 1);
            } else if !entered && !record.has(flag::NO_ENTER) {
                return Some(Next { record, exit: false, time: record.enter_ns() });
            } else if let Some(time) = record.exit_ns() {
                return Some(Next { record, exit: true, time });
            } else if behind < self.head {
                // The thread went on without this call's return: it never comes.
                self.cursor = 2 * behind;
            } else {
                return None;
            }
        }
    }

    fn advance(&mut self, next: &Next) {
        let number = self.cursor / 2;
        self.cursor =
            if next.exit { 2 * (number + 1 + next.record.continued_by()) } else { 2 * number + 1 };
    }

    /// The excluded ranks of a shrink, from the slots behind it.
    fn excluded(&self, record: &Record) -> Vec<i32> {
        if record.continued_by() == 0 {
            return Vec::new();
        }
        let number = self.cursor / 2;
        let ranks = usize::try_from(record.word(slot::P2P)).unwrap_or(0).min(MAX_EXCLUDED);
        let slots = (number + 1..).take(usize::try_from(record.continued_by()).unwrap_or(0));
        let records = slots.map(|slot| Record::read(self.slot(slot)));
        records.flat_map(|record| record.ranks().collect::<Vec<_>>()).take(ranks).collect()
    }
}
