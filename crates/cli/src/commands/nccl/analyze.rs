//! `deepxtrace nccl analyze`: what a trace that has ended shows.

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use deepxtrace_nccl_h2::{
    Analyzer, Config, Finding, MAX_SECONDS, Moment, ReadReport, RunFolder, TraceReader, fr, ras,
};
use indicatif::{ProgressBar, ProgressStyle};

use super::settings::{Given, SettingsFlags};
use super::warnings::warn;
use super::{dumps, left, mixed, ras as answers, warnings};
use crate::commands::Outcome;
use crate::output::{FAINT, GOOD, Output};
use crate::text::{self, count};

/// A progress bar is shown from this number of bytes on.
const LONG: u64 = 64 << 20;
/// Threads that read; the analysis itself is done by one at a time.
const MAX_THREADS: usize = 4;

/// Diagnose what is recorded of a job that has ended or hangs.
///
/// PATH is the folder of traces of a run, the folder `tracing` above it, or the log folder above
/// that; or a folder of PyTorch Flight Recorder dumps; or answers of NCCL's RAS, two or more files
/// in the order of time.
///
/// Traces that lie on the disks of several machines need no shared file system:
/// `mpirun -n 8 deepxtrace nccl analyze --mpi DIR...` with one process or more on each of them. The
/// first process prints what was found.
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
    /// As one of the processes of mpirun, each of which reads the traces that it has in the folders;
    /// a process without any is fine (needs a build with the feature mpi)
    #[arg(long)]
    mpi: bool,
    /// Seconds that the job stood still after the last event of the trace
    #[arg(long, value_name = "SECONDS", default_value_t = 0.0)]
    stood_still: f64,
    /// Write who waits for whom into this file, for Graphviz
    #[arg(long, value_name = "FILE")]
    dot: Option<PathBuf>,
    /// Also write the findings of traces into this file, one JSON object a line; it is there when it
    /// is complete
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
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
        if self.mpi {
            return self.run_mpi(output);
        }
        let given = self.settings.read()?;
        let config = self.check(&given)?;
        let run_id = self.run_id.clone().unwrap_or_default();
        let taken = self.format.of(&self.paths, self.run_id.as_deref());
        if let (Format::Auto, [folder, ..]) = (self.format, &self.paths[..]) {
            say_what_is_taken(folder, taken);
        }
        let counts = match taken {
            Format::Fr => {
                self.only_of_traces()?;
                let stood_still_s = self.stood_still;
                let options = fr::Options { config, stood_still_s, run_id };
                dumps::analyze(&self.paths, &options, self.json, output)?
            }
            Format::Ras => {
                self.only_of_traces()?;
                let options = ras::Options { config, run_id };
                answers::analyze(&self.paths, &options, self.json, output)?
            }
            Format::Auto | Format::Trace => {
                let reading = self.trace(&given, config)?;
                self.conclude(reading, output)?
            }
        };
        Ok(self.outcome(counts))
    }

    #[cfg(feature = "mpi")]
    fn run_mpi(self, output: &mut Output) -> anyhow::Result<Outcome> {
        use super::spread::Joint;

        let mut mpi = crate::mpi::Mpi::start()?;
        // What all know to be wrong the root tells, and all end. What is wrong with one process ends
        // the job: the others would wait for it.
        let joint = self.read_mpi(&mut mpi).unwrap_or_else(|error| mpi.abort(&error));
        match joint {
            Joint::Whole(reading) => {
                let counts = self.conclude(*reading, output)?;
                Ok(self.outcome(counts))
            }
            Joint::Elsewhere => Ok(Outcome::Done),
            Joint::Refused(error) => Err(error),
        }
    }

    #[cfg(feature = "mpi")]
    fn read_mpi(&self, mpi: &mut crate::mpi::Mpi) -> anyhow::Result<super::spread::Joint> {
        use super::spread::{Joint, Wanted, read};

        let settled = mpi.told_by_root(|| {
            let given = self.settings.read()?;
            self.check(&given)?;
            if !matches!(self.format, Format::Auto | Format::Trace) {
                bail!("--mpi is for traces only");
            }
            if let Some(file) = &self.out {
                remove_old(file)?;
            }
            Ok((given.settings, given.log_dir, self.run_id.clone()))
        })?;
        let (settings, log_dir, run_id) = match settled {
            Some(Ok(settled)) => settled,
            Some(Err(error)) => return Ok(Joint::Refused(error)),
            None => return Ok(Joint::Elsewhere),
        };
        // Each process may have been given other folders.
        let folders = match &self.paths[..] {
            [] => log_dir.into_iter().collect(),
            folders => folders.to_vec(),
        };
        let heartbeats = self.heartbeat_dir.clone();
        let wanted = Wanted { folders, heartbeats, run_id, config: settings.resolve()? };
        read(mpi, wanted)
    }

    #[cfg(not(feature = "mpi"))]
    fn run_mpi(self, _: &mut Output) -> anyhow::Result<Outcome> {
        bail!("--mpi: this build has no MPI (cargo build --features mpi)")
    }

    fn check(&self, given: &Given) -> anyhow::Result<Config> {
        if !(0.0..=MAX_SECONDS).contains(&self.stood_still) {
            let given = self.stood_still;
            bail!(
                "--stood-still is {given:?}: it must be a number of seconds from 0 to {MAX_SECONDS}"
            );
        }
        Ok(given.settings.resolve()?)
    }

    fn only_of_traces(&self) -> anyhow::Result<()> {
        if self.out.is_some() {
            bail!("--out is for traces only");
        }
        Ok(())
    }

    fn outcome(&self, counts: bool) -> Outcome {
        if counts && self.fail_on_findings { Outcome::Found } else { Outcome::Done }
    }

    /// Reads traces.
    fn trace(&self, given: &Given, config: Config) -> anyhow::Result<Reading> {
        if let [_, second, ..] = self.paths.as_slice() {
            bail!("{}: one folder of traces can be analyzed, not two", second.display());
        }
        let Some(folder) = self.paths.first().or(given.log_dir.as_ref()) else {
            bail!("name the folder of the traces, or a configuration file with log_dir");
        };
        if folder.is_file() {
            refuse_file(folder)?;
        }
        if let Some(file) = &self.out {
            remove_old(file)?;
        }
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
        let unread = report.files.iter().find_map(|file| {
            file.error.as_ref().map(|error| format!("{}: {error}", file.path.display()))
        });
        let (place, lines) = (run.path.display().to_string(), report.lines());
        Ok(Reading { run_id: run.run_id, place, analyzer, lines, unread })
    }

    /// Diagnoses what was read. Says whether anything was found that counts.
    fn conclude(&self, reading: Reading, output: &mut Output) -> anyhow::Result<bool> {
        let Reading { run_id, place, mut analyzer, lines, unread } = reading;
        warnings::of_limits(analyzer.limits_reached());
        if analyzer.process_count() == 0 && unread.is_none() {
            bail!("{place}: no event of run {run_id} in its files: nothing can be said");
        }
        let newest = analyzer.newest_receipt_ns().unwrap_or(0);
        let end = Moment { monotonic_ns: newest, unix_ns: newest };
        if let Some(path) = &self.dot {
            std::fs::write(path, analyzer.wait_graph(end).to_dot())
                .with_context(|| path.display().to_string())?;
        }
        let findings = analyzer.finish_after(end, Duration::from_secs_f64(self.stood_still));
        if let Some(file) = &self.out {
            write_whole(file, &findings).with_context(|| file.display().to_string())?;
        }
        if self.json {
            for finding in &findings {
                writeln!(output, "{}", finding.to_json())?;
            }
        } else {
            let what = format!(
                "run {run_id} in {place}: {} of {} on {}",
                count(lines, "line"),
                count(analyzer.process_count(), "process"),
                count(analyzer.communicator_count(), "communicator"),
            );
            summarize(output, &what, &findings)?;
        }
        if let Some(unread) = unread {
            bail!("{unread}; the findings lack what it holds");
        }
        Ok(findings.iter().any(|finding| !finding.trace_ended_early()))
    }
}

/// Traces that were read.
pub struct Reading {
    /// The run.
    pub run_id: String,
    /// Where they are, for people.
    pub place: String,
    /// What has taken them in.
    pub analyzer: Analyzer,
    /// Lines of all files.
    pub lines: u64,
    /// The first file that could not be read, and why.
    pub unread: Option<String>,
}

/// One file is one process: alone, all others would look as if they were missing.
fn refuse_file(file: &Path) -> anyhow::Result<()> {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder.display().to_string(),
        _ => ".".to_owned(),
    };
    bail!(
        "{}: a file, where the folder of all traces of the run is needed: name {folder}",
        file.display()
    )
}

/// Says what of a folder with traces and dumps was not taken.
fn say_what_is_taken(folder: &Path, taken: Format) {
    let folder_name = folder.display();
    match taken {
        Format::Fr if mixed::has_traces(folder) => warn(&format!(
            "{folder_name}: traces lie beside the Flight Recorder dumps, and the dumps were taken; \
             for the traces: --format trace"
        )),
        Format::Trace if folder.is_dir() && fr::is_dump(folder) => warn(&format!(
            "{folder_name}: Flight Recorder dumps lie beside the traces, and the traces were \
             taken; for the dumps: --format fr"
        )),
        _ => {}
    }
}

/// Takes the file of an earlier analysis away: nobody shall take it for that of this one.
fn remove_old(file: &Path) -> anyhow::Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| file.display().to_string())
        }
        _ => Ok(()),
    }
}

/// Writes findings under a name of their own, and gives them theirs when they are on the disk.
fn write_whole(file: &Path, findings: &[Finding]) -> std::io::Result<()> {
    let folder = match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".findings-").suffix(".part");
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut part = builder.tempfile_in(folder)?;
    let mut writer = std::io::BufWriter::new(&mut part);
    for finding in findings {
        writeln!(writer, "{}", finding.to_json())?;
    }
    writer.flush()?;
    drop(writer);
    part.as_file().sync_all()?;
    part.persist(file)?;
    Ok(())
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

fn summarize(output: &mut Output, what: &str, findings: &[Finding]) -> anyhow::Result<()> {
    writeln!(output, "{FAINT}{what}{FAINT:#}")?;
    for finding in findings {
        writeln!(output)?;
        text::nccl::finding(output, finding)?;
    }
    if findings.is_empty() {
        writeln!(output, "{GOOD}nothing found{GOOD:#}")?;
    }
    Ok(())
}
