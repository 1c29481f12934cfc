//! The lines of a trace, as text.

use std::fmt::Write as _;

use crate::api::{Class, result_name};
use crate::file::Identity;
use crate::layout::{MAX_EXCLUDED, flag, slot};
use crate::record::Record;

/// Writes events of one process as lines of JSON into a buffer.
#[derive(Debug)]
pub(crate) struct Lines {
    buffer: Vec<u8>,
    /// `","run_id":"...","timestamp_unix_ns":`
    before_time: Vec<u8>,
    /// `,"hostname":"...","rank":...,"local_rank":...,"world_size":...,"pid":...`
    after_time: Vec<u8>,
    clock_offset: i64,
}

/// What a heartbeat tells.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pulse {
    /// What the process is doing, such as `train`.
    pub phase: String,
    /// The latest call, "" before the first.
    pub last_api: &'static str,
    /// `enter` or `exit`.
    pub last_phase: &'static str,
    /// Its `call_seq`, `None` before the first.
    pub last_seq: Option<u64>,
    /// Monotonic clock of that event, 0 before the first.
    pub last_progress_ns: u64,
}

/// Counts that say whether a trace is complete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Completeness {
    pub(crate) dropped: u64,
    pub(crate) written: u64,
    pub(crate) discarded: u64,
}

impl Lines {
    pub(crate) fn new(identity: &Identity) -> Self {
        let mut before = String::from("\",\"run_id\":");
        push_json_string(&mut before, &identity.run_id);
        before.push_str(",\"timestamp_unix_ns\":");
        let mut after = String::from(",\"hostname\":");
        push_json_string(&mut after, &identity.hostname);
        let Identity { rank, local_rank, world_size, pid, .. } = identity;
        // Writing to a string cannot fail.
        let _ = write!(
            after,
            ",\"rank\":{rank},\"local_rank\":{local_rank},\"world_size\":{world_size},\"pid\":{pid}"
        );
        Self {
            buffer: Vec::new(),
            before_time: before.into_bytes(),
            after_time: after.into_bytes(),
            clock_offset: 0,
        }
    }

    pub(crate) fn set_clock_offset(&mut self, offset: i64) {
        self.clock_offset = offset;
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    pub(crate) fn clear(&mut self) {
        self.buffer.clear();
    }

    fn text(&mut self, text: &str) {
        self.buffer.extend_from_slice(text.as_bytes());
    }

    fn number(&mut self, name: &str, value: impl itoa::Integer) {
        self.text(name);
        let mut digits = itoa::Buffer::new();
        self.buffer.extend_from_slice(digits.format(value).as_bytes());
    }

    fn hash(&mut self, name: &str, hash: Option<u64>) {
        self.text(name);
        self.buffer.push(b'"');
        if let Some(hash) = hash {
            let digit = |place: u32| {
                let value = (hash >> (60 - 4 * place)) as u8 & 15;
                if value < 10 { b'0' + value } else { b'a' + value - 10 }
            };
            self.buffer.extend((0..16).map(digit));
        }
        self.buffer.push(b'"');
    }

    fn begin(&mut self, event: &str, mono_ns: u64) {
        self.text("{\"schema_version\":1,\"event\":\"");
        self.text(event);
        self.buffer.extend_from_slice(&self.before_time);
        let unix = mono_ns.cast_signed().wrapping_add(self.clock_offset);
        self.number("", unix);
        self.number(",\"timestamp_mono_ns\":", mono_ns);
        self.buffer.extend_from_slice(&self.after_time);
    }

    fn end(&mut self) {
        self.buffer.extend_from_slice(b"}\n");
    }

    /// `process_start` or `process_end`.
    pub(crate) fn process(&mut self, event: &str, mono_ns: u64) {
        self.begin(event, mono_ns);
        self.end();
    }

    /// `probe_status`.
    pub(crate) fn status(&mut self, mono_ns: u64, counts: Completeness) {
        self.begin("probe_status", mono_ns);
        self.counts(counts);
        self.end();
    }

    /// `heartbeat`.
    pub(crate) fn heartbeat(&mut self, mono_ns: u64, pulse: &Pulse, counts: Completeness) {
        self.begin("heartbeat", mono_ns);
        let mut phase = String::new();
        push_json_string(&mut phase, &pulse.phase);
        self.text(",\"phase\":");
        self.text(&phase);
        self.text(",\"last_nccl_api\":\"");
        self.text(pulse.last_api);
        self.text("\",\"last_nccl_phase\":\"");
        self.text(pulse.last_phase);
        match pulse.last_seq {
            Some(seq) => self.number("\",\"last_nccl_seq\":", seq),
            None => self.text("\",\"last_nccl_seq\":-1"),
        }
        self.number(",\"last_progress_mono_ns\":", pulse.last_progress_ns);
        self.counts(counts);
        self.end();
    }

    fn counts(&mut self, counts: Completeness) {
        self.number(",\"dropped_events\":", counts.dropped);
        self.number(",\"written_events\":", counts.written);
        self.number(",\"discarded_events\":", counts.discarded);
    }

    /// The enter or exit event of a call. Says nothing of a function that this version does not
    /// know.
    pub(crate) fn call(&mut self, record: &Record, exit: bool, excluded: &[i32]) {
        let Some(api) = record.api() else { return };
        let deferred = record.has(flag::DEFERRED);
        let event = match api.class() {
            Class::Create if exit && !deferred => "comm_init",
            Class::End => "comm_destroy",
            _ => "nccl_call",
        };
        let time = if exit { record.exit_ns().unwrap_or(0) } else { record.enter_ns() };
        self.begin(event, time);
        self.text(",\"api\":\"");
        self.text(api.name());
        self.text(if exit { "\",\"phase\":\"exit\"" } else { "\",\"phase\":\"enter\"" });
        self.hash(",\"comm_uid_hash\":", record.hash());
        let (rank, nranks) = record.members(exit);
        self.number(",\"comm_rank\":", rank);
        self.number(",\"comm_nranks\":", nranks);
        match api.class() {
            Class::Create => self.creation_numbers(record),
            class => self.call_numbers(record, class),
        }
        self.result(record, exit);
        if api.class() == Class::Create {
            self.origin(record, excluded);
        }
        if record.has(flag::CAPTURED) {
            self.text(",\"captured\":true");
        }
        self.end();
    }

    fn call_numbers(&mut self, record: &Record, class: Class) {
        self.number(",\"comm_seq\":", record.word(slot::COMM_SEQ).cast_signed());
        self.number(",\"call_seq\":", record.call_seq());
        self.number(",\"count\":", record.word(slot::COUNT));
        self.number(",\"datatype\":", record.datatype());
        self.number(",\"op\":", record.op());
        self.number(",\"root\":", record.root());
        self.number(",\"peer\":", record.peer());
        self.number(",\"stream\":", record.word(slot::STREAM));
        self.number(",\"group_id\":", record.word(slot::GROUP));
        self.number(",\"group_op_index\":", record.group_op_index());
        self.number(",\"p2p_op_index\":", record.word(slot::P2P));
        if class == Class::PointToPoint {
            self.text(",\"p2p_op_index_scope\":\"peer_direction\"");
        }
    }

    /// As [`Lines::call_numbers`]; the words hold the origin of a creation instead.
    fn creation_numbers(&mut self, record: &Record) {
        self.number(",\"comm_seq\":0,\"call_seq\":", record.call_seq());
        self.text(",\"count\":0,\"datatype\":-1,\"op\":-1,\"root\":-1,\"peer\":-1,\"stream\":0");
        self.number(",\"group_id\":", record.word(slot::GROUP));
        self.number(",\"group_op_index\":", record.group_op_index());
        self.text(",\"p2p_op_index\":0");
    }

    fn result(&mut self, record: &Record, exit: bool) {
        if !exit {
            return self.text(",\"result\":0,\"result_name\":\"\"");
        }
        self.number(",\"result\":", record.result());
        self.text(",\"result_name\":\"");
        self.text(result_name(record.result()));
        self.buffer.push(b'"');
    }

    fn origin(&mut self, record: &Record, excluded: &[i32]) {
        let joined = record.has(flag::JOINED).then(|| record.word(slot::STREAM));
        if record.has(flag::PARENT) {
            let parent = record.has(flag::PARENT_HASH).then(|| record.word(slot::COMM_SEQ));
            self.hash(",\"parent_hash\":", parent);
            self.number(",\"parent_ordinal\":", record.word(slot::COUNT));
            let color = if joined.is_some() { -1 } else { record.word(slot::STREAM).cast_signed() };
            self.number(",\"color\":", color);
            self.text(",\"excluded\":\"");
            for (place, rank) in excluded.iter().enumerate() {
                self.number(if place == 0 { "" } else { "," }, *rank);
            }
            if record.word(slot::P2P) > MAX_EXCLUDED as u64 {
                self.text(",...");
            }
            self.buffer.push(b'"');
        }
        if joined.is_some() {
            self.hash(",\"joined_hash\":", joined);
        }
    }
}

/// Appends a JSON string with its quotes.
fn push_json_string(to: &mut String, text: &str) {
    to.push('"');
    for c in text.chars() {
        match c {
            '"' => to.push_str("\\\""),
            '\\' => to.push_str("\\\\"),
            c if c.is_control() => {
                // Writing to a string cannot fail. Control characters are below U+00A0.
                let _ = write!(to, "\\u{:04x}", u32::from(c));
            }
            c => to.push(c),
        }
    }
    to.push('"');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::push_json_string;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn any_text_is_read_back_by_a_json_parser(text in any::<String>()) {
            let mut json = String::new();
            push_json_string(&mut json, &text);
            prop_assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
    }
}
