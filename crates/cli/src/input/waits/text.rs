//! Wait matrices in text: plain numbers, or a log of any length.

use std::borrow::Cow;
use std::io::{BufRead, Read};

use anyhow::{Context, bail};
use deepxtrace::counters::MAX_EP_SIZE;
use ndarray::Array2;

use super::line::{self, Header};
use super::{Source, Waits};

/// Of longer lines, as many bytes of the beginning and of the end are kept. A row of 4,096 waits takes
/// 90 kB; a header that lists many points can be longer, and says what it is at both ends.
const LONG_LINE: usize = 1 << 20;

/// Reads a text: a plain matrix if its first word is a number, else a log.
pub fn read(mut reader: impl BufRead, name: &str) -> anyhow::Result<Vec<Waits>> {
    let mut lines = Lines { reader: &mut reader, name, number: 0, bytes: Vec::new() };
    let mut log = Log::default();
    let mut plain: Option<Plain> = None;
    let mut first = true;
    while let Some(line) = lines.next()? {
        // Some editors begin a file with a byte order mark.
        let text = match first {
            true => line.text.strip_prefix('\u{feff}').unwrap_or(&line.text),
            false => &line.text,
        };
        let content = text.trim();
        if content.is_empty() || content.starts_with('#') {
            continue;
        }
        if std::mem::take(&mut first) {
            if !line.is_text {
                bail!("{name}: line {} is no text, expected .npy, .npz or text", line.number);
            }
            if starts_with_number(content) {
                plain = Some(Plain::default());
            }
        }
        match &mut plain {
            Some(plain) => plain.line(content, line.number, name)?,
            None => log.line(text, line.number),
        }
    }
    match plain {
        Some(plain) => plain.finish(name),
        None => log.finish(name),
    }
}

fn starts_with_number(content: &str) -> bool {
    let word = content.split([' ', '\t', ',', ';']).next().unwrap_or("");
    word.parse::<f64>().is_ok()
}

/// The lines of a text, each of limited length.
struct Lines<'a, R> {
    reader: &'a mut R,
    name: &'a str,
    number: u64,
    bytes: Vec<u8>,
}

struct Line<'a> {
    /// From 1.
    number: u64,
    text: Cow<'a, str>,
    /// It is UTF-8 without zeros. Logs of programs that were killed need not be.
    is_text: bool,
}

impl<R: BufRead> Lines<'_, R> {
    fn next(&mut self) -> anyhow::Result<Option<Line<'_>>> {
        self.bytes.clear();
        while !self.bytes.ends_with(b"\n") {
            let mut limited = self.reader.by_ref().take(LONG_LINE as u64);
            let read = limited.read_until(b'\n', &mut self.bytes);
            if read.with_context(|| self.name.to_owned())? == 0 {
                break;
            }
            if let Some(end @ LONG_LINE..) = self.bytes.len().checked_sub(LONG_LINE) {
                self.bytes.drain(LONG_LINE..end);
            }
        }
        if self.bytes.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        let text = String::from_utf8_lossy(&self.bytes);
        let is_text = matches!(text, Cow::Borrowed(_)) && !self.bytes.contains(&0);
        Ok(Some(Line { number: self.number, text, is_text }))
    }
}

/// A matrix of plain numbers, a row a line.
#[derive(Default)]
struct Plain {
    rows: usize,
    columns: usize,
    cells: Vec<i64>,
    first_line: u64,
}

impl Plain {
    fn line(&mut self, content: &str, number: u64, name: &str) -> anyhow::Result<()> {
        let start = self.cells.len();
        let closed = line::values(content, &mut self.cells);
        if let Err(word) = closed {
            bail!("{name}: line {number}: found {word:?}, expected an integer that is 0 or more");
        }
        let found = self.cells.len() - start;
        if self.rows == 0 {
            (self.columns, self.first_line) = (found, number);
        }
        if found != self.columns {
            let expected = self.columns;
            bail!(
                "{name}: line {number}: found {found} values, expected {expected} as in the first row"
            );
        }
        self.rows += 1;
        if self.columns > MAX_EP_SIZE || self.rows > self.columns {
            return self.not_square(name);
        }
        Ok(())
    }

    fn not_square(&self, name: &str) -> anyhow::Result<()> {
        let (rows, columns) = (self.rows, self.columns);
        let more = if rows > columns { " or more" } else { "" };
        bail!(
            "{name}: found {rows}{more} rows of {columns} values, expected a square matrix of at \
             most {MAX_EP_SIZE} ranks"
        );
    }

    fn finish(self, name: &str) -> anyhow::Result<Vec<Waits>> {
        if self.rows != self.columns {
            self.not_square(name)?;
        }
        let source =
            Source { file: name.to_owned(), line: Some(self.first_line), ..Source::default() };
        let matrix = Array2::from_shape_vec((self.rows, self.columns), self.cells)?;
        Ok(vec![Waits { source, matrix }])
    }
}

/// A log: of each phase, the newest matrix that is complete.
#[derive(Default)]
struct Log {
    pending: Option<Pending>,
    /// By phase: unknown, dispatch, combine.
    newest: [Option<Newest>; 3],
    /// Why the last matrix that was begun did not become complete.
    broken: Option<String>,
    /// Rows belong to a matrix that was given up, until the next one begins.
    skipping: bool,
}

struct Newest {
    pending: Pending,
    count: u64,
}

/// A matrix that is being read.
struct Pending {
    header: Header,
    first_line: u64,
    ep_size: usize,
    cells: Vec<i64>,
    /// Which rows are there.
    rows: Vec<bool>,
    /// A row whose closing bracket has not come yet: its rank and its values so far.
    open: Option<(usize, Vec<i64>)>,
}

impl Log {
    fn line(&mut self, line: &str, number: u64) {
        if let Some(header) = line::header(line) {
            self.give_up(|pending| format!("line {number}: a new matrix begins after {pending}"));
            self.pending = Some(Pending::new(header, number));
            self.skipping = false;
            return;
        }
        let open = self.pending.as_mut().and_then(|pending| pending.open.take());
        if let Some((rank, values)) = open {
            self.row(rank, values, line, number);
        } else if let Some(row) = line::row(line) {
            self.skipping &= row.rank != Some(0);
            if self.skipping {
                return;
            }
            let next = |pending: &Pending| pending.rows.iter().take_while(|&&done| done).count();
            let rank = row.rank.unwrap_or_else(|| self.pending.as_ref().map_or(0, next));
            let taken = |pending: &Pending| pending.rows.get(rank).is_some_and(|&done| done);
            if self.pending.as_ref().is_some_and(taken) {
                self.give_up(|pending| {
                    format!("line {number}: row {rank} comes again after {pending}")
                });
            }
            if self.pending.is_none() {
                let header =
                    Header { time: line::time(line).map(str::to_owned), ..Header::default() };
                self.pending = Some(Pending::new(header, number));
            }
            self.row(rank, Vec::new(), row.values, number);
        }
    }

    /// Adds values to a row, and the row to the matrix when it is closed.
    fn row(&mut self, rank: usize, mut values: Vec<i64>, text: &str, number: u64) {
        let Some(pending) = &mut self.pending else { return };
        let problem = match line::values(text, &mut values) {
            Err(word) => Some(format!("found {word:?}, expected an integer that is 0 or more")),
            Ok(_) if values.len() > MAX_EP_SIZE => {
                Some(format!("a row of more than {MAX_EP_SIZE} values"))
            }
            Ok(false) => {
                pending.open = Some((rank, values));
                None
            }
            Ok(true) => pending.close(rank, &values).err(),
        };
        if let Some(problem) = problem {
            self.broken = Some(format!("line {number}: {problem}"));
            self.pending = None;
            self.skipping = true;
        } else if self.pending.as_ref().is_some_and(Pending::is_complete) {
            self.keep();
        }
    }

    fn keep(&mut self) {
        let Some(pending) = self.pending.take() else { return };
        let slot = &mut self.newest[pending.header.phase.map_or(0, |phase| 1 + phase as usize)];
        let count = slot.as_ref().map_or(0, |newest| newest.count) + 1;
        *slot = Some(Newest { pending, count });
    }

    fn give_up(&mut self, why: impl FnOnce(String) -> String) {
        if let Some(pending) = self.pending.take().filter(|pending| !pending.rows.is_empty()) {
            let rows = pending.rows.iter().filter(|&&done| done).count();
            self.broken = Some(why(format!("{rows} of {} rows", pending.ep_size)));
        }
    }

    fn finish(mut self, name: &str) -> anyhow::Result<Vec<Waits>> {
        self.give_up(|pending| format!("the file ends after {pending}"));
        let found: Vec<_> = self.newest.into_iter().flatten().collect();
        if found.is_empty() {
            match self.broken {
                Some(why) => bail!("{name}: no complete wait matrix, {why}"),
                None => bail!(
                    "{name}: no wait matrix, expected rows of integers: \"rank=<i> [...]\", \
                     \"[...]\" or plain numbers"
                ),
            }
        }
        found.into_iter().map(|newest| newest.into_waits(name)).collect()
    }
}

impl Newest {
    fn into_waits(self, name: &str) -> anyhow::Result<Waits> {
        let Pending { header, first_line, ep_size, cells, .. } = self.pending;
        let source = Source {
            file: name.to_owned(),
            entry: None,
            phase: header.phase,
            instance_id: header.instance_id,
            window_index: header.window_index,
            time: header.time,
            line: Some(first_line),
            of: Some(self.count),
        };
        Ok(Waits { source, matrix: Array2::from_shape_vec((ep_size, ep_size), cells)? })
    }
}

impl Pending {
    fn new(header: Header, first_line: u64) -> Self {
        Self { header, first_line, ep_size: 0, cells: Vec::new(), rows: Vec::new(), open: None }
    }

    fn is_complete(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(|&done| done)
    }

    /// Puts a row in its place. The first one, or the header, says how long all are.
    fn close(&mut self, rank: usize, values: &[i64]) -> Result<(), String> {
        if self.rows.is_empty() {
            let ep_size = self.header.ep_size.unwrap_or(values.len());
            if ep_size == 0 || ep_size > MAX_EP_SIZE {
                return Err(format!("EPSize is {ep_size}, expected 1 to {MAX_EP_SIZE}"));
            }
            if self.header.ep_size.is_none() && values.len() < 2 {
                return Err("a row of one value".to_owned());
            }
            self.ep_size = ep_size;
            self.rows = vec![false; ep_size];
        }
        let (n, found) = (self.ep_size, values.len());
        if found != n {
            return Err(format!("row {rank} has {found} values, expected {n}"));
        }
        let Some(done) = self.rows.get_mut(rank) else {
            return Err(format!("row {rank} does not exist among {n} ranks"));
        };
        *done = true;
        // Rows come in order as a rule: memory follows what is there.
        let end = (rank + 1) * n;
        if self.cells.len() < end {
            self.cells.resize(end, 0);
        }
        self.cells[end - n..end].copy_from_slice(values);
        Ok(())
    }
}
