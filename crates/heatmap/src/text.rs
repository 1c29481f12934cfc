//! Text: how wide it is, how it is broken into lines, how numbers are written.

/// Advance widths of DejaVu Sans from the space to the tilde, in 1/2048 of the font size.
const REGULAR: [u16; 95] = [
    651, 821, 942, 1716, 1303, 1946, 1597, 563, 799, 799, 1024, 1716, 651, 739, 651, 690, 1303,
    1303, 1303, 1303, 1303, 1303, 1303, 1303, 1303, 1303, 690, 690, 1716, 1716, 1716, 1087, 2048,
    1401, 1405, 1430, 1577, 1294, 1178, 1587, 1540, 604, 604, 1343, 1141, 1767, 1532, 1612, 1235,
    1612, 1423, 1300, 1251, 1499, 1401, 2025, 1403, 1251, 1403, 799, 690, 799, 1716, 1024, 1024,
    1255, 1300, 1126, 1300, 1260, 721, 1300, 1298, 569, 569, 1186, 569, 1995, 1298, 1253, 1300,
    1300, 842, 1067, 803, 1298, 1212, 1675, 1212, 1212, 1075, 1303, 690, 1303, 1716,
];

/// Bold letters are at most this much wider than regular ones, on the average of a word.
const BOLD: f64 = 1.13;

/// Width of `text` in pixels at `size` pixels. Letters outside ASCII count as wide ones, so the
/// answer is rather too large than too small.
pub(crate) fn width(text: &str, size: f64, bold: bool) -> f64 {
    let units: u64 = text.chars().map(|c| u64::from(advance(c))).sum();
    units as f64 / 2048.0 * size * if bold { BOLD } else { 1.0 }
}

fn advance(c: char) -> u16 {
    let ascii = (c as usize).checked_sub(32).and_then(|i| REGULAR.get(i).copied());
    ascii.unwrap_or(if (c as u32) < 0x2000 { 1716 } else { 2048 })
}

/// Breaks `text` at spaces into lines of at most `limit` pixels; a longer word is cut.
pub(crate) fn wrap(text: &str, size: f64, limit: f64) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let joined = if line.is_empty() { word.to_owned() } else { format!("{line} {word}") };
        if width(&joined, size, false) <= limit {
            line = joined;
            continue;
        }
        if !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        for c in word.chars() {
            line.push(c);
            if width(&line, size, false) > limit && line.chars().count() > 1 {
                line.pop();
                lines.push(std::mem::replace(&mut line, c.to_string()));
            }
        }
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// Cuts `text` so that it fits into `limit` pixels, with three dots for what is left out.
pub(crate) fn fit(text: &str, size: f64, bold: bool, limit: f64) -> String {
    if width(text, size, bold) <= limit {
        return text.to_owned();
    }
    let mut kept = String::new();
    for c in text.chars() {
        kept.push(c);
        if width(&kept, size, bold) + width("...", size, bold) > limit {
            kept.pop();
            break;
        }
    }
    kept + "..."
}

/// Appends `text` with everything escaped that means something in XML and HTML. Characters that
/// XML forbids become U+FFFD.
pub(crate) fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(' '),
            '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
}

/// A number with three significant digits and a decimal suffix: `0`, `7.25`, `48.3k`, `1.2M`.
/// Zeros after the point are left out.
pub(crate) fn compact(value: f64) -> String {
    if value == 0.0 || !value.is_finite() {
        return if value == 0.0 { "0".into() } else { value.to_string() };
    }
    let magnitude = value.abs();
    if !(1e-3..999.5e15).contains(&magnitude) {
        return format!("{value:.2e}");
    }
    let (unit, suffix) = unit(magnitude);
    let scaled = value / unit;
    let decimals = match scaled.abs() {
        x if x >= 99.95 => 0,
        x if x >= 9.995 => 1,
        x if x >= 0.9995 => 2,
        _ => 3,
    };
    decimal(scaled, decimals) + suffix
}

/// The numbers at the ticks of an axis, rising: with one suffix, and as many decimals as tell them
/// apart, unless they span more than a decade.
pub(crate) fn ticks(values: &[f64]) -> Vec<String> {
    let largest = values.iter().fold(0.0_f64, |a, b| a.max(b.abs()));
    let [first, .., last] = values else { return values.iter().copied().map(compact).collect() };
    let step = (last - first).abs() / (values.len() - 1) as f64;
    let decade = *first > 0.0 && last / first > 10.0 && values.len() > 2;
    if decade || !(1e-3..999.5e15).contains(&largest) {
        return values.iter().copied().map(compact).collect();
    }
    let (unit, suffix) = unit(largest);
    let exact = |decimals: &i32| {
        let scale = 10f64.powi(*decimals) / unit;
        values.iter().all(|v| ((v * scale).round() / scale - v).abs() < 0.02 * step)
    };
    let decimals = (0..=6).find(exact).unwrap_or(6).unsigned_abs() as usize;
    values.iter().map(|value| decimal(value / unit, decimals) + suffix).collect()
}

/// The last suffix with which three digits of `magnitude` do not round up to 1,000.
fn unit(magnitude: f64) -> (f64, &'static str) {
    SUFFIXES.into_iter().find(|(unit, _)| magnitude / unit < 999.5).unwrap_or((1e15, "P"))
}

const SUFFIXES: [(f64, &str); 6] =
    [(1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"), (1e15, "P")];

/// At most so many decimals, without zeros at the end.
fn decimal(value: f64, decimals: usize) -> String {
    let mut digits = format!("{value:.decimals$}");
    if digits.contains('.') {
        digits.truncate(digits.trim_end_matches('0').trim_end_matches('.').len());
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_suffix() {
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (7.0, "7"),
            (7.254, "7.25"),
            (12.34, "12.3"),
            (999.4, "999"),
            (999.6, "1k"),
            (48_310.0, "48.3k"),
            (1_200_000.0, "1.2M"),
            (100.0, "100"),
            (-1_500.0, "-1.5k"),
            (9.223e18, "9.22e18"),
            (0.000_12, "1.20e-4"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(compact(value), text);
        }
    }

    #[test]
    fn ticks_have_the_decimals_that_tell_them_apart() {
        assert_eq!(ticks(&[1.0e6, 1.5e6]), ["1M", "1.5M"]);
        assert_eq!(ticks(&[1_010_000.0, 1_012_500.0, 1_015_000.0]), ["1.01M", "1.0125M", "1.015M"]);
        assert_eq!(ticks(&[0.0, 20.0, 40.0]), ["0", "20", "40"]);
        assert_eq!(ticks(&[800.0, 1000.0, 1200.0]), ["0.8k", "1k", "1.2k"]);
        assert_eq!(ticks(&[30.0, 300.0, 3000.0]), ["30", "300", "3k"]);
        assert_eq!(ticks(&[7.0]), ["7"]);
        assert!(ticks(&[]).is_empty());
    }

    /// The font's own table: "Ab" is 1401 + 1300 units, of 2048 an em.
    #[test]
    fn widths_are_those_of_the_font() {
        assert!((width("Ab", 2048.0, false) - 2701.0).abs() < 1e-9);
        assert!(width("日本", 10.0, false) >= 20.0);
    }

    #[test]
    fn long_text_is_broken_at_spaces_and_long_words_are_cut() {
        // "aa bb" is 4 letters of 6.1 to 6.3 and a space of 3.2 pixels.
        assert_eq!(wrap("aa bb cc", 10.0, 30.0), ["aa bb", "cc"]);
        assert_eq!(wrap("aa bb cc", 10.0, 20.0), ["aa", "bb", "cc"]);
        assert_eq!(wrap("aa bb cc", 10.0, 1000.0), ["aa bb cc"]);
        let lines = wrap(&"m".repeat(20), 10.0, 50.0);
        assert_eq!(lines.concat(), "m".repeat(20));
        assert!(lines.iter().all(|line| width(line, 10.0, false) <= 50.0));
        assert!(wrap("", 10.0, 10.0).is_empty());
        // A limit that not even one letter keeps: one letter a line, and an end.
        assert_eq!(wrap("abc", 10.0, 1.0), ["a", "b", "c"]);
    }

    #[test]
    fn a_title_that_is_too_long_ends_in_dots() {
        assert_eq!(fit("abc", 10.0, false, 100.0), "abc");
        let short = fit(&"abc".repeat(50), 10.0, true, 100.0);
        assert!(short.ends_with("...") && width(&short, 10.0, true) <= 100.0);
    }

    #[test]
    fn text_cannot_leave_its_place_in_the_markup() {
        let mut out = String::new();
        escape("<b a=\"1\">&'\u{0}\u{1b}\n", &mut out);
        assert_eq!(out, "&lt;b a=&quot;1&quot;&gt;&amp;&#39;\u{fffd}\u{fffd} ");
    }
}
