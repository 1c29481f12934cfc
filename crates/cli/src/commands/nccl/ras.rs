//! `deepxtrace nccl ras`: asks NCCL's RAS socket of a running job; and saved answers of it.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use deepxtrace_nccl_h2::ras::{Answer, Client, DEFAULT_PORT, Options, RasReport, judge};
use deepxtrace_nccl_h2::{MAX_SECONDS, Settings};

use super::warnings::warn;
use crate::commands::Outcome;
use crate::output::Output;
use crate::text;

/// Ask a running job, through NCCL's RAS socket, which ranks are behind, missing or in error.
///
/// RAS counts what each rank has launched, for every communicator. Launching is not completing: a
/// job that hangs on its devices has equal counts. One answer does not tell whether the job moves;
/// --watch asks again and again. Needs NCCL 2.28 or later in the job.
#[derive(Debug, Args)]
pub struct Ras {
    /// Host on which a process of the job runs
    #[arg(long, value_name = "HOST", default_value = "localhost")]
    host: String,
    /// Port of RAS (NCCL_RAS_ADDR of the job)
    #[arg(long, value_name = "PORT", default_value_t = DEFAULT_PORT)]
    port: u16,
    /// Seconds that one answer may take
    #[arg(long, value_name = "SECONDS", default_value_t = 15.0, value_parser = seconds)]
    timeout: f64,
    /// Ask until interrupted, and tell what is new
    #[arg(long)]
    watch: bool,
    /// Seconds between two questions of --watch
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = seconds)]
    interval: f64,
    /// End --watch after so many answers
    #[arg(long, value_name = "N", requires = "watch")]
    count: Option<u64>,
    /// Seconds of standing still until a rank that is behind is missing
    #[arg(long, value_name = "SECONDS")]
    collective_timeout: Option<f64>,
    /// Print the answer as it came, to be kept for analyze --format ras
    #[arg(long, conflicts_with_all = ["watch", "json"])]
    raw: bool,
    /// One JSON object a finding
    #[arg(long)]
    json: bool,
    /// Exit with 1 when something was found; suspicions that one more answer may take back do not
    /// count
    #[arg(long)]
    fail_on_findings: bool,
}

/// A positive number of seconds.
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(seconds) if seconds > 0.0 && seconds <= MAX_SECONDS => Ok(seconds),
        _ => Err("must be a positive number of seconds".to_owned()),
    }
}

impl Ras {
    /// Runs the command.
    pub fn run(self, output: &mut Output) -> anyhow::Result<Outcome> {
        let settings =
            Settings { collective_timeout_s: self.collective_timeout, ..Settings::default() };
        let options = Options { config: settings.resolve()?, run_id: String::new() };
        let found = if self.watch {
            self.watch(&options, output)?
        } else {
            let answer = self.client().ask()?;
            if self.raw {
                output.write_all(answer.as_bytes())?;
                return Ok(Outcome::Done);
            }
            let report = judge(&[Answer::parse(&answer)?], &options)?;
            print(&report, self.json, output)?;
            counts(&report)
        };
        Ok(if found && self.fail_on_findings { Outcome::Found } else { Outcome::Done })
    }

    fn client(&self) -> Client {
        let timeout = Duration::from_secs_f64(self.timeout);
        Client { host: self.host.clone(), port: self.port, timeout, ..Client::default() }
    }

    /// Asks again and again. Once an answer was had, a question without one is told and no end.
    fn watch(&self, options: &Options, output: &mut Output) -> anyhow::Result<bool> {
        let client = self.client();
        let mut answers: Vec<Answer> = Vec::new();
        let mut told: Vec<String> = Vec::new();
        let mut found = false;
        let mut asked = 0_u64;
        loop {
            let answer = client.ask().and_then(|text| Answer::parse(&text));
            match answer {
                Ok(answer) => {
                    forget(&mut answers, &answer);
                    answers.push(answer);
                    let report = judge(&answers, options)?;
                    found |= counts(&report);
                    told = self.tell(&report, told, output)?;
                }
                Err(error) if answers.is_empty() => return Err(error.into()),
                Err(error) => warn(&format!("{:#}", anyhow::Error::from(error))),
            }
            output.flush()?;
            asked = asked.saturating_add(1);
            if self.count.is_some_and(|count| asked >= count) {
                return Ok(found);
            }
            thread::sleep(Duration::from_secs_f64(self.interval));
        }
    }

    /// Prints what was not told of the answer before, and returns what is told now.
    fn tell(
        &self,
        report: &RasReport,
        told: Vec<String>,
        output: &mut Output,
    ) -> anyhow::Result<Vec<String>> {
        let now: Vec<String> = report.findings.iter().map(text::ras::identity).collect();
        let mut fresh = report.clone();
        let mut identities = now.iter();
        fresh.findings.retain(|_| identities.next().is_some_and(|known| !told.contains(known)));
        print(&fresh, self.json, output)?;
        Ok(now)
    }
}

/// Answers that are kept: longer than any timeout goes back.
const KEPT: usize = 1000;

/// Drops what no longer matters before an answer is added: those of another job on the same port,
/// and the oldest of many.
fn forget(answers: &mut Vec<Answer>, next: &Answer) {
    let older = |last: &Answer| {
        last.timestamp_s().zip(next.timestamp_s()).is_some_and(|(last, next)| next < last)
    };
    if answers.last().is_some_and(older) {
        answers.clear();
    }
    if answers.len() >= KEPT {
        answers.remove(0);
    }
}

/// Bytes at the beginning of a file that tell what it is.
const HEAD: u64 = 4096;

/// Whether a file looks like an answer of RAS.
pub fn is_answer(path: &Path) -> bool {
    let head = || -> io::Result<String> {
        let mut head = Vec::new();
        File::open(path)?.take(HEAD).read_to_end(&mut head)?;
        Ok(String::from_utf8_lossy(&head).into_owned())
    };
    head().is_ok_and(|head| {
        head.starts_with("SERVER PROTOCOL") || head.contains("\"communicators_count\"")
    })
}

/// Judges saved answers in the order of time. Says whether anything was found that counts.
pub fn analyze(
    files: &[PathBuf],
    options: &Options,
    json: bool,
    output: &mut Output,
) -> anyhow::Result<bool> {
    let read = |path: &PathBuf| -> anyhow::Result<Answer> {
        let place = || path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(place)?;
        Answer::parse(&text).with_context(place)
    };
    let answers = files.iter().map(read).collect::<anyhow::Result<Vec<Answer>>>()?;
    let report = judge(&answers, options)?;
    print(&report, json, output)?;
    Ok(counts(&report))
}

/// Whether there is a finding that more answers cannot take back.
fn counts(report: &RasReport) -> bool {
    report.findings.iter().any(|found| !found.finding.trace_ended_early())
}

fn print(report: &RasReport, json: bool, output: &mut Output) -> anyhow::Result<()> {
    if json {
        for found in &report.findings {
            writeln!(output, "{}", found.to_json())?;
        }
    } else {
        text::ras::report(output, report)?;
    }
    Ok(())
}
