//! `deepxtrace nccl run -- COMMAND...`: runs a job with the probe and watches it.

mod launch;
mod plan;
mod processes;
mod watch;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use clap::{Args, ValueEnum};

use super::left;
use super::settings::SettingsFlags;
use super::watch::EXIT_CODE_FILE;
use crate::commands::Outcome;
use crate::output::Output;
use crate::text;

use launch::Job;
use watch::{Told, Watcher};

/// Run a job with the probe and say what hangs while it runs.
///
/// The command is started as it is, with the probe before its NCCL. Findings go to standard error
/// as they come, and to findings.jsonl in the folder of the run. Signals are passed on, and the exit
/// code is the job's. On several nodes run it on each of them, around that node's own launcher, with
/// one --run-id and an --out folder that all nodes share: the first node analyzes.
#[derive(Debug, Args)]
pub struct Run {
    /// Folder for the traces: they go to OUT/tracing/RUN_ID
    #[arg(long, value_name = "DIR", default_value = "deepxtrace-logs")]
    out: PathBuf,
    /// Name of the run; by default the Slurm job, or the time
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
    /// Whether to look for hangs here: auto means on the first node
    #[arg(long, value_name = "WHEN", default_value = "auto")]
    analyze: When,
    /// The probe, where it is not beside this program
    #[arg(long, value_name = "FILE")]
    probe: Option<PathBuf>,
    /// Also record calls of functions that programs look up by name with dlsym
    #[arg(long)]
    wrap_dlsym: bool,
    /// Exit with 1 when something was found and the job itself ended well
    #[arg(long)]
    fail_on_findings: bool,
    #[command(flatten)]
    settings: SettingsFlags,
    /// The job
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<OsString>,
}

/// When to look for hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum When {
    /// On the first node.
    Auto,
    /// Here.
    Always,
    /// Not here.
    Never,
}

/// A run that is set up.
struct Prepared {
    folder: PathBuf,
    run_id: String,
    node: Option<u64>,
    analyzes: bool,
    job: Job,
}

impl Run {
    /// Runs the job to its end.
    pub fn run(self, output: &mut Output) -> anyhow::Result<Outcome> {
        let settings = self.settings.read()?.settings;
        // A bad setting is told before the job starts.
        settings.resolve()?;
        let mut run = self.prepare()?;
        output.flush()?;
        say(&format!("run {}: traces in {}", run.run_id, run.folder.display()));
        let mut watcher = Watcher::new(&run.folder, &run.run_id, settings, run.analyzes);
        let status = run.job.wait(|| watcher.look_if_due())?;
        let code = launch::exit_code(status);
        left::take_up(&run.folder);
        if run.node.unwrap_or(0) == 0 {
            let path = run.folder.join(EXIT_CODE_FILE);
            std::fs::write(&path, format!("{code}\n"))
                .with_context(|| path.display().to_string())?;
        }
        let told = watcher.finish(run.node.is_some())?;
        summarize(&run, &told, code);
        if code == 0 && told.findings > 0 && self.fail_on_findings {
            return Ok(Outcome::Found);
        }
        Ok(Outcome::Exit(code))
    }

    fn prepare(&self) -> anyhow::Result<Prepared> {
        let variables = |name: &str| std::env::var_os(name);
        let (program, arguments) = plan::command(&self.command)?;
        let own = std::env::current_exe().context("where this program is")?;
        let probe = plan::find_probe(self.probe.as_deref(), &variables, &own)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let run_id = self.run_id.clone();
        let run_id = run_id.unwrap_or_else(|| plan::run_id(&variables, now, std::process::id()));
        plan::check_run_id(&run_id)?;
        let folder = self.out.join("tracing").join(&run_id);
        std::fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
        let folder = folder.canonicalize().with_context(|| folder.display().to_string())?;
        let node = plan::node(&variables, &self.command);
        let analyzes = match self.analyze {
            When::Always => true,
            When::Never => false,
            When::Auto => node.unwrap_or(0) == 0,
        };
        let environment = plan::environment(&probe, &folder, &run_id, self.wrap_dlsym, &variables);
        let job = Job::start(program, arguments, environment)?;
        Ok(Prepared { folder, run_id, node, analyzes, job })
    }
}

/// Writes a line to standard error: standard output belongs to the job.
fn say(line: &str) {
    // Nobody is left to tell when standard error is closed.
    let _ = writeln!(std::io::stderr(), "deepxtrace: {line}");
}

fn summarize(run: &Prepared, told: &Told, code: u8) {
    if !told.calls_seen {
        say("no NCCL call was seen: the job made none, or not from a process with a rank");
    }
    let findings = match told.findings {
        0 if !run.analyzes => "not analyzed here".to_owned(),
        0 => "nothing found".to_owned(),
        many => text::count(many, "finding"),
    };
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for kind in &told.kinds {
        *kinds.entry(kind).or_default() += 1;
    }
    let kinds: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let kinds = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
    say(&format!("job ended with {code}; {findings}{kinds}"));
}
