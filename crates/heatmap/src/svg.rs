//! Writing SVG: the few elements that the pictures are made of.

use std::fmt::{self, Write as _};

use crate::text;

/// Where a text stands relative to its point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// The look of a text.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Font {
    pub size: f64,
    pub bold: bool,
    pub color: &'static str,
    pub anchor: Anchor,
}

impl Font {
    pub(crate) const fn new(size: f64, color: &'static str) -> Self {
        Self { size, bold: false, color, anchor: Anchor::Start }
    }

    pub(crate) const fn bold(self) -> Self {
        Self { bold: true, ..self }
    }

    pub(crate) const fn middle(self) -> Self {
        Self { anchor: Anchor::Middle, ..self }
    }

    pub(crate) const fn end(self) -> Self {
        Self { anchor: Anchor::End, ..self }
    }
}

/// A rectangle in pixels.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rect {
    pub x: f64,
    pub y: f64,
    pub w: f64,
    pub h: f64,
}

impl Rect {
    pub(crate) fn right(self) -> f64 {
        self.x + self.w
    }

    pub(crate) fn bottom(self) -> f64 {
        self.y + self.h
    }
}

/// A number with at most two decimals and no zeros at the end.
#[derive(Clone, Copy)]
pub(crate) struct N(pub f64);

impl fmt::Display for N {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hundredths = (self.0 * 100.0).round();
        // Also catches what is not finite: a picture never holds "NaN".
        if !hundredths.is_finite() || hundredths.abs() >= 1e12 {
            return f.write_str("0");
        }
        let (sign, hundredths) = (if hundredths < 0.0 { "-" } else { "" }, hundredths.abs() as u64);
        match (hundredths / 100, hundredths % 100) {
            (whole, 0) => write!(f, "{sign}{whole}"),
            (whole, rest) if rest % 10 == 0 => write!(f, "{sign}{whole}.{}", rest / 10),
            (whole, rest) => write!(f, "{sign}{whole}.{rest:02}"),
        }
    }
}

/// A picture being written.
pub(crate) struct Svg {
    body: String,
    defs: String,
    prefix: String,
}

impl Svg {
    /// `prefix` begins every id, so that several pictures can stand in one page.
    pub(crate) fn new(prefix: &str) -> Self {
        let prefix = prefix.chars().filter(char::is_ascii_alphanumeric).collect();
        Self { body: String::new(), defs: String::new(), prefix }
    }

    /// The finished document.
    pub(crate) fn finish(self, width: f64, height: f64) -> String {
        let (w, h) = (N(width), N(height));
        let mut out = String::with_capacity(self.body.len() + self.defs.len() + 400);
        let _ = writeln!(
            out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w}\" height=\"{h}\" \
             viewBox=\"0 0 {w} {h}\" font-family=\"'DejaVu Sans', Verdana, sans-serif\">"
        );
        let _ = writeln!(out, "<defs>{}</defs>", self.defs);
        let _ = writeln!(out, "<rect width=\"{w}\" height=\"{h}\" fill=\"#fff\"/>");
        out + &self.body + "</svg>\n"
    }

    /// The id `name` with the prefix.
    pub(crate) fn id(&self, name: &str) -> String {
        format!("{}-{name}", self.prefix)
    }

    /// Appends a definition (a gradient, a pattern).
    pub(crate) fn define(&mut self, definition: &str) {
        self.defs.push_str(definition);
    }

    /// Appends finished markup.
    pub(crate) fn raw(&mut self, args: fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.body.write_fmt(args);
        self.body.push('\n');
    }

    pub(crate) fn rect(&mut self, r: Rect, attributes: fmt::Arguments<'_>) {
        let (x, y, w, h) = (N(r.x), N(r.y), N(r.w), N(r.h));
        self.raw(format_args!(
            "<rect x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" {attributes}/>"
        ));
    }

    pub(crate) fn line(&mut self, from: (f64, f64), to: (f64, f64), color: &str, width: f64) {
        self.raw(format_args!(
            "<path d=\"M{} {}L{} {}\" stroke=\"{color}\" stroke-width=\"{}\" fill=\"none\"/>",
            N(from.0),
            N(from.1),
            N(to.0),
            N(to.1),
            N(width)
        ));
    }

    /// `text` with its base line at `y`.
    pub(crate) fn text(&mut self, (x, y): (f64, f64), font: Font, text: &str) {
        self.open_text(font, format_args!("x=\"{}\" y=\"{}\"", N(x), N(y)), text);
    }

    /// `text` turned to read from below, centred on `(x, y)`.
    pub(crate) fn text_upwards(&mut self, (x, y): (f64, f64), font: Font, text: &str) {
        let place = format_args!("transform=\"translate({} {})rotate(-90)\"", N(x), N(y));
        self.open_text(font.middle(), place, text);
    }

    fn open_text(&mut self, font: Font, place: fmt::Arguments<'_>, text: &str) {
        let anchor = match font.anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let weight = if font.bold { " font-weight=\"bold\"" } else { "" };
        let _ = write!(
            self.body,
            "<text {place} font-size=\"{}\" fill=\"{}\"{anchor}{weight}>",
            N(font.size),
            font.color
        );
        text::escape(text, &mut self.body);
        self.body.push_str("</text>\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_always_numbers() {
        for (value, text) in [
            (1.0, "1"),
            (1.5, "1.5"),
            (-0.254, "-0.25"),
            (10.009, "10.01"),
            (0.05, "0.05"),
            (-0.001, "0"),
            (f64::NAN, "0"),
            (f64::INFINITY, "0"),
        ] {
            assert_eq!(N(value).to_string(), text);
        }
    }

    #[test]
    fn ids_keep_only_letters_and_digits_of_the_prefix() {
        assert_eq!(Svg::new("a\"/><b 1").id("hatch"), "ab1-hatch");
    }
}
