//! Files among others that could not be used.

use anyhow::bail;

use crate::output::{one_line, warn};

/// Files among others that could not be used. The others are; each of these is told when it is met,
/// and in the end the command fails, so that nobody takes what it said for the whole.
#[derive(Debug, Default)]
pub struct Skipped {
    files: usize,
    skipped: usize,
}

impl Skipped {
    /// What was read, or `None` after a word about what could not be.
    pub fn take<T>(&mut self, read: anyhow::Result<T>) -> Option<T> {
        self.files += 1;
        match read {
            Ok(value) => Some(value),
            Err(error) => {
                self.skipped += 1;
                warn(&one_line(&error));
                None
            }
        }
    }

    /// # Errors
    ///
    /// Something could not be used.
    pub fn finish(self) -> anyhow::Result<()> {
        let Self { files, skipped } = self;
        if skipped > 0 {
            bail!("{skipped} of {files} files could not be used");
        }
        Ok(())
    }
}
