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
