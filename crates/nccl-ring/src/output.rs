//! The trace files of one process: segments, of which the oldest goes when there are too many.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The segment being written.
#[derive(Debug)]
pub(crate) struct Output {
    folder: PathBuf,
    stem: String,
    open: Option<(u64, File)>,
}

impl Output {
    pub(crate) fn new(folder: &Path, stem: &str) -> Self {
        Self { folder: folder.to_owned(), stem: stem.to_owned(), open: None }
    }

    /// The same process's files in another folder.
    pub(crate) fn move_to(&mut self, folder: &Path) {
        self.folder = folder.to_owned();
        self.open = None;
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(crate) fn path(&self, segment: u64) -> PathBuf {
        self.folder.join(segment_name(&self.stem, segment))
    }

    /// Takes the first name of `stem`, `stem.g2`, `stem.g3`, ... that no file has, and creates the
    /// first segment; returns the stem taken.
    pub(crate) fn create_first(&mut self) -> io::Result<&str> {
        let wanted = self.stem.clone();
        for generation in 1..=MAX_GENERATIONS {
            if generation > 1 {
                self.stem = format!("{wanted}.g{generation}");
            }
            let made = OpenOptions::new().append(true).create_new(true).open(self.path(0));
            match made {
                Ok(file) => {
                    self.open = Some((0, file));
                    return Ok(&self.stem);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        self.stem = wanted;
        Err(io::ErrorKind::AlreadyExists.into())
    }

    fn file(&mut self, segment: u64) -> io::Result<&mut File> {
        if self.open.as_ref().is_none_or(|(open, _)| *open != segment) {
            let path = self.path(segment);
            let file = OpenOptions::new().append(true).create(true).open(path)?;
            self.open = Some((segment, file));
        }
        let (_, file) = self.open.as_mut().ok_or(io::ErrorKind::NotFound)?;
        Ok(file)
    }

    pub(crate) fn length(&mut self, segment: u64) -> io::Result<u64> {
        Ok(self.file(segment)?.metadata()?.len())
    }

    /// Appends whole lines.
    pub(crate) fn append(&mut self, segment: u64, lines: &[u8]) -> io::Result<()> {
        self.file(segment)?.write_all(lines)
    }

    /// Takes back what follows the first `length` bytes.
    pub(crate) fn cut(&mut self, segment: u64, length: u64) -> io::Result<()> {
        self.file(segment)?.set_len(length)
    }

    /// Removes a segment; one that is gone already is as good.
    pub(crate) fn remove(&mut self, segment: u64) -> io::Result<()> {
        match std::fs::remove_file(self.path(segment)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Most files of other processes that may have had the same rank and process number.
const MAX_GENERATIONS: u32 = 1_000;

/// Name of a segment: `stem.jsonl`, then `stem.seg000001.jsonl` and so on, which sorts behind it.
fn segment_name(stem: &str, segment: u64) -> String {
    if segment == 0 { format!("{stem}.jsonl") } else { format!("{stem}.seg{segment:06}.jsonl") }
}

#[cfg(test)]
mod tests {
    use super::{Output, segment_name};

    #[test]
    fn segments_sort_by_name_within_a_process() {
        let names = [0, 1, 12].map(|segment| segment_name("rank_3_pid_7", segment));
        assert_eq!(names[0], "rank_3_pid_7.jsonl");
        assert_eq!(names[2], "rank_3_pid_7.seg000012.jsonl");
        assert!(names.is_sorted());
    }

    #[test]
    fn a_name_that_is_taken_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("s.jsonl"), "old").unwrap();
        let mut output = Output::new(folder.path(), "s");
        assert_eq!(output.create_first().unwrap(), "s.g2");
        output.append(0, b"new\n").unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("s.jsonl")).unwrap(), "old");
        assert_eq!(std::fs::read_to_string(folder.path().join("s.g2.jsonl")).unwrap(), "new\n");
    }
}
