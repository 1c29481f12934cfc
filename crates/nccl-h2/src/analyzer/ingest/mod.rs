//! Taking events in.

mod creation;
mod exit;
mod p2p;
mod round;

use super::comm::CommId;
use super::names::Name;
use super::operation::Operation;
use super::p2p::Side;
use super::process::{Beat, LastEvent, MAX_OPEN_CALLS, OpenCall, Process, ProcessId};
use super::{Analyzer, Moment};
use crate::event::{Event, EventKind, Header, NcclCall, Phase};

/// A call on its way in, with what is known of it.
struct Entering<'e, 'a> {
    process: ProcessId,
    header: &'e Header<'a>,
    call: &'e NcclCall<'a>,
    operation: Operation,
    api: Name,
    comm: Option<CommId>,
    /// Receipt, on the analyzer's monotonic clock.
    receipt: i64,
    /// The call was not seen before.
    fresh: bool,
}

impl Analyzer {
    /// Takes an event that was received at a moment, and says whether it was of any use: false for
    /// an event of another run, of an unknown kind, or beyond a limit.
    pub fn ingest(&mut self, event: &Event<'_>, receipt: Moment) -> bool {
        let header = &event.header;
        let of_this_run = header.run_id == self.run_id
            // The other writer of heartbeats need not know the run.
            || header.run_id.is_empty() && header.schema_version == 2;
        if !of_this_run || matches!(event.kind, EventKind::Unknown(_)) {
            return false;
        }
        let Some(id) = self.processes.of(header, &mut self.names) else {
            self.reached.processes += 1;
            return false;
        };
        let receipt = receipt.monotonic_ns;
        self.newest = self.newest.max(Some(receipt));
        match &event.kind {
            EventKind::NcclCall(call) => match call.phase {
                Phase::Enter => return self.enter(id, header, call, receipt),
                Phase::Exit => return self.exit(id, header, call, receipt),
                Phase::Unknown => return false,
            },
            EventKind::CommInit(call) => return self.created(id, header, call, receipt),
            EventKind::CommDestroy(call) => return self.destroyed(id, header, call, receipt),
            _ => self.life(id, event, receipt),
        }
        true
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

    fn enter(
        &mut self,
        id: ProcessId,
        header: &Header<'_>,
        call: &NcclCall<'_>,
        receipt: i64,
    ) -> bool {
        let operation = Operation::of(&call.api);
        let api = self.names.intern(&call.api);
        let Ok(comm) = self.comm_of(id, &call.comm_uid_hash) else { return false };
        let fresh = self.processes[id].seen.first_time(call.call_seq);
        let entering = Entering { process: id, header, call, operation, api, comm, receipt, fresh };
        if fresh {
            self.open_call(&entering);
        }
        match (operation, comm) {
            (Operation::Create(kind), _) => self.enter_creation(kind, &entering),
            (Operation::Send, Some(comm)) => self.enter_p2p(comm, Side::Send, &entering),
            (Operation::Recv, Some(comm)) => self.enter_p2p(comm, Side::Recv, &entering),
            (_, Some(comm)) if operation.is_round() => self.enter_round(comm, &entering),
            _ => true,
        }
    }

    /// Notes in its process that a call has entered.
    fn open_call(&mut self, entering: &Entering<'_, '_>) {
        let Entering { call, operation, receipt, .. } = *entering;
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
