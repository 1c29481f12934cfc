//! `deepxtrace demo`: the whole way from counters to diagnoses on a simulated job.
//!
//! Sixteen threads stand for the GPUs of two nodes. Each adds to counters in its memory what a rank
//! of the job would count, and the collector of the library snapshots and gathers them as it does
//! in a real job.

mod job;
mod nccl;
mod pictures;
mod table;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand};
use deepxtrace::artifact::list;
use deepxtrace::normal::{Incident, WindowDiagnosis};
use deepxtrace_sim::{Phase, five_phases};
use serde::Serialize;

use crate::commands::Outcome;
use crate::output::Output;
use pictures::Written;

/// Windows of each phase.
const WINDOWS: usize = 8;
/// Name of the log, as a job's root writes it.
const LOG: &str = "diagnose_rank0.log";

/// Diagnose a simulated job of 16 ranks in five phases; needs no GPU.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Demo {
    #[command(subcommand)]
    other: Option<Other>,
    /// Keep everything in this folder (made if absent): the log, every window as a file, and the four
    /// pictures of the last window of each phase. Without it the log goes to a temporary folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Seed of the simulated job
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One JSON object a phase
    #[arg(long)]
    json: bool,
}

/// Demonstrations of other parts.
#[derive(Debug, Subcommand)]
enum Other {
    Nccl(nccl::DemoNccl),
}

/// What one phase led to; the object of `--json`.
#[derive(Debug, Serialize)]
struct PhaseResult {
    phase: &'static str,
    windows: usize,
    /// Of the first window whose incidents are not the expected ones, or else of the last.
    incidents: Vec<Incident>,
    expected: &'static [&'static str],
    as_expected: bool,
    /// Windows whose incidents are the expected ones.
    #[serde(skip)]
    right: usize,
    /// The last window.
    #[serde(skip)]
    last: WindowDiagnosis,
}

impl Demo {
    /// Runs the command.
    pub fn run(self, output: &mut Output) -> anyhow::Result<Outcome> {
        if let Some(Other::Nccl(command)) = self.other {
            return command.run(output);
        }
        let folder = self.folder()?;
        if !self.json {
            table::title(output, self.seed)?;
        }
        let before = list(&folder)?;
        let phases = run(self.seed, &folder, self.out.is_some())?;
        for (phase, result) in five_phases().iter().zip(&phases) {
            if self.json {
                serde_json::to_writer(&mut *output, result)?;
                writeln!(output)?;
            } else {
                table::phase(output, phase, result)?;
            }
        }
        if !self.json {
            table::end(output, &phases, &folder.join(LOG))?;
        }
        if self.out.is_some() {
            let written = Written::since(&before, &folder)?;
            let last_of_each = (1..=phases.len()).map(|phase| phase * WINDOWS);
            let pictures = written.draw(last_of_each)?;
            if !self.json {
                table::files(output, written.len(), pictures, &folder)?;
            }
        }
        Ok(Outcome::Done)
    }

    /// The folder of the log.
    fn folder(&self) -> anyhow::Result<PathBuf> {
        match &self.out {
            Some(folder) => {
                if folder.exists() && !folder.is_dir() {
                    bail!("{}: it is no folder", folder.display());
                }
                fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
                Ok(folder.clone())
            }
            None => temporary().with_context(|| std::env::temp_dir().display().to_string()),
        }
    }
}

/// A new folder that stays.
fn temporary() -> std::io::Result<PathBuf> {
    Ok(tempfile::Builder::new().prefix("deepxtrace-demo-").tempdir()?.keep())
}

/// Runs the five phases, with the log in `folder`, and the windows too if `artifacts`.
fn run(seed: u64, folder: &Path, artifacts: bool) -> anyhow::Result<Vec<PhaseResult>> {
    let phases = five_phases();
    let mut windows = job::run(&phases, WINDOWS, seed, folder, artifacts)?.into_iter();
    let of_phase = |phase| PhaseResult::new(phase, windows.by_ref().take(WINDOWS).collect());
    phases.iter().map(of_phase).collect()
}

impl PhaseResult {
    fn new(phase: &Phase, mut reports: Vec<WindowDiagnosis>) -> anyhow::Result<Self> {
        let is_right = |report: &WindowDiagnosis| plain(&report.incidents) == phase.expected;
        let right = reports.iter().filter(|report| is_right(report)).count();
        let wrong = reports.iter().find(|report| !is_right(report));
        let wrong = wrong.map(|report| report.incidents.clone());
        let windows = WINDOWS;
        let last = reports.pop().with_context(|| format!("phase {} has no window", phase.name))?;
        Ok(Self {
            phase: phase.name,
            windows,
            incidents: wrong.unwrap_or_else(|| last.incidents.clone()),
            expected: phase.expected,
            as_expected: right == windows,
            right,
            last,
        })
    }
}

/// Incidents in the words of [`Phase::expected`].
fn plain(incidents: &[Incident]) -> Vec<String> {
    incidents.iter().map(plain_incident).collect()
}

fn plain_incident(incident: &Incident) -> String {
    let mut text = incident.kind().to_string();
    let mut add = |name: &str, ranks: &[usize]| {
        if !ranks.is_empty() {
            text.push_str(name);
            ranks.iter().for_each(|rank| text.push_str(&format!(" {rank}")));
        }
    };
    match incident {
        Incident::PreStageArrivalSkew { probe, ranks } => add(&format!(" {probe}"), ranks),
        Incident::LocalizedDataPathSlowdown { owners, experts, node_pairs, edges, .. } => {
            add(" owners", owners);
            add(" experts", experts);
            add(" nodes", node_pairs.as_flattened());
            add(" edges", edges.as_flattened());
        }
        _ => {}
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The claim of the demo for any seed: every window of every phase has its diagnosis.
    #[test]
    fn every_seed_gives_the_five_diagnoses() {
        let folder = tempfile::tempdir().unwrap();
        let seeds = if cfg!(debug_assertions) { 40 } else { 300 };
        for seed in 0..seeds {
            let phases = run(seed, folder.path(), false).unwrap();
            assert_eq!(phases.len(), 5);
            for phase in phases {
                assert_eq!(
                    phase.right, WINDOWS,
                    "seed {seed}, {}: {:?}",
                    phase.phase, phase.incidents
                );
            }
        }
    }

    #[test]
    fn an_incident_that_is_not_expected_is_reported() {
        let phase = &five_phases()[1];
        let report = |incidents| WindowDiagnosis { incidents, ..sample() };
        let late = |probe, rank| Incident::PreStageArrivalSkew { probe, ranks: vec![rank] };
        use deepxtrace::counters::NotifyProbe::{CachedNotifyDispatch, NotifyDispatch};
        let right = vec![late(NotifyDispatch, 9), late(CachedNotifyDispatch, 9)];
        let wrong = vec![late(NotifyDispatch, 9), late(CachedNotifyDispatch, 8)];
        let reports = vec![report(right.clone()), report(wrong.clone()), report(right)];
        let result = PhaseResult::new(phase, reports).unwrap();
        assert_eq!((result.right, result.as_expected), (2, false));
        assert_eq!(result.incidents, wrong);
    }

    fn sample() -> WindowDiagnosis {
        let json = r#"{"window_index":1,"state":"idle","reason":null,"missing_ranks":[],
            "tracker":[],"probes":{},"incidents":[]}"#;
        serde_json::from_str(json).unwrap()
    }
}
