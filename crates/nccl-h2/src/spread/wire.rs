//! Events on their way from one process to another: the fields that the analyzer uses, as short
//! integers, and each text once.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::Damaged;
use crate::analyzer::ingest::Place;
use crate::event::{Event, EventKind, Header, Heartbeat, NcclCall, Phase};
use crate::reader::Turn;

/// Texts and sources after which both sides forget all and begin anew.
const MOST: usize = 1 << 16;
/// Bytes of texts after which they do.
const MOST_BYTES: usize = 8 << 20;

/// What stands in a stream, one after the other.
#[derive(Debug, Serialize, Deserialize)]
enum Item<'a> {
    /// Texts and sources are numbered from 0 again.
    Forget,
    /// The next text.
    Text(&'a str),
    /// The next source of events.
    Source(Source),
    /// The events that follow are of this block.
    Block(Turn),
    /// An event.
    Sent(Sent),
}

/// What events of one process have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Source {
    rank: i64,
    pid: i64,
    world_size: i64,
    /// Number of a text.
    host: u32,
}

/// One event. Texts and sources are numbers.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Sent {
    /// Number in its block, from that of the event before.
    skipped: u32,
    how: How,
    source: u32,
    /// Wall clock, from that of the event before.
    unix: i64,
    /// Receipt, from the wall clock.
    receipt: i64,
    kind: Kind,
}

/// What is to be done with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum How {
    /// Its process is to be followed.
    Follow,
    /// Its call is to be placed.
    Place {
        /// What it does on the communicator.
        place: Place,
        /// The call was not seen before.
        fresh: bool,
        /// The trace of its process is complete so far.
        complete: bool,
    },
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
enum Kind {
    ProcessStart,
    ProcessEnd,
    Heartbeat {
        phase: u32,
        checkpoint_active: Option<bool>,
        api: u32,
        call_phase: u32,
        call_seq: i64,
        progress_mono: i64,
        dropped: i64,
        discarded: i64,
    },
    ProbeStatus {
        dropped: i64,
        discarded: i64,
    },
    CheckpointStart,
    CheckpointEnd,
    CommInit(Call),
    CommDestroy(Call),
    Call(Call),
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Call {
    api: u32,
    phase: Phase,
    comm: u32,
    comm_rank: i64,
    comm_nranks: i64,
    comm_seq: i64,
    call_seq: i64,
    count: i64,
    datatype: i64,
    op: i64,
    root: i64,
    peer: i64,
    group_id: i64,
    group_op_index: i64,
    peer_index: Option<i64>,
    captured: bool,
    result: i64,
    result_name: u32,
    parent: Option<Parent>,
}

/// Of the creation of a communicator.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Parent {
    hash: u32,
    ordinal: i64,
    excluded: u32,
}

/// Writes events for one receiver.
#[derive(Debug, Default)]
pub(super) struct Encoder {
    bytes: Vec<u8>,
    /// Blocks in `bytes`, and where each begins.
    blocks: Vec<(Turn, usize)>,
    texts: HashMap<Box<str>, u32, foldhash::fast::RandomState>,
    text_bytes: usize,
    sources: HashMap<Source, u32, foldhash::fast::RandomState>,
    turn: Option<Turn>,
    unix: i64,
}

impl Encoder {
    /// Bytes that wait to be taken.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Adds an event. The turns of one encoder never go back.
    ///
    /// # Errors
    ///
    /// When the event cannot be written.
    pub(super) fn push(
        &mut self,
        turn: Turn,
        how: How,
        event: &Event<'_>,
        receipt: i64,
    ) -> Result<(), Damaged> {
        let block = Turn { event: 0, ..turn };
        let known = self.turn.filter(|known| Turn { event: 0, ..*known } == block);
        if known.is_none() {
            self.blocks.push((block, self.bytes.len()));
            self.item(&Item::Block(block))?;
        }
        if self.texts.len() >= MOST || self.text_bytes >= MOST_BYTES || self.sources.len() >= MOST {
            self.texts.clear();
            self.sources.clear();
            self.text_bytes = 0;
            self.item(&Item::Forget)?;
        }
        let header = &event.header;
        let source = Source {
            rank: header.rank,
            pid: header.pid,
            world_size: header.world_size,
            host: if header.rank < 0 { self.text(&header.hostname)? } else { self.text("")? },
        };
        let Some(kind) = self.kind(event)? else { return Ok(()) };
        let sent = Sent {
            skipped: turn.event.wrapping_sub(known.map_or(0, |known| known.event)),
            how,
            source: self.source(source)?,
            unix: header.timestamp_unix_ns.wrapping_sub(self.unix),
            receipt: receipt.wrapping_sub(header.timestamp_unix_ns),
            kind,
        };
        self.item(&Item::Sent(sent))?;
        self.turn = Some(turn);
        self.unix = header.timestamp_unix_ns;
        Ok(())
    }

    /// Takes the events before a turn; all without one.
    pub(super) fn take(&mut self, before: Option<Turn>) -> Vec<u8> {
        let kept = before.map_or(self.blocks.len(), |before| {
            self.blocks.partition_point(|&(turn, _)| turn < before)
        });
        let end = self.blocks.get(kept).map_or(self.bytes.len(), |&(_, start)| start);
        let rest = self.bytes.split_off(end);
        self.blocks.drain(..kept);
        for (_, start) in &mut self.blocks {
            *start -= end;
        }
        std::mem::replace(&mut self.bytes, rest)
    }

    fn item(&mut self, item: &Item<'_>) -> Result<(), Damaged> {
        let bytes = std::mem::take(&mut self.bytes);
        self.bytes = postcard::to_extend(item, bytes)?;
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<u32, Damaged> {
        if let Some(&number) = self.texts.get(text) {
            return Ok(number);
        }
        self.item(&Item::Text(text))?;
        // Little more than MOST texts: it fits.
        let number = self.texts.len() as u32;
        self.texts.insert(text.into(), number);
        self.text_bytes += text.len();
        Ok(number)
    }

    fn source(&mut self, source: Source) -> Result<u32, Damaged> {
        if let Some(&number) = self.sources.get(&source) {
            return Ok(number);
        }
        self.item(&Item::Source(source))?;
        // At most MOST sources: it fits.
        let number = self.sources.len() as u32;
        self.sources.insert(source, number);
        Ok(number)
    }

    /// The fields of an event that are used, `None` for one that is not.
    fn kind(&mut self, event: &Event<'_>) -> Result<Option<Kind>, Damaged> {
        Ok(Some(match &event.kind {
            EventKind::ProcessStart => Kind::ProcessStart,
            EventKind::ProcessEnd => Kind::ProcessEnd,
            EventKind::Heartbeat(beat) => Kind::Heartbeat {
                phase: self.text(&beat.phase)?,
                checkpoint_active: beat.checkpoint_active,
                api: self.text(&beat.last_nccl_api)?,
                call_phase: self.text(&beat.last_nccl_phase)?,
                call_seq: beat.last_nccl_seq,
                progress_mono: beat.last_progress_mono_ns,
                dropped: beat.dropped_events,
                discarded: beat.discarded_events,
            },
            EventKind::ProbeStatus { dropped_events, discarded_events } => {
                Kind::ProbeStatus { dropped: *dropped_events, discarded: *discarded_events }
            }
            EventKind::CheckpointStart => Kind::CheckpointStart,
            EventKind::CheckpointEnd => Kind::CheckpointEnd,
            EventKind::CommInit(call) => Kind::CommInit(self.call(call)?),
            EventKind::CommDestroy(call) => Kind::CommDestroy(self.call(call)?),
            EventKind::NcclCall(call) => Kind::Call(self.call(call)?),
            EventKind::Unknown(_) => return Ok(None),
        }))
    }

    fn call(&mut self, call: &NcclCall<'_>) -> Result<Call, Damaged> {
        let has_parent = !call.parent_hash.is_empty() || !call.excluded.is_empty();
        let parent = match has_parent || call.parent_ordinal != -1 {
            true => Some(Parent {
                hash: self.text(&call.parent_hash)?,
                ordinal: call.parent_ordinal,
                excluded: self.text(&call.excluded)?,
            }),
            false => None,
        };
        Ok(Call {
            api: self.text(&call.api)?,
            phase: call.phase,
            comm: self.text(&call.comm_uid_hash)?,
            comm_rank: call.comm_rank,
            comm_nranks: call.comm_nranks,
            comm_seq: call.comm_seq,
            call_seq: call.call_seq,
            count: call.count,
            datatype: call.datatype,
            op: call.op,
            root: call.root,
            peer: call.peer,
            group_id: call.group_id,
            group_op_index: call.group_op_index,
            peer_index: call.peer_index(),
            captured: call.captured,
            result: call.result,
            result_name: self.text(&call.result_name)?,
            parent,
        })
    }
}

/// Reads the events of one sender, in the order in which they were written.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    bytes: Vec<u8>,
    at: usize,
    texts: Vec<Box<str>>,
    sources: Vec<Source>,
    turn: Option<Turn>,
    unix: i64,
    /// The event to be taken next.
    next: Option<Sent>,
}

/// An event that was received.
#[derive(Debug)]
pub(super) struct Received<'a> {
    pub(super) turn: Turn,
    pub(super) how: How,
    pub(super) event: Event<'a>,
    pub(super) receipt: i64,
}

impl Decoder {
    /// Takes in what has come; all events before were read.
    ///
    /// # Errors
    ///
    /// When the bytes are no events.
    pub(super) fn fill(&mut self, bytes: Vec<u8>) -> Result<(), Damaged> {
        (self.bytes, self.at) = (bytes, 0);
        self.advance()
    }

    /// The turn of the next event; `None` at the end of what has come.
    pub(super) fn turn(&self) -> Option<Turn> {
        self.next.as_ref().and(self.turn)
    }

    /// The next event, which stays the next until [`Decoder::advance`]. `run_id` is that of the run.
    ///
    /// # Errors
    ///
    /// When it names a text or source that did not come.
    pub(super) fn event<'a>(&'a self, run_id: &'a str) -> Result<Option<Received<'a>>, Damaged> {
        let (Some(sent), Some(turn)) = (&self.next, self.turn) else { return Ok(None) };
        let source = *self.sources.get(sent.source as usize).ok_or(Damaged::Unknown)?;
        let header = Header {
            run_id: Cow::Borrowed(run_id),
            timestamp_unix_ns: self.unix,
            hostname: self.text(source.host)?,
            rank: source.rank,
            world_size: source.world_size,
            pid: source.pid,
            ..Header::default()
        };
        let event = Event { header, kind: self.kind(&sent.kind)? };
        let receipt = self.unix.wrapping_add(sent.receipt);
        Ok(Some(Received { turn, how: sent.how, event, receipt }))
    }

    /// Goes on to the event after.
    ///
    /// # Errors
    ///
    /// When the bytes are no events.
    pub(super) fn advance(&mut self) -> Result<(), Damaged> {
        self.next = None;
        while let Some(rest) = self.bytes.get(self.at..).filter(|rest| !rest.is_empty()) {
            let (item, left) = postcard::take_from_bytes::<Item<'_>>(rest)?;
            self.at = self.bytes.len() - left.len();
            match item {
                Item::Forget => {
                    self.texts.clear();
                    self.sources.clear();
                }
                Item::Text(text) => self.texts.push(text.into()),
                Item::Source(source) => self.sources.push(source),
                Item::Block(turn) => self.turn = Some(turn),
                Item::Sent(sent) => {
                    let turn = self.turn.as_mut().ok_or(Damaged::Unknown)?;
                    turn.event = turn.event.wrapping_add(sent.skipped);
                    self.unix = self.unix.wrapping_add(sent.unix);
                    self.next = Some(sent);
                    return Ok(());
                }
            }
        }
        self.bytes = Vec::new();
        self.at = 0;
        Ok(())
    }

    fn text(&self, number: u32) -> Result<Cow<'_, str>, Damaged> {
        self.texts.get(number as usize).map(|text| Cow::Borrowed(&**text)).ok_or(Damaged::Unknown)
    }

    fn kind(&self, kind: &Kind) -> Result<EventKind<'_>, Damaged> {
        Ok(match *kind {
            Kind::ProcessStart => EventKind::ProcessStart,
            Kind::ProcessEnd => EventKind::ProcessEnd,
            Kind::Heartbeat {
                phase,
                checkpoint_active,
                api,
                call_phase,
                call_seq,
                progress_mono,
                dropped,
                discarded,
            } => EventKind::Heartbeat(Heartbeat {
                phase: self.text(phase)?,
                checkpoint_active,
                last_nccl_api: self.text(api)?,
                last_nccl_phase: self.text(call_phase)?,
                last_nccl_seq: call_seq,
                last_progress_mono_ns: progress_mono,
                dropped_events: dropped,
                discarded_events: discarded,
                ..Heartbeat::default()
            }),
            Kind::ProbeStatus { dropped, discarded } => {
                EventKind::ProbeStatus { dropped_events: dropped, discarded_events: discarded }
            }
            Kind::CheckpointStart => EventKind::CheckpointStart,
            Kind::CheckpointEnd => EventKind::CheckpointEnd,
            Kind::CommInit(call) => EventKind::CommInit(self.call(&call)?),
            Kind::CommDestroy(call) => EventKind::CommDestroy(self.call(&call)?),
            Kind::Call(call) => EventKind::NcclCall(self.call(&call)?),
        })
    }

    fn call(&self, call: &Call) -> Result<NcclCall<'_>, Damaged> {
        let mut made = NcclCall {
            api: self.text(call.api)?,
            phase: call.phase,
            comm_uid_hash: self.text(call.comm)?,
            comm_rank: call.comm_rank,
            comm_nranks: call.comm_nranks,
            comm_seq: call.comm_seq,
            call_seq: call.call_seq,
            count: call.count,
            datatype: call.datatype,
            op: call.op,
            root: call.root,
            peer: call.peer,
            group_id: call.group_id,
            group_op_index: call.group_op_index,
            captured: call.captured,
            result: call.result,
            result_name: self.text(call.result_name)?,
            ..NcclCall::default()
        };
        if let Some(index) = call.peer_index {
            made.p2p_op_index = index;
            made.p2p_op_index_scope = Cow::Borrowed("peer_direction");
        }
        if let Some(parent) = call.parent {
            made.parent_hash = self.text(parent.hash)?;
            made.parent_ordinal = parent.ordinal;
            made.excluded = self.text(parent.excluded)?;
        }
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn turn(time: i64, file: u32, block: u64, event: u32) -> Turn {
        Turn { time, file, block, event }
    }

    /// All that stands in what an encoder gives, as written text.
    fn read(decoder: &mut Decoder, bytes: Vec<u8>) -> Vec<(Turn, How, Event<'static>, i64)> {
        decoder.fill(bytes).unwrap();
        let mut all = Vec::new();
        while let Some(received) = decoder.event("r").unwrap() {
            let text: &'static str = serde_json::to_string(&received.event).unwrap().leak();
            let event = Event::parse(text).unwrap();
            all.push((received.turn, received.how, event, received.receipt));
            decoder.advance().unwrap();
        }
        all
    }

    const LINES: [&str; 4] = [
        r#"{"schema_version":1,"event":"nccl_call","run_id":"r","timestamp_unix_ns":1800000000000000007,"timestamp_mono_ns":-1,"hostname":"","rank":3,"local_rank":-1,"world_size":8,"pid":11,"api":"ncclSend","phase":"enter","comm_uid_hash":"ab","comm_rank":3,"comm_nranks":8,"comm_seq":9223372036854775807,"call_seq":5,"count":6,"datatype":7,"op":-1,"root":-1,"peer":4,"stream":-1,"group_id":2,"group_op_index":1,"p2p_op_index":9,"p2p_op_index_scope":"peer_direction","result":-1,"result_name":"","captured":true}"#,
        r#"{"schema_version":1,"event":"heartbeat","run_id":"r","timestamp_unix_ns":-1,"hostname":"","rank":3,"world_size":8,"pid":11,"phase":"train","checkpoint_active":true,"last_nccl_api":"ncclSend","last_nccl_phase":"enter","last_nccl_seq":5,"last_progress_mono_ns":77,"dropped_events":1,"discarded_events":2}"#,
        r#"{"schema_version":1,"event":"comm_init","run_id":"r","timestamp_unix_ns":3,"hostname":"a host","rank":-1,"world_size":-1,"pid":12,"api":"ncclCommShrink","phase":"exit","comm_uid_hash":"cd","comm_rank":0,"comm_nranks":2,"result":5,"result_name":"no","parent_hash":"ab","parent_ordinal":1,"excluded":"1,2"}"#,
        r#"{"schema_version":1,"event":"probe_status","run_id":"r","timestamp_unix_ns":4,"hostname":"","rank":0,"world_size":8,"pid":13,"dropped_events":4,"discarded_events":-1}"#,
    ];

    #[test]
    fn what_is_used_of_an_event_arrives() {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        let how = How::Place { place: Place::Member, fresh: true, complete: false };
        for (at, line) in LINES.iter().enumerate() {
            let event = Event::parse(line).unwrap();
            let how = if at % 2 == 0 { How::Follow } else { how };
            encoder.push(turn(5, 1, 0, 10 * at as u32), how, &event, at as i64).unwrap();
        }
        let received = read(&mut decoder, encoder.take(None));
        assert_eq!(received.len(), LINES.len());
        for (at, (turn_of, how_of, event, receipt)) in received.into_iter().enumerate() {
            assert_eq!(turn_of, turn(5, 1, 0, 10 * at as u32));
            assert_eq!((how_of == How::Follow, receipt), (at % 2 == 0, at as i64));
            assert_eq!(event, Event::parse(LINES[at]).unwrap());
        }
        assert_eq!(encoder.len(), 0);
    }

    #[test]
    fn what_comes_before_a_turn_is_taken_and_the_rest_later() {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        let event = Event::parse(LINES[0]).unwrap();
        let turns = [turn(1, 0, 0, 0), turn(1, 0, 0, 4), turn(1, 0, 1, 0), turn(2, 3, 0, 1)];
        for turn in turns {
            encoder.push(turn, How::Follow, &event, 0).unwrap();
        }
        let mut taken = Vec::new();
        for before in [turn(1, 0, 0, 0), turn(1, 0, 1, 0), turn(2, 3, 0, 0)].map(Some) {
            let received = read(&mut decoder, encoder.take(before));
            taken.push(received.into_iter().map(|(turn, ..)| turn).collect::<Vec<_>>());
        }
        let rest = read(&mut decoder, encoder.take(None));
        taken.push(rest.into_iter().map(|(turn, ..)| turn).collect());
        assert_eq!(taken, [&turns[..0], &turns[..2], &turns[2..3], &turns[3..]]);
    }

    #[test]
    fn more_texts_than_are_kept_arrive_as_well() {
        let (mut encoder, mut decoder) = (Encoder::default(), Decoder::default());
        let count = MOST as u32 + 100;
        for number in 0..count {
            let call = NcclCall { comm_uid_hash: number.to_string().into(), ..NcclCall::new("f") };
            let header = Header { rank: 1, ..Header::default() };
            let event = Event { header, kind: EventKind::NcclCall(call) };
            encoder.push(turn(1, 0, 0, number), How::Follow, &event, 0).unwrap();
        }
        let received = read(&mut decoder, encoder.take(None));
        for (number, (.., event, _)) in received.iter().enumerate() {
            let EventKind::NcclCall(call) = &event.kind else { panic!("{event:?}") };
            assert_eq!((&*call.comm_uid_hash, &*call.api), (&*number.to_string(), "f"));
        }
        assert_eq!(received.len(), count as usize);
        assert!(decoder.texts.len() < 1000, "the others are forgotten");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn no_bytes_are_too_bad(
            change in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut encoder = Encoder::default();
            for (at, line) in LINES.iter().enumerate() {
                let event = Event::parse(line).unwrap();
                encoder.push(turn(5, 1, 0, at as u32), How::Follow, &event, 0).unwrap();
            }
            let mut bytes = encoder.take(None);
            for (at, value) in change {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            bytes.truncate(cut.index(bytes.len() + 1));
            let mut decoder = Decoder::default();
            let mut well = decoder.fill(bytes).is_ok();
            // Each event takes some bytes: it ends.
            while well && decoder.turn().is_some() {
                well = decoder.event("r").is_ok() && decoder.advance().is_ok();
            }
        }
    }
}
