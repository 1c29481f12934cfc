//! Following the traces of a run: polling, scanning, keeping what was found.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail};
use deepxtrace_nccl_h2::{
    Analyzer, Finding, FindingsFile, Moment, RunFolder, SessionWriter, Settings, TraceTail,
};

use super::warnings;

const LOG_FILE: &str = "analyzer.log";
const PID_FILE: &str = "analyzer.pid";
/// How often a wait looks whether it should end.
const BLINK: Duration = Duration::from_millis(50);

/// Whether the process was asked to stop.
pub struct Wanted {
    stop: Arc<AtomicBool>,
}

impl Wanted {
    /// Listens for SIGINT and SIGTERM from now on. A second signal ends the process at once.
    pub fn listen() -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        #[cfg(unix)]
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))?;
            signal_hook::flag::register(signal, Arc::clone(&stop))?;
        }
        Ok(Self { stop })
    }

    /// Whether a signal came.
    pub fn stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits for some time, or until a signal comes or `ended` holds.
    pub fn wait(&self, time: Duration, mut ended: impl FnMut() -> bool) {
        let begin = Instant::now();
        while begin.elapsed() < time && !self.stop() && !ended() {
            std::thread::sleep(BLINK.min(time.saturating_sub(begin.elapsed())));
        }
    }
}

/// A run that is followed.
pub struct Live {
    folder: PathBuf,
    analyzer: Analyzer,
    tail: TraceTail,
    findings: FindingsFile,
    record: Option<SessionWriter<BufWriter<File>>>,
    log: File,
    began: Instant,
    bad_lines: u64,
    limited: bool,
}

impl Live {
    /// Begins to follow a run.
    ///
    /// # Errors
    ///
    /// When a setting is bad, a file cannot be written, or another process follows the run.
    pub fn new(
        run: &RunFolder,
        heartbeats: Option<&Path>,
        record: Option<&Path>,
        settings: Settings,
    ) -> anyhow::Result<Self> {
        let folder = run.path.clone();
        claim(&folder)?;
        let log = folder.join(LOG_FILE);
        let log = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&log)
            .with_context(|| log.display().to_string())?;
        let findings = FindingsFile::open(&folder)
            .with_context(|| folder.join(FindingsFile::NAME).display().to_string())?;
        let record = match record {
            Some(path) => {
                let file = File::create(path).with_context(|| path.display().to_string())?;
                Some(SessionWriter::new(BufWriter::new(file), &run.run_id, &settings)?)
            }
            None => None,
        };
        let mut folders = vec![folder.clone()];
        folders.extend(heartbeats.map(Path::to_owned));
        let mut live = Self {
            folder,
            analyzer: Analyzer::new(run.run_id.clone(), settings.resolve()?),
            tail: TraceTail::new(folders),
            findings,
            record,
            log,
            began: Instant::now(),
            bad_lines: 0,
            limited: false,
        };
        live.note(&format!("run {} is watched by process {}", run.run_id, std::process::id()))?;
        Ok(live)
    }

    /// Time between two scans.
    pub fn interval(&self) -> Duration {
        let seconds = self.analyzer.config().scan_interval_s;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::from_secs(5))
    }

    /// How long watching goes on after the job has failed.
    pub fn grace(&self) -> Duration {
        let seconds = self.analyzer.config().failure_grace_period_s;
        Duration::try_from_secs_f64(seconds).unwrap_or_default()
    }

    /// Whether a call that was seen waits for its part on other ranks.
    #[cfg(target_os = "linux")]
    pub fn is_open(&self) -> bool {
        self.analyzer.open_rounds() + self.analyzer.open_p2p_calls() > 0
    }

    /// Reads to the end of a job that has ended, and gives what is still open as well.
    ///
    /// # Errors
    ///
    /// As [`Live::look`].
    #[cfg(target_os = "linux")]
    pub fn finish(&mut self) -> anyhow::Result<Vec<Finding>> {
        let mut found = self.look(true, None)?;
        let open = self.analyzer.finish(self.moment());
        found.extend(self.keep(open)?);
        Ok(found)
    }

    /// Reads what is new and scans. The last look also takes lines that have no end. When
    /// something is found, `dot` gets the picture of who waits for whom.
    ///
    /// # Errors
    ///
    /// When the folder cannot be read, or findings, log or session cannot be written.
    pub fn look(&mut self, last: bool, dot: Option<&Path>) -> anyhow::Result<Vec<Finding>> {
        loop {
            let (more, failed) = self.poll();
            if let Some(error) = failed {
                return Err(error).context("--record");
            }
            if !more? {
                break;
            }
        }
        if last {
            self.finish_lines().context("--record")?;
        }
        let now = self.moment();
        if let Some(record) = &mut self.record {
            record.scan(now).context("--record")?;
        }
        let graph = dot.map(|path| (path, self.analyzer.wait_graph(now)));
        let found = self.analyzer.scan(now);
        let new = self.keep(found)?;
        if let (Some((path, graph)), false) = (graph, new.is_empty()) {
            fs::write(path, graph.to_dot()).with_context(|| path.display().to_string())?;
        }
        self.note_input()?;
        Ok(new)
    }

    /// Appends findings to their file and notes them; gives back those that are new.
    fn keep(&mut self, found: Vec<Finding>) -> anyhow::Result<Vec<Finding>> {
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

    /// Notes the end and takes the mark away that the run is watched.
    pub fn close(mut self) {
        // The work is done: that a last line is missing hurts nobody.
        let _ = self.note("watching has ended");
        let _ = fs::remove_file(self.folder.join(PID_FILE));
    }

    fn poll(&mut self) -> (Result<bool, deepxtrace_nccl_h2::ReadError>, Option<io::Error>) {
        let now = self.moment();
        let (analyzer, record) = (&mut self.analyzer, &mut self.record);
        let mut failed = None;
        let more = self.tail.poll(|event| {
            if let Some(record) = record {
                failed = failed.take().or(record.ingest(event, now).err());
            }
            analyzer.ingest(event, now);
        });
        (more, failed)
    }

    fn finish_lines(&mut self) -> io::Result<()> {
        let now = self.moment();
        let (analyzer, record) = (&mut self.analyzer, &mut self.record);
        let mut failed = None;
        self.tail.finish(|event| {
            if let Some(record) = record {
                failed = failed.take().or(record.ingest(event, now).err());
            }
            analyzer.ingest(event, now);
        });
        failed.map_or(Ok(()), Err)
    }

    /// Notes what is new about the input.
    fn note_input(&mut self) -> anyhow::Result<()> {
        let report = self.tail.report();
        if report.bad_lines() > self.bad_lines {
            self.bad_lines = report.bad_lines();
            let files = report.files.iter().filter(|file| file.bad_lines > 0);
            let text = files
                .filter_map(|file| file.first_bad.first().map(|bad| (file, bad)))
                .map(|(file, bad)| format!("{}:{}: {}", file.path.display(), bad.line, bad.reason))
                .collect::<Vec<_>>();
            self.note(&format!("{} bad lines: {}", self.bad_lines, text.join("; ")))?;
        }
        if self.analyzer.limits_reached().any() && !self.limited {
            self.limited = true;
            warnings::of_limits(&self.analyzer);
            self.note(&format!("a bound was reached: {:?}", self.analyzer.limits_reached()))?;
        }
        Ok(())
    }

    fn moment(&self) -> Moment {
        let nanoseconds = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Moment { monotonic_ns: nanoseconds(self.began.elapsed()), unix_ns: nanoseconds(unix) }
    }

    fn note(&mut self, text: &str) -> anyhow::Result<()> {
        writeln!(self.log, "[{}] {text}", utc_now())
            .with_context(|| self.folder.join(LOG_FILE).display().to_string())
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
