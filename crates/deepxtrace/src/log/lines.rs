//! How a line of the [log](super) begins, and what never stands in one.

use std::fmt::{self, Write};

use deepxtrace_collect::Uuid;
use time::OffsetDateTime;

/// A time as the log writes it: UTC, to the millisecond.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stamp(pub(crate) i64);

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0))
            .unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let (hour, minute, second, milli) = time.to_hms_milli();
        let (year, month, day) = time.to_calendar_date();
        write!(
            f,
            "{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}",
            u8::from(month)
        )
    }
}

/// Lines that are collected and then written at once. The buffer is kept.
#[derive(Debug)]
pub(crate) struct Lines {
    text: String,
    instance: Uuid,
    ep_size: usize,
    now_unix_ns: i64,
    window: u64,
}

impl Lines {
    pub(crate) fn new(instance: Uuid, ep_size: usize) -> Self {
        Self { text: String::new(), instance, ep_size, now_unix_ns: 0, window: 0 }
    }

    /// Begins anew, with lines of this time about this window.
    pub(crate) fn begin(&mut self, now_unix_ns: i64, window: u64) {
        self.text.clear();
        (self.now_unix_ns, self.window) = (now_unix_ns, window);
    }

    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// One line with the fields that all have. `what` writes the rest.
    pub(crate) fn line(&mut self, what: impl FnOnce(&mut OneLine<'_>) -> fmt::Result) {
        let (stamp, instance) = (Stamp(self.now_unix_ns), self.instance);
        let (ep_size, window) = (self.ep_size, self.window);
        self.bare(|line| {
            write!(
                line,
                "[{stamp}] [Diagnose] InstanceID: {instance} EPSize: {ep_size} WindowIndex: \
                 {window} "
            )?;
            what(line)
        });
    }

    /// One line without them.
    pub(crate) fn bare(&mut self, what: impl FnOnce(&mut OneLine<'_>) -> fmt::Result) {
        // Writing to a string does not fail; a value whose own formatting does is cut short.
        let _ = what(&mut OneLine(&mut self.text));
        self.text.push('\n');
    }
}

/// Text that stays on one line: control characters, from a host name or an error, become spaces.
pub(crate) struct OneLine<'a>(&'a mut String);

impl Write for OneLine<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if text.contains(|c: char| c.is_control()) {
            self.0.extend(text.chars().map(|c| if c.is_control() { ' ' } else { c }));
        } else {
            self.0.push_str(text);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_begins_with_time_run_size_and_window() {
        let mut lines = Lines::new(Uuid::nil(), 16);
        // 2026-03-01T12:00:00.250Z
        lines.begin(1_772_366_400_250_000_000, 3);
        lines.line(|line| write!(line, "host a\nb"));
        lines.bare(|line| line.write_str("rank=0 [1 2]"));
        let expected = "[2026-03-01T12:00:00.250] [Diagnose] InstanceID: \
                        00000000-0000-0000-0000-000000000000 EPSize: 16 WindowIndex: 3 host a b\n\
                        rank=0 [1 2]\n";
        assert_eq!(lines.text(), expected);
        assert_eq!(Stamp(-1).to_string(), "1969-12-31T23:59:59.999");
    }
}
