//! What is known of each process: its life, its heartbeats, the calls it is in.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::comm::CommId;
use super::names::{Name, Names};
use super::operation::Operation;
use super::replay::ReplayWindow;
use crate::event::{Header, Heartbeat};
use crate::finding::Heartbeats;

/// A process of [`Processes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct ProcessId(pub(crate) u32);

/// Most processes that are kept.
pub(crate) const MAX_PROCESSES: usize = 1 << 20;

/// Most calls of one process that are kept as entered and not returned.
pub(crate) const MAX_OPEN_CALLS: usize = 1024;

/// A call that has entered and not returned.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct OpenCall {
    pub(crate) operation: Operation,
    pub(crate) api: Name,
    pub(crate) call_seq: i64,
    pub(crate) comm: Option<CommId>,
    pub(crate) comm_seq: i64,
    pub(crate) comm_rank: i64,
    /// Receipt, on the analyzer's monotonic clock.
    pub(crate) receipt: i64,
    /// Wall clock of the host.
    pub(crate) unix: i64,
    pub(crate) reported: bool,
}

/// The latest event of a process about a call.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct LastEvent {
    pub(crate) api: Name,
    pub(crate) call_seq: i64,
    pub(crate) comm: Option<CommId>,
    pub(crate) comm_seq: i64,
    pub(crate) entering: bool,
    pub(crate) unix: i64,
}

/// The latest heartbeat.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Beat {
    /// Wall clock of the host: tells which of two is the later.
    unix: i64,
    pub(crate) phase: Name,
    pub(crate) api: Name,
    pub(crate) call_phase: Name,
    pub(crate) call_seq: i64,
    pub(crate) progress_mono: i64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) rank: i64,
    pub(crate) pid: i64,
    pub(crate) world_size: i64,
    /// Wall clock and receipt of the event that says that the trace begins here.
    pub(crate) started: Option<(i64, i64)>,
    pub(crate) ended: bool,
    /// Events that the probe dropped or removed, where it said so.
    pub(crate) dropped: Option<i64>,
    /// Receipt of the latest heartbeat.
    pub(crate) beat_receipt: Option<i64>,
    pub(crate) beat: Option<Beat>,
    /// Receipt of the latest event that says that a checkpoint is being written.
    pub(crate) checkpoint_receipt: Option<i64>,
    /// Receipt of the latest call that entered, of any kind.
    pub(crate) enter_receipt: Option<i64>,
    /// Receipt of the latest event about a call.
    pub(crate) call_receipt: Option<i64>,
    pub(crate) last: Option<LastEvent>,
    /// The communicator of the latest call that others take part in.
    pub(crate) last_placed: Option<CommId>,
    pub(crate) open: Vec<OpenCall>,
    #[serde(skip)]
    pub(crate) seen: ReplayWindow,
    /// Calls entered so far: tells whether a process has gone on since.
    pub(crate) entered: u64,
    pub(crate) captured: bool,
    pub(crate) heartbeat_reported: bool,
    /// The latest collective of the open group, which its end will start.
    pub(crate) group_round: Option<(CommId, i64, i64)>,
    /// The communicator of the previous event.
    #[serde(skip)]
    pub(crate) cached_comm: Option<CommId>,
}

impl Process {
    fn new(header: &Header<'_>) -> Self {
        Self {
            rank: header.rank,
            pid: header.pid,
            world_size: header.world_size,
            started: None,
            ended: false,
            dropped: None,
            beat_receipt: None,
            beat: None,
            checkpoint_receipt: None,
            enter_receipt: None,
            call_receipt: None,
            last: None,
            last_placed: None,
            open: Vec::new(),
            seen: ReplayWindow::default(),
            entered: 0,
            captured: false,
            heartbeat_reported: false,
            group_round: None,
            cached_comm: None,
        }
    }

    /// Whether every call of the process since its start is in the trace, as far as is known.
    pub(crate) fn trace_is_complete(&self) -> bool {
        self.started.is_some() && !self.lost_events()
    }

    /// Whether the probe said that it dropped events.
    pub(crate) fn lost_events(&self) -> bool {
        self.dropped.is_some_and(|dropped| dropped > 0)
    }

    /// Notes how many events the probe dropped, and how many it removed after writing them: both
    /// are missing in the trace.
    pub(crate) fn note_lost(&mut self, dropped: i64, discarded: i64) {
        if dropped >= 0 || discarded >= 0 {
            let lost = dropped.max(0).saturating_add(discarded.max(0));
            self.dropped = Some(self.dropped.map_or(lost, |known| known.max(lost)));
        }
    }

    /// The trace begins here. A later beginning than the known one is that of another program in
    /// the same process: nothing of what was before holds for it.
    pub(crate) fn start(&mut self, header: &Header<'_>, receipt: i64) {
        let unix = header.timestamp_unix_ns;
        match self.started {
            Some((known, _)) if known >= unix => {}
            Some(_) => {
                *self = Self { started: Some((unix, receipt)), ..Self::new(header) };
            }
            None => self.started = Some((unix, receipt)),
        }
    }

    pub(crate) fn heartbeat(&mut self, beat: Beat, checkpointing: bool, receipt: i64) {
        self.beat_receipt = Some(self.beat_receipt.map_or(receipt, |known| known.max(receipt)));
        self.heartbeat_reported = false;
        if checkpointing {
            self.note_checkpoint(receipt);
        }
        if self.beat.is_none_or(|known| known.unix <= beat.unix) {
            self.beat = Some(beat);
        }
    }

    pub(crate) fn note_checkpoint(&mut self, receipt: i64) {
        let latest = self.checkpoint_receipt.map_or(receipt, |known| known.max(receipt));
        self.checkpoint_receipt = Some(latest);
    }

    /// The phase by the latest heartbeat.
    pub(crate) fn phase(&self) -> Name {
        self.beat.map_or(Name::EMPTY, |beat| beat.phase)
    }

    /// Seconds since the latest heartbeat, and what that means.
    pub(crate) fn liveness(&self, now: i64, timeout_ns: i64) -> (Heartbeats, Option<f64>) {
        match self.beat_receipt {
            _ if self.ended => (
                Heartbeats::Stale,
                self.beat_receipt.map(|at| super::seconds(now.saturating_sub(at))),
            ),
            None => (Heartbeats::Unknown, None),
            Some(at) => {
                let age = now.saturating_sub(at).max(0);
                let state = if age > timeout_ns { Heartbeats::Stale } else { Heartbeats::Alive };
                (state, Some(super::seconds(age)))
            }
        }
    }

    /// Takes a call that has returned off the list of open ones.
    pub(crate) fn close_call(&mut self, call_seq: i64) -> Option<OpenCall> {
        let at = self.open.iter().rposition(|open| open.call_seq == call_seq)?;
        Some(self.open.remove(at))
    }
}

impl Beat {
    pub(crate) fn new(header: &Header<'_>, beat: &Heartbeat<'_>, names: &mut Names) -> Self {
        Self {
            unix: header.timestamp_unix_ns,
            phase: names.intern(&beat.phase),
            api: names.intern(&beat.last_nccl_api),
            call_phase: names.intern(&beat.last_nccl_phase),
            call_seq: beat.last_nccl_seq,
            progress_mono: beat.last_progress_mono_ns,
        }
    }

    /// What the start or the end of a checkpoint says.
    pub(crate) fn checkpoint(header: &Header<'_>, phase: Name) -> Self {
        Self {
            unix: header.timestamp_unix_ns,
            phase,
            api: Name::EMPTY,
            call_phase: Name::EMPTY,
            call_seq: -1,
            progress_mono: -1,
        }
    }
}

/// All processes of a run.
#[derive(Debug, Default)]
pub(crate) struct Processes {
    list: Vec<Process>,
    by_key: HashMap<(i64, i64, Name), ProcessId, foldhash::fast::RandomState>,
    latest: Option<ProcessId>,
}

impl Processes {
    /// The process that an event is of; a new one where it was not seen before. `None` when there
    /// are too many.
    #[inline]
    pub(crate) fn of(&mut self, header: &Header<'_>, names: &mut Names) -> Option<ProcessId> {
        if let Some(id) = self.latest {
            let process = &self.list[id.0 as usize];
            if process.rank == header.rank && process.pid == header.pid && header.rank >= 0 {
                return Some(id);
            }
        }
        self.find(header, names)
    }

    fn find(&mut self, header: &Header<'_>, names: &mut Names) -> Option<ProcessId> {
        // A process number is unique on its host only, a rank in the whole run.
        let host = if header.rank >= 0 { Name::EMPTY } else { names.intern(&header.hostname) };
        let key = (header.rank, header.pid, host);
        let id = match self.by_key.get(&key) {
            Some(&id) => id,
            None if self.list.len() >= MAX_PROCESSES => return None,
            None => {
                let id = ProcessId(self.list.len() as u32);
                self.list.push(Process::new(header));
                self.by_key.insert(key, id);
                id
            }
        };
        self.latest = Some(id);
        Some(id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ProcessId, &Process)> {
        self.list.iter().enumerate().map(|(at, process)| (ProcessId(at as u32), process))
    }

    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// A process of which no event has come here, by rank, process number and host.
    pub(crate) fn add(&mut self, key: (i64, i64, Name)) -> ProcessId {
        if let Some(&id) = self.by_key.get(&key) {
            return id;
        }
        // At most MAX_PROCESSES in each of few places: it fits.
        let id = ProcessId(self.list.len() as u32);
        let (rank, pid, _) = key;
        self.list.push(Process::new(&Header { rank, pid, ..Header::default() }));
        self.by_key.insert(key, id);
        id
    }

    /// All processes with rank, process number and host, by number.
    pub(crate) fn keyed_mut(&mut self) -> impl Iterator<Item = ((i64, i64, Name), &mut Process)> {
        let mut keys: Vec<_> = self.by_key.iter().map(|(&key, &id)| (id, key)).collect();
        keys.sort_unstable_by_key(|&(id, _)| id);
        keys.into_iter().map(|(_, key)| key).zip(&mut self.list)
    }

    /// All processes with rank, process number and host, by number.
    pub(crate) fn into_list(self) -> Vec<((i64, i64, Name), Process)> {
        let mut keys: Vec<_> = self.by_key.into_iter().collect();
        keys.sort_unstable_by_key(|&(_, id)| id);
        keys.into_iter().map(|(key, _)| key).zip(self.list).collect()
    }

    /// All processes, those of one rank together and in the order of their start.
    pub(crate) fn in_order(&self) -> Vec<ProcessId> {
        let mut ids: Vec<ProcessId> = self.iter().map(|(id, _)| id).collect();
        ids.sort_by_key(|id| {
            let process = &self[*id];
            (process.rank, process.started, process.pid)
        });
        ids
    }
}

impl std::ops::Index<ProcessId> for Processes {
    type Output = Process;

    fn index(&self, id: ProcessId) -> &Process {
        // Ids come from `of` alone, and no process is ever removed.
        &self.list[id.0 as usize]
    }
}

impl std::ops::IndexMut<ProcessId> for Processes {
    fn index_mut(&mut self, id: ProcessId) -> &mut Process {
        &mut self.list[id.0 as usize]
    }
}
