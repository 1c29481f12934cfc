//! The table of the demo.

use std::io::{self, Write};
use std::path::Path;

use deepxtrace::counters::{CompletionProbe, NotifyProbe};
use deepxtrace::normal::{Finding, Incident, WindowDiagnosis};
use deepxtrace_sim::Phase;

use super::PhaseResult;
use crate::output::{BAD, FAINT, GOOD, HEADING, WARNING};
use crate::text::normal::{incident_text, named};

/// Prints what is about to run.
pub fn title(out: &mut impl Write, seed: u64) -> io::Result<()> {
    writeln!(
        out,
        "{HEADING}deepxtrace demo{HEADING:#}: a simulated job of 16 ranks on two nodes of eight, \
         seed {seed}\n"
    )?;
    row(out, HEADING, ["phase", "right", "diagnosis, and what was done to the job"])
}

/// Prints one phase.
pub fn phase(out: &mut impl Write, phase: &Phase, result: &PhaseResult) -> io::Result<()> {
    let right = format!("{} of {}", result.right, result.windows);
    if result.as_expected {
        let lines = lines(&result.incidents, &result.last);
        let style = if result.incidents.is_empty() { GOOD } else { WARNING };
        for (i, line) in lines.iter().enumerate() {
            let names = if i == 0 { [phase.name, &right] } else { ["", ""] };
            row(out, style, [names[0], names[1], line])?;
        }
    } else {
        let found = super::plain(&result.incidents).join("; ");
        let expected = phase.expected.join("; ");
        row(out, BAD, [phase.name, &right, &format!("found {found:?}, expected {expected:?}")])?;
    }
    row(out, FAINT, ["", "", phase.what])
}

fn row(out: &mut impl Write, style: anstyle::Style, cells: [&str; 3]) -> io::Result<()> {
    let [name, right, text] = cells;
    writeln!(out, "{name:<22}{right:<8}{style}{text}{style:#}")
}

/// What the incidents of a window mean, with their figures.
fn lines(incidents: &[Incident], report: &WindowDiagnosis) -> Vec<String> {
    if incidents.is_empty() {
        return vec!["healthy".to_owned()];
    }
    let dispatch = [NotifyProbe::NotifyDispatch, NotifyProbe::CachedNotifyDispatch];
    let stages = [("dispatch", &dispatch[..]), ("combine", &[NotifyProbe::CachedNotifyCombine])];
    let late = stages.into_iter().filter_map(|(stage, probes)| late(stage, probes, report));
    let slow = incidents.iter().filter_map(|incident| {
        let against = match incident {
            Incident::PreStageArrivalSkew { .. } => return None,
            Incident::GlobalDataPathSlowdown { .. } => "against before",
            _ => "against their peers",
        };
        let text = match incident {
            Incident::LocalizedDataPathSlowdown { owners, .. } if !owners.is_empty() => {
                format!("slow paths, tokens of {}", named(owners))
            }
            Incident::GlobalDataPathSlowdown { .. } => "the whole data path is slow".to_owned(),
            other => incident_text(other),
        };
        Some(format!("{text}, {against}: {}", ratios(report)))
    });
    late.chain(slow).collect()
}

/// Ranks that arrive late before a stage, by the probes of the stage.
fn late(stage: &str, probes: &[NotifyProbe], report: &WindowDiagnosis) -> Option<String> {
    let of = |wanted| {
        report.incidents.iter().find_map(|incident| match incident {
            Incident::PreStageArrivalSkew { probe, ranks } if *probe == wanted => Some(ranks),
            _ => None,
        })
    };
    let ranks = probes.iter().find_map(|&probe| of(probe))?;
    let ratios: Vec<_> = probes
        .iter()
        .filter(|&&probe| of(probe).is_some())
        .filter_map(|&probe| report.probes.get(probe)?.findings.first())
        .map(|finding| format!("{:.3}x", finding.ratio()))
        .collect();
    let ratios = ratios.join(" and ");
    Some(format!("{} late for {stage}: waits {ratios} as long as the others", named(ranks)))
}

/// The largest ratio of each Completion probe.
fn ratios(report: &WindowDiagnosis) -> String {
    let name = |probe| match probe {
        CompletionProbe::DispatchFinal => "dispatch",
        CompletionProbe::DispatchRdmaRecv => "gateways",
        CompletionProbe::CombineLogicalRecv => "combine",
    };
    let probes = CompletionProbe::ALL.into_iter().filter_map(|probe| {
        let findings = &report.probes.get(probe)?.findings;
        let largest = findings.iter().map(Finding::ratio).fold(0.0, f64::max);
        (largest > 0.0).then(|| format!("{} {largest:.2}x", name(probe)))
    });
    probes.collect::<Vec<_>>().join(", ")
}

/// Prints the sum, and where the log is.
pub fn end(out: &mut impl Write, phases: &[PhaseResult], log: &Path) -> io::Result<()> {
    let right = phases.iter().filter(|phase| phase.as_expected).count();
    let style = if right == phases.len() { GOOD } else { BAD };
    writeln!(out, "\n{style}{right} of {} phases diagnosed as expected{style:#}", phases.len())?;
    writeln!(out, "log: {}", log.display())
}

/// Prints what was left in the folder besides the log.
pub fn files(
    out: &mut impl Write,
    windows: usize,
    pictures: usize,
    folder: &Path,
) -> io::Result<()> {
    let folder = folder.display();
    writeln!(out, "{windows} windows and {pictures} pictures in {folder}; look at all with")?;
    writeln!(out, "  deepxtrace report {folder} --out report.html")
}
