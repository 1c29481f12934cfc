//! `deepxtrace artifact ...`: windows that were kept as files.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Args, Subcommand, ValueEnum};
use deepxtrace::artifact::{Artifact, ArtifactName, Kind, SCHEMA_VERSION, list, prune, read, utc};
use deepxtrace::counters::LlPhase;
use deepxtrace::ll::{LlDiagnosis, MeanRatioPolicy};
use deepxtrace::normal::{Policy, WindowDiagnosis};
use serde::Serialize;

use crate::commands::Outcome;
use crate::output::{FAINT, HEADING, Output};
use crate::text;

/// Look at windows that a job kept as files (DEEPEP_DIAGNOSE_ARTIFACT_PATH).
#[derive(Debug, Args)]
pub struct ArtifactCommand {
    #[command(subcommand)]
    command: Sub,
}

#[derive(Debug, Subcommand)]
enum Sub {
    Show(Show),
    List(List),
    Prune(Prune),
}

impl ArtifactCommand {
    /// Runs the command.
    pub fn run(self, output: &mut Output) -> anyhow::Result<Outcome> {
        match self.command {
            Sub::Show(command) => command.run(output),
            Sub::List(command) => command.run(output),
            Sub::Prune(command) => command.run(output),
        }
    }
}

/// Tell what a window holds and what was found in it.
#[derive(Debug, Args)]
struct Show {
    /// The file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// List the windows in a folder, by kind, instance and number.
#[derive(Debug, Args)]
struct List {
    /// The folder
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// One JSON object a window
    #[arg(long)]
    json: bool,
}

/// Remove all but the newest windows of an instance. Other files are not touched.
#[derive(Debug, Args)]
struct Prune {
    /// The folder
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// How many to keep of each kind
    #[arg(long, value_name = "K")]
    keep: usize,
    /// Whose windows
    #[arg(long, value_name = "ID")]
    instance: String,
    /// Only of this kind
    #[arg(long)]
    kind: Option<KindArg>,
    /// One JSON object a removed file
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KindArg {
    Normal,
    Ll,
}

/// The object of `artifact show --json`.
#[derive(Debug, Serialize)]
struct ShowJson<'a> {
    file: String,
    schema_version: i64,
    kind: &'static str,
    instance_id: &'a str,
    ep_size: usize,
    ranks_per_node: usize,
    window_index: u64,
    begin_unix_ns: i64,
    end_unix_ns: i64,
    missing_ranks: Vec<usize>,
    policy: &'a Policy,
    #[serde(skip_serializing_if = "Option::is_none")]
    mean_policy: Option<&'a MeanRatioPolicy>,
    /// Of a Normal-mode window.
    #[serde(skip_serializing_if = "Option::is_none")]
    diagnosis: Option<&'a WindowDiagnosis>,
    /// Of a low-latency window; null when it was idle.
    #[serde(skip_serializing_if = "Option::is_none")]
    dispatch: Option<Option<&'a LlDiagnosis>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    combine: Option<Option<&'a LlDiagnosis>>,
}

/// The object of `artifact list --json` and `artifact prune --json`.
#[derive(Debug, Serialize)]
struct ListJson<'a> {
    file: String,
    kind: &'static str,
    instance_id: &'a str,
    window_index: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

impl Show {
    fn run(self, output: &mut Output) -> anyhow::Result<Outcome> {
        let artifact = read(&self.file)?;
        if self.json {
            serde_json::to_writer(&mut *output, &self.json_of(&artifact))?;
            writeln!(output)?;
        } else {
            show(output, &self.file.display().to_string(), &artifact)?;
        }
        Ok(Outcome::Done)
    }

    fn json_of<'a>(&self, artifact: &'a Artifact<'_>) -> ShowJson<'a> {
        let (topology, (begin_unix_ns, end_unix_ns)) = (artifact.topology(), artifact.time());
        let mut json = ShowJson {
            file: self.file.display().to_string(),
            schema_version: SCHEMA_VERSION,
            kind: artifact.kind().name(),
            instance_id: artifact.instance(),
            ep_size: topology.ep_size(),
            ranks_per_node: topology.ranks_per_node(),
            window_index: artifact.index(),
            begin_unix_ns,
            end_unix_ns,
            missing_ranks: missing(artifact),
            policy: policy(artifact),
            mean_policy: None,
            diagnosis: None,
            dispatch: None,
            combine: None,
        };
        match artifact {
            Artifact::Normal(artifact) => json.diagnosis = Some(&artifact.diagnosis),
            Artifact::LowLatency(artifact) => {
                let [dispatch, combine] = &artifact.diagnoses;
                json.mean_policy = Some(&artifact.mean_policy);
                json.dispatch = Some(dispatch.as_deref());
                json.combine = Some(combine.as_deref());
            }
        }
        json
    }
}

fn policy<'a>(artifact: &'a Artifact<'_>) -> &'a Policy {
    match artifact {
        Artifact::Normal(artifact) => &artifact.policy,
        Artifact::LowLatency(artifact) => &artifact.policy,
    }
}

fn missing(artifact: &Artifact<'_>) -> Vec<usize> {
    let valid = match artifact {
        Artifact::Normal(artifact) => artifact.window.valid(),
        Artifact::LowLatency(artifact) => artifact.window.valid(),
    };
    valid.iter().enumerate().filter(|&(_, valid)| !valid).map(|(rank, _)| rank).collect()
}

fn show(output: &mut Output, file: &str, artifact: &Artifact<'_>) -> anyhow::Result<()> {
    let topology = artifact.topology();
    let (begin, end) = artifact.time();
    let seconds = end.saturating_sub(begin) as f64 / 1e9;
    writeln!(output, "{HEADING}{file}{HEADING:#}: {}", artifact.kind())?;
    let mut line =
        |name: &str, text: String| writeln!(output, "  {FAINT}{name:<12}{FAINT:#} {text}");
    line("instance", artifact.instance().to_owned())?;
    line("window", artifact.index().to_string())?;
    line("time", format!("{} UTC, {seconds:.3} s", utc(begin)))?;
    let (ranks, per_node) = (topology.ep_size(), topology.ranks_per_node());
    line("group", format!("{ranks} ranks, {per_node} a node"))?;
    line("thresholds", thresholds(artifact)?)?;
    match artifact {
        Artifact::Normal(artifact) => text::normal::details(output, &artifact.diagnosis)?,
        Artifact::LowLatency(artifact) => {
            for (phase, diagnosis) in LlPhase::ALL.into_iter().zip(&artifact.diagnoses) {
                text::ll::phase(output, phase, diagnosis.as_deref())?;
            }
        }
    }
    Ok(())
}

/// The thresholds that are not the defaults.
fn thresholds(artifact: &Artifact<'_>) -> anyhow::Result<String> {
    let mut changed = differences(policy(artifact), &Policy::default())?;
    if let Artifact::LowLatency(artifact) = artifact {
        changed.extend(differences(&artifact.mean_policy, &MeanRatioPolicy::default())?);
    }
    Ok(if changed.is_empty() { "the defaults".to_owned() } else { changed.join(", ") })
}

/// `name value (default ...)` of every field that differs.
fn differences<T: Serialize>(own: &T, default: &T) -> anyhow::Result<Vec<String>> {
    let (own, default) = (serde_json::to_value(own)?, serde_json::to_value(default)?);
    let fields = own.as_object().context("thresholds are an object")?;
    let changed = fields.iter().filter(|(name, value)| default.get(name.as_str()) != Some(value));
    Ok(changed
        .map(|(name, value)| {
            let default = default.get(name).map(ToString::to_string).unwrap_or_default();
            format!("{name} {value} (default {default})")
        })
        .collect())
}

impl List {
    fn run(self, output: &mut Output) -> anyhow::Result<Outcome> {
        let names = list(&self.folder)?;
        for name in &names {
            let path = self.folder.join(name.to_string());
            let bytes = std::fs::metadata(&path).map(|metadata| metadata.len()).ok();
            if self.json {
                serde_json::to_writer(&mut *output, &json_of(&self.folder, name, bytes))?;
                writeln!(output)?;
            } else {
                let size =
                    bytes.map_or_else(|| "gone".to_owned(), |b| format!("{} kB", b.div_ceil(1000)));
                writeln!(output, "{size:>10}  {}", path.display())?;
            }
        }
        if !self.json {
            writeln!(output, "{HEADING}{} windows{HEADING:#}", names.len())?;
        }
        Ok(Outcome::Done)
    }
}

fn json_of<'a>(
    folder: &std::path::Path,
    name: &'a ArtifactName,
    bytes: Option<u64>,
) -> ListJson<'a> {
    ListJson {
        file: folder.join(name.to_string()).display().to_string(),
        kind: name.kind().name(),
        instance_id: name.instance(),
        window_index: name.index(),
        bytes,
    }
}

impl Prune {
    fn run(self, output: &mut Output) -> anyhow::Result<Outcome> {
        let mut removed = 0;
        for kind in Kind::ALL {
            let own = if kind == Kind::Normal { KindArg::Normal } else { KindArg::Ll };
            if self.kind.is_some_and(|kind| kind != own) {
                continue;
            }
            for name in prune(&self.folder, kind, &self.instance, self.keep)? {
                removed += 1;
                if self.json {
                    serde_json::to_writer(&mut *output, &json_of(&self.folder, &name, None))?;
                    writeln!(output)?;
                }
            }
        }
        if !self.json {
            writeln!(output, "{removed} windows removed")?;
        }
        Ok(Outcome::Done)
    }
}
