//! `deepxtrace demo nccl`: traces of simulated jobs with known faults, analyzed as those of real
//! jobs are.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use deepxtrace_nccl_h2::{Analyzer, Config, Finding, HangType, Moment, RunFolder, TraceReader};
use deepxtrace_sim::nccl::{Call, Fault, Job, Step, write_folder};
use serde::Serialize;

use crate::commands::Outcome;
use crate::output::{BAD, FAINT, GOOD, HEADING, Output};
use crate::text;

/// Find planted faults in the NCCL traces of simulated jobs; needs no GPU.
#[derive(Debug, Args)]
pub struct DemoNccl {
    /// Keep the traces in this folder (made if absent), one run a fault
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// One JSON object a fault
    #[arg(long)]
    json: bool,
}

/// A job with a fault, and what must be found.
struct Scenario {
    name: &'static str,
    about: &'static str,
    job: Job,
    expected: &'static [HangType],
}

/// What came of it; the object of `--json`.
#[derive(Serialize)]
struct Outcomes<'a> {
    scenario: &'static str,
    ranks: usize,
    lines: u64,
    findings: &'a [Finding],
    expected: &'static [HangType],
    as_expected: bool,
}

impl DemoNccl {
    /// Runs the command.
    pub fn run(self, output: &mut Output) -> anyhow::Result<Outcome> {
        let kept;
        let folder = match &self.out {
            Some(folder) => folder.clone(),
            None => {
                kept = tempfile::Builder::new().prefix("deepxtrace-demo-").tempdir()?;
                kept.path().to_owned()
            }
        };
        let scenarios = scenarios()?;
        let mut right = 0;
        for scenario in &scenarios {
            let run = folder.join("tracing").join(scenario.name);
            let (findings, lines) = analyze(&scenario.job, scenario.name, &run)?;
            let kinds: Vec<HangType> = findings.iter().map(|finding| finding.hang_type).collect();
            let as_expected = kinds == scenario.expected;
            right += usize::from(as_expected);
            let outcomes = Outcomes {
                scenario: scenario.name,
                ranks: scenario.job.ranks(),
                lines,
                findings: &findings,
                expected: scenario.expected,
                as_expected,
            };
            match self.json {
                true => {
                    serde_json::to_writer(&mut *output, &outcomes)?;
                    writeln!(output)?;
                }
                false => show(output, scenario, &outcomes)?,
            }
        }
        if !self.json {
            writeln!(output, "{right} of {} as expected", scenarios.len())?;
            if let Some(folder) = &self.out {
                let tracing = folder.join("tracing");
                writeln!(output, "{FAINT}the traces are in {}{FAINT:#}", tracing.display())?;
            }
        }
        Ok(Outcome::Done)
    }
}

/// Writes the trace of a job, reads it back and analyzes it.
fn analyze(job: &Job, name: &str, folder: &Path) -> anyhow::Result<(Vec<Finding>, u64)> {
    let shown = || folder.display().to_string();
    if folder.exists() {
        // Of an earlier demo: another run of the same name would be read with this one.
        fs::remove_dir_all(folder).with_context(shown)?;
    }
    let end = write_folder(&job.clone().with_run_id(name), folder).with_context(shown)?;
    let run = RunFolder::find(folder, Some(name))?;
    let mut analyzer = Analyzer::new(name, Config::default());
    let report = TraceReader::new(run.files()?).read(
        1,
        |event, receipt| {
            analyzer.ingest(event, receipt);
        },
        |_| {},
    );
    let findings = analyzer.finish(Moment { monotonic_ns: end, unix_ns: end });
    Ok((findings, report.lines()))
}

fn show(output: &mut Output, scenario: &Scenario, outcomes: &Outcomes<'_>) -> anyhow::Result<()> {
    let verdict = match outcomes.as_expected {
        true => format!("{GOOD}as expected{GOOD:#}"),
        false => format!("{BAD}not as expected{BAD:#}"),
    };
    writeln!(
        output,
        "{HEADING}{}{HEADING:#}: {} ({} ranks, {} lines): {verdict}",
        scenario.name, scenario.about, outcomes.ranks, outcomes.lines,
    )?;
    for finding in outcomes.findings {
        text::nccl::finding(output, finding)?;
    }
    if outcomes.findings.is_empty() {
        writeln!(output, "  nothing found")?;
    }
    writeln!(output)?;
    Ok(())
}

fn scenarios() -> anyhow::Result<Vec<Scenario>> {
    let planted = |mut job: Job, fault: Fault| -> anyhow::Result<Job> {
        job.plant(&fault)?;
        Ok(job)
    };
    let training = || Job::collectives(8, 200);
    let mesh = || Job::mesh(2, 4, 2, 6);
    let wrong = Call::all_reduce(2048);
    Ok(vec![
        Scenario { name: "healthy", about: "nothing is wrong", job: mesh(), expected: &[] },
        Scenario {
            name: "wrong_count",
            about: "rank 5 reduces another number of elements once",
            job: planted(training(), Fault::Wrong { rank: 5, call: 101, made: wrong })?,
            expected: &[HangType::CollectiveSignatureMismatch],
        },
        Scenario {
            name: "skipped_call",
            about: "rank 3 leaves one gather out",
            job: planted(training(), Fault::Skip { rank: 3, call: 120 })?,
            expected: &[HangType::SequenceDivergence],
        },
        Scenario {
            name: "missing_rank",
            about: "rank 6 lives and does not come to the last call",
            job: planted(training(), Fault::Stall { rank: 6, call: 199 })?,
            expected: &[HangType::CollectiveMissingEnter],
        },
        Scenario {
            name: "late_rank",
            about: "rank 2 comes 45 s late once",
            job: planted(training(), Fault::Late { rank: 2, call: 50, ns: 45_000_000_000 })?,
            expected: &[HangType::DelayedCollectiveEnter],
        },
        Scenario {
            name: "dead_rank",
            about: "rank 9 of a 2 x 4 x 2 mesh dies and everybody waits",
            job: planted(mesh(), Fault::Dead { rank: 9, call: 5 })?,
            expected: &[HangType::RootBlocker],
        },
        Scenario {
            name: "opposite_order",
            about: "two ranks use two communicators in opposite orders",
            job: opposite_order(),
            expected: &[HangType::CommunicatorDeadlock],
        },
        Scenario {
            name: "wrong_peer",
            about: "stage 1 of a pipeline of 4 sends past its neighbour once",
            job: planted(Job::mesh(1, 4, 1, 8), Fault::WrongPeer { rank: 1, send: 3, to: 3 })?,
            expected: &[HangType::CommunicatorDeadlock],
        },
    ])
}

fn opposite_order() -> Job {
    let mut job = Job::new(2);
    let comms = [job.add_comm(vec![0, 1]), job.add_comm(vec![0, 1])];
    for rank in 0..2 {
        for comm in [comms[rank], comms[1 - rank]] {
            job.push(rank, Step::Collective { comm, call: Call::all_reduce(1 << 20) });
            job.push(rank, Step::Sync);
        }
    }
    job
}
