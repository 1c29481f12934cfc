//! What a folder holds, without the counters: those are read again for the pictures.

use std::fs::File;
use std::io::{BufRead, BufReader, Read as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use deepxtrace::artifact::{Artifact, Kind, list, read};
use deepxtrace::counters::{LlPhase, Topology};
use deepxtrace::ll::LlDiagnosis;
use deepxtrace::normal::{WindowDiagnosis, WindowState};
use serde_json::Value;

use crate::input::skipped::Skipped;

/// Findings listed at most; a page with more is no help.
const MOST_FINDINGS: usize = 200;
/// Longest line of a findings file, bytes.
const LONGEST_LINE: u64 = 1 << 20;

/// What a folder holds.
pub struct Folder {
    /// As it was named.
    pub name: String,
    /// The windows by kind and instance.
    pub runs: Vec<Run>,
    /// NCCL findings, in order of time.
    pub findings: Vec<NcclFinding>,
    /// How many more findings there are.
    pub more_findings: usize,
}

/// The windows of one instance.
pub struct Run {
    pub kind: Kind,
    pub instance: String,
    pub topology: Topology,
    /// In order.
    pub windows: Vec<Window>,
}

/// One window.
pub struct Window {
    pub path: PathBuf,
    pub index: u64,
    pub time: (i64, i64),
    pub outcome: Outcome,
}

/// What was found in a window.
pub enum Outcome {
    Normal(Box<WindowDiagnosis>),
    LowLatency(Box<[Option<LlDiagnosis>; 2]>),
}

/// One line of a findings file.
pub struct NcclFinding {
    pub file: String,
    pub hang_type: String,
    pub time: Option<i64>,
    pub object: Value,
}

impl Folder {
    /// Reads a folder.
    ///
    /// # Errors
    ///
    /// The folder cannot be read, or has nothing to tell about. Single files that cannot be used are
    /// left to `skipped`.
    pub fn read(path: &Path, skipped: &mut Skipped) -> anyhow::Result<Self> {
        let name = path.display().to_string();
        let mut folder = Self { name, runs: Vec::new(), findings: Vec::new(), more_findings: 0 };
        for name in list(path)? {
            let file = path.join(name.to_string());
            if let Some(artifact) = skipped.take(read(&file).map_err(anyhow::Error::from)) {
                folder.add(artifact, file);
            }
        }
        folder.read_findings(path)?;
        if folder.runs.is_empty() && folder.findings.is_empty() {
            bail!("{}: no windows (*_window_*.npz) and no findings (*.jsonl)", path.display());
        }
        Ok(folder)
    }

    fn add(&mut self, artifact: Artifact<'static>, path: PathBuf) {
        let (kind, topology) = (artifact.kind(), artifact.topology());
        let (index, time) = (artifact.index(), artifact.time());
        let instance = artifact.instance().to_owned();
        let outcome = match artifact {
            Artifact::Normal(normal) => Outcome::Normal(Box::new(normal.diagnosis.into_owned())),
            Artifact::LowLatency(waits) => {
                let diagnoses = waits.diagnoses.map(|d| d.map(std::borrow::Cow::into_owned));
                Outcome::LowLatency(Box::new(diagnoses))
            }
        };
        let window = Window { path, index, time, outcome };
        match self.runs.last_mut() {
            Some(run) if run.kind == kind && run.instance == instance => run.windows.push(window),
            _ => self.runs.push(Run { kind, instance, topology, windows: vec![window] }),
        }
    }

    fn read_findings(&mut self, folder: &Path) -> anyhow::Result<()> {
        let place = || folder.display().to_string();
        let mut files = Vec::new();
        for entry in std::fs::read_dir(folder).with_context(place)? {
            let path = entry.with_context(place)?.path();
            if path.extension().is_some_and(|extension| extension == "jsonl") && path.is_file() {
                files.push(path);
            }
        }
        files.sort();
        for path in files {
            self.read_lines(&path).with_context(|| path.display().to_string())?;
        }
        self.findings
            .sort_by(|a, b| (a.time, &a.file, &a.hang_type).cmp(&(b.time, &b.file, &b.hang_type)));
        self.more_findings = self.findings.len().saturating_sub(MOST_FINDINGS);
        self.findings.truncate(MOST_FINDINGS);
        Ok(())
    }

    /// Takes the lines that are findings; others (calls of a trace, for one) are left out.
    fn read_lines(&mut self, path: &Path) -> std::io::Result<()> {
        let file = path.file_name().map(|name| name.to_string_lossy().into_owned());
        let file = file.unwrap_or_default();
        let mut reader = BufReader::new(File::open(path)?);
        let mut line = Vec::new();
        loop {
            line.clear();
            if (&mut reader).take(LONGEST_LINE).read_until(b'\n', &mut line)? == 0 {
                return Ok(());
            }
            let Ok(object) = serde_json::from_slice::<Value>(&line) else { continue };
            let Some(hang_type) = object.get("hang_type").and_then(Value::as_str) else { continue };
            let hang_type = hang_type.to_owned();
            let time = object.get("detected_at_unix_ns").and_then(Value::as_i64);
            if self.findings.len() < 64 * MOST_FINDINGS {
                self.findings.push(NcclFinding { file: file.clone(), hang_type, time, object });
            }
        }
    }

    /// All windows.
    pub fn windows(&self) -> impl Iterator<Item = &Window> {
        self.runs.iter().flat_map(|run| &run.windows)
    }
}

impl Window {
    /// The diagnosis of a Normal-mode window.
    pub fn normal(&self) -> Option<&WindowDiagnosis> {
        match &self.outcome {
            Outcome::Normal(diagnosis) => Some(diagnosis),
            Outcome::LowLatency(_) => None,
        }
    }

    /// The diagnoses of a low-latency window by phase, as far as it was diagnosed.
    pub fn low_latency(&self) -> impl Iterator<Item = (LlPhase, &LlDiagnosis)> {
        let phases = match &self.outcome {
            Outcome::Normal(_) => None,
            Outcome::LowLatency(diagnoses) => Some(LlPhase::ALL.into_iter().zip(&**diagnoses)),
        };
        phases.into_iter().flatten().filter_map(|(phase, d)| Some((phase, d.as_ref()?)))
    }

    /// Whether nothing was diagnosed in it.
    pub fn is_idle(&self) -> bool {
        match &self.outcome {
            Outcome::Normal(diagnosis) => diagnosis.state != WindowState::Diagnosed,
            Outcome::LowLatency(diagnoses) => diagnoses.iter().all(Option::is_none),
        }
    }

    /// Whether it has an incident, or a finding in low-latency mode.
    pub fn has_incidents(&self) -> bool {
        match &self.outcome {
            Outcome::Normal(diagnosis) => !diagnosis.incidents.is_empty(),
            Outcome::LowLatency(_) => self
                .low_latency()
                .any(|(_, d)| !d.topology.findings.is_empty() || !d.mean_ratio.is_empty()),
        }
    }
}
