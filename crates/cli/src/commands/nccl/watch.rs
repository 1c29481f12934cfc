//! `deepxtrace nccl watch`: a job that runs.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use clap::Args;
use deepxtrace_nccl_h2::{Finding, ReadError, RunFolder, Settings};

use super::left;
use super::live::{Live, Wanted};
use super::settings::SettingsFlags;
use super::warnings;
use crate::commands::Outcome;
use crate::output::Output;
use crate::text;

/// File in the folder of the run with the job's exit code, which says that it has ended.
pub const EXIT_CODE_FILE: &str = "training.exit_code";

/// Watch the traces of a job that runs.
///
/// Findings go to standard output and, each once, to findings.jsonl in the folder of the run, beside
/// analyzer.log and analyzer.pid. Watching ends when training.exit_code appears there (after the
/// grace period if the job failed), or with SIGINT or SIGTERM.
///
/// Where each machine has the traces of its own ranks, `mpirun -n 8 deepxtrace nccl watch --mpi DIR`
/// watches with a process or more on each of them. The first prints what is found, and keeps it in
/// the folder of the run if it has one.
#[derive(Debug, Args)]
pub struct Watch {
    /// The folder of the run, the folder tracing above it, or the log folder above that; by default
    /// the log_dir of the configuration file
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
    /// The run; needed only where the folder holds several
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
    /// Folder with heartbeat files of another writer
    #[arg(long, value_name = "DIR")]
    heartbeat_dir: Option<PathBuf>,
    /// As one of the processes of mpirun, each of which reads the traces that it has in the folder
    /// (needs a build with the feature mpi)
    #[arg(long)]
    mpi: bool,
    /// Also write a session for `nccl replay` into this file
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Write who waits for whom into this file when something is found, for Graphviz
    #[arg(long, value_name = "FILE")]
    dot: Option<PathBuf>,
    /// One JSON object a finding, and nothing else
    #[arg(long)]
    json: bool,
    /// Exit with 1 when something was found
    #[arg(long)]
    fail_on_findings: bool,
    #[command(flatten)]
    settings: SettingsFlags,
}

impl Watch {
    /// Runs the command.
    pub fn run(self, output: &mut Output) -> anyhow::Result<Outcome> {
        if self.mpi {
            return self.run_mpi(output);
        }
        let given = self.settings.read()?;
        // A bad setting is told before anything is waited for.
        given.settings.resolve()?;
        let Some(folder) = self.folder.clone().or(given.log_dir) else {
            bail!("name the folder of the traces, or a configuration file with log_dir");
        };
        let wanted = Wanted::listen()?;
        let Some(run) = self.wait_for_run(&folder, &given.settings, &wanted)? else {
            return Ok(Outcome::Done);
        };
        let mut live =
            Live::new(&run, self.heartbeat_dir.as_deref(), self.record.as_deref(), given.settings)?;
        let mut found = false;
        let mut ending = Ending::new(&run.path, live.grace());
        loop {
            let last = wanted.stop() || ending.reached();
            left::take_up(&run.path);
            let findings = live.look(last, self.dot.as_deref())?;
            found |= !findings.is_empty();
            print(&findings, self.json, output)?;
            if last {
                break;
            }
            wanted.wait(live.interval(), || ending.reached());
        }
        live.close();
        Ok(if found && self.fail_on_findings { Outcome::Found } else { Outcome::Done })
    }

    #[cfg(feature = "mpi")]
    fn run_mpi(self, output: &mut Output) -> anyhow::Result<Outcome> {
        use super::spread_watch::{Wanting, watch};

        let mut mpi = crate::mpi::Mpi::start()?;
        let settled = mpi.told_by_root(|| {
            let given = self.settings.read()?;
            given.settings.resolve()?;
            if self.record.is_some() {
                bail!("--record is not for --mpi");
            }
            Ok((given.settings, given.log_dir, self.run_id.clone()))
        });
        let (settings, log_dir, run_id) = match settled.unwrap_or_else(|error| mpi.abort(&error)) {
            Some(settled) => settled?,
            None => return Ok(Outcome::Done),
        };
        let wanting = Wanting {
            folder: self.folder.or(log_dir),
            heartbeats: self.heartbeat_dir,
            run_id,
            config: settings.resolve()?,
            dot: self.dot,
            json: self.json,
        };
        match watch(&mut mpi, wanting, output) {
            Ok(found) => {
                let found = found? && self.fail_on_findings;
                Ok(if found { Outcome::Found } else { Outcome::Done })
            }
            Err(error) => mpi.abort(&error),
        }
    }

    #[cfg(not(feature = "mpi"))]
    fn run_mpi(self, _: &mut Output) -> anyhow::Result<Outcome> {
        bail!("--mpi: this build has no MPI (cargo build --features mpi)")
    }

    /// Waits until the run has a trace file; `None` when a signal came first.
    fn wait_for_run(
        &self,
        folder: &Path,
        settings: &Settings,
        wanted: &Wanted,
    ) -> anyhow::Result<Option<RunFolder>> {
        let interval = Duration::try_from_secs_f64(settings.resolve()?.scan_interval_s)
            .context("scan_interval_s")?;
        let mut told = false;
        loop {
            match RunFolder::find(folder, self.run_id.as_deref()) {
                Ok(run) => return Ok(Some(run)),
                Err(ReadError::NoTrace { .. } | ReadError::NoSuchRun { .. }) => {}
                Err(ReadError::Io { source, .. })
                    if source.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
            if !std::mem::replace(&mut told, true) {
                warnings::waiting(folder);
            }
            wanted.wait(interval, || false);
            if wanted.stop() {
                return Ok(None);
            }
        }
    }
}

/// Prints findings as they come.
pub fn print(findings: &[Finding], json: bool, output: &mut Output) -> anyhow::Result<()> {
    for finding in findings {
        match json {
            true => writeln!(output, "{}", finding.to_json())?,
            false => text::nccl::finding(output, finding)?,
        }
    }
    output.flush()?;
    Ok(())
}

/// When watching ends because the job has.
pub struct Ending {
    file: PathBuf,
    grace: Duration,
    /// When the job was seen to have failed.
    failed: Option<Instant>,
}

impl Ending {
    pub fn new(folder: &Path, grace: Duration) -> Self {
        Self { file: folder.join(EXIT_CODE_FILE), grace, failed: None }
    }

    /// Whether the job was seen to have failed.
    #[cfg(feature = "mpi")]
    pub fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Whether the job ended well, or failed and the grace period is over.
    pub fn reached(&mut self) -> bool {
        if let Some(failed) = self.failed {
            return failed.elapsed() >= self.grace;
        }
        // The file may have been made and not yet written.
        let Ok(text) = std::fs::read_to_string(&self.file) else { return false };
        match text.trim() {
            "" => false,
            "0" => true,
            _ => {
                self.failed = Some(Instant::now());
                self.grace.is_zero()
            }
        }
    }
}
