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

fn kib(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    rest.split_whitespace().next()?.parse().ok()
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
    use super::kib;

    #[test]
    fn a_line_of_the_system_is_read() {
        let text = "MemTotal:  100 kB\nMemAvailable:   42 kB\n";
        assert_eq!(kib(text, "MemAvailable:"), Some(42));
        assert_eq!(kib(text, "VmHWM:"), None);
    }
}
