//! Following the traces of a run: polling, scanning, keeping what was found.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use deepxtrace_nccl_h2::{
    Analyzer, Finding, Moment, RunFolder, SessionWriter, Settings, TraceTail,
};

use super::kept::Kept;
use super::warnings;

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
    kept: Kept,
    analyzer: Analyzer,
    tail: TraceTail,
    record: Option<SessionWriter<BufWriter<File>>>,
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
        let kept = Kept::open(&folder, &run.run_id)?;
        let record = match record {
            Some(path) => {
                let file = File::create(path).with_context(|| path.display().to_string())?;
                Some(SessionWriter::new(BufWriter::new(file), &run.run_id, &settings)?)
            }
            None => None,
        };
        let mut folders = vec![folder];
        folders.extend(heartbeats.map(Path::to_owned));
        Ok(Self {
            kept,
            analyzer: Analyzer::new(run.run_id.clone(), settings.resolve()?),
            tail: TraceTail::new(folders),
            record,
            began: Instant::now(),
            bad_lines: 0,
            limited: false,
        })
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
        found.extend(self.kept.append(open)?);
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
        let new = self.kept.append(found)?;
        if let (Some((path, graph)), false) = (graph, new.is_empty()) {
            fs::write(path, graph.to_dot()).with_context(|| path.display().to_string())?;
        }
        self.note_input()?;
        Ok(new)
    }

    /// Notes the end and takes the mark away that the run is watched.
    pub fn close(self) {
        self.kept.close();
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
            self.kept.note(&format!("{} bad lines: {}", self.bad_lines, text.join("; ")))?;
        }
        if self.analyzer.limits_reached().any() && !self.limited {
            self.limited = true;
            warnings::of_limits(self.analyzer.limits_reached());
            self.kept
                .note(&format!("a bound was reached: {:?}", self.analyzer.limits_reached()))?;
        }
        Ok(())
    }

    fn moment(&self) -> Moment {
        moment(self.began)
    }
}

/// Now, on a clock that began at some moment and on that of the wall.
pub fn moment(began: Instant) -> Moment {
    let nanoseconds = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Moment { monotonic_ns: nanoseconds(began.elapsed()), unix_ns: nanoseconds(unix) }
}
