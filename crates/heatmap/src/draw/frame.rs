//! What stands above and below a plot: title, outcome, legend, findings, notes.

use super::{FAINT, INK, MARK, OUTSIDE, PAD};
use crate::model::{Caption, Tone};
use crate::svg::{Anchor, Font, N, Rect, Svg};
use crate::text;

const TITLE: Font = Font::new(17.0, INK).bold();
const SUBTITLE: Font = Font::new(11.0, FAINT);
const BADGE: Font = Font::new(11.0, "#fff").bold().middle();
const HEADING: Font = Font::new(12.0, INK).bold();
const LIST: Font = Font::new(11.5, INK);
const LINE: f64 = 16.0;
/// Findings that are numbered and listed; more are outlined and counted.
pub(super) const LISTED: usize = 12;

/// Draws the caption from `top`; gives the lower end.
pub(super) fn draw_header(
    svg: &mut Svg,
    caption: &Caption,
    title: Option<&str>,
    width: f64,
) -> f64 {
    let inner = width - 2.0 * PAD;
    let mut y = PAD + TITLE.size;
    let title = text::fit(title.unwrap_or(&caption.title), TITLE.size, true, inner);
    svg.text((PAD, y), TITLE, &title);
    y += 4.0;
    for line in text::wrap(&caption.subtitle, SUBTITLE.size, inner) {
        y += 14.0;
        svg.text((PAD, y), SUBTITLE, &line);
    }
    if let Some((tone, outcome)) = &caption.outcome {
        y += 8.0;
        draw_badge(svg, (PAD, y), *tone, outcome, inner);
        y += 19.0;
    }
    y + 10.0
}

/// Draws an outcome in a coloured box with its upper left corner at the point; gives its width.
pub(super) fn draw_badge(
    svg: &mut Svg,
    (x, y): (f64, f64),
    tone: Tone,
    outcome: &str,
    limit: f64,
) -> f64 {
    let outcome = text::fit(outcome, BADGE.size, true, limit - 16.0);
    let width = text::width(&outcome, BADGE.size, true) + 16.0;
    let color = match tone {
        Tone::Good => "#1f6f54",
        Tone::Bad => MARK,
        Tone::Neutral => "#66676f",
    };
    let place = Rect { x, y, w: width, h: 19.0 };
    svg.rect(place, format_args!("rx=\"3\" fill=\"{color}\""));
    svg.text((x + width / 2.0, y + 13.5), BADGE, &outcome);
    width
}

/// What a footer says.
pub(super) struct Footer<'a> {
    /// Explained fills: whether it is the hatch, and what it means.
    pub legend: Vec<(bool, &'a str)>,
    /// Texts of the findings in the order of their numbers.
    pub findings: Vec<&'a str>,
    pub notes: &'a [String],
}

impl Footer<'_> {
    /// Draws from `top`; gives the lower end. With `svg` absent it only measures.
    pub(super) fn draw(&self, mut svg: Option<&mut Svg>, top: f64, width: f64) -> f64 {
        let inner = width - 2.0 * PAD;
        let mut y = self.draw_legend(svg.as_deref_mut(), top, inner);
        y += 4.0;
        let heading = match self.findings.len() {
            0 => "No findings".to_owned(),
            1 => "1 finding".to_owned(),
            n => format!("{n} findings"),
        };
        y += LINE;
        if let Some(svg) = svg.as_deref_mut() {
            svg.text((PAD, y), HEADING, &heading);
        }
        y += 2.0;
        for (i, finding) in self.findings.iter().take(LISTED).enumerate() {
            let lines = text::wrap(finding, LIST.size, inner - 30.0);
            for (j, line) in lines.iter().enumerate() {
                y += LINE;
                if let Some(svg) = svg.as_deref_mut() {
                    if j == 0 {
                        draw_tag(svg, (PAD + 11.0, y - 4.0), i + 1);
                    }
                    svg.text((PAD + 28.0, y), LIST, line);
                }
            }
            y += 2.0;
        }
        let more = self.findings.len().saturating_sub(LISTED);
        let more = (more > 0).then(|| format!("and {more} more, outlined without a number"));
        for note in more.iter().chain(self.notes) {
            for line in text::wrap(note, LIST.size, inner) {
                y += LINE;
                if let Some(svg) = svg.as_deref_mut() {
                    svg.text((PAD, y), Font { color: FAINT, ..LIST }, &line);
                }
            }
        }
        y + PAD
    }

    fn draw_legend(&self, mut svg: Option<&mut Svg>, top: f64, inner: f64) -> f64 {
        let mut y = top;
        for (hatch, meaning) in &self.legend {
            let lines = text::wrap(meaning, SUBTITLE.size, inner - 24.0);
            for (j, line) in lines.iter().enumerate() {
                y += LINE;
                let Some(svg) = svg.as_deref_mut() else { continue };
                if j == 0 {
                    let swatch = Rect { x: PAD + 0.5, y: y - 10.5, w: 16.0, h: 12.0 };
                    let fill = if *hatch { hatch_fill(svg) } else { OUTSIDE.to_owned() };
                    let stroke = "stroke=\"#8a8b92\" stroke-width=\"0.8\"";
                    svg.rect(swatch, format_args!("fill=\"{fill}\" {stroke}"));
                }
                svg.text((PAD + 24.0, y), SUBTITLE, line);
            }
        }
        y
    }
}

/// Draws the number of a finding, centred on the point.
pub(super) fn draw_tag(svg: &mut Svg, (x, y): (f64, f64), number: usize) {
    let font = Font { size: 9.5, bold: true, color: "#fff", anchor: Anchor::Middle };
    let width = tag_width(number);
    let place = Rect { x: x - width / 2.0, y: y - TAG_HEIGHT / 2.0, w: width, h: TAG_HEIGHT };
    svg.rect(place, format_args!("rx=\"{}\" fill=\"{MARK}\"", N(TAG_HEIGHT / 2.0)));
    svg.text((x, y + 3.5), font, &number.to_string());
}

/// Height of the number of a finding.
pub(super) const TAG_HEIGHT: f64 = 14.0;

/// Width of the number of a finding.
pub(super) fn tag_width(number: usize) -> f64 {
    if number < 10 { 14.0 } else { 20.0 }
}

/// Defines the hatch of cells without data.
pub(super) fn define_hatch(svg: &mut Svg) {
    let id = svg.id("hatch");
    svg.define(&format!(
        "<pattern id=\"{id}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\">\
         <rect width=\"6\" height=\"6\" fill=\"#fff\"/>\
         <path d=\"M-1 1L1 -1M0 6L6 0M5 7L7 5\" stroke=\"#9b9ca4\" stroke-width=\"1\"/></pattern>"
    ));
}

/// The fill of cells without data.
pub(super) fn hatch_fill(svg: &Svg) -> String {
    format!("url(#{})", svg.id("hatch"))
}
