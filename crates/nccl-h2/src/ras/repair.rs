//! Mends the JSON of older versions of RAS.
//!
//! NCCL 2.28 writes missing ranks without the comma in front of their `status`. A comma that is
//! missing between two members or items, or that stands before a closing bracket, can be mended in
//! one way only, and nothing else is mended.

/// The text with commas where they have to be, and how many places were mended.
pub(crate) fn commas(text: &str) -> (String, usize) {
    let mut mended = String::with_capacity(text.len().saturating_add(16));
    let mut scan = Scan { last: Last::Start, comma_at: 0, mended: 0 };
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let token = token(rest, next);
        scan.take(token, next, &mut mended);
        rest = rest.get(token.len()..).unwrap_or_default();
    }
    (mended, scan.mended)
}

/// What stands before a place, blanks apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    /// Nothing, an opening bracket or a colon.
    Start,
    Comma,
    /// The end of a value or name.
    Value,
}

struct Scan {
    last: Last,
    /// Where the latest comma stands in the mended text.
    comma_at: usize,
    mended: usize,
}

impl Scan {
    fn take(&mut self, token: &str, first: char, mended: &mut String) {
        match first {
            ',' => {
                self.comma_at = mended.len();
                self.last = Last::Comma;
            }
            ':' => self.last = Last::Start,
            '}' | ']' => {
                if self.last == Last::Comma {
                    mended.remove(self.comma_at);
                    self.mended = self.mended.saturating_add(1);
                }
                self.last = Last::Value;
            }
            '"' | '{' | '[' => {
                if self.last == Last::Value {
                    mended.push(',');
                    self.mended = self.mended.saturating_add(1);
                }
                self.last = if first == '"' { Last::Value } else { Last::Start };
            }
            _ if first.is_ascii_whitespace() => {}
            _ => self.last = Last::Value,
        }
        mended.push_str(token);
    }
}

/// The string, blanks, word or sign that a text begins with; never empty.
fn token(text: &str, first: char) -> &str {
    let end = match first {
        '"' => string_end(text),
        _ if first.is_ascii_whitespace() => text.find(|next: char| !next.is_ascii_whitespace()),
        ',' | ':' | '{' | '}' | '[' | ']' => Some(1),
        _ => text.find(|next: char| next.is_ascii_whitespace() || ",:{}[]\"".contains(next)),
    };
    text.get(..end.unwrap_or(text.len())).unwrap_or(text)
}

/// Behind the closing quote of the string that a text begins with.
fn string_end(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().enumerate().skip(1).find_map(|(place, byte)| match byte {
        _ if escaped => {
            escaped = false;
            None
        }
        b'\\' => {
            escaped = true;
            None
        }
        b'"' => Some(place.saturating_add(1)),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::commas;

    #[track_caller]
    fn mends(text: &str, expected: &str, places: usize) {
        assert_eq!(commas(text), (expected.to_owned(), places));
    }

    #[test]
    fn a_missing_comma_between_members_is_added() {
        mends("{\"nvml_dev\": 1\n \"status\": {}}", "{\"nvml_dev\": 1\n ,\"status\": {}}", 1);
        mends(r#"{"a": "b" "c": true "d": null}"#, r#"{"a": "b" ,"c": true ,"d": null}"#, 2);
        mends("[{} {} [] \"x\"]", "[{} ,{} ,[] ,\"x\"]", 3);
    }

    #[test]
    fn a_comma_before_a_closing_bracket_is_removed() {
        mends("[1, 2, ]", "[1, 2 ]", 1);
        mends("{\"a\": 1,\n}", "{\"a\": 1\n}", 1);
    }

    #[test]
    fn good_json_and_the_inside_of_strings_stay() {
        for text in [
            r#"{"a": [1, -2.5e3, "x,]", "\"}", "\\"], "b": {"c": []}}"#,
            "",
            "[]",
            "\"unclosed , ]",
            "{\"\u{fc}\": \"\u{2028},}\"}",
        ] {
            mends(text, text, 0);
        }
    }

    #[test]
    fn numbers_in_a_row_are_not_mended() {
        mends("[1 2]", "[1 2]", 0);
    }
}
