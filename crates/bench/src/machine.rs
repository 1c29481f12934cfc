//! What the machine has, and what this process took of it.

use std::fs;
use std::path::PathBuf;

/// Memory that is free for use, bytes; `None` where the system does not tell it.
pub fn available_bytes() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    Some(kib(&text, "MemAvailable:")? * 1024)
}

/// Peak resident memory of this process, KiB; 0 where the system does not tell it.
pub fn peak_kib() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    kib(&text, "VmHWM:").unwrap_or(0)
}

/// Seconds that this process has spent on the processors so far, all threads together: other work on
/// the machine adds next to nothing to it. 0 where the system does not tell it.
pub fn cpu_seconds() -> f64 {
    /// What Linux counts in, on every architecture that it is built for with its own settings.
    const TICKS_A_SECOND: f64 = 100.0;
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    ticks(&text).map_or(0.0, |ticks| ticks as f64 / TICKS_A_SECOND)
}

/// Ticks in user and system mode: words 14 and 15, counted from a name in brackets as word 2.
fn ticks(stat: &str) -> Option<u64> {
    let mut words = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    Some(words.next()?.parse::<u64>().ok()? + words.next()?.parse::<u64>().ok()?)
}

fn kib(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_whitespace().next()?.parse().ok()
}

/// What some work took.
#[derive(Debug, Clone, Copy)]
pub struct Spent {
    /// Seconds on the clock.
    pub seconds: f64,
    /// Seconds on the processors, see [`cpu_seconds`].
    pub cpu: f64,
}

impl Spent {
    /// More than anything takes.
    pub const NONE: Self = Self { seconds: f64::MAX, cpu: f64::MAX };

    /// The lesser of each.
    #[must_use]
    pub fn least(self, other: Self) -> Self {
        Self { seconds: self.seconds.min(other.seconds), cpu: self.cpu.min(other.cpu) }
    }
}

/// A folder that is removed in the end.
pub struct Scratch(pub PathBuf);

impl Scratch {
    /// A folder for this process; `name` tells it from others.
    pub fn new(name: &str) -> std::io::Result<Self> {
        let name: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
        let folder =
            std::env::temp_dir().join(format!("deepxtrace-bench-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What is left of it does no harm.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::{kib, ticks};

    #[test]
    fn ticks_stand_behind_the_name() {
        let text = "7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 40 2 0 0 20";
        assert_eq!(ticks(text), Some(42));
        assert_eq!(ticks("7 (a) S 1"), None);
    }

    #[test]
    fn a_line_of_the_system_is_read() {
        let text = "MemTotal:  100 kB\nMemAvailable:   42 kB\n";
        assert_eq!(kib(text, "MemAvailable:"), Some(42));
        assert_eq!(kib(text, "VmHWM:"), None);
    }
}
