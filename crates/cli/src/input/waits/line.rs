//! What one line of a text can be.

use deepxtrace::counters::LlPhase;

/// What a header line of a log says about the matrix that follows it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Header {
    pub phase: Option<LlPhase>,
    pub ep_size: Option<usize>,
    pub instance_id: Option<String>,
    pub window_index: Option<u64>,
    pub time: Option<String>,
}

/// The header in a line, if it is one: it names a wait matrix of a phase.
pub fn header(line: &str) -> Option<Header> {
    let title = line.find("Wait Recv Cost")?;
    line[title..].contains("Matrix").then(|| Header {
        phase: phase(&line[..title]),
        ep_size: field(line, "EPSize:").and_then(|text| text.parse().ok()),
        instance_id: field(line, "InstanceID:").map(str::to_owned),
        window_index: field(line, "WindowIndex:").and_then(|text| text.parse().ok()),
        time: time(line).map(str::to_owned),
    })
}

fn phase(before: &str) -> Option<LlPhase> {
    match before.trim_end().rsplit([' ', ',']).next()?.to_ascii_lowercase().as_str() {
        "dispatch" => Some(LlPhase::Dispatch),
        "combine" => Some(LlPhase::Combine),
        _ => None,
    }
}

/// The word after `key`.
fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    let rest = line[line.find(key)? + key.len()..].trim_start();
    let end = rest.find([' ', ',', '\t']).unwrap_or(rest.len());
    Some(&rest[..end]).filter(|word| !word.is_empty())
}

/// The time stamp that a line begins with: a bracket that holds a colon.
pub fn time(line: &str) -> Option<&str> {
    let inside = line.trim_start().strip_prefix('[')?;
    let inside = &inside[..inside.find(']')?];
    let digits = inside.starts_with(|c: char| c.is_ascii_digit());
    (digits && inside.contains(':')).then_some(inside)
}

/// The beginning of a row of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowStart<'a> {
    /// The waiter, where the row names it.
    pub rank: Option<usize>,
    /// What stands after the opening bracket; the closing one may stand on a later line.
    pub values: &'a str,
}

/// The row that begins in a line, if one does: `rank=<i> [...` after anything, or `[...` after
/// nothing but a time stamp.
pub fn row(line: &str) -> Option<RowStart<'_>> {
    if let Some(place) = line.find("rank=") {
        let rest = &line[place + "rank=".len()..];
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let values = open_bracket(&rest[digits..])?;
        return Some(RowStart { rank: Some(rest[..digits].parse().ok()?), values });
    }
    let after_time = match time(line) {
        Some(time) => line.trim_start().get(time.len() + 2..)?,
        None => line,
    };
    let values = open_bracket(after_time)?;
    let (numbers, rest) = values.split_once(']').unwrap_or((values, ""));
    let plain = |c: char| c.is_ascii_digit() || " \t,.-+eE\r\n".contains(c);
    let bare = numbers.chars().all(plain)
        && numbers.contains(|c: char| c.is_ascii_digit())
        && rest.trim_matches([']', ',', ' ', '\r', '\n']).is_empty();
    bare.then_some(RowStart { rank: None, values })
}

/// What stands after the brackets that a text begins with; a printed matrix begins with two.
fn open_bracket(text: &str) -> Option<&str> {
    let text = text.trim_start_matches([':', ' ', '\t']);
    Some(text.strip_prefix('[')?.trim_start_matches(['[', ' ']))
}

/// Reads values into `out`, up to a closing bracket or the end of the line. True: the bracket was
/// there.
///
/// # Errors
///
/// The word that is no wait: an integer that is 0 or more and fits 64 bits. (A float that is such
/// an integer is one.)
pub fn values(text: &str, out: &mut Vec<i64>) -> Result<bool, String> {
    let (text, closed) = match text.find(']') {
        Some(end) => (&text[..end], true),
        None => (text, false),
    };
    for word in text.split([' ', '\t', ',', ';', '\r', '\n']).filter(|word| !word.is_empty()) {
        out.push(value(word).ok_or_else(|| shortened(word))?);
    }
    Ok(closed)
}

fn value(word: &str) -> Option<i64> {
    if let Ok(value) = word.parse::<i64>() {
        return (value >= 0).then_some(value);
    }
    // numpy.savetxt writes integers as 1.000000000000000000e+00. Up to 2^53 that is exact.
    let value = word.parse::<f64>().ok()?;
    let exact = value.fract() == 0.0 && (0.0..=9_007_199_254_740_992.0).contains(&value);
    exact.then_some(value as i64)
}

/// A word that is fit to be shown in an error.
fn shortened(word: &str) -> String {
    let mut short: String = word.chars().filter(|c| !c.is_control()).take(40).collect();
    if short.len() < word.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_gives_its_fields() {
        let line = "[2025-09-15T10:00:00.123] [Diagnose] InstanceID: ab-1 EPSize: 16 WindowIndex: \
                    7, diagnose: {'abnormal_cols': []}, Combine Wait Recv Cost Per Token \
                    Matrix[src_rank, dst_rank]";
        let expected = Header {
            phase: Some(LlPhase::Combine),
            ep_size: Some(16),
            instance_id: Some("ab-1".to_owned()),
            window_index: Some(7),
            time: Some("2025-09-15T10:00:00.123".to_owned()),
        };
        assert_eq!(header(line), Some(expected));
        assert_eq!(header("[..] [Diagnose] InstanceID: x EPSize: 16"), None);
        assert_eq!(header("Wait Recv Cost Matrix").unwrap(), Header::default());
    }

    #[test]
    fn rows_are_known_by_rank_or_by_being_bare() {
        let row_of = |line| row(line).map(|row| (row.rank, row.values));
        assert_eq!(row_of("[10:00:00] [Diagnose] rank=3 [1 2]"), Some((Some(3), "1 2]")));
        assert_eq!(row_of("rank=12 [ 1, 2"), Some((Some(12), "1, 2")));
        assert_eq!(row_of("[[1 2 3]"), Some((None, "1 2 3]")));
        assert_eq!(row_of(" [4 5 6]]\r\n"), Some((None, "4 5 6]]\r\n")));
        assert_eq!(row_of("[[1, 2],\n"), Some((None, "1, 2],\n")), "a printed list of lists");
        assert_eq!(row_of("[2025-09-15 10:00:00,123] [1 2]"), Some((None, "1 2]")));
        for line in [
            "",
            "[]",
            "[2025-09-15 10:00:00]",
            "[INFO] [1 2]",
            "[17] [1 2]",
            "1 2 3",
            "rank=x [1]",
            "rank=1",
        ] {
            assert_eq!(row_of(line), None, "{line}");
        }
    }

    #[test]
    fn values_are_integers_of_64_bits_that_are_not_negative() {
        fn read(text: &str) -> Result<(Vec<i64>, bool), String> {
            let mut out = Vec::new();
            values(text, &mut out).map(|closed| (out, closed))
        }
        assert_eq!(read("1, 2\t3 ]"), Ok((vec![1, 2, 3], true)));
        assert_eq!(read("9223372036854775807 1.0e+03"), Ok((vec![i64::MAX, 1000], false)));
        for bad in ["-1", "9223372036854775808", "1.5", "nan", "inf", "x", "1e300", "..."] {
            assert_eq!(read(&format!("1 {bad} 2")), Err(bad.to_owned()), "{bad}");
        }
    }
}
