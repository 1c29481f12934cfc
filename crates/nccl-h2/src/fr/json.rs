//! Reads the JSON form of a dump into the same arena as a pickle.

use std::collections::HashMap;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::fr::error::{Fault, Limits};
use crate::fr::value::{Arena, Value};

/// Strings up to this length are kept once; keys and names are.
const SHARED: usize = 64;

/// Reads JSON text. Strings go into `text`, which the result refers to.
///
/// # Errors
/// [`Fault::Json`] with line and column, or the limit that was met.
pub(crate) fn read(
    input: &[u8],
    arena: &mut Arena,
    text: &mut Vec<u8>,
    limits: &Limits,
) -> Result<Value, Fault> {
    arena.clear();
    text.clear();
    if input.len() > limits.bytes {
        return Err(Fault::TooLarge { limit: limits.bytes });
    }
    let mut builder = Builder {
        arena,
        text,
        limits,
        shared: HashMap::default(),
        waiting: Vec::new(),
        values: 0,
        fault: None,
    };
    // One check of the whole text is faster than one a string; bytes that are none fail below.
    let read = match std::str::from_utf8(input) {
        Ok(input) => builder.value(&mut serde_json::Deserializer::from_str(input)),
        Err(_) => builder.value(&mut serde_json::Deserializer::from_slice(input)),
    };
    read.map_err(|error| builder.fault.take().unwrap_or_else(|| Fault::Json(error.to_string())))
}

struct Builder<'a> {
    arena: &'a mut Arena,
    text: &'a mut Vec<u8>,
    limits: &'a Limits,
    shared: HashMap<Box<str>, Value, foldhash::fast::RandomState>,
    /// Items of the containers that are open, the innermost last.
    waiting: Vec<Value>,
    /// Values read so far.
    values: usize,
    /// A limit that was met, which the reader's own error cannot carry.
    fault: Option<Fault>,
}

impl Builder<'_> {
    /// The only value of a text.
    fn value<'de, R: serde_json::de::Read<'de>>(
        &mut self,
        json: &mut serde_json::Deserializer<R>,
    ) -> serde_json::Result<Value> {
        let value = Seed { builder: self, depth: 0 }.deserialize(&mut *json)?;
        json.end().map(|()| value)
    }

    fn count(&mut self) -> Result<(), Fault> {
        self.values = self.values.saturating_add(1);
        match self.values > self.limits.values {
            true => Err(Fault::TooManyValues { limit: self.limits.values }),
            false => Ok(()),
        }
    }

    fn string(&mut self, string: &str) -> Result<Value, Fault> {
        if let Some(value) = self.shared.get(string) {
            return Ok(*value);
        }
        let too_large = Fault::TooLarge { limit: self.limits.bytes };
        let start = u32::try_from(self.text.len()).map_err(|_| too_large.clone())?;
        let len = u32::try_from(string.len()).map_err(|_| too_large)?;
        self.text.extend_from_slice(string.as_bytes());
        let value = Value::Text { start, len };
        if string.len() <= SHARED {
            self.shared.insert(string.into(), value);
        }
        Ok(value)
    }
}

/// Reads one value at a nesting depth.
struct Seed<'b, 'a> {
    builder: &'b mut Builder<'a>,
    depth: usize,
}

impl<'b, 'a> Seed<'b, 'a> {
    fn inner(&mut self) -> Seed<'_, 'a> {
        Seed { builder: self.builder, depth: self.depth.saturating_add(1) }
    }

    /// Keeps a limit's fault and stops the reader.
    fn checked<T, E: Error>(&mut self, result: Result<T, Fault>) -> Result<T, E> {
        result.map_err(|fault| {
            let error = E::custom(&fault);
            self.builder.fault = Some(fault);
            error
        })
    }

    fn open<E: Error>(&mut self) -> Result<u32, E> {
        let limits = self.builder.limits;
        let opened = if self.depth >= limits.depth {
            Err(Fault::TooDeep { limit: limits.depth })
        } else {
            self.builder.arena.container(limits).map_err(|fault| *fault)
        };
        self.checked(opened)
    }

    /// Gives a container the items that wait from a place on.
    fn close<E: Error>(&mut self, number: u32, from: usize) -> Result<(), E> {
        let Builder { arena, waiting, limits, .. } = &mut *self.builder;
        let items = waiting.get(from..).unwrap_or_default();
        let extended = arena.extend(number, items, limits);
        waiting.truncate(from);
        self.checked(extended.map_err(|fault| *fault))
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(mut self, deserializer: D) -> Result<Value, D::Error> {
        let counted = self.builder.count();
        self.checked::<_, D::Error>(counted)?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::None)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or(Value::WideInt, Value::Int))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E: Error>(mut self, value: &str) -> Result<Value, E> {
        let string = self.builder.string(value);
        self.checked(string)
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut items: A) -> Result<Value, A::Error> {
        let number = self.open()?;
        let from = self.builder.waiting.len();
        while let Some(item) = items.next_element_seed(self.inner())? {
            self.builder.waiting.push(item);
        }
        self.close(number, from)?;
        Ok(Value::List(number))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<Value, A::Error> {
        let number = self.open()?;
        let from = self.builder.waiting.len();
        while let Some(key) = entries.next_key_seed(self.inner())? {
            self.builder.waiting.push(key);
            let value = entries.next_value_seed(self.inner())?;
            self.builder.waiting.push(value);
        }
        self.close(number, from)?;
        Ok(Value::Dict(number))
    }
}
