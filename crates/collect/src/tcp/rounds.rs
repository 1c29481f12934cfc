//! What the root's caller and its connection thread share.

use std::sync::Arc;

use crate::device::Identity;
use crate::gather::{CHANNELS, GatherError, GatherEvents, Gathered, Request, Status};

/// The round under way, and who is there to answer it.
#[derive(Debug)]
pub(super) struct Rounds {
    /// The own rank.
    root: usize,
    /// Longest vector a rank may send, elements.
    pub(super) vector_len: usize,
    active: Option<Request>,
    /// One for each channel, made when it is first used.
    buffers: [Option<Gathered>; CHANNELS],
    connected: Vec<bool>,
    left: Vec<bool>,
    pub(super) identities: Vec<Arc<Identity>>,
    pub(super) events: GatherEvents,
    /// The caller is gone: say goodbye and end.
    pub(super) closing: bool,
    /// The connection thread has ended.
    pub(super) ended: bool,
}

impl Rounds {
    pub(super) fn new(root: usize, vector_len: usize, identities: Vec<Arc<Identity>>) -> Self {
        let ranks = identities.len();
        Self {
            root,
            vector_len,
            active: None,
            buffers: [const { None }; CHANNELS],
            connected: vec![false; ranks],
            left: vec![false; ranks],
            identities,
            events: GatherEvents::default(),
            closing: false,
            ended: false,
        }
    }

    pub(super) fn active(&self) -> Option<Request> {
        self.active
    }

    /// Begins a round: those who have left have answered already.
    pub(super) fn begin(&mut self, request: Request) -> Result<(), GatherError> {
        if request.len > self.vector_len {
            let (rank, length) = (self.root, self.vector_len);
            return Err(GatherError::Length { rank, length, expected: request.len });
        }
        let ranks = self.identities.len();
        let slot = self.buffers.get_mut(usize::from(request.channel));
        let slot = slot.ok_or(GatherError::Channel(request.channel))?;
        let buffer = match slot {
            Some(buffer) if buffer.vector_len() == request.len => buffer,
            slot => slot.insert(Gathered::new(ranks, request.len)),
        };
        buffer.clear();
        for (rank, _) in self.left.iter().enumerate().filter(|(_, left)| **left) {
            buffer.set_status(rank, Status::Goodbye);
        }
        self.active = Some(request);
        Ok(())
    }

    /// The answers to `request`, while it is the round under way.
    pub(super) fn buffer(&mut self, request: Request) -> Option<&mut Gathered> {
        let asked = self.active?;
        // A tick is the caller's business and need not come back.
        let same = (asked.channel, asked.round, asked.len)
            == (request.channel, request.round, request.len);
        self.buffers.get_mut(usize::from(request.channel)).filter(|_| same)?.as_mut()
    }

    /// Where `rank` may write its answer to `request`: nowhere when the round has ended or the
    /// answer is there already.
    pub(super) fn row(&mut self, request: Request, rank: usize) -> Option<&mut [i64]> {
        let buffer = self.buffer(request)?;
        (buffer.statuses().get(rank) == Some(&Status::Missing)).then_some(())?;
        buffer.row_mut(rank)
    }

    /// Files how `rank` answered `request`.
    pub(super) fn answer(&mut self, request: Request, rank: usize, status: Status) {
        match self.buffer(request) {
            Some(buffer) if buffer.statuses().get(rank) == Some(&Status::Missing) => {
                buffer.set_status(rank, status);
            }
            _ => self.events.late_answers += 1,
        }
    }

    /// Whether nobody who could still answer has not.
    pub(super) fn is_done(&self) -> bool {
        let Some(request) = self.active else { return true };
        let Some(Some(buffer)) = self.buffers.get(usize::from(request.channel)) else {
            return true;
        };
        let mut ranks = buffer.statuses().iter().zip(&self.connected);
        ranks.all(|(status, connected)| *status != Status::Missing || !connected)
    }

    /// Whether `rank` has not answered the round under way.
    pub(super) fn is_awaited(&self, rank: usize) -> bool {
        let Some(request) = self.active else { return false };
        let buffer = self.buffers.get(usize::from(request.channel));
        let statuses = buffer.and_then(Option::as_ref).map(Gathered::statuses);
        statuses.and_then(|statuses| statuses.get(rank)) == Some(&Status::Missing)
    }

    /// Ends the round: its answers change places with what `into` held.
    pub(super) fn end(&mut self, request: Request, into: &mut Gathered) {
        if let Some(buffer) = self.buffer(request) {
            std::mem::swap(buffer, into);
        }
        self.active = None;
    }

    /// `rank` is there, possibly again.
    pub(super) fn set_connected(&mut self, rank: usize, identity: Arc<Identity>) {
        for (list, value) in [(&mut self.connected, true), (&mut self.left, false)] {
            if let Some(flag) = list.get_mut(rank) {
                *flag = value;
            }
        }
        if let Some(known) = self.identities.get_mut(rank) {
            *known = identity;
        }
    }

    /// `rank` is gone; `goodbye`: it said so.
    pub(super) fn set_gone(&mut self, rank: usize, goodbye: bool) {
        if let Some(flag) = self.connected.get_mut(rank) {
            *flag = false;
        }
        if let Some(flag) = self.left.get_mut(rank) {
            *flag = goodbye;
        }
        if goodbye {
            if let Some(request) = self.active.filter(|_| self.is_awaited(rank)) {
                self.answer(request, rank, Status::Goodbye);
            }
        } else {
            self.events.lost += 1;
        }
    }
}
