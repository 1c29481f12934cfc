//! Pairing sends with receives: the k-th with the k-th between two ranks of a communicator.

use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::comm::CommId;
use super::process::ProcessId;
use super::ranges::RangeSet;
use super::signature::{Called, Relation};

/// Which side of a pair a call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Side {
    Send,
    Recv,
}

impl Side {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Send => Self::Recv,
            Self::Recv => Self::Send,
        }
    }

    fn at(self) -> usize {
        match self {
            Self::Send => 0,
            Self::Recv => 1,
        }
    }
}

/// A send or receive that waits for its counterpart.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Pending {
    /// Number among the calls of its side; `None` where nothing tells it.
    pub(crate) index: Option<i64>,
    pub(crate) side: Side,
    /// The number is counted here and does not come from the probe.
    pub(crate) counted: bool,
    pub(crate) called: Called,
    pub(crate) process: ProcessId,
    pub(crate) call_seq: i64,
    pub(crate) comm_seq: i64,
    pub(crate) group_id: i64,
    pub(crate) group_op_index: i64,
    /// Wall clock of the host.
    pub(crate) unix: i64,
    /// Receipt, on the analyzer's monotonic clock.
    pub(crate) receipt: i64,
    /// When it was given as missing its counterpart.
    pub(crate) reported: Option<i64>,
}

/// The calls from one rank of a communicator to another.
#[derive(Debug)]
pub(crate) struct Channel {
    pub(crate) comm: CommId,
    pub(crate) src: i64,
    pub(crate) dst: i64,
    /// Numbered calls that wait, by number; on one number there is one side only.
    queue: Option<QueueId>,
    /// Calls without a number that wait, by side, sorted by wall clock; of one time in order of
    /// arrival.
    loose: [Option<QueueId>; 2],
    /// Numbers that are done with.
    done: RangeSet,
    /// Calls counted so far, by side.
    counted: [i64; 2],
    /// Numbers cannot be trusted: calls are paired by time.
    is_loose: bool,
    /// A missing counterpart was given and no pair has been found since.
    pub(crate) missing_reported: bool,
    /// A mismatch was given and no equal pair has been found since.
    pub(crate) mismatch_reported: bool,
    /// Calls that were not kept for want of room.
    pub(crate) dropped: i64,
    listed: bool,
}

/// A channel of [`Channels`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct ChannelId(u32);

impl ChannelId {
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

#[derive(Debug, Clone, Copy)]
struct QueueId(u32);

/// A channel with its waiting calls, on its way elsewhere.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ChannelPart {
    pub(crate) comm: CommId,
    src: i64,
    dst: i64,
    pub(crate) queue: Vec<Pending>,
    pub(crate) loose: [Vec<Pending>; 2],
    done: RangeSet,
    counted: [i64; 2],
    is_loose: bool,
    missing_reported: bool,
    mismatch_reported: bool,
    dropped: i64,
}

/// What became of a call.
#[derive(Debug)]
pub(crate) enum Paired {
    /// It waits.
    Waits,
    /// It was seen before, or its pair is done with.
    Known,
    /// There is no room for it.
    NoRoom,
    /// Its counterpart.
    With(Pending),
}

/// Candidates of a call without a number that are looked at.
const MAX_CANDIDATES: usize = 64;
/// Waiting calls of one channel.
const MAX_WAITING: usize = 1 << 16;

/// All channels of a run.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    list: Vec<Channel>,
    by_key: HashMap<(CommId, i64, i64), ChannelId, foldhash::fast::RandomState>,
    queues: Vec<VecDeque<Pending>>,
    free: Vec<QueueId>,
    /// Channels that have, or lately had, waiting calls.
    active: Vec<ChannelId>,
    waiting: usize,
}

impl Channels {
    /// The channel of a communicator from `src` to `dst`. `None` when `limit` of them are known.
    pub(crate) fn of(
        &mut self,
        comm: CommId,
        src: i64,
        dst: i64,
        limit: usize,
    ) -> Option<ChannelId> {
        if let Some(&id) = self.by_key.get(&(comm, src, dst)) {
            return Some(id);
        }
        if self.list.len() >= limit {
            return None;
        }
        let id = ChannelId(u32::try_from(self.list.len()).ok()?);
        self.list.push(Channel {
            comm,
            src,
            dst,
            queue: None,
            loose: [None; 2],
            done: RangeSet::default(),
            counted: [0; 2],
            is_loose: false,
            missing_reported: false,
            mismatch_reported: false,
            dropped: 0,
            listed: false,
        });
        self.by_key.insert((comm, src, dst), id);
        Some(id)
    }

    /// The channel in the other direction.
    pub(crate) fn reverse(&self, id: ChannelId) -> Option<ChannelId> {
        let channel = &self[id];
        self.by_key.get(&(channel.comm, channel.dst, channel.src)).copied()
    }

    /// Calls that wait for their counterpart.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Numbers a call of a side, for a process whose trace is complete.
    pub(crate) fn count(&mut self, id: ChannelId, side: Side) -> Option<i64> {
        let channel = &mut self.list[id.0 as usize];
        if channel.is_loose {
            return None;
        }
        let number = channel.counted[side.at()];
        channel.counted[side.at()] = number.saturating_add(1);
        Some(number)
    }

    /// Pairs a call, or lets it wait. `window` is what the wall clocks of an unnumbered pair may
    /// differ by, `limit` how many calls may wait.
    #[inline]
    pub(crate) fn pair(
        &mut self,
        id: ChannelId,
        call: Pending,
        window: i64,
        limit: usize,
    ) -> Paired {
        match call.index {
            Some(index) if !self.list[id.0 as usize].is_loose => {
                self.pair_numbered(id, index, call, limit)
            }
            _ => {
                self.loosen(id, window, limit);
                self.pair_by_time(id, call, window, limit)
            }
        }
    }

    fn pair_numbered(&mut self, id: ChannelId, index: i64, call: Pending, limit: usize) -> Paired {
        let channel = &mut self.list[id.0 as usize];
        if channel.done.contains(index) {
            return Paired::Known;
        }
        let queue = match channel.queue {
            Some(queue) => &mut self.queues[queue.0 as usize],
            None => {
                if self.waiting >= limit {
                    channel.dropped += 1;
                    return Paired::NoRoom;
                }
                let taken = take_queue(&mut self.queues, &mut self.free);
                channel.queue = Some(taken);
                &mut self.queues[taken.0 as usize]
            }
        };
        let at = place(queue, index);
        match queue.get(at) {
            Some(known) if known.index == Some(index) && known.side == call.side => Paired::Known,
            Some(known) if known.index == Some(index) => {
                let known = *known;
                queue.remove(at);
                channel.done.insert(index);
                self.waiting -= 1;
                if queue.is_empty() {
                    self.free.extend(channel.queue.take());
                }
                Paired::With(known)
            }
            _ if self.waiting >= limit || queue.len() >= MAX_WAITING => {
                channel.dropped += 1;
                Paired::NoRoom
            }
            _ => {
                queue.insert(at, call);
                self.waiting += 1;
                self.list_active(id);
                Paired::Waits
            }
        }
    }

    fn pair_by_time(&mut self, id: ChannelId, call: Pending, window: i64, limit: usize) -> Paired {
        let channel = &mut self.list[id.0 as usize];
        if let Some(queue) = channel.loose[call.side.other().at()] {
            let waiting = &mut self.queues[queue.0 as usize];
            let at = earliest_equal(waiting, &call, window);
            if let Some(known) = at.and_then(|at| waiting.remove(at)) {
                self.waiting -= 1;
                if waiting.is_empty() {
                    self.free.extend(channel.loose[call.side.other().at()].take());
                }
                return Paired::With(known);
            }
        }
        let place = &mut channel.loose[call.side.at()];
        let queue = match *place {
            Some(queue) => queue,
            None => *place.insert(take_queue(&mut self.queues, &mut self.free)),
        };
        let waiting = &mut self.queues[queue.0 as usize];
        if self.waiting >= limit || waiting.len() >= MAX_WAITING {
            channel.dropped += 1;
            return Paired::NoRoom;
        }
        // A clock may go back, and a call may have none: it still has its place.
        waiting.insert(after_time(waiting, call.unix), call);
        self.waiting += 1;
        self.list_active(id);
        Paired::Waits
    }

    /// Gives up numbering in a channel: what waits is paired by time from now on.
    pub(crate) fn loosen(&mut self, id: ChannelId, window: i64, limit: usize) {
        let channel = &mut self.list[id.0 as usize];
        if std::mem::replace(&mut channel.is_loose, true) {
            return;
        }
        let Some(queue) = channel.queue.take() else { return };
        let calls = std::mem::take(&mut self.queues[queue.0 as usize]);
        self.free.push(queue);
        self.waiting -= calls.len();
        for call in calls {
            self.pair_by_time(id, call, window, limit);
        }
    }

    /// All channels, by number.
    pub(crate) fn into_parts(mut self) -> Vec<ChannelPart> {
        let queues = &mut self.queues;
        let mut calls = |queue: Option<QueueId>| -> Vec<Pending> {
            let queue = queue.and_then(|queue| queues.get_mut(queue.0 as usize));
            queue.map_or_else(Vec::new, |queue| std::mem::take(queue).into())
        };
        let part = |channel: Channel| ChannelPart {
            comm: channel.comm,
            src: channel.src,
            dst: channel.dst,
            queue: calls(channel.queue),
            loose: channel.loose.map(&mut calls),
            done: channel.done,
            counted: channel.counted,
            is_loose: channel.is_loose,
            missing_reported: channel.missing_reported,
            mismatch_reported: channel.mismatch_reported,
            dropped: channel.dropped,
        };
        self.list.into_iter().map(part).collect()
    }

    /// Takes in a channel of elsewhere.
    pub(crate) fn put(&mut self, part: ChannelPart) -> Option<ChannelId> {
        let id = ChannelId(u32::try_from(self.list.len()).ok()?);
        let queues = &mut self.queues;
        let waiting = &mut self.waiting;
        let mut queue = |calls: Vec<Pending>| {
            (!calls.is_empty()).then(|| {
                *waiting += calls.len();
                queues.push(calls.into());
                // Fewer than three a channel: it fits as channels do.
                QueueId((queues.len() - 1) as u32)
            })
        };
        let channel = Channel {
            comm: part.comm,
            src: part.src,
            dst: part.dst,
            queue: queue(part.queue),
            loose: part.loose.map(&mut queue),
            done: part.done,
            counted: part.counted,
            is_loose: part.is_loose,
            missing_reported: part.missing_reported,
            mismatch_reported: part.mismatch_reported,
            dropped: part.dropped,
            listed: false,
        };
        let waits = channel.queue.is_some() || channel.loose.iter().any(Option::is_some);
        self.by_key.insert((channel.comm, channel.src, channel.dst), id);
        self.list.push(channel);
        if waits {
            self.list_active(id);
        }
        Some(id)
    }

    fn list_active(&mut self, id: ChannelId) {
        let channel = &mut self.list[id.0 as usize];
        if !std::mem::replace(&mut channel.listed, true) {
            self.active.push(id);
        }
    }

    /// The channels in which calls wait.
    pub(crate) fn active(&mut self) -> Vec<ChannelId> {
        let list = &mut self.list;
        self.active.retain(|id| {
            let channel = &mut list[id.0 as usize];
            let waits = channel.queue.is_some() || channel.loose.iter().any(Option::is_some);
            channel.listed = waits;
            waits
        });
        self.active.clone()
    }

    /// The waiting calls of a channel.
    pub(crate) fn calls(&self, id: ChannelId) -> impl Iterator<Item = &Pending> {
        let channel = &self[id];
        let queues = [channel.queue, channel.loose[0], channel.loose[1]];
        queues.into_iter().flatten().flat_map(|queue| self.queues[queue.0 as usize].iter())
    }

    /// Whether a channel's calls are paired by time.
    pub(crate) fn is_loose(&self, id: ChannelId) -> bool {
        self[id].is_loose
    }

    /// Notes in each waiting call of a channel when it was given as missing its counterpart.
    /// Gives the processes that made them.
    pub(crate) fn mark(
        &mut self,
        id: ChannelId,
        now: i64,
        which: impl Fn(&Pending) -> bool,
    ) -> Vec<ProcessId> {
        let mut marked = Vec::new();
        let channel = &self.list[id.0 as usize];
        let queues = [channel.queue, channel.loose[0], channel.loose[1]];
        for queue in queues.into_iter().flatten() {
            for call in &mut self.queues[queue.0 as usize] {
                if call.reported.is_none() && which(call) {
                    call.reported = Some(now);
                    marked.push(call.process);
                }
            }
        }
        marked
    }

    /// Drops the waiting calls of a channel for which `which` holds: their numbers are done with.
    pub(crate) fn forget(&mut self, id: ChannelId, which: impl Fn(&Pending) -> bool) {
        let channel = &mut self.list[id.0 as usize];
        let [send, recv] = &mut channel.loose;
        for place in [&mut channel.queue, send, recv] {
            let Some(queue) = *place else { continue };
            let calls = &mut self.queues[queue.0 as usize];
            let before = calls.len();
            calls.retain(|call| {
                let drop = which(call);
                if let (true, Some(index)) = (drop, call.index) {
                    channel.done.insert(index);
                }
                !drop
            });
            self.waiting -= before - calls.len();
            if calls.is_empty() {
                self.free.push(queue);
                *place = None;
            }
        }
    }
}

impl std::ops::Index<ChannelId> for Channels {
    type Output = Channel;

    fn index(&self, id: ChannelId) -> &Channel {
        // Ids come from `of` alone, and no channel is ever removed.
        &self.list[id.0 as usize]
    }
}

impl std::ops::IndexMut<ChannelId> for Channels {
    fn index_mut(&mut self, id: ChannelId) -> &mut Channel {
        &mut self.list[id.0 as usize]
    }
}

fn take_queue(queues: &mut Vec<VecDeque<Pending>>, free: &mut Vec<QueueId>) -> QueueId {
    free.pop().unwrap_or_else(|| {
        queues.push(VecDeque::new());
        // One queue a channel and side at most: as many as channels have numbers.
        QueueId((queues.len() - 1) as u32)
    })
}

/// Where a number stands or belongs in a queue sorted by number.
#[inline]
fn place(queue: &VecDeque<Pending>, index: i64) -> usize {
    match (queue.front(), queue.back()) {
        (Some(front), _) if front.index >= Some(index) => 0,
        (_, Some(back)) if back.index < Some(index) => queue.len(),
        _ => queue.partition_point(|call| call.index < Some(index)),
    }
}

/// Behind the calls up to a time in a queue sorted by time.
#[inline]
fn after_time(queue: &VecDeque<Pending>, unix: i64) -> usize {
    match queue.back() {
        Some(back) if back.unix > unix => queue.partition_point(|known| known.unix <= unix),
        _ => queue.len(),
    }
}

/// The earliest call in a queue, sorted by time, that moves the same and lies within the window of another.
fn earliest_equal(queue: &VecDeque<Pending>, call: &Pending, window: i64) -> Option<usize> {
    let from = queue.partition_point(|known| known.unix < call.unix.saturating_sub(window));
    let near = queue.iter().enumerate().skip(from).take(MAX_CANDIDATES);
    near.take_while(|(_, known)| known.unix <= call.unix.saturating_add(window))
        .find(|(_, known)| known.called.amount(&call.called, true) == Relation::Equal)
        .map(|(at, _)| at)
}

/// The function of a side where no call tells it.
pub(crate) fn api_of(side: Side) -> &'static str {
    match side {
        Side::Send => "ncclSend",
        Side::Recv => "ncclRecv",
    }
}
