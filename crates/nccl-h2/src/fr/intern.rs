//! Keeps one copy of what many entries share: call stacks, shapes of calls, process groups.

use std::collections::HashMap;

use foldhash::fast::RandomState;

/// Distinct things, numbered in the order in which they were first seen.
#[derive(Debug)]
pub(crate) struct Interner<T> {
    numbers: HashMap<Box<[u8]>, u32, RandomState>,
    things: Vec<T>,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { numbers: HashMap::default(), things: Vec::new() }
    }
}

impl<T> Interner<T> {
    /// The number of the thing with this key, which is made where it is new.
    pub(crate) fn number<E>(
        &mut self,
        key: &[u8],
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<u32, E> {
        if let Some(number) = self.numbers.get(key) {
            return Ok(*number);
        }
        let thing = make()?;
        // Every thing has an entry of its own behind it, and entries are limited far below this.
        let number = u32::try_from(self.things.len()).unwrap_or(u32::MAX);
        self.numbers.insert(key.into(), number);
        self.things.push(thing);
        Ok(number)
    }

    /// The things, without their keys.
    pub(crate) fn into_things(self) -> Vec<T> {
        self.things
    }

    /// The things with their keys, in the order of their numbers.
    pub(crate) fn into_parts(self) -> Vec<(Box<[u8]>, T)> {
        let mut keys: Vec<(u32, Box<[u8]>)> =
            self.numbers.into_iter().map(|(key, number)| (number, key)).collect();
        keys.sort_unstable();
        keys.into_iter().map(|(_, key)| key).zip(self.things).collect()
    }
}
