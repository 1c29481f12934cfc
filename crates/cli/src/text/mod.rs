//! Diagnoses for people.

pub mod dumps;
pub mod ll;
pub mod nccl;
pub mod normal;
pub mod ras;

/// A number of things: `1 process`, `2 processes`.
pub fn count<N: std::fmt::Display + PartialEq + From<u8>>(number: N, thing: &str) -> String {
    if number == N::from(1) {
        return format!("1 {thing}");
    }
    match thing.strip_suffix('y') {
        Some(stem) => format!("{number} {stem}ies"),
        None if thing.ends_with('s') => format!("{number} {thing}es"),
        None => format!("{number} {thing}s"),
    }
}

/// The first of many, and how many more there are.
fn shown<T>(all: &[T], most: usize) -> (&[T], usize) {
    let shown = all.get(..most).unwrap_or(all);
    (shown, all.len() - shown.len())
}

#[cfg(test)]
mod tests {
    use super::count;

    #[test]
    fn one_thing_is_one_and_all_others_are_many() {
        assert_eq!(count(1_u64, "process"), "1 process");
        assert_eq!(count(0_usize, "process"), "0 processes");
        assert_eq!(count(2_i64, "entry"), "2 entries");
        assert_eq!(count(1_usize, "entry"), "1 entry");
        assert_eq!(count(-1_i64, "rank"), "-1 ranks");
        assert_eq!(count(u64::MAX, "communicator"), "18446744073709551615 communicators");
    }
}
