//! The rank of a dump, by the name of its file.

/// The rank in a file name: the number after the last word `rank`, else the number at the end of
/// the name without its extension.
///
/// `nccl_trace_rank_3`, `node17_rank-3.pickle`, `rank3_20260101.json` and `trace_3.pkl` are of
/// rank 3; host names with numbers in front do no harm.
pub(crate) fn rank(file_name: &str) -> Option<i64> {
    let name = file_name.to_ascii_lowercase();
    after_word(&name).or_else(|| at_end(without_extension(&name)))
}

fn after_word(name: &str) -> Option<i64> {
    name.match_indices("rank")
        .filter_map(|(place, word)| {
            let rest = name.get(place.saturating_add(word.len())..)?;
            number(rest.trim_start_matches(['_', '-', '.', '=']))
        })
        .last()
}

fn at_end(name: &str) -> Option<i64> {
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
    name.get(name.len().saturating_sub(digits)..).and_then(number)
}

/// The number that a text begins with.
fn number(text: &str) -> Option<i64> {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    text.get(..end)?.parse().ok()
}

/// Extensions are letters; `.example` of a host name with a rank behind it is none.
fn without_extension(name: &str) -> &str {
    match name.rsplit_once('.') {
        Some((stem, extension))
            if !stem.is_empty() && extension.bytes().all(|byte| byte.is_ascii_alphabetic()) =>
        {
            stem
        }
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::rank;

    #[test]
    fn the_number_after_the_word_rank_is_the_rank() {
        for name in [
            "nccl_trace_rank_12",
            "fr_rank_12.pickle",
            "node7.example_rank_12.pkl",
            "node7_rank-12",
            "rank12_20260101T120000.json",
            "Rank=12.bin",
            "prank_rank_12_of_64",
        ] {
            assert_eq!(rank(name), Some(12), "{name}");
        }
    }

    #[test]
    fn without_that_word_it_is_the_number_at_the_end() {
        assert_eq!(rank("trace_7"), Some(7));
        assert_eq!(rank("host3_trace_07.pickle"), Some(7));
        assert_eq!(rank("12"), Some(12));
    }

    #[test]
    fn a_name_without_such_a_number_has_no_rank() {
        for name in ["trace", "rank_", "trace_7_old", "frank", "", "rank_99999999999999999999"] {
            assert_eq!(rank(name), None, "{name}");
        }
    }
}
