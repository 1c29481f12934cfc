//! What a watcher leaves in the folder of its run: findings, a log, and a mark that it is watched.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use deepxtrace_nccl_h2::{Finding, FindingsFile};

const LOG_FILE: &str = "analyzer.log";
const PID_FILE: &str = "analyzer.pid";

/// The files of a watcher.
pub struct Kept {
    folder: PathBuf,
    findings: FindingsFile,
    log: File,
}

impl Kept {
    /// Opens the files of a run.
    ///
    /// # Errors
    ///
    /// When a file cannot be written, or another process watches the run.
    pub fn open(folder: &Path, run_id: &str) -> anyhow::Result<Self> {
        claim(folder)?;
        let log = folder.join(LOG_FILE);
        let log = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&log)
            .with_context(|| log.display().to_string())?;
        let findings = FindingsFile::open(folder)
            .with_context(|| folder.join(FindingsFile::NAME).display().to_string())?;
        let mut kept = Self { folder: folder.to_owned(), findings, log };
        kept.note(&format!("run {run_id} is watched by process {}", std::process::id()))?;
        Ok(kept)
    }

    /// Appends findings to their file and notes them; gives back those that are new.
    ///
    /// # Errors
    ///
    /// When a file cannot be written.
    pub fn append(&mut self, found: Vec<Finding>) -> anyhow::Result<Vec<Finding>> {
        let new = self
            .findings
            .append(found)
            .with_context(|| self.findings.path().display().to_string())?;
        for finding in &new {
            self.note(&format!(
                "{} ({}) on communicator {:?}, call {}",
                finding.hang_type.as_str(),
                finding.confidence().as_str(),
                finding.comm_uid_hash,
                finding.comm_seq,
            ))?;
        }
        Ok(new)
    }

    /// Writes a line into the log.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn note(&mut self, text: &str) -> anyhow::Result<()> {
        writeln!(self.log, "[{}] {text}", utc_now())
            .with_context(|| self.folder.join(LOG_FILE).display().to_string())
    }

    /// Notes the end and takes the mark away that the run is watched.
    pub fn close(mut self) {
        // The work is done: that a last line is missing hurts nobody.
        let _ = self.note("watching has ended");
        let _ = fs::remove_file(self.folder.join(PID_FILE));
    }
}

/// The time as `2026-11-30T08:15:00.125Z`.
fn utc_now() -> String {
    let now = time::OffsetDateTime::now_utc();
    let (hour, minute, second, ms) = now.time().as_hms_milli();
    format!("{}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z", now.date())
}

/// Writes the process number into the folder, unless another living process follows the run.
fn claim(folder: &Path) -> anyhow::Result<()> {
    let path = folder.join(PID_FILE);
    if let Ok(text) = fs::read_to_string(&path) {
        let pid = text.trim().parse::<u32>().ok().filter(|&pid| pid != std::process::id());
        if let Some(pid) = pid.filter(|&pid| is_this_program(pid)) {
            bail!("{}: process {pid} watches this run already", path.display());
        }
    }
    fs::write(&path, format!("{}\n", std::process::id()))
        .with_context(|| path.display().to_string())
}

/// Whether a living process runs this program.
fn is_this_program(pid: u32) -> bool {
    let name = |pid: &str| fs::read_to_string(format!("/proc/{pid}/comm")).ok();
    name(&pid.to_string()).is_some_and(|other| Some(other) == name("self"))
}
