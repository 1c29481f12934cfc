//! `deepxtrace heatmap`: pictures of windows, wait matrices and logs.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use clap::{Args, ValueEnum};
use deepxtrace::artifact::{Artifact, NormalArtifact};
use deepxtrace::counters::{LlPhase, Topology};
use deepxtrace::heatmap::{
    Annotate, Colormap, Format, LlMatrix, NormalView, Picture, Renderer, ScaleChoice, Style,
    draw_ll, draw_ll_matrix, draw_normal,
};
use deepxtrace::ll::{LlDiagnoser, MeanRatioPolicy};
use deepxtrace::normal::Policy;

use crate::commands::Outcome;
use crate::input::artifacts::{stem, try_read};
use crate::input::waits::{self, Source, Waits};
use crate::output::Output;

/// Draw a window, a wait matrix or a log.
///
/// A Normal-mode window gives up to four pictures: with --all all of them, else those in which
/// something was found, or that of dispatch at the final receiver when nothing was. A low-latency
/// window, matrix or log gives one picture a phase.
#[derive(Debug, Args)]
pub struct Heatmap {
    /// A window (.npz), or a wait matrix or log as `ll analyze` takes it
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// All pictures of a Normal-mode window
    #[arg(long, conflicts_with = "view")]
    all: bool,
    /// This picture of a Normal-mode window; may be given more than once
    #[arg(long, value_name = "VIEW")]
    view: Vec<ViewArg>,
    /// Where to write: a folder (made if absent), or a file when it is one picture
    #[arg(long, value_name = "PATH", default_value = ".")]
    out: PathBuf,
    #[command(flatten)]
    look: Look,
    /// Ranks on a node, for matrices and logs
    #[arg(long, value_name = "R", default_value_t = 8)]
    ranks_per_node: usize,
    /// One JSON object a picture
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Look")]
struct Look {
    /// Title in place of the picture's own
    #[arg(long)]
    title: Option<String>,
    /// Size of the whole picture in inches, as 12,10 or 12x10 [default: what the group needs]
    #[arg(long, value_name = "W,H", value_parser = parse_figsize)]
    figsize: Option<(f64, f64)>,
    /// Dots an inch, for png
    #[arg(long, default_value_t = 144.0)]
    dpi: f64,
    /// File format [default: that of the name in --out, else png]
    #[arg(long)]
    format: Option<FormatArg>,
    /// Height of a cell over its width
    #[arg(
        long = "cell_ratio",
        visible_alias = "cell-ratio",
        value_name = "RATIO",
        default_value_t = 1.0
    )]
    cell_ratio: f64,
    /// Colours: viridis, cividis, magma or gray, each readable without colour vision
    #[arg(long, default_value_t = Colormap::default())]
    colormap: Colormap,
    /// Logarithmic colours [default: when values span 20 times or more]
    #[arg(long, conflicts_with = "linear")]
    log: bool,
    /// Linear colours
    #[arg(long)]
    linear: bool,
    /// Values in the cells
    #[arg(long, value_enum, default_value_t = AnnotateArg::Auto)]
    annotate: AnnotateArg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum FormatArg {
    Png,
    Svg,
    Pdf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AnnotateArg {
    /// Where they fit
    Auto,
    Always,
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
enum ViewArg {
    NotifyDuration,
    DispatchFinalCostPerSample,
    DispatchRdmaRecvCostPerSample,
    CombineLogicalRecvCostPerSample,
}

impl From<ViewArg> for NormalView {
    fn from(view: ViewArg) -> Self {
        match view {
            ViewArg::NotifyDuration => Self::NotifyDuration,
            ViewArg::DispatchFinalCostPerSample => Self::DispatchFinalCost,
            ViewArg::DispatchRdmaRecvCostPerSample => Self::DispatchRdmaRecvCost,
            ViewArg::CombineLogicalRecvCostPerSample => Self::CombineLogicalRecvCost,
        }
    }
}

fn parse_figsize(text: &str) -> Result<(f64, f64), String> {
    let sides = text.split_once([',', 'x']).and_then(|(width, height)| {
        Some((width.trim().parse().ok()?, height.trim().parse().ok()?))
    });
    sides.ok_or_else(|| "expected width and height in inches, such as 12,10".to_owned())
}

impl Look {
    fn style(&self) -> Style {
        Style {
            title: self.title.clone(),
            figsize: self.figsize,
            cell_ratio: self.cell_ratio,
            colormap: self.colormap,
            scale: match (self.log, self.linear) {
                (true, _) => ScaleChoice::Log,
                (_, true) => ScaleChoice::Linear,
                _ => ScaleChoice::Auto,
            },
            annotate: match self.annotate {
                AnnotateArg::Auto => Annotate::Auto,
                AnnotateArg::Always => Annotate::Always,
                AnnotateArg::Never => Annotate::Never,
            },
            ..Style::default()
        }
    }

    fn format(&self, out: &Target) -> Format {
        match (self.format, out) {
            (Some(FormatArg::Png), _) => Format::Png,
            (Some(FormatArg::Svg), _) => Format::Svg,
            (Some(FormatArg::Pdf), _) => Format::Pdf,
            (None, Target::File(_, format)) => *format,
            (None, Target::Folder(_)) => Format::Png,
        }
    }
}

/// Where pictures go.
enum Target {
    Folder(PathBuf),
    /// The file, and the format of its name.
    File(PathBuf, Format),
}

impl Target {
    /// A path that ends in a format is a file, unless there is a folder of that name.
    fn of(path: &Path) -> Self {
        let extension = path.extension().and_then(|extension| extension.to_str());
        match extension.and_then(|extension| extension.parse().ok()) {
            Some(format) if !path.is_dir() => Self::File(path.to_owned(), format),
            _ => Self::Folder(path.to_owned()),
        }
    }
}

/// A picture, and its file without the extension.
struct Named {
    name: String,
    picture: Picture,
}

impl Heatmap {
    /// Runs the command.
    pub fn run(self, output: &mut Output) -> anyhow::Result<Outcome> {
        let style = self.look.style();
        let pictures = match try_read(&self.file)? {
            Some(artifact) => self.artifact(&artifact, &style)?,
            None if self.all || !self.view.is_empty() => {
                bail!(
                    "{}: not a Normal-mode window: it has no --all and no --view",
                    self.file.display()
                )
            }
            None => self.matrices(&style)?,
        };
        let target = Target::of(&self.out);
        let format = self.look.format(&target);
        if let (Target::File(path, _), [_, _, ..]) = (&target, &pictures[..]) {
            let (path, count) = (path.display(), pictures.len());
            bail!("{path}: one file cannot hold {count} pictures: name a folder in --out");
        }
        let renderer = Renderer::new();
        for Named { name, picture } in &pictures {
            let path = match &target {
                Target::Folder(folder) => folder.join(format!("{name}.{format}")),
                Target::File(path, _) => path.clone(),
            };
            let bytes = renderer.render(picture, format, self.look.dpi)?;
            write(&path, &bytes)?;
            self.tell(output, &path, name)?;
        }
        Ok(Outcome::Done)
    }

    fn tell(&self, output: &mut Output, path: &Path, name: &str) -> anyhow::Result<()> {
        if self.json {
            let object = serde_json::json!({
                "file": self.file.display().to_string(),
                "picture": path.display().to_string(),
                "name": name,
            });
            writeln!(output, "{object}")?;
        } else {
            writeln!(output, "{}", path.display())?;
        }
        Ok(())
    }

    fn artifact(&self, artifact: &Artifact<'_>, style: &Style) -> anyhow::Result<Vec<Named>> {
        let stem = stem(artifact)?;
        match artifact {
            Artifact::Normal(artifact) => {
                let views = self.views(artifact);
                normal_pictures(artifact, &stem, &views, style)
            }
            Artifact::LowLatency(_) if self.all || !self.view.is_empty() => {
                bail!("{}: a low-latency window has no --all and no --view", self.file.display())
            }
            Artifact::LowLatency(artifact) => LlPhase::ALL
                .into_iter()
                .map(|phase| {
                    let picture = draw_ll(artifact, phase, style)?;
                    Ok(Named { name: format!("{stem}_{phase}_wait"), picture })
                })
                .collect(),
        }
    }

    fn views(&self, artifact: &NormalArtifact<'_>) -> Vec<NormalView> {
        if self.all {
            return NormalView::ALL.to_vec();
        }
        if !self.view.is_empty() {
            return self.view.iter().map(|&view| view.into()).collect();
        }
        let found: Vec<_> =
            NormalView::ALL.into_iter().filter(|view| view.has_findings(artifact)).collect();
        if found.is_empty() { vec![NormalView::DispatchFinalCost] } else { found }
    }

    fn matrices(&self, style: &Style) -> anyhow::Result<Vec<Named>> {
        let all = waits::read(&self.file)?;
        let stem = self.file.file_stem().map_or("waits".into(), |stem| stem.to_string_lossy());
        let several = all.len() > 1;
        let mut pictures: Vec<Named> = Vec::new();
        for (i, Waits { source, matrix }) in all.iter().enumerate() {
            let topology = Topology::new(matrix.nrows(), self.ranks_per_node)?;
            let (mean, policy) = (MeanRatioPolicy::default(), Policy::default());
            let mut diagnoser = LlDiagnoser::new(topology, mean, policy)?;
            let diagnosis = Some(diagnoser.diagnose(matrix.view())?);
            let origin = origin(source);
            let phase = source.phase;
            let picture = draw_ll_matrix(
                &LlMatrix { origin: &origin, phase, topology, waits: matrix.view(), diagnosis },
                style,
            )?;
            let mut name = match (phase, &source.entry) {
                (Some(phase), _) => format!("{stem}_{phase}_wait"),
                (None, Some(entry)) => format!("{stem}_{}", plain(entry)),
                (None, None) => format!("{stem}_wait"),
            };
            if several && pictures.iter().any(|picture| picture.name == name) {
                name = format!("{name}_{i}");
            }
            pictures.push(Named { name, picture });
        }
        Ok(pictures)
    }
}

/// The name of an entry as part of a file name.
fn plain(entry: &str) -> String {
    entry.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect()
}

/// Draws pictures of a window, named after it.
fn normal_pictures(
    artifact: &NormalArtifact<'_>,
    stem: &str,
    views: &[NormalView],
    style: &Style,
) -> anyhow::Result<Vec<Named>> {
    views
        .iter()
        .map(|&view| {
            let picture = draw_normal(artifact, view, style)?;
            Ok(Named { name: format!("{stem}_{}", view.name()), picture })
        })
        .collect()
}

/// Writes all four pictures of a window into `folder` as PNG; gives their files.
pub fn write_all(artifact: &NormalArtifact<'_>, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let stem = stem(&Artifact::Normal(artifact.clone()))?;
    let renderer = Renderer::new();
    let style = Style::default();
    normal_pictures(artifact, &stem, &NormalView::ALL, &style)?
        .into_iter()
        .map(|Named { name, picture }| {
            let path = folder.join(format!("{name}.png"));
            write(&path, &renderer.render(&picture, Format::Png, 144.0)?)?;
            Ok(path)
        })
        .collect()
}

/// The line below the title of a matrix from a file.
fn origin(source: &Source) -> String {
    let file = Path::new(&source.file).file_name().map(|name| name.to_string_lossy().into_owned());
    let mut parts = vec![file.unwrap_or_else(|| source.file.clone())];
    parts.extend(source.entry.iter().map(|entry| format!("entry {entry}")));
    parts.extend(source.instance_id.iter().map(|instance| format!("instance {instance}")));
    parts.extend(source.window_index.map(|window| format!("window {window}")));
    parts.extend(source.time.iter().map(|time| format!("logged at {time}")));
    parts.join(" · ")
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let place = || path.display().to_string();
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    fs::write(path, bytes).with_context(place)
}
