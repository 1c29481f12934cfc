//! `deepxtrace nccl analyze`: what a trace that has ended shows.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use deepxtrace_nccl_h2::{
    Analyzer, Config, Finding, Moment, ReadReport, RunFolder, TraceReader, fr, ras,
};
use indicatif::{ProgressBar, ProgressStyle};

use super::settings::{Given, SettingsFlags};
use super::{dumps, left, ras as answers, warnings};
use crate::commands::Outcome;
use crate::output::{FAINT, GOOD, Output};
use crate::text;

/// A progress bar is shown from this number of bytes on.
const LONG: u64 = 64 << 20;
/// Threads that read; the analysis itself is done by one at a time.
const MAX_THREADS: usize = 4;

/// Diagnose what is recorded of a job that has ended or hangs.
///
/// PATH is the folder of traces of a run, the folder `tracing` above it, or the log folder above
/// that; or a folder of PyTorch Flight Recorder dumps; or answers of NCCL's RAS, two or more files
/// in the order of time.
#[derive(Debug, Args)]
pub struct Analyze {
    /// The folder or files; by default the log_dir of the configuration file
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// What is recorded; auto looks at the files
    #[arg(long, value_name = "KIND", default_value = "auto")]
    format: Format,
    /// The run; needed only where the folder holds several
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
    /// Folder with heartbeat files of another writer
    #[arg(long, value_name = "DIR")]
    heartbeat_dir: Option<PathBuf>,
    /// Seconds that the job stood still after the last event of the trace
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    stood_still: f64,
    /// Write who waits for whom into this file, for Graphviz
    #[arg(long, value_name = "FILE")]
    dot: Option<PathBuf>,
    /// One JSON object a finding, and nothing else
    #[arg(long)]
    json: bool,
    /// Exit with 1 when something was found; findings that the end of the trace cut short do not
    /// count
    #[arg(long)]
    fail_on_findings: bool,
    #[command(flatten)]
    settings: SettingsFlags,
}

/// Kinds of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// What the files look like
    Auto,
    /// Traces of this project's probe
    Trace,
    /// PyTorch Flight Recorder dumps
    Fr,
    /// Answers of NCCL's RAS
    Ras,
}

impl Format {
    /// The kind that is asked for, or what the files look like.
    fn of(self, paths: &[PathBuf], run_id: Option<&str>) -> Self {
        match (self, paths) {
            (Self::Auto, []) => Self::Trace,
            (Self::Auto, paths) if paths.iter().all(|path| answers::is_answer(path)) => Self::Ras,
            (Self::Auto, [folder, ..]) => {
                let is_run = folder.is_dir() && RunFolder::find(folder, run_id).is_ok();
                if !is_run && fr::is_dump(folder) { Self::Fr } else { Self::Trace }
            }
            (given, _) => given,
        }
    }
}

impl Analyze {
    /// Runs the command.
    pub fn run(self, output: &mut Output) -> anyhow::Result<Outcome> {
        let given = self.settings.read()?;
        let config = given.settings.resolve()?;
        if !(self.stood_still >= 0.0 && self.stood_still <= 1e9) {
            bail!("--stood-still is {}: a number of seconds from 0 on is needed", self.stood_still);
        }
        let run_id = self.run_id.clone().unwrap_or_default();
        let counts = match self.format.of(&self.paths, self.run_id.as_deref()) {
            Format::Fr => {
                let stood_still_s = self.stood_still;
                let options = fr::Options { config, stood_still_s, run_id };
                dumps::analyze(&self.paths, &options, self.json, output)?
            }
            Format::Ras => {
                let options = ras::Options { config, run_id };
                answers::analyze(&self.paths, &options, self.json, output)?
            }
            Format::Auto | Format::Trace => self.trace(&given, config, output)?,
        };
        Ok(if counts && self.fail_on_findings { Outcome::Found } else { Outcome::Done })
    }

    /// Diagnoses traces. Says whether anything was found that counts.
    fn trace(&self, given: &Given, config: Config, output: &mut Output) -> anyhow::Result<bool> {
        if let [_, second, ..] = self.paths.as_slice() {
            bail!("{}: one folder of traces can be analyzed, not two", second.display());
        }
        let Some(folder) = self.paths.first().or(given.log_dir.as_ref()) else {
            bail!("name the folder of the traces, or a configuration file with log_dir");
        };
        // A process that was killed early may have left nothing but its rings.
        left::take_up(folder);
        let run = RunFolder::find(folder, self.run_id.as_deref())?;
        left::take_up(&run.path);
        let mut files = run.files()?;
        if let Some(folder) = &self.heartbeat_dir {
            files.extend(heartbeat_files(folder)?);
        }
        let mut analyzer = Analyzer::new(run.run_id.clone(), config);
        let report = read(files, &mut analyzer);
        warnings::of_reading(&report);
        warnings::of_limits(&analyzer);
        if analyzer.process_count() == 0 && report.files.iter().all(|file| file.error.is_none()) {
            let path = run.path.display();
            bail!("{path}: no event of run {} in its files: nothing can be said", run.run_id);
        }
        let newest = analyzer.newest_receipt_ns().unwrap_or(0);
        let end = Moment { monotonic_ns: newest, unix_ns: newest };
        if let Some(path) = &self.dot {
            std::fs::write(path, analyzer.wait_graph(end).to_dot())
                .with_context(|| path.display().to_string())?;
        }
        let findings = analyzer.finish_after(end, Duration::from_secs_f64(self.stood_still));
        if self.json {
            for finding in &findings {
                writeln!(output, "{}", finding.to_json())?;
            }
        } else {
            summarize(output, &run, &analyzer, &report, &findings)?;
        }
        if let Some(file) = report.files.iter().find(|file| file.error.is_some()) {
            let error = file.error.as_deref().unwrap_or_default();
            bail!("{}: {error}; the findings lack what it holds", file.path.display());
        }
        Ok(findings.iter().any(|finding| !finding.trace_ended_early()))
    }
}

fn heartbeat_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let run = RunFolder { path: folder.to_owned(), run_id: String::new() };
    run.files().context("--heartbeat-dir")
}

/// Reads all files into the analyzer.
fn read(files: Vec<PathBuf>, analyzer: &mut Analyzer) -> ReadReport {
    let reader = TraceReader::new(files);
    let total = reader.total_bytes();
    let bar = match std::io::stderr().is_terminal() && total >= LONG {
        true => bar(total),
        false => ProgressBar::hidden(),
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let report = reader.read(
        threads,
        |event, receipt| {
            analyzer.ingest(event, receipt);
        },
        |bytes| bar.inc(bytes),
    );
    bar.finish_and_clear();
    report
}

fn bar(total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total);
    let style = "{bar:40} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    if let Ok(style) = ProgressStyle::with_template(style) {
        bar.set_style(style);
    }
    bar
}

fn summarize(
    output: &mut Output,
    run: &RunFolder,
    analyzer: &Analyzer,
    report: &ReadReport,
    findings: &[Finding],
) -> anyhow::Result<()> {
    writeln!(
        output,
        "{FAINT}run {} in {}: {} lines of {} processes on {} communicators{FAINT:#}",
        run.run_id,
        run.path.display(),
        report.lines(),
        analyzer.process_count(),
        analyzer.communicator_count(),
    )?;
    for finding in findings {
        writeln!(output)?;
        text::nccl::finding(output, finding)?;
    }
    if findings.is_empty() {
        writeln!(output, "{GOOD}nothing found{GOOD:#}")?;
    }
    Ok(())
}
