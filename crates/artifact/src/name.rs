//! The names of artifact files.

use std::fmt;

use thiserror::Error;

/// Longest instance that is allowed in a name, bytes.
const MAX_INSTANCE: usize = 128;

/// What an artifact holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A window of the Normal mode.
    Normal,
    /// A low-latency window.
    LowLatency,
}

impl Kind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Normal, Self::LowLatency];

    /// The name in the file and at the beginning of its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal_window",
            Self::LowLatency => "ll_window",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An instance that cannot be part of a file name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "instance {instance:?} is not 1 to {MAX_INSTANCE} ASCII letters, digits, '.', '_' or '-' that \
     begin with a letter or digit"
)]
pub struct InvalidInstance {
    /// The instance.
    pub instance: String,
}

impl InvalidInstance {
    pub(crate) fn check(instance: &str) -> Result<(), Self> {
        let first = instance.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric());
        let rest = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        if first && instance.len() <= MAX_INSTANCE && instance.bytes().all(rest) {
            return Ok(());
        }
        Err(Self { instance: instance.to_owned() })
    }
}

/// The name of an artifact: `<kind>_<instance>_<window, at least 6 digits>.npz`.
///
/// Ordered by kind, instance and number of the window.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ArtifactName {
    kind: Kind,
    instance: String,
    index: u64,
}

impl ArtifactName {
    /// A name.
    ///
    /// # Errors
    ///
    /// The instance is empty, longer than 128 bytes, or has characters that are not portable in
    /// file names.
    pub fn new(kind: Kind, instance: &str, index: u64) -> Result<Self, InvalidInstance> {
        InvalidInstance::check(instance)?;
        Ok(Self { kind, instance: instance.to_owned(), index })
    }

    /// Reads a file name; `None` when it is not exactly one that this crate gives.
    #[must_use]
    pub fn parse(file_name: &str) -> Option<Self> {
        let stem = file_name.strip_suffix(".npz")?;
        let (kind, rest) = Kind::ALL
            .into_iter()
            .find_map(|kind| Some((kind, stem.strip_prefix(kind.name())?.strip_prefix('_')?)))?;
        let (instance, digits) = rest.rsplit_once('_')?;
        let name = Self::new(kind, instance, digits.parse().ok()?).ok()?;
        (name.to_string() == file_name).then_some(name)
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The instance.
    #[must_use]
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// The number of the window.
    #[must_use]
    pub fn index(&self) -> u64 {
        self.index
    }

    /// The name without the extension.
    #[must_use]
    pub fn stem(&self) -> String {
        format!("{}_{}_{:06}", self.kind, self.instance, self.index)
    }
}

impl fmt::Display for ArtifactName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}_{}_{:06}.npz", self.kind, self.instance, self.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_kind_instance_and_six_digits() {
        let name = ArtifactName::new(Kind::Normal, "a-1", 42).unwrap();
        assert_eq!(name.to_string(), "normal_window_a-1_000042.npz");
        assert_eq!(ArtifactName::parse("normal_window_a-1_000042.npz"), Some(name));
        let late = ArtifactName::new(Kind::LowLatency, "a", 1_234_567).unwrap();
        assert_eq!(late.to_string(), "ll_window_a_1234567.npz");
        assert_eq!(ArtifactName::parse("ll_window_a_1234567.npz"), Some(late));
    }

    #[test]
    fn names_that_this_crate_never_gives_are_foreign() {
        for name in [
            "normal_window_a_42.npz",
            "normal_window_a_0000042.npz",
            "normal_window_a_+00042.npz",
            "normal_window_a_notes.npz",
            "normal_window_000042.npz",
            "normal_window__000042.npz",
            "normal_window_.._000042.npz",
            "normal_window_a_000042.npz.tmp",
            "normal_window_a_000042.NPZ",
            "other_window_a_000042.npz",
            "normal_window_a_99999999999999999999.npz",
            "",
        ] {
            assert_eq!(ArtifactName::parse(name), None, "{name}");
        }
    }

    #[test]
    fn an_instance_with_numbers_at_its_end_keeps_them() {
        let name = ArtifactName::parse("normal_window_a_000001_000002.npz").unwrap();
        assert_eq!((name.instance(), name.index()), ("a_000001", 2));
    }

    #[test]
    fn an_instance_that_would_leave_the_folder_is_refused() {
        for instance in ["", "../x", "a/b", ".hidden", "a b", "ä", &"a".repeat(129)] {
            let error = ArtifactName::new(Kind::Normal, instance, 1).unwrap_err();
            assert_eq!(error.instance, instance);
        }
    }

    #[test]
    fn order_is_by_number_and_not_by_text() {
        let name = |index| ArtifactName::new(Kind::Normal, "a", index).unwrap();
        assert!(name(999_999) < name(1_000_000));
    }
}
