//! The file of a [log](super), its rotation, and what happens when it cannot be written.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use time::OffsetDateTime;

/// Rotated files that are kept.
const KEPT: usize = 2;

/// One rank's log file.
#[derive(Debug)]
pub(crate) struct LogFile {
    folder: PathBuf,
    name: String,
    file: Option<File>,
    /// The day that the file belongs to.
    day: Option<time::Date>,
    lost: u64,
    /// Whether the present trouble has been told.
    told: bool,
}

impl LogFile {
    /// The log of a rank in `folder`. Nothing is written yet.
    pub(crate) fn new(folder: &Path, global_rank: usize) -> Self {
        let name = format!("diagnose_rank{global_rank}.log");
        Self { folder: folder.to_owned(), name, file: None, day: None, lost: 0, told: false }
    }

    /// Lines that could not be written.
    pub(crate) fn lost(&self) -> u64 {
        self.lost
    }

    /// Appends whole lines. Trouble is returned when it begins, and not again before it has ended.
    pub(crate) fn write(&mut self, now_unix_ns: i64, lines: &str) -> Option<String> {
        let lost_before = self.lost;
        match self.try_write(now_unix_ns, lines) {
            Ok(()) => {
                self.told = false;
                None
            }
            Err(error) => {
                self.file = None;
                let count = lines.bytes().filter(|byte| *byte == b'\n').count();
                self.lost = lost_before.saturating_add(count as u64);
                let path = self.folder.join(&self.name);
                (!std::mem::replace(&mut self.told, true))
                    .then(|| format!("cannot write {}: {error}", path.display()))
            }
        }
    }

    fn try_write(&mut self, now_unix_ns: i64, lines: &str) -> io::Result<()> {
        let now = OffsetDateTime::from_unix_timestamp_nanos(i128::from(now_unix_ns))
            .unwrap_or(OffsetDateTime::UNIX_EPOCH);
        if self.day != Some(now.date()) || self.file.is_none() {
            self.open(now.date())?;
        }
        match &mut self.file {
            Some(file) => file.write_all(lines.as_bytes()),
            None => Ok(()),
        }
    }

    /// Opens the file for `today`; one of an earlier day is renamed first.
    fn open(&mut self, today: time::Date) -> io::Result<()> {
        self.file = None;
        fs::create_dir_all(&self.folder)?;
        let path = self.folder.join(&self.name);
        let written = fs::metadata(&path).ok().filter(fs::Metadata::is_file);
        let day = written.and_then(|data| data.modified().ok());
        let day = self.day.or_else(|| day.map(|time| OffsetDateTime::from(time).date()));
        if let Some(day) = day.filter(|day| *day != today) {
            self.rotate(&path, day)?;
        }
        self.file = Some(OpenOptions::new().create(true).append(true).open(&path)?);
        self.day = Some(today);
        Ok(())
    }

    fn rotate(&self, path: &Path, day: time::Date) -> io::Result<()> {
        if !path.exists() {
            return Ok(());
        }
        let (year, month, day) = day.to_calendar_date();
        let dated = format!("{}.{year:04}-{:02}-{day:02}", self.name, u8::from(month));
        // Normally free: only a clock that goes back comes to a day again.
        let free = (0..100)
            .map(|i| if i == 0 { dated.clone() } else { format!("{dated}.{i:02}") })
            .map(|name| self.folder.join(name))
            .find(|candidate| !candidate.exists());
        fs::rename(path, free.unwrap_or_else(|| self.folder.join(&dated)))?;
        self.prune();
        Ok(())
    }

    /// Deletes all but the newest rotated files. What cannot be deleted stays.
    fn prune(&self) {
        let prefix = format!("{}.", self.name);
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let mut rotated: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter(|name| name.strip_prefix(&prefix).is_some_and(is_dated))
            .collect();
        rotated.sort_unstable();
        let old = rotated.len().saturating_sub(KEPT);
        for name in rotated.into_iter().take(old) {
            let _ = fs::remove_file(self.folder.join(name));
        }
    }
}

/// Whether a suffix is a date as [`LogFile::rotate`] writes it.
fn is_dated(suffix: &str) -> bool {
    let shape = |pattern: &str, text: &str| {
        pattern.len() == text.len()
            && pattern.bytes().zip(text.bytes()).all(|(p, t)| match p {
                b'0' => t.is_ascii_digit(),
                p => p == t,
            })
    };
    shape("0000-00-00", suffix) || shape("0000-00-00.00", suffix)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 3600 * 1_000_000_000;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn the_live_file_keeps_its_name_and_two_old_ones_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let stranger = folder.path().join("diagnose_rank3.log.bak");
        fs::write(&stranger, "mine").unwrap();
        let mut log = LogFile::new(folder.path(), 3);
        // 2026-01-01 is day 20454.
        for day in 0..5 {
            assert_eq!(log.write((20_454 + day) * DAY, &format!("day {day}\n")), None);
        }
        let expected = [
            "diagnose_rank3.log",
            "diagnose_rank3.log.2026-01-03",
            "diagnose_rank3.log.2026-01-04",
            "diagnose_rank3.log.bak",
        ];
        assert_eq!(names(folder.path()), expected);
        let read = |name| fs::read_to_string(folder.path().join(name)).unwrap();
        assert_eq!(read("diagnose_rank3.log"), "day 4\n");
        assert_eq!(read("diagnose_rank3.log.2026-01-04"), "day 3\n");
    }

    #[test]
    fn a_file_of_an_earlier_run_is_appended_to_on_its_day_and_rotated_after_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("diagnose_rank0.log");
        fs::write(&path, "earlier\n").unwrap();
        let written = fs::metadata(&path).unwrap().modified().unwrap();
        let now = OffsetDateTime::from(written).unix_timestamp_nanos() as i64;
        assert_eq!(LogFile::new(folder.path(), 0).write(now, "same day\n"), None);
        assert_eq!(fs::read_to_string(&path).unwrap(), "earlier\nsame day\n");
        assert_eq!(LogFile::new(folder.path(), 0).write(now + DAY, "next day\n"), None);
        assert_eq!(fs::read_to_string(&path).unwrap(), "next day\n");
        assert_eq!(names(folder.path()).len(), 2);
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_told_once_and_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let blocked = folder.path().join("blocked");
        fs::write(&blocked, "a file where the folder should be").unwrap();
        let mut log = LogFile::new(&blocked.join("logs"), 0);
        let trouble = log.write(0, "one\ntwo\n").unwrap();
        assert!(trouble.contains("blocked"), "{trouble}");
        assert_eq!(log.write(0, "three\n"), None);
        assert_eq!(log.lost(), 3);
        fs::remove_file(&blocked).unwrap();
        assert_eq!(log.write(0, "four\n"), None);
        assert_eq!(log.lost(), 3);
        let written = fs::read_to_string(blocked.join("logs/diagnose_rank0.log")).unwrap();
        assert_eq!(written, "four\n");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_told_once_and_harms_nobody() {
        let folder = tempfile::tempdir().unwrap();
        // Every write to this device fails with "no space left".
        std::os::unix::fs::symlink("/dev/full", folder.path().join("diagnose_rank0.log")).unwrap();
        let mut log = LogFile::new(folder.path(), 0);
        assert!(log.write(0, "one\n").is_some_and(|trouble| trouble.contains("space")));
        for _ in 0..100 {
            assert_eq!(log.write(0, "more\n"), None);
        }
        assert_eq!(log.lost(), 101);
    }

    #[test]
    fn a_clock_beyond_all_calendars_is_no_panic() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = LogFile::new(folder.path(), 0);
        for now in [i64::MIN, i64::MAX, 0, -1] {
            let _ = log.write(now, "line\n");
        }
        assert_eq!(log.lost(), 0);
    }
}
