//! `deepxtrace report`: one page about a folder of windows.

mod folder;
mod html;
mod meaning;
mod page;
mod strips;
mod worst;

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;

use crate::commands::Outcome;
use crate::input::skipped::Skipped;
use crate::output::Output;
use folder::Folder;

/// Write one HTML page about a folder of windows and findings.
///
/// The folder is one of DEEPEP_DIAGNOSE_ARTIFACT_PATH; files *.jsonl in it that hold findings of
/// `nccl analyze --json` or `nccl watch` are listed too. The page shows when which incident was
/// there, the worst windows with their pictures, and what each finding means. It needs no network. A
/// file that cannot be used is named, and the page is about the others.
#[derive(Debug, Args)]
pub struct Report {
    /// The folder
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The page
    #[arg(long, value_name = "FILE", default_value = "report.html")]
    out: PathBuf,
    /// Windows shown with pictures
    #[arg(long, value_name = "N", default_value_t = 6)]
    worst: usize,
    /// One JSON object with what the page is about
    #[arg(long)]
    json: bool,
}

impl Report {
    /// Runs the command.
    pub fn run(self, output: &mut Output) -> anyhow::Result<Outcome> {
        let mut skipped = Skipped::default();
        let folder = Folder::read(&self.folder, &mut skipped)?;
        let pictured = worst::choose(&folder, self.worst);
        let page = page::write(&folder, &pictured)?;
        let place = || self.out.display().to_string();
        fs::write(&self.out, &page).with_context(place)?;
        let (windows, calls) = (folder.windows().count(), folder.findings.len());
        let incidents = folder.windows().filter(|window| window.has_incidents()).count();
        if self.json {
            let object = serde_json::json!({
                "report": place(),
                "windows": windows,
                "windows_with_incidents": incidents,
                "windows_with_pictures": pictured.len(),
                "nccl_findings": calls,
            });
            writeln!(output, "{object}")?;
        } else {
            let kilobytes = page.len().div_ceil(1000);
            let file = self.out.display();
            writeln!(
                output,
                "{file}: {windows} windows, {incidents} with incidents, {kilobytes} kB"
            )?;
        }
        skipped.finish()?;
        Ok(Outcome::Done)
    }
}
