//! `deepxtrace nccl replay`: a recorded session, line by line.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use clap::Args;
use deepxtrace_nccl_h2::{MAX_LINE_BYTES, ReplaySession};

use crate::commands::Outcome;
use crate::output::Output;

/// Replay a session that was recorded with `nccl watch --record`, or written by hand.
///
/// Every line is an operation (config, ingest, scan) and is answered with one line. No clock is
/// read: the same session gives the same answers.
#[derive(Debug, Args)]
pub struct Replay {
    /// The session, - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

impl Replay {
    /// Runs the command.
    pub fn run(self, output: &mut Output) -> anyhow::Result<Outcome> {
        let (name, reader): (String, Box<dyn BufRead>) = match self.file.to_str() {
            Some("-") => ("standard input".to_owned(), Box::new(io::stdin().lock())),
            _ => {
                let name = self.file.display().to_string();
                let file = File::open(&self.file).with_context(|| name.clone())?;
                (name, Box::new(BufReader::new(file)))
            }
        };
        let mut session = ReplaySession::default();
        let live = name == "standard input";
        lines(reader, &name, |number, line| {
            let answer = session.line(line).with_context(|| format!("{name}:{number}"))?;
            writeln!(output, "{answer}")?;
            if live {
                // Whoever writes the session may wait for the answer.
                output.flush()?;
            }
            Ok(())
        })?;
        Ok(Outcome::Done)
    }
}

/// Hands on every line that is not empty, with its number from 1.
fn lines(
    mut reader: impl BufRead,
    name: &str,
    mut each: impl FnMut(u64, &str) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    // A line holds an event and little more.
    let limit = 2 * MAX_LINE_BYTES as u64;
    let (mut line, mut number) = (String::new(), 0);
    loop {
        line.clear();
        number += 1;
        let mut part = io::Read::take(&mut reader, limit);
        let read = part.read_line(&mut line).with_context(|| format!("{name}:{number}"))?;
        if read == 0 {
            return Ok(());
        }
        if read as u64 == limit {
            bail!("{name}:{number}: longer than {limit} bytes");
        }
        let text = line.trim();
        if !text.is_empty() {
            each(number, text)?;
        }
    }
}
