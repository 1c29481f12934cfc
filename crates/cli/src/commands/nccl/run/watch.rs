//! Looking at the traces while the job runs.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context;
use deepxtrace_nccl_h2::{Analyzer, Config, Details, Finding, Moment, TraceTail};

use super::drain;
use super::processes::Processes;

/// File with the findings, one JSON object a line.
const FINDINGS_FILE: &str = "findings.jsonl";
/// Most processes of a finding that the system is asked about.
const MAX_DESCRIBED: usize = 16;

/// What a run came to.
#[derive(Debug, Default)]
pub struct Told {
    /// Findings.
    pub findings: usize,
    /// Their kinds.
    pub kinds: Vec<&'static str>,
    /// Processes that called NCCL.
    pub processes: usize,
}

/// Follows the traces of a run.
pub struct Watcher {
    folder: PathBuf,
    analyzer: Analyzer,
    tail: TraceTail,
    processes: Processes,
    analyzes: bool,
    interval: Duration,
    next: Instant,
    began: Instant,
    file: Option<File>,
    told: Told,
}

impl Watcher {
    /// Begins with an empty folder.
    pub fn new(folder: &Path, run_id: &str, config: Config, analyzes: bool) -> Self {
        let interval = Duration::try_from_secs_f64(config.scan_interval_s);
        Self {
            folder: folder.to_owned(),
            analyzer: Analyzer::new(run_id, config),
            tail: TraceTail::new(vec![folder.to_owned()]),
            processes: Processes::new(Path::new("/proc"), run_id),
            analyzes,
            interval: interval.unwrap_or(Duration::from_secs(5)),
            next: Instant::now(),
            began: Instant::now(),
            file: None,
            told: Told::default(),
        }
    }

    /// Reads and scans if the time has come.
    pub fn look_if_due(&mut self, tell: fn(&str)) {
        if Instant::now() < self.next {
            return;
        }
        self.next = Instant::now() + self.interval;
        self.processes.look();
        drain(&self.folder);
        if let Err(error) = self.look(tell) {
            tell(&format!("{error:#}"));
        }
    }

    /// Reads to the end and scans once more.
    pub fn finish(mut self, tell: fn(&str)) -> anyhow::Result<Told> {
        self.look(tell)?;
        let (moment, analyzer) = (self.moment(), &mut self.analyzer);
        self.tail.finish(|event| {
            analyzer.ingest(event, moment);
        });
        self.scan(tell)?;
        self.told.processes = self.analyzer.process_count();
        Ok(self.told)
    }

    fn moment(&self) -> Moment {
        let nanoseconds = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Moment { monotonic_ns: nanoseconds(self.began.elapsed()), unix_ns: nanoseconds(unix) }
    }

    fn look(&mut self, tell: fn(&str)) -> anyhow::Result<()> {
        loop {
            let (moment, analyzer) = (self.moment(), &mut self.analyzer);
            let more = self.tail.poll(|event| {
                analyzer.ingest(event, moment);
            })?;
            if !more {
                break;
            }
        }
        self.scan(tell)
    }

    fn scan(&mut self, tell: fn(&str)) -> anyhow::Result<()> {
        if !self.analyzes {
            return Ok(());
        }
        let findings = self.analyzer.scan(self.moment());
        if findings.is_empty() {
            return Ok(());
        }
        self.keep(&findings).context(FINDINGS_FILE)?;
        for finding in &findings {
            let confidence = finding.confidence().as_str();
            tell(&format!("{} ({confidence}): {}", finding.hang_type.as_str(), finding.to_json()));
            for rank in ranks(finding).into_iter().take(MAX_DESCRIBED) {
                if let Some(says) = self.processes.describe(rank, None) {
                    tell(&format!("  {says}"));
                }
            }
            self.told.findings += 1;
            self.told.kinds.push(finding.hang_type.as_str());
        }
        Ok(())
    }

    fn keep(&mut self, findings: &[Finding]) -> io::Result<()> {
        let path = self.folder.join(FINDINGS_FILE);
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(OpenOptions::new().append(true).create(true).open(path)?),
        };
        let lines: String = findings.iter().map(|finding| finding.to_json() + "\n").collect();
        file.write_all(lines.as_bytes())?;
        file.sync_data()
    }
}

/// Ranks of the run that a finding waits for.
fn ranks(finding: &Finding) -> Vec<i64> {
    match &finding.details {
        Details::CollectiveMissingEnter(details) => {
            details.missing_rank_status.iter().filter_map(|status| status.rank).collect()
        }
        _ => Vec::new(),
    }
}
