//! Texts kept once, named by a number.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// A text of [`Names`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Name(u32);

impl Name {
    /// The empty text.
    pub(crate) const EMPTY: Self = Self(0);

    pub(crate) fn number(self) -> usize {
        self.0 as usize
    }
}

/// Every different text that was seen. The numbers depend on the order of arrival: results must
/// use the texts.
#[derive(Debug)]
pub(crate) struct Names {
    texts: Vec<Box<str>>,
    numbers: HashMap<Box<str>, u32, foldhash::fast::RandomState>,
}

/// Most texts that are kept, and the longest: more are all the same text, [`Names::OVERFLOW`].
const MAX_NAMES: usize = 1 << 20;
const MAX_BYTES: usize = 512;

impl Names {
    /// What stands for texts that are not kept.
    pub(crate) const OVERFLOW: &'static str = "(too many or too long)";

    pub(crate) fn new() -> Self {
        let mut names = Self { texts: Vec::new(), numbers: HashMap::default() };
        names.add("");
        names
    }

    fn add(&mut self, text: &str) -> Name {
        // At most MAX_NAMES + 2 texts: the number fits.
        let number = self.texts.len() as u32;
        self.texts.push(text.into());
        self.numbers.insert(text.into(), number);
        Name(number)
    }

    /// The name of a text.
    pub(crate) fn intern(&mut self, text: &str) -> Name {
        if text.is_empty() {
            return Name::EMPTY;
        }
        match self.numbers.get(text) {
            Some(&number) => Name(number),
            None if self.texts.len() <= MAX_NAMES && text.len() <= MAX_BYTES => self.add(text),
            None => match self.numbers.get(Self::OVERFLOW) {
                Some(&number) => Name(number),
                None => self.add(Self::OVERFLOW),
            },
        }
    }

    /// All texts, by number.
    pub(crate) fn into_texts(self) -> Vec<Box<str>> {
        self.texts
    }

    /// The text of a name.
    pub(crate) fn text(&self, name: Name) -> &str {
        self.texts.get(name.0 as usize).map_or("", |text| text)
    }

    /// Whether a name stands for texts that were not kept.
    pub(crate) fn is_overflow(&self, name: Name) -> bool {
        self.text(name) == Self::OVERFLOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_have_one_name() {
        let mut names = Names::new();
        let a = names.intern("a");
        let b = names.intern("b");
        assert_ne!(a, b);
        assert_eq!(names.intern("a"), a);
        assert_eq!((names.text(a), names.text(Name::EMPTY)), ("a", ""));
    }

    #[test]
    fn a_huge_text_is_not_kept() {
        let mut names = Names::new();
        let name = names.intern(&"x".repeat(MAX_BYTES + 1));
        assert!(names.is_overflow(name));
        assert_eq!(names.intern(&"y".repeat(MAX_BYTES + 1)), name);
    }
}
