//! What the values of a dump mean: turns them into records.

use crate::fr::error::{Fault, Limits};
use crate::fr::intern::Interner;
use crate::fr::op::Op;
use crate::fr::record::{Dump, Frame, Group, Record, Shape, State, Tensor};
use crate::fr::value::{Value, View, integer};

/// Keys of an entry whose places are remembered; entries have about 20.
const KEYS_AN_ENTRY: usize = 64;

/// An entry is allowed for so many values of the limit.
const VALUES_AN_ENTRY: usize = 16;

/// Turns the values of a dump into records.
///
/// # Errors
/// A [`Fault`] that names the key and the entry.
pub(crate) fn interpret(view: &View<'_>, root: Value, limits: &Limits) -> Result<Dump, Fault> {
    if view.pairs(root).is_none() {
        return Err(shape("the dump", "is no dictionary"));
    }
    let version = version(view, root)?;
    let groups = groups(view, view.get(root, b"pg_config"))?;
    let entries = match view.get(root, b"entries") {
        None => &[],
        Some(entries) => view.list(entries).ok_or_else(|| shape("entries", "is no list"))?,
    };
    let limit = limits.values / VALUES_AN_ENTRY;
    if entries.len() > limit {
        return Err(Fault::TooManyValues { limit: limits.values });
    }
    let mut reader = Reader {
        view: *view,
        keys: Vec::new(),
        shapes: Interner::default(),
        stacks: Interner::default(),
        groups: Interner::default(),
        known: groups,
        frame_keys: FrameKeys::default(),
        scratch: Vec::new(),
        work: limits.values.saturating_mul(4),
        limits,
    };
    let mut ids = Ids::default();
    let mut records = Vec::with_capacity(entries.len());
    for (number, entry) in entries.iter().enumerate() {
        let (record, id) = reader.entry(*entry).map_err(|fault| at_entry(fault, number))?;
        ids.see(id, record.state);
        records.push(record);
    }
    let mut groups = reader.groups.into_things();
    let unused = reader.known.into_iter().filter(|known| !groups.contains(known));
    let unused: Vec<Group> = unused.collect();
    groups.extend(unused);
    Ok(Dump {
        version,
        records,
        shapes: reader.shapes.into_parts(),
        stacks: reader.stacks.into_parts(),
        groups,
        wrapped: ids.wrapped(),
        filtered: ids.filtered(),
    })
}

fn shape(place: &str, problem: &str) -> Fault {
    Fault::Shape { place: place.to_owned(), problem: problem.to_owned() }
}

/// Puts the number of the entry into a fault.
fn at_entry(fault: Fault, number: usize) -> Fault {
    match fault {
        Fault::Shape { place, problem } => {
            Fault::Shape { place: format!("entries[{number}]{place}"), problem }
        }
        other => other,
    }
}

/// `version`: "2.x", as text or number.
fn version(view: &View<'_>, root: Value) -> Result<(u32, u32), Fault> {
    let found = match view.get(root, b"version") {
        None => return Err(shape("version", "is missing: this is no Flight Recorder dump")),
        Some(Value::Float(number)) => format!("{number}"),
        Some(Value::Int(number)) => format!("{number}.0"),
        Some(value) => match view.bytes(value) {
            Some(bytes) => String::from_utf8_lossy(bytes.get(..32).unwrap_or(bytes)).into_owned(),
            None => return Err(shape("version", "is no text")),
        },
    };
    let parts = found.split_once('.').unwrap_or((&found, "0"));
    match (parts.0.parse(), parts.1.parse()) {
        (Ok(2), Ok(minor)) => Ok((2, minor)),
        _ => Err(Fault::Version { found }),
    }
}

/// The groups of `pg_config`.
fn groups(view: &View<'_>, config: Option<Value>) -> Result<Vec<Group>, Fault> {
    let Some(config) = config else { return Ok(Vec::new()) };
    let pairs = view.pairs(config).ok_or_else(|| shape("pg_config", "is no dictionary"))?;
    let mut groups = Vec::new();
    for pair in pairs.chunks_exact(2) {
        let [key, group] = pair else { continue };
        let name = view.get(*group, b"name").unwrap_or(*key);
        let description = view.get(*group, b"desc").unwrap_or(Value::None);
        let ranks = view.get(*group, b"ranks").map_or(Ok(Vec::new()), |ranks| {
            member_ranks(view, ranks).ok_or_else(|| {
                shape("pg_config", &format!("has no list of ranks for group {}", text(view, name)))
            })
        })?;
        groups.push(Group { name: text(view, name), description: text(view, description), ranks });
    }
    Ok(groups)
}

/// Ranks as a list, or as the text of one: `[0, 1]`.
fn member_ranks(view: &View<'_>, ranks: Value) -> Option<Vec<i64>> {
    if let Some(items) = view.list(ranks) {
        return items.iter().map(|item| integer(view, *item)).collect();
    }
    let text = std::str::from_utf8(view.bytes(ranks)?).ok()?.trim();
    let inner = text.strip_prefix('[')?.strip_suffix(']')?.trim();
    if inner.is_empty() {
        return Some(Vec::new());
    }
    inner.trim_end_matches(',').split(',').map(|rank| rank.trim().parse().ok()).collect()
}

fn text(view: &View<'_>, value: Value) -> Box<str> {
    match value {
        Value::Int(number) => number.to_string().into(),
        _ => String::from_utf8_lossy(view.bytes(value).unwrap_or_default()).into(),
    }
}

/// What the numbers of the entries say about the buffer.
#[derive(Default)]
struct Ids {
    first: Option<i64>,
    last: Option<i64>,
    gaps: bool,
    completed: bool,
}

impl Ids {
    fn see(&mut self, id: i64, state: State) {
        self.completed |= state == State::Completed;
        self.first.get_or_insert(id);
        self.gaps |= self.last.is_some_and(|last| last >= 0 && id > last.saturating_add(1));
        self.last = Some(id);
    }

    fn wrapped(&self) -> bool {
        self.first.is_some_and(|first| first > 0)
    }

    /// A full dump has every number from its first to its last, and completed calls before its open
    /// ones once the buffer has gone round.
    fn filtered(&self) -> bool {
        self.gaps || (self.wrapped() && !self.completed)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Frames,
    RecordId,
    ProcessGroup,
    CollectiveSeq,
    P2pSeq,
    OpId,
    ProfilingName,
    Created,
    Completed,
    InputSizes,
    InputTypes,
    OutputSizes,
    OutputTypes,
    State,
    Timeout,
    IsP2p,
    Ignored,
}

impl Key {
    fn parse(name: &[u8]) -> Self {
        match name {
            b"frames" => Self::Frames,
            b"record_id" => Self::RecordId,
            b"process_group" => Self::ProcessGroup,
            b"collective_seq_id" => Self::CollectiveSeq,
            b"p2p_seq_id" => Self::P2pSeq,
            b"op_id" => Self::OpId,
            b"profiling_name" => Self::ProfilingName,
            b"time_created_ns" => Self::Created,
            b"time_discovered_completed_ns" => Self::Completed,
            b"input_sizes" => Self::InputSizes,
            b"input_dtypes" => Self::InputTypes,
            b"output_sizes" => Self::OutputSizes,
            b"output_dtypes" => Self::OutputTypes,
            b"state" => Self::State,
            b"timeout_ms" => Self::Timeout,
            b"is_p2p" => Self::IsP2p,
            _ => Self::Ignored,
        }
    }
}

/// The parts of an entry that are interpreted together.
struct Parts {
    name: Value,
    sizes: [Value; 2],
    types: [Value; 2],
    frames: Value,
    group: Value,
    timeout_ms: i64,
    id: i64,
}

struct Reader<'a> {
    view: View<'a>,
    /// Keys by their place in an entry: where the same text stands there again, it is the same key.
    keys: Vec<(Value, Key)>,
    shapes: Interner<Shape>,
    stacks: Interner<Vec<Frame>>,
    groups: Interner<Group>,
    known: Vec<Group>,
    frame_keys: FrameKeys,
    scratch: Vec<u8>,
    /// Values that may still be looked at: one value may stand in many places.
    work: usize,
    limits: &'a Limits,
}

impl<'a> Reader<'a> {
    fn entry(&mut self, entry: Value) -> Result<(Record, i64), Fault> {
        let pairs = self.view.pairs(entry).ok_or_else(|| shape("", " is no dictionary"))?;
        self.spend(pairs.len())?;
        let mut record = Record {
            created_ns: -1,
            completed_ns: -1,
            seq: -1,
            p2p_seq: -1,
            op_id: -1,
            ..Record::default()
        };
        let mut parts = Parts {
            name: Value::None,
            sizes: [Value::None; 2],
            types: [Value::None; 2],
            frames: Value::None,
            group: Value::None,
            timeout_ms: -1,
            id: -1,
        };
        for (place, pair) in pairs.chunks_exact(2).enumerate() {
            let [name, value] = pair else { continue };
            let key = self.key(place, *name);
            self.field(key, *value, &mut record, &mut parts);
        }
        record.shape = self.shape(&parts)?;
        record.stack = self.stack(parts.frames)?;
        record.group = self.group(parts.group)?;
        if overdue(&record, parts.timeout_ms) {
            record.state = State::Started;
        }
        Ok((record, parts.id))
    }

    fn key(&mut self, place: usize, name: Value) -> Key {
        if let Some((known, key)) = self.keys.get(place)
            && *known == name
        {
            return *key;
        }
        let key = Key::parse(self.view.bytes(name).unwrap_or_default());
        if place == self.keys.len() && place < KEYS_AN_ENTRY {
            self.keys.push((name, key));
        } else if let Some(slot) = self.keys.get_mut(place) {
            *slot = (name, key);
        }
        key
    }

    fn field(&self, key: Key, value: Value, record: &mut Record, parts: &mut Parts) {
        let number = |value| match value {
            Value::Int(number) => number,
            _ => integer(&self.view, value).unwrap_or(-1),
        };
        // The JSON form writes 0 for a time that is not known.
        let time = |value| Some(number(value)).filter(|time| *time > 0).unwrap_or(-1);
        match key {
            Key::Frames => parts.frames = value,
            Key::RecordId => parts.id = number(value),
            Key::ProcessGroup => parts.group = value,
            Key::CollectiveSeq => record.seq = number(value),
            Key::P2pSeq => record.p2p_seq = number(value),
            Key::OpId => record.op_id = number(value),
            Key::ProfilingName => parts.name = value,
            Key::Created => record.created_ns = time(value),
            Key::Completed => record.completed_ns = time(value),
            Key::InputSizes => parts.sizes[0] = value,
            Key::InputTypes => parts.types[0] = value,
            Key::OutputSizes => parts.sizes[1] = value,
            Key::OutputTypes => parts.types[1] = value,
            Key::State => record.state = state(self.view.bytes(value).unwrap_or_default()),
            Key::Timeout => parts.timeout_ms = number(value),
            Key::IsP2p => record.p2p = value == Value::Bool(true),
            Key::Ignored => {}
        }
    }

    fn spend(&mut self, values: usize) -> Result<(), Fault> {
        self.work = self
            .work
            .checked_sub(values)
            .ok_or(Fault::TooManyValues { limit: self.limits.values })?;
        Ok(())
    }

    /// The items of a list that counts against the work, none where it is none.
    fn items(&mut self, value: Value) -> Result<&'a [Value], Fault> {
        let items = self.view.list(value).unwrap_or_default();
        self.spend(items.len().saturating_add(1))?;
        Ok(items)
    }

    fn shape(&mut self, parts: &Parts) -> Result<u32, Fault> {
        let name = self
            .view
            .bytes(parts.name)
            .ok_or_else(|| shape(".profiling_name", "is missing or no text"))?;
        self.scratch.clear();
        self.scratch.extend_from_slice(name);
        for (sizes, types) in parts.sizes.iter().zip(&parts.types) {
            self.scratch.push(0);
            for size in self.items(*sizes)? {
                self.scratch.push(1);
                for dimension in self.items(*size)? {
                    let number = integer(&self.view, *dimension).unwrap_or(-1);
                    self.scratch.extend_from_slice(&number.to_le_bytes());
                }
            }
            for datatype in self.items(*types)? {
                self.scratch.push(2);
                self.scratch.extend_from_slice(self.view.bytes(*datatype).unwrap_or_default());
            }
        }
        let view = self.view;
        self.shapes.number(&self.scratch, || {
            let name = String::from_utf8_lossy(name).into_owned();
            let [inputs, outputs] = [0, 1].map(|side: usize| {
                let sizes = parts.sizes.get(side).copied().unwrap_or(Value::None);
                let types = parts.types.get(side).copied().unwrap_or(Value::None);
                tensors(&view, sizes, types)
            });
            Ok(Shape { op: Op::parse(&name), name: name.into(), inputs, outputs })
        })
    }

    fn stack(&mut self, frames: Value) -> Result<u32, Fault> {
        let frames = self.items(frames)?;
        self.spend(frames.len().saturating_mul(6))?;
        self.scratch.clear();
        for frame in frames {
            let (name, file, line) = self.frame_keys.parts(&self.view, *frame);
            self.scratch.extend_from_slice(name);
            self.scratch.push(0);
            self.scratch.extend_from_slice(file);
            self.scratch.push(0);
            self.scratch.extend_from_slice(&line.to_le_bytes());
        }
        let (view, keys) = (self.view, &mut self.frame_keys);
        self.stacks.number(&self.scratch, || {
            let frame = |frame: &Value| {
                let (function, file, line) = keys.parts(&view, *frame);
                Frame {
                    file: String::from_utf8_lossy(file).into_owned(),
                    function: String::from_utf8_lossy(function).into_owned(),
                    line,
                }
            };
            Ok(frames.iter().map(frame).collect())
        })
    }

    fn group(&mut self, group: Value) -> Result<u32, Fault> {
        let (name, description) = match self.items(group)? {
            [name, description, ..] => (*name, *description),
            [name] => (*name, Value::None),
            [] => (group, Value::None),
        };
        let view = self.view;
        self.scratch.clear();
        self.scratch.extend_from_slice(view.bytes(name).unwrap_or_default());
        self.scratch.push(0);
        self.scratch.extend_from_slice(view.bytes(description).unwrap_or_default());
        let known = &self.known;
        self.groups.number(&self.scratch, || {
            let (name, description) = (text(&view, name), text(&view, description));
            let found = known
                .iter()
                .find(|group| group.name == name && group.description == description)
                .or_else(|| known.iter().find(|group| group.name == name));
            let ranks = found.map(|group| group.ranks.clone()).unwrap_or_default();
            Ok(Group { name, description, ranks })
        })
    }
}

fn state(word: &[u8]) -> State {
    match word {
        b"scheduled" => State::Scheduled,
        b"started" => State::Started,
        b"completed" => State::Completed,
        _ => State::Unknown,
    }
}

/// Whether a call was "completed" only after its timeout: the watchdog ended it then, and its end on
/// the device proves nothing.
fn overdue(record: &Record, timeout_ms: i64) -> bool {
    record.state == State::Completed
        && timeout_ms > 0
        && record.created_ns > 0
        && record.completed_ns > 0
        && record.completed_ns.saturating_sub(record.created_ns)
            >= timeout_ms.saturating_mul(1_000_000)
}

/// The keys of frames as they stand in this dump: the same text again is the same key.
#[derive(Default)]
struct FrameKeys {
    known: [Option<Value>; 3],
}

impl FrameKeys {
    /// Function, file and line of a frame.
    fn parts<'a>(&mut self, view: &View<'a>, frame: Value) -> (&'a [u8], &'a [u8], i64) {
        let mut parts: (&[u8], &[u8], i64) = (b"", b"", -1);
        for pair in view.pairs(frame).unwrap_or_default().chunks_exact(2).take(8) {
            let [key, value] = pair else { continue };
            match self.place(view, *key) {
                Some(0) => parts.0 = view.bytes(*value).unwrap_or_default(),
                Some(1) => parts.1 = view.bytes(*value).unwrap_or_default(),
                Some(_) => parts.2 = integer(view, *value).unwrap_or(-1),
                None => {}
            }
        }
        parts
    }

    fn place(&mut self, view: &View<'_>, key: Value) -> Option<usize> {
        if let Some(place) = self.known.iter().position(|known| *known == Some(key)) {
            return Some(place);
        }
        let names: [&[u8]; 3] = [b"name", b"filename", b"line"];
        let name = view.bytes(key)?;
        let place = names.iter().position(|known| *known == name)?;
        if let Some(known) = self.known.get_mut(place) {
            *known = Some(key);
        }
        Some(place)
    }
}

/// Tensors from their sizes and datatypes. A tensor without dimensions has one element.
fn tensors(view: &View<'_>, sizes: Value, types: Value) -> Vec<Tensor> {
    let types = view.list(types).unwrap_or_default();
    let sizes = view.list(sizes).unwrap_or_default();
    let tensor = |(number, size): (usize, &Value)| {
        let elements = view.list(*size).map_or(-1, |dimensions| elements(view, dimensions));
        let datatype = types.get(number).or(types.first()).copied().unwrap_or(Value::None);
        Tensor { elements, datatype: text(view, datatype) }
    };
    sizes.iter().enumerate().map(tensor).collect()
}

/// The product of the dimensions, -1 where one is unusable.
fn elements(view: &View<'_>, dimensions: &[Value]) -> i64 {
    let dimension = |value: &Value| integer(view, *value).filter(|number| *number >= 0);
    dimensions
        .iter()
        .try_fold(1_i64, |product, value| Some(product.saturating_mul(dimension(value)?)))
        .unwrap_or(-1)
}
