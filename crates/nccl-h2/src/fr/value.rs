//! Plain values as a dump holds them: numbers, strings, lists and dictionaries in one flat arena.
//!
//! Both forms of a dump (pickle and JSON) are read into the same arena, so that what a dump means is
//! written once. Values refer to each other by number: a value that contains itself is harmless,
//! since nothing here walks values without an end.

use crate::fr::error::{Fault, Limits};

/// A value. Strings are places in the text that goes with the arena.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value {
    None,
    Bool(bool),
    Int(i64),
    /// An integer beyond 64 bits, which no field of a dump needs.
    WideInt,
    Float(f64),
    /// Bytes `start..start + len` of the text.
    Text {
        start: u32,
        len: u32,
    },
    /// A list or tuple: the number of its node.
    List(u32),
    /// A dictionary: the number of its node, which holds keys and values in turn.
    Dict(u32),
}

/// Where the items of a container lie in the arena.
#[derive(Debug, Clone, Copy)]
struct Node {
    start: usize,
    len: u32,
    capacity: u32,
}

/// Containers and their items.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    items: Vec<Value>,
    nodes: Vec<Node>,
}

impl Arena {
    /// Forgets everything, keeping the memory for the next dump.
    pub(crate) fn clear(&mut self) {
        self.items.clear();
        self.nodes.clear();
    }

    /// The number of a new, empty container.
    ///
    /// # Errors
    /// [`Fault::TooManyValues`] beyond the limit.
    #[inline]
    pub(crate) fn container(&mut self, limits: &Limits) -> Result<u32, Box<Fault>> {
        match u32::try_from(self.nodes.len()) {
            Ok(number) if self.nodes.len() < limits.values => {
                self.nodes.push(Node { start: self.items.len(), len: 0, capacity: 0 });
                Ok(number)
            }
            _ => Err(too_many(limits)),
        }
    }

    /// Appends items to a container. A container that has to grow and is not the last in the arena
    /// moves to its end.
    ///
    /// # Errors
    /// [`Fault::TooManyValues`] beyond the limit.
    #[inline]
    pub(crate) fn extend(
        &mut self,
        number: u32,
        items: &[Value],
        limits: &Limits,
    ) -> Result<(), Box<Fault>> {
        let end = self.items.len();
        match self.nodes.get_mut(number as usize) {
            Some(node)
                if node.capacity == 0 && end.saturating_add(items.len()) <= limits.values =>
            {
                let Ok(len) = u32::try_from(items.len()) else { return Err(too_many(limits)) };
                *node = Node { start: end, len, capacity: len };
                self.items.extend_from_slice(items);
                Ok(())
            }
            _ => self.grow(number, items, limits),
        }
    }

    /// Appends items to a container that has some.
    fn grow(&mut self, number: u32, items: &[Value], limits: &Limits) -> Result<(), Box<Fault>> {
        let Some(node) = self.nodes.get_mut(number as usize) else { return Ok(()) };
        let len = node.len as usize;
        let wanted = len.saturating_add(items.len());
        let used = node.start.saturating_add(len);
        if wanted <= node.capacity as usize {
            if let Some(room) = self.items.get_mut(used..used.saturating_add(items.len())) {
                room.copy_from_slice(items);
            }
            node.len = u32::try_from(wanted).map_err(|_| too_many(limits))?;
            return Ok(());
        }
        let at_end = node.start.saturating_add(node.capacity as usize) == self.items.len();
        // Twice the room for one that moves, so that it moves seldom.
        let capacity = if at_end { wanted } else { wanted.saturating_mul(2) };
        let start = if at_end { node.start } else { self.items.len() };
        if start.saturating_add(capacity) > limits.values {
            return Err(too_many(limits));
        }
        if at_end {
            self.items.truncate(used);
        } else {
            self.items.extend_from_within(node.start..used);
        }
        self.items.extend_from_slice(items);
        self.items.resize(start.saturating_add(capacity), Value::None);
        *node = Node {
            start,
            len: u32::try_from(wanted).map_err(|_| too_many(limits))?,
            capacity: u32::try_from(capacity).map_err(|_| too_many(limits))?,
        };
        Ok(())
    }

    fn slice(&self, number: u32) -> &[Value] {
        self.nodes
            .get(number as usize)
            .and_then(|node| {
                self.items.get(node.start..node.start.saturating_add(node.len as usize))
            })
            .unwrap_or_default()
    }
}

#[cold]
fn too_many(limits: &Limits) -> Box<Fault> {
    Box::new(Fault::TooManyValues { limit: limits.values })
}

/// A value with the arena and text that it refers to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    /// Containers.
    pub(crate) arena: &'a Arena,
    /// Bytes of all strings.
    pub(crate) text: &'a [u8],
}

impl<'a> View<'a> {
    /// The items of a list or tuple.
    pub(crate) fn list(&self, value: Value) -> Option<&'a [Value]> {
        match value {
            Value::List(number) => Some(self.arena.slice(number)),
            _ => None,
        }
    }

    /// Keys and values of a dictionary, in turn, in the order in which they were set.
    pub(crate) fn pairs(&self, value: Value) -> Option<&'a [Value]> {
        match value {
            Value::Dict(number) => Some(self.arena.slice(number)),
            _ => None,
        }
    }

    /// The bytes of a string.
    pub(crate) fn bytes(&self, value: Value) -> Option<&'a [u8]> {
        match value {
            Value::Text { start, len } => {
                let start = start as usize;
                self.text.get(start..start.saturating_add(len as usize))
            }
            _ => None,
        }
    }

    /// The value of a key of a dictionary; the one set last, as in the language that wrote it.
    pub(crate) fn get(&self, dict: Value, key: &[u8]) -> Option<Value> {
        self.pairs(dict)?.rchunks_exact(2).find_map(|pair| match pair {
            [name, value] if self.bytes(*name) == Some(key) => Some(*value),
            _ => None,
        })
    }
}

/// The integer in a value, or in a string of decimal digits.
pub(crate) fn integer(view: &View<'_>, value: Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(number),
        Value::Text { .. } => std::str::from_utf8(view.bytes(value)?).ok()?.trim().parse().ok(),
        _ => None,
    }
}
