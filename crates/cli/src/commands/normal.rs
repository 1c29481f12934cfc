//! `deepxtrace normal ...`: windows of Normal-mode counters.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::bail;
use clap::{Args, Subcommand};
use deepxtrace::counters::{Snapshot, Step, Windows};
use deepxtrace::normal::{Diagnoser, WindowDiagnosis};

use serde::Serialize;

use crate::commands::Outcome;
use crate::commands::policy::PolicyArgs;
use crate::input::artifacts::{read_normal, windows_of};
use crate::input::skipped::Skipped;
use crate::input::snapshots::SnapshotFile;
use crate::output::{Output, warn};
use crate::text::normal::Report;

/// Diagnose windows of Normal-mode counters.
#[derive(Debug, Args)]
pub struct Normal {
    #[command(subcommand)]
    command: NormalCommand,
}

#[derive(Debug, Subcommand)]
enum NormalCommand {
    Analyze(Analyze),
}

impl Normal {
    /// Runs the command.
    pub fn run(self, output: &mut Output) -> anyhow::Result<Outcome> {
        match self.command {
            NormalCommand::Analyze(command) => command.run(output),
        }
    }
}

/// Diagnose every window of a file of cumulative counters.
///
/// The file is an NPZ archive: `counters`, integers [W, N, 6 + 9N], the cumulative vectors of N
/// ranks at W times; `timestamps_unix_ns`, when; `ranks_per_node`, a scalar; optionally `present`,
/// booleans [W, N], whose snapshot arrived. The first snapshot is the boundary: it begins window 1.
///
/// A folder is one of DEEPEP_DIAGNOSE_ARTIFACT_PATH: the counters of its windows are diagnosed again,
/// in order and without earlier history, with the thresholds given here. Each instance for itself. A
/// file that cannot be used is named, and the others are diagnosed.
#[derive(Debug, Args)]
struct Analyze {
    /// The file, or a folder of windows
    #[arg(value_name = "SNAPSHOTS.npz | DIR")]
    file: PathBuf,
    /// Of a folder: only the windows of this instance
    #[arg(long, value_name = "ID")]
    instance: Option<String>,
    /// One JSON object a window
    #[arg(long)]
    json: bool,
    /// Exit with 1 when a window has a finding
    #[arg(long)]
    fail_on_findings: bool,
    #[command(flatten)]
    policy: PolicyArgs,
}

impl Analyze {
    fn run(self, output: &mut Output) -> anyhow::Result<Outcome> {
        if self.file.is_dir() {
            return self.run_folder(output);
        }
        if self.instance.is_some() {
            bail!("{}: --instance belongs to a folder of windows", self.file.display());
        }
        let mut file = SnapshotFile::open(&self.file)?;
        let name = self.file.display();
        if file.len() == 1 {
            warn(&format!("{name}: one snapshot, and a window is what two differ by"));
        }
        if let Some(snapshot) = file.out_of_order() {
            warn(&format!(
                "{name}: entry timestamps_unix_ns: snapshot {snapshot} is not later than the one \
                 before; snapshots are taken in the order in which they stand"
            ));
        }
        let topology = file.topology();
        let mut diagnoser = Diagnoser::new(topology, self.policy.policy())?;
        let mut text = Report::default();
        if !self.json {
            let windows = file.len().saturating_sub(1);
            Report::title(output, &self.file.display().to_string(), windows, topology)?;
        }
        let mut found = false;
        each_window(&mut file, &mut diagnoser, |report| {
            found |= report.has_findings();
            if self.json {
                serde_json::to_writer(&mut *output, report)?;
                writeln!(output)?;
                Ok(())
            } else {
                Ok(text.window(output, report)?)
            }
        })?;
        if !self.json {
            text.finish(output)?;
        }
        Ok(if found && self.fail_on_findings { Outcome::Found } else { Outcome::Done })
    }

    /// Diagnoses windows that were kept as files again.
    fn run_folder(self, output: &mut Output) -> anyhow::Result<Outcome> {
        let mut found = false;
        let mut skipped = Skipped::default();
        for (instance, paths) in windows_of(&self.file, self.instance.as_deref())? {
            let mut text = Report::default();
            let mut diagnoser: Option<Diagnoser> = None;
            let count = paths.len();
            for path in paths {
                let Some(artifact) = skipped.take(read_normal(&path)) else { continue };
                let window = artifact.window;
                let diagnoser = match &mut diagnoser {
                    Some(diagnoser) => diagnoser,
                    None => {
                        let topology = window.topology();
                        if !self.json {
                            let title = format!("{}, instance {instance}", self.file.display());
                            Report::title(output, &title, count, topology)?;
                        }
                        diagnoser.insert(Diagnoser::new(topology, self.policy.policy())?)
                    }
                };
                let report = diagnoser.diagnose(&window);
                found |= report.has_findings();
                if self.json {
                    let instance_id = &*instance;
                    serde_json::to_writer(&mut *output, &OfInstance { instance_id, report })?;
                    writeln!(output)?;
                } else {
                    text.window(output, report)?;
                }
            }
            if !self.json && diagnoser.is_some() {
                text.finish(output)?;
            }
        }
        skipped.finish()?;
        Ok(if found && self.fail_on_findings { Outcome::Found } else { Outcome::Done })
    }
}

/// A line of `--json` for a window from a folder.
#[derive(Serialize)]
struct OfInstance<'a> {
    instance_id: &'a str,
    #[serde(flatten)]
    report: &'a WindowDiagnosis,
}

/// Diagnoses the windows of a file in order.
fn each_window(
    file: &mut SnapshotFile,
    diagnoser: &mut Diagnoser,
    mut take: impl FnMut(&WindowDiagnosis) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let topology = file.topology();
    let mut snapshots = file.snapshots()?;
    let mut snapshot = Snapshot::zeros(topology, 0);
    let mut windows = Windows::new(topology);
    let mut present_before = Vec::new();
    while snapshots.read(&mut snapshot)? {
        let present = snapshot.present().to_vec();
        match windows.advance(&mut snapshot) {
            Ok(Step::Boundary) => {}
            Ok(Step::Window(window)) => take(diagnoser.diagnose(window))?,
            Err(error) => {
                let both = present.iter().zip(&present_before);
                let valid: Vec<bool> = both.map(|(&now, &before)| now && before).collect();
                let index = windows.next_index().saturating_sub(1);
                take(diagnoser.refuse(index, &error, &valid))?;
            }
        }
        present_before = present;
    }
    Ok(())
}
