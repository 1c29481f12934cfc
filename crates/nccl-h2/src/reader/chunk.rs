//! Events out of whole lines.

use super::lines::Block;
use super::report::FileReport;
use crate::analyzer::Moment;
use crate::event::{BadEvent, Event};

/// The events of one block.
#[derive(Debug, Default)]
pub(super) struct Parsed<'b> {
    pub(super) events: Vec<Event<'b>>,
    bad: Vec<(u64, Bad)>,
    lines: u64,
}

#[derive(Debug)]
enum Bad {
    Event(BadEvent),
    Utf8,
    TooLong,
}

/// Reads the lines of a block. `capacity` is a guess of how many there are.
pub(super) fn parse(block: &Block, capacity: usize) -> Parsed<'_> {
    let mut parsed = Parsed { events: Vec::with_capacity(capacity), ..Parsed::default() };
    for &line in &block.too_long {
        parsed.lines += 1;
        parsed.bad.push((line, Bad::TooLong));
    }
    // One check of the whole block is much faster than one a line.
    match std::str::from_utf8(&block.bytes) {
        Ok(text) => parsed.lines_of(text, block),
        Err(_) => parsed.lines_of_bytes(&block.bytes, block),
    }
    parsed
}

impl<'b> Parsed<'b> {
    fn lines_of(&mut self, text: &'b str, block: &Block) {
        let bytes = text.as_bytes();
        let (mut start, mut number) = (0, block.first_line);
        for end in memchr::memchr_iter(b'\n', bytes) {
            // A newline is a character of its own: both ends are boundaries.
            self.line(&text[start..end], number, false);
            start = end + 1;
            number += 1;
        }
        if start < text.len() {
            self.line(&text[start..], number, block.unfinished);
        }
    }

    fn lines_of_bytes(&mut self, bytes: &'b [u8], block: &Block) {
        let lines = bytes.split_inclusive(|&byte| byte == b'\n');
        for (number, line) in (block.first_line..).zip(lines) {
            let whole = line.last() == Some(&b'\n');
            match std::str::from_utf8(line) {
                Ok(text) => self.line(text, number, !whole && block.unfinished),
                Err(_) if !whole && block.unfinished => self.lines += 1,
                Err(_) => {
                    self.lines += 1;
                    self.bad.push((number, Bad::Utf8));
                }
            }
        }
    }

    /// Reads one line. The last line of a file may have been cut while it was being written: that
    /// is nothing bad.
    #[inline]
    fn line(&mut self, line: &'b str, number: u64, may_be_cut: bool) {
        self.lines += 1;
        match Event::parse(line) {
            Ok(event) => self.events.push(event),
            Err(_) if may_be_cut || line.trim_ascii().is_empty() => {}
            Err(error) => self.bad.push((number, Bad::Event(error))),
        }
    }

    /// Hands on each event with the moment that it tells as its receipt; `time` is the wall clock of
    /// the file before.
    pub(super) fn each(&self, mut time: i64, mut sink: impl FnMut(&Event<'b>, Moment)) {
        for event in &self.events {
            if event.header.timestamp_unix_ns >= 0 {
                time = event.header.timestamp_unix_ns;
            }
            sink(event, Moment { monotonic_ns: time.max(0), unix_ns: time.max(0) });
        }
    }

    /// Adds what was met to a file's report.
    pub(super) fn note(&self, report: &mut FileReport) {
        report.lines += self.lines;
        for (line, bad) in &self.bad {
            match bad {
                Bad::Event(error) => report.bad(*line, error.to_string()),
                Bad::Utf8 => report.bad(*line, "not UTF-8"),
                Bad::TooLong => {
                    report.bad(*line, format!("longer than {} bytes", super::MAX_LINE_BYTES));
                }
            }
        }
    }
}

/// The wall clock of the last line of a block that tells one: how far the file has been read.
pub(super) fn last_timestamp(bytes: &[u8]) -> Option<i64> {
    const KEY: &[u8] = b"\"timestamp_unix_ns\":";
    let at = memchr::memmem::rfind(bytes, KEY)? + KEY.len();
    let digits = bytes[at..].iter().skip_while(|byte| **byte == b' ');
    let mut value: i64 = 0;
    let mut any = false;
    for digit in digits.take_while(|byte| byte.is_ascii_digit()) {
        value = value.checked_mul(10)?.checked_add(i64::from(digit - b'0'))?;
        any = true;
    }
    any.then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_timestamp_is_found() {
        let text = b"{\"timestamp_unix_ns\":5}\n{\"timestamp_unix_ns\": 17,\"a\":1}\n{}\n";
        assert_eq!(last_timestamp(text), Some(17));
        assert_eq!(last_timestamp(b"{}"), None);
        assert_eq!(last_timestamp(b"{\"timestamp_unix_ns\":99999999999999999999}"), None);
        assert_eq!(last_timestamp(b"{\"timestamp_unix_ns\":\"x\"}"), None);
    }
}
