//! Reading some files of a trace to their end, a block at a time, where others are read elsewhere.
//!
//! [`super::TraceReader`] takes block after block from the file that is furthest back in time, of
//! several the first. Times of a file never go back, so the order of all blocks is that of their
//! [`Turn`]s, wherever they are read.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::batch::{MAX_OPEN_FILES, Source};
use super::chunk::parse;
use super::lines::Block;
use super::report::ReadReport;
use crate::analyzer::Moment;
use crate::event::Event;

/// The place of an event in the order in which a trace is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Turn {
    /// Wall clock of the file before the block.
    pub(crate) time: i64,
    /// Number of the file in the whole trace.
    pub(crate) file: u32,
    /// Number of the block in the file.
    pub(crate) block: u64,
    /// Number of the event in the block.
    pub(crate) event: u32,
}

/// A file with its number in the whole trace.
#[derive(Debug, Clone)]
pub(crate) struct Numbered {
    pub(crate) path: PathBuf,
    pub(crate) number: u32,
    /// The file before it is one of the same process, which this one continues.
    pub(crate) continues: bool,
    /// The file after it continues this one, and is read elsewhere.
    pub(crate) is_continued_elsewhere: bool,
}

impl Turn {
    const FIRST: Self = Self { time: i64::MIN, file: 0, block: 0, event: 0 };
}

/// The files that are read here.
#[derive(Debug)]
pub(crate) struct Stepped {
    files: Vec<Reading>,
    keep_open: bool,
    block: Block,
    /// Files that have ended and that are continued elsewhere, since this was last asked for.
    ended: Vec<(u32, i64)>,
}

#[derive(Debug)]
struct Reading {
    source: Source,
    number: u32,
    blocks: u64,
    is_continued_elsewhere: bool,
    /// It continues a file of elsewhere that has not ended, and that has been read before this turn.
    waits: Option<Turn>,
}

impl Stepped {
    /// A reader of files in the order of their numbers. Bytes that are added later are not read.
    pub(crate) fn new(files: Vec<Numbered>) -> Self {
        let keep_open = files.len() <= MAX_OPEN_FILES;
        let mut readings: Vec<Reading> = Vec::with_capacity(files.len());
        let mut ended = Vec::new();
        for file in files {
            let before = readings.last().map(|before| before.number.saturating_add(1));
            let here = file.continues && before == Some(file.number);
            let after = here.then(|| readings.len() - 1);
            let reading = Reading {
                source: Source::new(file.path, after),
                number: file.number,
                blocks: 0,
                is_continued_elsewhere: file.is_continued_elsewhere,
                waits: (file.continues && !here).then_some(Turn::FIRST),
            };
            if reading.source.done && reading.is_continued_elsewhere {
                ended.push((reading.number, reading.source.time));
            }
            readings.push(reading);
        }
        Self { files: readings, keep_open, block: Block::default(), ended }
    }

    /// The turn of the next block, `None` where everything is read or waits for files of elsewhere.
    pub(crate) fn next(&self) -> Option<Turn> {
        self.first().map(|(_, turn)| turn)
    }

    /// Whether the next block may be read. None that comes later may have an earlier turn; what waits
    /// for a file that has been read before a turn has a later one.
    pub(crate) fn may_step(&self) -> bool {
        let until = self.files.iter().filter_map(|reading| reading.waits).min();
        self.next().is_some_and(|turn| until.is_none_or(|until| turn <= until))
    }

    fn first(&self) -> Option<(usize, Turn)> {
        let ready = |reading: &Reading| {
            let before = self.before(reading);
            !reading.source.done && reading.waits.is_none() && before.is_none_or(|b| b.source.done)
        };
        let files = self.files.iter().enumerate().filter(|(_, reading)| ready(reading));
        files.map(|(at, reading)| (at, self.turn(reading))).min_by_key(|&(_, turn)| turn)
    }

    fn before(&self, reading: &Reading) -> Option<&Reading> {
        reading.source.after.and_then(|at| self.files.get(at))
    }

    /// The turn of the next block of a file, once it may be read.
    fn turn(&self, reading: &Reading) -> Turn {
        let begun = self.before(reading).map_or(i64::MIN, |before| before.source.time);
        Turn {
            time: reading.source.time.max(begun),
            file: reading.number,
            block: reading.blocks,
            event: 0,
        }
    }

    /// How far the files that are continued elsewhere have been read, those that have not ended.
    pub(crate) fn open(&self) -> Vec<(u32, Turn)> {
        let open =
            self.files.iter().filter(|file| file.is_continued_elsewhere && !file.source.done);
        open.map(|file| (file.number, self.earliest(file))).collect()
    }

    /// A turn before which no block of a file can be.
    fn earliest(&self, file: &Reading) -> Turn {
        let mut file = file;
        loop {
            match (file.waits, self.before(file).filter(|before| !before.source.done)) {
                (Some(until), _) => return until,
                (None, Some(before)) => file = before,
                (None, None) => return self.turn(file),
            }
        }
    }

    /// Reads the next block and hands on its events, each with its turn and the moment that it tells
    /// as its receipt.
    pub(crate) fn step(&mut self, mut sink: impl FnMut(Turn, &Event<'_>, Moment)) {
        let Some((at, mut turn)) = self.first() else { return };
        let Some(reading) = self.files.get_mut(at) else { return };
        let source = &mut reading.source;
        source.time = turn.time;
        source.next(&mut self.block, self.keep_open);
        reading.blocks += 1;
        if source.done && reading.is_continued_elsewhere {
            self.ended.push((reading.number, source.time));
        }
        if self.block.bytes.is_empty() && self.block.too_long.is_empty() {
            return;
        }
        let parsed = parse(&self.block, 0);
        parsed.each(turn.time, |event, moment| {
            sink(turn, event, moment);
            turn.event = turn.event.saturating_add(1);
        });
        parsed.note(&mut source.report);
        source.report.bytes = source.position;
    }

    /// The files that have ended since the last call and are continued elsewhere, with the wall
    /// clock at their end.
    pub(crate) fn take_ended(&mut self) -> Vec<(u32, i64)> {
        std::mem::take(&mut self.ended)
    }

    /// A file of elsewhere has been read before a turn.
    pub(crate) fn has_come_to(&mut self, file: u32, turn: Turn) {
        for reading in &mut self.files {
            if reading.waits.is_some() && Some(reading.number) == file.checked_add(1) {
                reading.waits = Some(turn);
            }
        }
    }

    /// A file of elsewhere has ended: that which continues it may be read, if it is here.
    pub(crate) fn has_ended(&mut self, file: u32, time: i64) {
        for reading in &mut self.files {
            if reading.waits.is_some() && Some(reading.number) == file.checked_add(1) {
                reading.waits = None;
                reading.source.time = reading.source.time.max(time);
            }
        }
    }

    /// What was read.
    pub(crate) fn report(self) -> ReadReport {
        ReadReport { files: self.files.into_iter().map(|file| file.source.report).collect() }
    }
}
