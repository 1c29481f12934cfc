//! Taking events in: first what an event says of its process, then what it does on its communicator.
//!
//! The two parts share no state but names and numbers, so that they can be done in different places:
//! a process is followed where all of its events come, a communicator where all of its calls do.

mod creation;
mod exit;
mod p2p;
mod round;

use serde::{Deserialize, Serialize};

use super::comm::CommId;
use super::names::Name;
use super::noted::{Failed, Noted};
use super::operation::{Creation, Operation};
use super::p2p::Side;
use super::process::{Beat, LastEvent, MAX_OPEN_CALLS, OpenCall, Process, ProcessId};
use super::{Analyzer, Moment, nanoseconds};
use crate::event::{Event, EventKind, Header, NcclCall, Phase};

/// A call on its way to its communicator, with what its process tells of it.
#[derive(Clone, Copy)]
pub(crate) struct Placing<'e, 'a> {
    pub(crate) process: ProcessId,
    pub(crate) header: &'e Header<'a>,
    pub(crate) call: &'e NcclCall<'a>,
    pub(crate) operation: Operation,
    pub(crate) api: Name,
    pub(crate) comm: Option<CommId>,
    /// Receipt, on the analyzer's monotonic clock.
    pub(crate) receipt: i64,
    /// The call was not seen before.
    pub(crate) fresh: bool,
    /// The trace of the process is complete so far.
    pub(crate) complete: bool,
}

/// What a call does on a communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Place {
    /// It enters.
    Enter,
    /// It has made the communicator: the process has a rank there.
    Member,
    /// It has returned from the creation, for which all ranks have called.
    Created,
    /// It has ended the communicator for its rank.
    Destroyed,
}

/// What is left to do of an event.
pub(crate) enum Followed<'e, 'a> {
    /// Nothing; whether it was of any use.
    Done(bool),
    /// What a call does on its communicators, in this order.
    Places(&'static [Place], Placing<'e, 'a>),
}

impl Analyzer {
    /// Takes an event that was received at a moment, and says whether it was of any use: false for
    /// an event of another run, of an unknown kind, or beyond a limit.
    pub fn ingest(&mut self, event: &Event<'_>, receipt: Moment) -> bool {
        match self.follow(event, receipt.monotonic_ns) {
            Followed::Done(useful) => useful,
            Followed::Places(places, placing) => {
                let mut useful = true;
                for place in places {
                    useful &= self.place(*place, &placing);
                }
                useful
            }
        }
    }

    /// Whether an event is of this run and of a kind that is known.
    pub(crate) fn accepts(&self, event: &Event<'_>) -> bool {
        let header = &event.header;
        let of_this_run = header.run_id == self.run_id
            // The other writer of heartbeats need not know the run.
            || header.run_id.is_empty() && header.schema_version == 2;
        of_this_run && !matches!(event.kind, EventKind::Unknown(_))
    }

    /// Takes in what an event says of its process. Events of one process come in their order.
    #[inline]
    pub(crate) fn follow<'e, 'a>(
        &mut self,
        event: &'e Event<'a>,
        receipt: i64,
    ) -> Followed<'e, 'a> {
        if !self.accepts(event) {
            return Followed::Done(false);
        }
        let header = &event.header;
        let Some(id) = self.processes.of(header, &mut self.names) else {
            self.reached.processes += 1;
            return Followed::Done(false);
        };
        self.newest = self.newest.max(Some(receipt));
        match &event.kind {
            EventKind::NcclCall(call) => match call.phase {
                Phase::Enter => self.entering(id, header, call, receipt),
                Phase::Exit => self.returning(id, header, call, &[], receipt),
                Phase::Unknown => Followed::Done(false),
            },
            EventKind::CommInit(call) | EventKind::CommDestroy(call)
                if call.phase == Phase::Enter =>
            {
                self.entering(id, header, call, receipt)
            }
            EventKind::CommInit(call) => {
                self.returning(id, header, call, &[Place::Member, Place::Created], receipt)
            }
            EventKind::CommDestroy(call) => {
                self.returning(id, header, call, &[Place::Destroyed], receipt)
            }
            _ => {
                self.life(id, event, receipt);
                Followed::Done(true)
            }
        }
    }

    /// Takes in what a call does on a communicator. The calls of one communicator come in the order
    /// in which they were received. Says whether it was of any use.
    #[inline]
    pub(crate) fn place(&mut self, place: Place, placing: &Placing<'_, '_>) -> bool {
        match place {
            Place::Enter => self.enter(placing),
            Place::Member => self.join(placing),
            Place::Created => self.created(placing),
            Place::Destroyed => self.destroyed(placing),
        }
    }

    /// As [`Analyzer::place`], of a call whose process is followed elsewhere.
    pub(crate) fn place_sent(
        &mut self,
        place: Place,
        (fresh, complete): (bool, bool),
        event: &Event<'_>,
        receipt: i64,
    ) -> bool {
        let (EventKind::NcclCall(call) | EventKind::CommInit(call) | EventKind::CommDestroy(call)) =
            &event.kind
        else {
            return false;
        };
        let header = &event.header;
        let Some(process) = self.processes.of(header, &mut self.names) else { return false };
        let operation = Operation::of(&call.api);
        let api = self.names.intern(&call.api);
        // What is named after a parent does nothing on the communicator that is made.
        let on = match (place, operation) {
            (Place::Created, _) => "",
            (Place::Enter, Operation::Create(kind)) if kind != Creation::Init => "",
            _ => &*call.comm_uid_hash,
        };
        let Ok(comm) = self.comm_of(process, on) else { return false };
        let placing =
            Placing { process, header, call, operation, api, comm, receipt, fresh, complete };
        self.place(place, &placing)
    }

    /// The name of the communicator on which a call does something; `None` where it does nothing.
    pub(crate) fn target<'e>(place: Place, placing: &Placing<'e, '_>) -> Option<&'e str> {
        let call = placing.call;
        let of = match (place, placing.operation) {
            (Place::Enter, Operation::Create(kind)) => creation::named(kind, call)?,
            (Place::Enter, Operation::Send | Operation::Recv) => &call.comm_uid_hash,
            (Place::Enter, operation) if operation.is_round() => &call.comm_uid_hash,
            (Place::Enter, _) => return None,
            (Place::Member | Place::Destroyed, _) => &call.comm_uid_hash,
            (Place::Created, Operation::Create(kind)) => creation::named(kind, call)?,
            (Place::Created, _) => return None,
        };
        (!of.is_empty()).then_some(of)
    }

    /// Events that tell of the process as a whole.
    fn life(&mut self, id: ProcessId, event: &Event<'_>, receipt: i64) {
        let header = &event.header;
        let process = &mut self.processes[id];
        match &event.kind {
            EventKind::ProcessStart => process.start(header, receipt),
            EventKind::ProcessEnd => process.ended = true,
            EventKind::ProbeStatus { dropped_events, discarded_events } => {
                process.note_lost(*dropped_events, *discarded_events);
            }
            EventKind::Heartbeat(beat) => {
                let checkpointing =
                    beat.phase == CHECKPOINTING || beat.checkpoint_active == Some(true);
                process.note_lost(beat.dropped_events, beat.discarded_events);
                let mut kept = Beat::new(header, beat, &mut self.names);
                if checkpointing {
                    kept.phase = self.names.intern(CHECKPOINTING);
                }
                process.heartbeat(kept, checkpointing, receipt);
            }
            EventKind::CheckpointStart => {
                let phase = self.names.intern(CHECKPOINTING);
                process.heartbeat(Beat::checkpoint(header, phase), true, receipt);
            }
            EventKind::CheckpointEnd => {
                process.heartbeat(Beat::checkpoint(header, Name::EMPTY), false, receipt);
            }
            _ => {}
        }
    }

    /// The communicator of a call, `None` for a call on none.
    #[inline]
    fn comm_of(&mut self, id: ProcessId, hash: &str) -> Result<Option<CommId>, Unkept> {
        if hash.is_empty() {
            return Ok(None);
        }
        let cached = self.processes[id].cached_comm;
        if cached.is_some_and(|comm| self.names.text(self.comms[comm].name) == hash) {
            return Ok(cached);
        }
        let name = self.names.intern(hash);
        let comm = match self.names.is_overflow(name) {
            true => None,
            false => self.comms.of(name, self.limits.communicators),
        };
        if comm.is_none() {
            self.reached.communicators += 1;
            return Err(Unkept);
        }
        self.processes[id].cached_comm = comm;
        Ok(comm)
    }

    /// A call on its way in, as its process sees it.
    fn entering<'e, 'a>(
        &mut self,
        id: ProcessId,
        header: &'e Header<'a>,
        call: &'e NcclCall<'a>,
        receipt: i64,
    ) -> Followed<'e, 'a> {
        let operation = Operation::of(&call.api);
        let api = self.names.intern(&call.api);
        let Ok(comm) = self.comm_of(id, &call.comm_uid_hash) else { return Followed::Done(false) };
        let process = &mut self.processes[id];
        let fresh = process.seen.first_time(call.call_seq);
        let complete = process.trace_is_complete();
        let placing =
            Placing { process: id, header, call, operation, api, comm, receipt, fresh, complete };
        if fresh {
            self.open_call(&placing);
        }
        Followed::Places(&[Place::Enter], placing)
    }

    /// A call on its way out, as its process sees it: it is open no more, and its error is a
    /// finding.
    fn returning<'e, 'a>(
        &mut self,
        id: ProcessId,
        header: &'e Header<'a>,
        call: &'e NcclCall<'a>,
        places: &'static [Place],
        receipt: i64,
    ) -> Followed<'e, 'a> {
        let Ok(comm) = self.comm_of(id, &call.comm_uid_hash) else { return Followed::Done(false) };
        let api = self.names.intern(&call.api);
        self.returned(id, header, call, (api, comm), receipt);
        if places.is_empty() {
            return Followed::Done(true);
        }
        let operation = Operation::of(&call.api);
        let (fresh, complete) = (false, false);
        let placing =
            Placing { process: id, header, call, operation, api, comm, receipt, fresh, complete };
        Followed::Places(places, placing)
    }

    fn enter(&mut self, placing: &Placing<'_, '_>) -> bool {
        match (placing.operation, placing.comm) {
            (Operation::Create(kind), _) => self.enter_creation(kind, placing),
            (Operation::Send, Some(comm)) => self.enter_p2p(comm, Side::Send, placing),
            (Operation::Recv, Some(comm)) => self.enter_p2p(comm, Side::Recv, placing),
            (operation, Some(comm)) if operation.is_round() => self.enter_round(comm, placing),
            _ => true,
        }
    }

    /// Notes in its process that a call has entered.
    fn open_call(&mut self, entering: &Placing<'_, '_>) {
        let Placing { call, operation, receipt, .. } = *entering;
        let process = &mut self.processes[entering.process];
        process.entered += 1;
        process.captured |= call.captured;
        process.enter_receipt = process.enter_receipt.max(Some(receipt));
        note_last(process, entering.header, call, entering.api, entering.comm, true, receipt);
        let (mut comm, mut comm_seq) = (entering.comm, call.comm_seq);
        if operation == Operation::GroupEnd {
            // The end of a group starts its calls: it stands for the latest collective among them.
            let of_group = |&(_, _, group): &(CommId, i64, i64)| group == call.group_id;
            if let Some((round_comm, seq, _)) = process.group_round.filter(of_group) {
                (comm, comm_seq) = (Some(round_comm), seq);
            }
        }
        if let Some(on) = comm {
            if operation.is_round() && call.group_id > 0 {
                process.group_round = Some((on, comm_seq, call.group_id));
            }
            if operation.is_round() || matches!(operation, Operation::Send | Operation::Recv) {
                process.last_placed = Some(on);
            }
        }
        if process.open.len() >= MAX_OPEN_CALLS {
            process.open.remove(0);
            self.reached.open_calls += 1;
        }
        process.open.push(OpenCall {
            operation,
            api: entering.api,
            call_seq: call.call_seq,
            comm,
            comm_seq,
            comm_rank: call.comm_rank,
            receipt,
            unix: entering.header.timestamp_unix_ns,
            reported: false,
        });
    }
}

/// The phase of a process that writes a checkpoint.
pub(in crate::analyzer) const CHECKPOINTING: &str = "checkpointing";

/// What a comparison of wall clocks of several hosts relies on.
pub(in crate::analyzer) const CLOCKS: &str = "hosts have synchronized wall clocks";

/// The event could not be kept.
struct Unkept;

/// Notes the latest event of a process about a call; an older one that is read again changes
/// nothing.
fn note_last(
    process: &mut Process,
    header: &Header<'_>,
    call: &NcclCall<'_>,
    api: Name,
    comm: Option<CommId>,
    entering: bool,
    receipt: i64,
) {
    if process.last.is_some_and(|last| last.unix > header.timestamp_unix_ns) {
        return;
    }
    process.call_receipt = process.call_receipt.max(Some(receipt));
    process.last = Some(LastEvent {
        api,
        call_seq: call.call_seq,
        comm,
        comm_seq: call.comm_seq,
        entering,
        unix: header.timestamp_unix_ns,
    });
}
