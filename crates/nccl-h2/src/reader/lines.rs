//! Whole lines out of the bytes of a file, however the bytes are cut.

use std::io::{self, Read};

use super::{CHUNK_BYTES, MAX_LINE_BYTES};

/// Whole lines of one file.
#[derive(Debug, Default)]
pub(super) struct Block {
    /// The lines, each with its newline but perhaps the last.
    pub(super) bytes: Vec<u8>,
    /// Number of the first line, from 1.
    pub(super) first_line: u64,
    /// The last line has no newline and will not get one.
    pub(super) unfinished: bool,
    /// Lines that were too long and are left out, by number.
    pub(super) too_long: Vec<u64>,
}

/// Cuts the bytes of one file into lines.
#[derive(Debug)]
pub(super) struct Lines {
    /// The beginning of a line whose end has not been read.
    rest: Vec<u8>,
    /// The current line is too long: bytes up to its end are thrown away.
    skipping: bool,
    next_line: u64,
}

impl Default for Lines {
    fn default() -> Self {
        Self { rest: Vec::new(), skipping: false, next_line: 1 }
    }
}

impl Lines {
    /// Reads about one chunk and fills `block` with the whole lines in it, perhaps none. Answers how
    /// many bytes were read; fewer than `limit` mean that the source has no more for now.
    ///
    /// # Errors
    ///
    /// When the source cannot be read.
    pub(super) fn read(
        &mut self,
        source: &mut impl Read,
        limit: usize,
        block: &mut Block,
    ) -> io::Result<usize> {
        let limit = limit.min(CHUNK_BYTES);
        block.bytes.clear();
        block.too_long.clear();
        block.unfinished = false;
        block.first_line = self.next_line;
        block.bytes.append(&mut self.rest);
        let before = block.bytes.len();
        // A failed read must not lose what is left of the line before.
        let read = match source.by_ref().take(limit as u64).read_to_end(&mut block.bytes) {
            Ok(read) => read,
            Err(error) => {
                self.rest.append(&mut block.bytes);
                return Err(error);
            }
        };
        self.cut(before, block);
        Ok(read)
    }

    /// Leaves the whole lines in the block and keeps what follows the last.
    fn cut(&mut self, before: usize, block: &mut Block) {
        let first_end = memchr::memchr(b'\n', &block.bytes);
        // Only the first line can be longer than a chunk.
        let too_long = self.skipping || first_end.unwrap_or(0) > MAX_LINE_BYTES;
        match first_end {
            Some(end) if too_long => {
                block.bytes.drain(..=end);
                block.too_long.push(self.next_line);
                self.next_line += 1;
                block.first_line = self.next_line;
                self.skipping = false;
            }
            None if self.skipping => {
                block.bytes.clear();
                return;
            }
            _ => {}
        }
        let before = before.min(block.bytes.len());
        let end = memchr::memrchr(b'\n', &block.bytes[before..]).map(|at| before + at + 1);
        let end = end.or_else(|| memchr::memrchr(b'\n', &block.bytes[..before]).map(|at| at + 1));
        let end = end.unwrap_or(0);
        self.rest.extend_from_slice(&block.bytes[end..]);
        block.bytes.truncate(end);
        self.next_line += memchr::memchr_iter(b'\n', &block.bytes).count() as u64;
        if self.rest.len() > MAX_LINE_BYTES {
            self.rest = Vec::new();
            self.skipping = true;
        }
    }

    /// The last line of a file that will not grow, though it has no newline.
    pub(super) fn finish(&mut self, block: &mut Block) -> bool {
        block.bytes.clear();
        block.too_long.clear();
        block.first_line = self.next_line;
        block.unfinished = true;
        if std::mem::take(&mut self.skipping) || self.rest.len() > MAX_LINE_BYTES {
            self.rest.clear();
            block.too_long.push(self.next_line);
            self.next_line += 1;
            return true;
        }
        block.bytes.append(&mut self.rest);
        self.next_line += u64::from(!block.bytes.is_empty());
        !block.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// All lines of a text that is read in pieces of the given sizes.
    fn lines(text: &[u8], sizes: &[usize]) -> (Vec<(u64, Vec<u8>)>, Vec<u64>) {
        let (mut lines, mut block) = (Lines::default(), Block::default());
        let (mut found, mut long) = (Vec::new(), Vec::new());
        let mut take = |block: &Block| {
            long.extend(&block.too_long);
            let lines = block.bytes.split_inclusive(|&byte| byte == b'\n');
            for (number, line) in (block.first_line..).zip(lines) {
                found.push((number, line.strip_suffix(b"\n").unwrap_or(line).to_vec()));
            }
        };
        let mut source = text;
        let mut sizes = sizes.iter().copied().cycle();
        while !source.is_empty() {
            let size = sizes.next().unwrap_or(1).max(1);
            lines.read(&mut source, size, &mut block).unwrap();
            take(&block);
        }
        if lines.finish(&mut block) {
            take(&block);
        }
        (found, long)
    }

    #[test]
    fn a_line_that_is_too_long_is_left_out_and_the_next_has_its_number() {
        let mut text = b"a\n".to_vec();
        text.extend(vec![b'x'; MAX_LINE_BYTES + 1]);
        text.extend(b"\nb\n");
        for size in [CHUNK_BYTES, 100_000, 99_999, 70_003] {
            let (found, long) = lines(&text, &[size]);
            assert_eq!(found, [(1, b"a".to_vec()), (3, b"b".to_vec())]);
            assert_eq!(long, [2]);
        }
    }

    #[test]
    fn the_longest_line_is_read() {
        let line = vec![b'x'; MAX_LINE_BYTES];
        let mut text = line.clone();
        text.push(b'\n');
        for size in [CHUNK_BYTES, 99_999] {
            assert_eq!(lines(&text, &[size]), (vec![(1, line.clone())], Vec::new()));
            assert_eq!(lines(&line, &[size]), (vec![(1, line.clone())], Vec::new()));
        }
    }

    #[test]
    fn a_long_last_line_without_newline_is_counted() {
        let text = vec![b'x'; MAX_LINE_BYTES + 10];
        assert_eq!(lines(&text, &[CHUNK_BYTES]), (Vec::new(), vec![1]));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn pieces_anywhere_change_nothing(
            text in prop::collection::vec(prop_oneof![3 => any::<u8>(), 1 => Just(b'\n')], 0..200),
            sizes in prop::collection::vec(1_usize..20, 1..6),
        ) {
            let mut expected: Vec<(u64, Vec<u8>)> = text
                .split_inclusive(|&byte| byte == b'\n')
                .enumerate()
                .map(|(at, line)| (at as u64 + 1, line.strip_suffix(b"\n").unwrap_or(line).to_vec()))
                .collect();
            if text.is_empty() {
                expected.clear();
            }
            prop_assert_eq!(lines(&text, &sizes), (expected, Vec::new()));
        }
    }
}
