//! The file of findings of a run.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::finding::Finding;

/// Longest line of an existing file that is looked at, in bytes.
const MAX_LINE: u64 = 16 << 20;

/// `findings.jsonl` of a run: one finding a line, each written once, also over restarts of the
/// analyzer.
#[derive(Debug)]
pub struct FindingsFile {
    path: PathBuf,
    file: File,
    /// Findings of earlier analyzers by what identifies them, and how often each stands there.
    known: HashMap<String, usize>,
}

impl FindingsFile {
    /// Name of the file in the folder of a run.
    pub const NAME: &'static str = "findings.jsonl";

    /// Opens the file in a folder, or makes it, and reads what is there. Lines that are no finding
    /// are left alone; a last line that was cut off while it was written gets its end, so that the
    /// next stands on a line of its own.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or written.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let path = folder.join(Self::NAME);
        let mut file = OpenOptions::new().read(true).append(true).create(true).open(&path)?;
        let known = known(&file)?;
        let length = file.seek(SeekFrom::End(0))?;
        if length > 0 {
            let mut last = [0];
            file.seek(SeekFrom::Start(length - 1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                file.write_all(b"\n")?;
            }
        }
        Ok(Self { path, file, known })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends findings and waits until they are on the disk. Returns those that earlier analyzers
    /// had not written yet.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn append(&mut self, findings: Vec<Finding>) -> io::Result<Vec<Finding>> {
        let mut new = Vec::with_capacity(findings.len());
        let mut lines = String::new();
        for finding in findings {
            let line = finding.to_json();
            let key = serde_json::from_str(&line).ok().map(|value: Value| identity(&value));
            // One line of an earlier analyzer stands for one finding of this one.
            let count = key.and_then(|key| self.known.get_mut(&key)).filter(|count| **count > 0);
            if let Some(count) = count {
                *count -= 1;
                continue;
            }
            lines.push_str(&line);
            lines.push('\n');
            new.push(finding);
        }
        if !lines.is_empty() {
            self.file.write_all(lines.as_bytes())?;
            self.file.sync_data()?;
        }
        Ok(new)
    }
}

fn known(file: &File) -> io::Result<HashMap<String, usize>> {
    let mut known = HashMap::new();
    let mut reader = BufReader::new(file);
    let mut line = Vec::new();
    loop {
        line.clear();
        if reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)? == 0 {
            return Ok(known);
        }
        match serde_json::from_slice::<Value>(&line) {
            Ok(value) if value.get("hang_type").is_some() => {
                *known.entry(identity(&value)).or_default() += 1;
            }
            _ => {}
        }
    }
}

/// What two analyzers that find the same thing agree on: what it is about, and not when or for how
/// long it was seen.
fn identity(finding: &Value) -> String {
    const OUTER: [&str; 4] = ["run_id", "hang_type", "comm_uid_hash", "comm_seq"];
    const INNER: [&str; 10] = [
        "rank",
        "pid",
        "call_seq",
        "src_comm_rank",
        "dst_comm_rank",
        "timeout_type",
        "missing_comm_ranks",
        "ranks",
        "parent_hash",
        "result",
    ];
    let details = finding.get("details").unwrap_or(&Value::Null);
    let inner = INNER.iter().map(|key| (key, details.get(key)));
    let roots = details.get("roots").and_then(Value::as_array).map(|roots| {
        roots.iter().map(|root| root.get("rank").cloned().unwrap_or_default()).collect::<Value>()
    });
    let outer = OUTER.iter().map(|key| (key, finding.get(key)));
    let mut key = String::new();
    for (name, value) in outer.chain(inner).chain([(&"roots", roots.as_ref())]) {
        if let Some(value) = value {
            key.push_str(name);
            key.push('=');
            key.push_str(&value.to_string());
            key.push(';');
        }
    }
    key
}
