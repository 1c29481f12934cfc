//! The page.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use deepxtrace::artifact::{Artifact, Kind, read, utc};
use deepxtrace::counters::LlPhase;
use deepxtrace::heatmap::{NormalView, Picture, Style, draw_ll, draw_normal};

use super::folder::{Folder, Run, Window};
use super::html::Escaped;
use super::{meaning, strips};
use crate::text::normal::incident_text;
use strips::arrows;

const STYLE: &str = include_str!("page.css");

/// What findings of the page mean, by their name.
type Meanings = BTreeMap<&'static str, &'static str>;

/// Writes the page; `pictured` are the windows with pictures, by run and place in it.
pub fn write(folder: &Folder, pictured: &[(usize, usize)]) -> anyhow::Result<String> {
    let mut page = String::new();
    let name = Escaped(&folder.name);
    let _ = writeln!(
        page,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'\">\n<title>deepxtrace report: {name}</title>\n\
         <style>\n{STYLE}</style>\n</head>\n<body>\n<h1>deepxtrace report</h1>\n\
         <p class=\"faint\">{name}</p>"
    );
    tiles(&mut page, folder);
    let mut meanings = Meanings::new();
    for (r, run) in folder.runs.iter().enumerate() {
        run_section(&mut page, run);
        let own: Vec<_> = pictured.iter().filter(|(of, _)| *of == r).collect();
        if !own.is_empty() {
            let _ = writeln!(page, "<h3>Worst windows</h3>");
        }
        for &&(_, w) in &own {
            if let Some(window) = run.windows.get(w) {
                let prefix = format!("r{r}w{w}");
                window_section(&mut page, window, &prefix, &mut meanings)?;
            }
        }
    }
    nccl_section(&mut page, folder);
    meaning_section(&mut page, &meanings);
    page.push_str("</body>\n</html>\n");
    Ok(page)
}

fn tiles(page: &mut String, folder: &Folder) {
    let windows = folder.windows().count();
    let bad = folder.windows().filter(|window| window.has_incidents()).count();
    let idle = folder.windows().filter(|window| window.is_idle()).count();
    let calls = folder.findings.len() + folder.more_findings;
    let _ = writeln!(page, "<div class=\"tiles\">");
    for (class, number, what) in [
        ("", windows, "windows"),
        (if bad > 0 { "bad" } else { "good" }, bad, "with incidents"),
        ("", windows.saturating_sub(bad + idle), "without"),
        ("", idle, "idle or refused"),
        (if calls > 0 { "bad" } else { "" }, calls, "NCCL findings"),
    ] {
        let _ =
            writeln!(page, "<div class=\"tile {class}\"><b>{number}</b><span>{what}</span></div>");
    }
    let _ = writeln!(page, "</div>");
}

fn run_section(page: &mut String, run: &Run) {
    let mode = if run.kind == Kind::Normal { "Normal mode" } else { "Low-latency mode" };
    let (ranks, per_node) = (run.topology.ep_size(), run.topology.ranks_per_node());
    let _ = writeln!(
        page,
        "<h2>{mode}, instance {}</h2>\n<p>{} windows of {ranks} ranks, {per_node} a node</p>\n\
         <h3>When what was found</h3>",
        Escaped(&run.instance),
        run.windows.len()
    );
    strips::write(page, run);
    let changes: Vec<_> = run
        .windows
        .iter()
        .filter_map(|window| Some((window, window.normal()?)))
        .flat_map(|(window, diagnosis)| {
            diagnosis.tracker.iter().map(move |change| (window, change))
        })
        .collect();
    if changes.is_empty() {
        return;
    }
    let _ = writeln!(
        page,
        "<details><summary>{} changes of followed incidents</summary>\n<table>\
         <tr><th>window</th><th>ended (UTC)</th><th>change</th></tr>",
        changes.len()
    );
    for (window, change) in changes {
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td>{}</td><td>{}</td></tr>",
            window.index,
            utc(window.time.1),
            Escaped(change.to_string())
        );
    }
    let _ = writeln!(page, "</table></details>");
}

fn window_section(
    page: &mut String,
    window: &Window,
    prefix: &str,
    meanings: &mut Meanings,
) -> anyhow::Result<()> {
    let _ = writeln!(
        page,
        "<section>\n<h4>Window {} <span class=\"faint\">{} UTC</span></h4>\n<ul>",
        window.index,
        utc(window.time.0)
    );
    if let Some(diagnosis) = window.normal() {
        for incident in &diagnosis.incidents {
            let (kind, text) = meaning::incident(incident);
            meanings.insert(kind, text);
            let line = arrows(&incident_text(incident));
            let _ = writeln!(page, "<li><b>{}</b> <code>{kind}</code></li>", Escaped(line));
        }
        for (probe, report) in diagnosis.probes.iter() {
            for finding in &report.findings {
                let (name, text) = meaning::finding(probe, finding);
                meanings.insert(name, text);
            }
        }
    }
    for (phase, diagnosis) in window.low_latency() {
        for finding in &diagnosis.topology.findings {
            let (name, text) = meaning::low_latency(finding);
            meanings.insert(name, text);
            let _ = writeln!(page, "<li>{phase}: {}</li>", Escaped(arrows(&finding.to_string())));
        }
        if !diagnosis.mean_ratio.is_empty() {
            meanings.insert(meaning::MEAN_RULE.0, meaning::MEAN_RULE.1);
        }
    }
    let _ = writeln!(page, "</ul>");
    pictures(page, window, prefix)?;
    let _ = writeln!(page, "</section>");
    Ok(())
}

/// Pictures in which something was found are shown, the others behind a click.
fn pictures(page: &mut String, window: &Window, prefix: &str) -> anyhow::Result<()> {
    let style = |i: usize| Style { id_prefix: format!("{prefix}p{i}"), ..Style::default() };
    let mut hidden: Vec<(&str, Picture)> = Vec::new();
    let _ = writeln!(page, "<div class=\"pictures\">");
    match read(&window.path)? {
        Artifact::Normal(artifact) => {
            for (i, view) in NormalView::ALL.into_iter().enumerate() {
                let picture = draw_normal(&artifact, view, &style(i))?;
                if view.has_findings(&artifact) {
                    page.push_str(picture.svg());
                } else {
                    hidden.push((view.name(), picture));
                }
            }
        }
        Artifact::LowLatency(artifact) => {
            for (i, phase) in LlPhase::ALL.into_iter().enumerate() {
                page.push_str(draw_ll(&artifact, phase, &style(i))?.svg());
            }
        }
    }
    let _ = writeln!(page, "</div>");
    for (name, picture) in hidden {
        let _ = writeln!(
            page,
            "<details><summary>{name}: nothing found</summary><div class=\"pictures\">{}</div>\
             </details>",
            picture.svg()
        );
    }
    Ok(())
}

fn nccl_section(page: &mut String, folder: &Folder) {
    if folder.findings.is_empty() {
        return;
    }
    let _ = writeln!(
        page,
        "<h2>NCCL calls</h2>\n<table><tr><th>found (UTC)</th><th>kind</th><th>confidence</th>\
         <th>run</th><th>communicator, call</th><th>file</th><th>details</th></tr>"
    );
    for finding in &folder.findings {
        let text = |key: &str| match finding.object.get(key) {
            Some(serde_json::Value::String(text)) => text.clone(),
            Some(value) => value.to_string(),
            None => String::new(),
        };
        let details = finding.object.get("details").cloned().unwrap_or_default();
        let confidence = details.get("confidence").and_then(|c| c.as_str()).unwrap_or("");
        let pretty = serde_json::to_string_pretty(&details).unwrap_or_default();
        let _ = writeln!(
            page,
            "<tr><td>{}</td><td><b>{}</b></td><td>{}</td><td>{}</td><td>{} {}</td><td>{}</td>\
             <td><details><summary>show</summary><pre>{}</pre></details></td></tr>",
            finding.time.map(utc).unwrap_or_default(),
            Escaped(&finding.hang_type),
            Escaped(confidence),
            Escaped(text("run_id")),
            Escaped(text("comm_uid_hash")),
            Escaped(text("comm_seq")),
            Escaped(&finding.file),
            Escaped(pretty)
        );
    }
    let _ = writeln!(page, "</table>");
    if folder.more_findings > 0 {
        let _ = writeln!(page, "<p class=\"faint\">and {} more</p>", folder.more_findings);
    }
}

fn meaning_section(page: &mut String, meanings: &Meanings) {
    if meanings.is_empty() {
        return;
    }
    let _ = writeln!(page, "<h2>What the findings mean</h2>\n<dl>");
    for (name, text) in meanings {
        let _ = writeln!(page, "<dt>{name}</dt><dd>{text}</dd>");
    }
    let _ = writeln!(page, "</dl>");
}
