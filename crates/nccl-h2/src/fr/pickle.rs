//! Reads the pickles of dumps: a stack machine for the instructions that dumps use.
//!
//! It never recurses, never runs anything, and holds no more than the [`Limits`] allow. The strings
//! of the result are places in the input.

use std::collections::HashMap;

use crate::fr::error::{Fault, Limits};
use crate::fr::value::{Arena, Value};

mod op {
    pub(super) const MARK: u8 = b'(';
    pub(super) const STOP: u8 = b'.';
    pub(super) const POP: u8 = b'0';
    pub(super) const POP_MARK: u8 = b'1';
    pub(super) const DUP: u8 = b'2';
    pub(super) const BINFLOAT: u8 = b'G';
    pub(super) const BININT: u8 = b'J';
    pub(super) const BININT1: u8 = b'K';
    pub(super) const BININT2: u8 = b'M';
    pub(super) const NONE: u8 = b'N';
    pub(super) const BINSTRING: u8 = b'T';
    pub(super) const SHORT_BINSTRING: u8 = b'U';
    pub(super) const BINBYTES: u8 = b'B';
    pub(super) const SHORT_BINBYTES: u8 = b'C';
    pub(super) const BINUNICODE: u8 = b'X';
    pub(super) const EMPTY_LIST: u8 = b']';
    pub(super) const APPEND: u8 = b'a';
    pub(super) const APPENDS: u8 = b'e';
    pub(super) const LIST: u8 = b'l';
    pub(super) const EMPTY_TUPLE: u8 = b')';
    pub(super) const TUPLE: u8 = b't';
    pub(super) const EMPTY_DICT: u8 = b'}';
    pub(super) const DICT: u8 = b'd';
    pub(super) const SETITEM: u8 = b's';
    pub(super) const SETITEMS: u8 = b'u';
    pub(super) const BINGET: u8 = b'h';
    pub(super) const LONG_BINGET: u8 = b'j';
    pub(super) const BINPUT: u8 = b'q';
    pub(super) const LONG_BINPUT: u8 = b'r';
    pub(super) const PROTO: u8 = 0x80;
    pub(super) const TUPLE1: u8 = 0x85;
    pub(super) const TUPLE2: u8 = 0x86;
    pub(super) const TUPLE3: u8 = 0x87;
    pub(super) const NEWTRUE: u8 = 0x88;
    pub(super) const NEWFALSE: u8 = 0x89;
    pub(super) const LONG1: u8 = 0x8a;
    pub(super) const LONG4: u8 = 0x8b;
    pub(super) const SHORT_BINUNICODE: u8 = 0x8c;
    pub(super) const BINUNICODE8: u8 = 0x8d;
    pub(super) const BINBYTES8: u8 = 0x8e;
    pub(super) const MEMOIZE: u8 = 0x94;
    pub(super) const FRAME: u8 = 0x95;
}

/// The name of an instruction that builds an object or calls something.
fn runs_code(opcode: u8) -> Option<&'static str> {
    Some(match opcode {
        b'c' => "GLOBAL",
        b'R' => "REDUCE",
        b'b' => "BUILD",
        b'i' => "INST",
        b'o' => "OBJ",
        b'P' => "PERSID",
        b'Q' => "BINPERSID",
        0x81 => "NEWOBJ",
        0x82 => "EXT1",
        0x83 => "EXT2",
        0x84 => "EXT4",
        0x92 => "NEWOBJ_EX",
        0x93 => "STACK_GLOBAL",
        _ => return None,
    })
}

/// A fault on the heap: the results of the many small steps stay in registers.
type Step<T> = Result<T, Box<Fault>>;

/// Values that the pickle numbers to use them again. Numbers that follow each other lie in a list,
/// others in a map, so that a large number costs nothing.
#[derive(Debug, Default)]
struct Memo {
    dense: Vec<Value>,
    sparse: HashMap<u32, Value>,
}

impl Memo {
    fn clear(&mut self) {
        self.dense.clear();
        self.sparse.clear();
    }

    fn len(&self) -> usize {
        self.dense.len().saturating_add(self.sparse.len())
    }

    #[inline(always)]
    fn put(&mut self, number: u32, value: Value, limit: usize) -> Step<()> {
        // The list has room only as far as the limit allows.
        if number as usize == self.dense.len() && self.dense.len() < self.dense.capacity() {
            self.dense.push(value);
            return Ok(());
        }
        self.put_elsewhere(number, value, limit)
    }

    fn put_elsewhere(&mut self, number: u32, value: Value, limit: usize) -> Step<()> {
        let place = number as usize;
        if let Some(known) = self.dense.get_mut(place) {
            *known = value;
        } else if self.len() >= limit {
            return Err(too_many(limit));
        } else if place == self.dense.len() {
            make_room(&mut self.dense, limit);
            self.dense.push(value);
        } else {
            self.sparse.insert(number, value);
        }
        Ok(())
    }

    #[inline(always)]
    fn get(&self, number: u32, at: usize) -> Step<Value> {
        match self.dense.get(number as usize) {
            Some(value) => Ok(*value),
            None => self.get_elsewhere(number, at),
        }
    }

    fn get_elsewhere(&self, number: u32, at: usize) -> Step<Value> {
        self.sparse
            .get(&number)
            .copied()
            .ok_or_else(|| malformed(at, "a reference to a value that was not numbered"))
    }
}

/// Doubles the room of a list, to the limit at most.
#[cold]
fn make_room(values: &mut Vec<Value>, limit: usize) {
    let wanted = values.len().saturating_mul(2).clamp(64, limit.max(64));
    values.reserve_exact(wanted.saturating_sub(values.len()).max(1));
}

/// The values that are not yet in a container, and the marks between them.
#[derive(Debug, Default)]
struct Stack {
    values: Vec<Value>,
    marks: Vec<usize>,
    /// How much of the stack lies below the innermost mark.
    floor: usize,
}

impl Stack {
    fn clear(&mut self) {
        self.values.clear();
        self.marks.clear();
        self.floor = 0;
    }

    #[inline(always)]
    fn push(&mut self, value: Value, limit: usize) -> Step<()> {
        if self.values.len() == self.values.capacity() {
            if self.values.len() >= limit {
                return Err(too_many(limit));
            }
            make_room(&mut self.values, limit);
        }
        self.values.push(value);
        Ok(())
    }

    #[inline(always)]
    fn top(&self, at: usize) -> Step<Value> {
        match self.values.last() {
            Some(top) if self.values.len() > self.floor => Ok(*top),
            _ => Err(malformed(at, "no value on the stack")),
        }
    }

    fn pop(&mut self, at: usize) -> Step<Value> {
        let value = self.top(at)?;
        self.values.pop();
        Ok(value)
    }

    fn mark(&mut self, limits: &Limits) -> Step<()> {
        if self.marks.len() >= limits.depth {
            return Err(Box::new(Fault::TooDeep { limit: limits.depth }));
        }
        self.floor = self.values.len();
        self.marks.push(self.floor);
        Ok(())
    }

    /// Takes the innermost mark away and returns how many values lie above it.
    fn above_mark(&mut self, at: usize) -> Step<usize> {
        match self.marks.pop() {
            Some(mark) => {
                self.floor = self.marks.last().copied().unwrap_or(0);
                Ok(self.values.len().saturating_sub(mark))
            }
            None => Err(malformed(at, "no mark to go back to")),
        }
    }

    /// Where the topmost so many values begin.
    fn start_of(&self, count: usize, at: usize) -> Step<usize> {
        match self.values.len().checked_sub(count) {
            Some(start) if start >= self.floor => Ok(start),
            _ => Err(malformed(at, "too few values for this instruction")),
        }
    }
}

/// The stack machine. It is kept from dump to dump for its memory.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    stack: Stack,
    memo: Memo,
}

impl Machine {
    /// Reads a pickle into the arena and returns its value.
    ///
    /// # Errors
    /// A [`Fault`] that names the byte.
    pub(crate) fn read(
        &mut self,
        input: &[u8],
        arena: &mut Arena,
        limits: &Limits,
    ) -> Result<Value, Fault> {
        self.stack.clear();
        self.memo.clear();
        arena.clear();
        if input.len() > limits.bytes || u32::try_from(input.len()).is_err() {
            return Err(Fault::TooLarge { limit: limits.bytes });
        }
        let mut run = Run { stack: &mut self.stack, memo: &mut self.memo, arena, limits };
        run.follow(Cursor { input, at: 0 }).map_err(|fault| *fault)
    }
}

#[cold]
fn cut_short(input: &[u8]) -> Box<Fault> {
    Box::new(Fault::CutShort { offset: input.len() })
}

#[cold]
fn malformed(at: usize, problem: &'static str) -> Box<Fault> {
    Box::new(Fault::Malformed { offset: at.saturating_sub(1), problem })
}

#[cold]
fn too_many(limit: usize) -> Box<Fault> {
    Box::new(Fault::TooManyValues { limit })
}

/// Why an instruction is not followed.
#[cold]
fn refused(opcode: u8, at: usize) -> Box<Fault> {
    let offset = at.saturating_sub(1);
    Box::new(match runs_code(opcode) {
        Some(name) => Fault::WouldRunCode { offset, opcode, name },
        None => Fault::UnknownOpcode { offset, opcode },
    })
}

/// The place in the input. Everything here is inlined, so that the place stays in a register.
struct Cursor<'a> {
    input: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    #[inline(always)]
    fn take(&mut self, count: usize) -> Step<&'a [u8]> {
        match self.input.get(self.at..).and_then(|rest| rest.get(..count)) {
            Some(bytes) => {
                self.at = self.at.saturating_add(count);
                Ok(bytes)
            }
            None => Err(cut_short(self.input)),
        }
    }

    #[inline(always)]
    fn array<const N: usize>(&mut self) -> Step<[u8; N]> {
        match self.input.get(self.at..).and_then(|rest| rest.first_chunk()) {
            Some(bytes) => {
                self.at = self.at.saturating_add(N);
                Ok(*bytes)
            }
            None => Err(cut_short(self.input)),
        }
    }

    #[inline(always)]
    fn u8(&mut self) -> Step<u8> {
        match self.input.get(self.at) {
            Some(byte) => {
                self.at = self.at.saturating_add(1);
                Ok(*byte)
            }
            None => Err(cut_short(self.input)),
        }
    }

    #[inline(always)]
    fn u32(&mut self) -> Step<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// A string of so many bytes that follow.
    #[inline(always)]
    fn text(&mut self, len: u32) -> Step<Value> {
        // The input has less than 4 GiB: its places fit.
        let Ok(start) = u32::try_from(self.at) else { return Err(cut_short(self.input)) };
        self.take(len as usize)?;
        Ok(Value::Text { start, len })
    }

    /// A little-endian two's complement integer of so many bytes.
    #[inline(always)]
    fn long(&mut self, count: usize) -> Step<Value> {
        if count == 8 {
            return Ok(Value::Int(i64::from_le_bytes(self.array()?)));
        }
        Ok(long(self.take(count)?))
    }
}

/// A little-endian two's complement integer.
fn long(bytes: &[u8]) -> Value {
    let Some((&top, _)) = bytes.split_last() else { return Value::Int(0) };
    let sign = if top >= 0x80 { 0xff } else { 0 };
    let (low, high) = bytes.split_at(bytes.len().min(8));
    let mut word = [sign; 8];
    for (place, byte) in word.iter_mut().zip(low) {
        *place = *byte;
    }
    let number = i64::from_le_bytes(word);
    let fits = high.iter().all(|byte| *byte == sign) && (number < 0) == (sign == 0xff);
    if fits { Value::Int(number) } else { Value::WideInt }
}

struct Run<'a> {
    stack: &'a mut Stack,
    memo: &'a mut Memo,
    arena: &'a mut Arena,
    limits: &'a Limits,
}

impl Run<'_> {
    /// Follows the instructions to the end and returns the value of the pickle.
    fn follow(&mut self, mut cursor: Cursor<'_>) -> Step<Value> {
        let limit = self.limits.values;
        loop {
            let opcode = cursor.u8()?;
            let value = match opcode {
                op::BINGET => self.memo.get(u32::from(cursor.u8()?), cursor.at)?,
                op::LONG_BINGET => self.memo.get(cursor.u32()?, cursor.at)?,
                op::BINPUT => {
                    let number = u32::from(cursor.u8()?);
                    self.memo.put(number, self.stack.top(cursor.at)?, limit)?;
                    continue;
                }
                op::LONG_BINPUT => {
                    let number = cursor.u32()?;
                    self.memo.put(number, self.stack.top(cursor.at)?, limit)?;
                    continue;
                }
                op::MEMOIZE => {
                    let number = u32::try_from(self.memo.len()).unwrap_or(u32::MAX);
                    self.memo.put(number, self.stack.top(cursor.at)?, limit)?;
                    continue;
                }
                op::EMPTY_LIST | op::EMPTY_TUPLE => Value::List(self.arena.container(self.limits)?),
                op::EMPTY_DICT => Value::Dict(self.arena.container(self.limits)?),
                op::NONE => Value::None,
                op::NEWTRUE => Value::Bool(true),
                op::NEWFALSE => Value::Bool(false),
                op::BININT1 => Value::Int(i64::from(cursor.u8()?)),
                op::BININT2 => Value::Int(i64::from(u16::from_le_bytes(cursor.array()?))),
                op::BININT => Value::Int(i64::from(i32::from_le_bytes(cursor.array()?))),
                op::BINFLOAT => Value::Float(f64::from_be_bytes(cursor.array()?)),
                op::LONG1 => {
                    let count = usize::from(cursor.u8()?);
                    cursor.long(count)?
                }
                op::LONG4 => {
                    let count = cursor.u32()? as usize;
                    cursor.long(count)?
                }
                op::SHORT_BINUNICODE | op::SHORT_BINSTRING | op::SHORT_BINBYTES => {
                    let len = u32::from(cursor.u8()?);
                    cursor.text(len)?
                }
                op::BINUNICODE | op::BINSTRING | op::BINBYTES => {
                    let len = cursor.u32()?;
                    cursor.text(len)?
                }
                op::BINUNICODE8 | op::BINBYTES8 => {
                    let len = u64::from_le_bytes(cursor.array()?);
                    cursor.text(u32::try_from(len).unwrap_or(u32::MAX))?
                }
                op::PROTO => match cursor.u8()? {
                    2..=5 => continue,
                    found => return Err(Box::new(Fault::Protocol { found })),
                },
                op::FRAME => {
                    cursor.take(8)?;
                    continue;
                }
                op::STOP => return self.stack.pop(cursor.at),
                _ => {
                    self.rearrange(opcode, cursor.at)?;
                    continue;
                }
            };
            self.stack.push(value, limit)?;
        }
    }

    /// An instruction that works on what is on the stack. `at` is the place behind it.
    fn rearrange(&mut self, opcode: u8, at: usize) -> Step<()> {
        match opcode {
            op::MARK => self.stack.mark(self.limits),
            op::SETITEMS => {
                let count = self.stack.above_mark(at)?;
                self.fill(count, true, at)
            }
            op::APPEND => self.fill(1, false, at),
            op::APPENDS => {
                let count = self.stack.above_mark(at)?;
                self.fill(count, false, at)
            }
            op::SETITEM => self.fill(2, true, at),
            op::TUPLE1 => self.gather(1, at),
            op::TUPLE2 => self.gather(2, at),
            op::TUPLE3 => self.gather(3, at),
            op::LIST | op::TUPLE => {
                let count = self.stack.above_mark(at)?;
                self.gather(count, at)
            }
            op::DICT => {
                let count = self.stack.above_mark(at)?;
                let start = self.stack.start_of(count, at)?;
                let dictionary = Value::Dict(self.arena.container(self.limits)?);
                self.stack.values.insert(start, dictionary);
                self.fill(count, true, at)
            }
            op::POP => self.stack.pop(at).map(|_| ()),
            op::POP_MARK => {
                let count = self.stack.above_mark(at)?;
                let start = self.stack.start_of(count, at)?;
                self.stack.values.truncate(start);
                Ok(())
            }
            op::DUP => {
                let value = self.stack.top(at)?;
                self.stack.push(value, self.limits.values)
            }
            _ => Err(refused(opcode, at)),
        }
    }

    /// Moves so many values from the top of the stack into the container below them.
    #[inline]
    fn fill(&mut self, count: usize, dictionary: bool, at: usize) -> Step<()> {
        let start = self.stack.start_of(count.saturating_add(1), at)?.saturating_add(1);
        let (below, items) = self.stack.values.split_at(start);
        let number = match (below.last(), dictionary) {
            (Some(&Value::List(number)), false) | (Some(&Value::Dict(number)), true) => number,
            _ => return Err(malformed(at, "no container of this kind to put values into")),
        };
        if dictionary && !count.is_multiple_of(2) {
            return Err(malformed(at, "a key without a value"));
        }
        self.arena.extend(number, items, self.limits)?;
        self.stack.values.truncate(start);
        Ok(())
    }

    /// Replaces so many values on the top of the stack by one list of them.
    fn gather(&mut self, count: usize, at: usize) -> Step<()> {
        let start = self.stack.start_of(count, at)?;
        let number = self.arena.container(self.limits)?;
        let items = self.stack.values.get(start..).unwrap_or_default();
        self.arena.extend(number, items, self.limits)?;
        self.stack.values.truncate(start);
        self.stack.push(Value::List(number), self.limits.values)
    }
}

#[cfg(test)]
mod tests;
