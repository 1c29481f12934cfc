//! The other ranks of a group of MPI ranks.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::farewell::{LastWords, leave};
use super::message::{ANSWER, HEAD, HELLO, REQUEST, Token, VERDICT};
use super::raw::{Duplicate, MpiError, Slot};
use crate::device::Identity;
use crate::gather::{Contribution, Gather, GatherError, Gathered, Request, Wanted};
use crate::group::{Agreement, Hello, JoinError, Joined, Membership, Proposal};
use crate::inbox::Inbox;
use crate::stop::{Backoff, Until};
use crate::wire::{Header, Kind, TEXT_MAX, Verdict, encode_vector};

/// Longest pause between two looks for a request: each look is a call of MPI, which makes progress
/// for the whole process, and should not be felt there.
const IDLE: Duration = Duration::from_millis(10);

/// Says hello to the root, waits for its verdict, and makes the gather if collection is wanted.
pub(super) fn join(
    membership: Membership,
    comm: Duplicate,
    proposal: &Proposal,
    until: Until<'_>,
) -> Result<Option<Joined>, JoinError> {
    let root = membership.root();
    let hello = Hello::new(&membership, proposal);
    let text = serde_json::to_vec(&hello).unwrap_or_default();
    let mut sending = Slot::new(text.len());
    sending.send(&comm, root, HELLO, |out| out.extend(&text))?;
    let no_root = |reason: &str| JoinError::NoRoot {
        place: format!("rank {root} of the group"),
        reason: reason.to_owned(),
    };
    let mut backoff = Backoff::default();
    let answer = loop {
        if let Some(answer) = comm.take(root, VERDICT, TEXT_MAX, until)? {
            break answer;
        }
        if until.is_over() {
            // A late verdict may still come.
            comm.keep();
            let stopped = until.stop().is_set();
            return Err(if stopped { JoinError::Stopped } else { no_root("no verdict") });
        }
        // Also makes progress with the hello.
        sending.test()?;
        until.sleep(backoff.pause());
    };
    let verdict = serde_json::from_slice(&answer).map_err(|_| no_root("no valid verdict"))?;
    match verdict {
        Verdict::Agreed(Agreement::Disabled) => Ok(None),
        Verdict::Agreed(Agreement::Enabled(instance)) => {
            let gather = MpiLeaf::new(membership, comm, instance, proposal)?;
            Ok(Some(Joined { instance, gather: Box::new(gather) }))
        }
        Verdict::Disagreement(differences) => Err(JoinError::Disagreement(differences)),
        Verdict::Missing { ranks, size } => Err(JoinError::Missing { ranks, size }),
        Verdict::Refused(reason) => Err(JoinError::Refused { rank: membership.rank(), reason }),
    }
}

/// The gather of a rank that is not the root.
struct MpiLeaf {
    /// The root; `None` once this rank has left.
    root: Option<(Duplicate, LastWords)>,
    membership: Membership,
    identity: Arc<Identity>,
    token: Token,
    inbox: Inbox,
}

impl MpiLeaf {
    fn new(
        membership: Membership,
        comm: Duplicate,
        instance: Uuid,
        proposal: &Proposal,
    ) -> Result<Self, MpiError> {
        let rank = membership.root();
        let mut listening = Slot::new(HEAD);
        listening.receive(&comm, rank, REQUEST, HEAD)?;
        let longest = HEAD.saturating_add(proposal.vector_len.saturating_mul(size_of::<i64>()));
        let root = LastWords {
            rank,
            tag: REQUEST,
            most: HEAD,
            listening,
            talking: Slot::new(longest),
            talking_tag: ANSWER,
            has_left: false,
            told: false,
        };
        Ok(Self {
            root: Some((comm, root)),
            membership,
            identity: Arc::new(proposal.identity.clone()),
            token: Token::of(instance),
            inbox: Inbox::default(),
        })
    }

    /// Takes all requests that have come; whether the root has left.
    fn look(&mut self) -> Result<bool, MpiError> {
        let Some((comm, root)) = &mut self.root else { return Ok(true) };
        while !root.has_left {
            let Some(message) = root.listening.test()? else { break };
            match self.token.read(message) {
                Some((Header { kind: Kind::Request, request, .. }, _)) => self.inbox.put(request),
                Some((Header { kind: Kind::Goodbye, .. }, _)) => root.has_left = true,
                // Of a run before this one.
                _ => {}
            }
            if !root.has_left {
                root.listening.receive(comm, root.rank, REQUEST, HEAD)?;
            }
        }
        Ok(root.has_left)
    }
}

impl Gather for MpiLeaf {
    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn identity(&self, rank: usize) -> Option<Arc<Identity>> {
        (rank == self.membership.rank()).then(|| Arc::clone(&self.identity))
    }

    fn announce(&mut self, _request: Request) -> Result<(), GatherError> {
        Err(GatherError::WrongSide("announce"))
    }

    fn gather(
        &mut self,
        _request: Request,
        _own: Contribution<'_>,
        _into: &mut Gathered,
        _until: Until<'_>,
    ) -> Result<(), GatherError> {
        Err(GatherError::WrongSide("gather"))
    }

    fn await_request(
        &mut self,
        wanted: Wanted,
        until: Until<'_>,
    ) -> Result<Option<Request>, GatherError> {
        let mut pause = Duration::from_micros(50);
        loop {
            if until.stop().is_set() {
                return Err(GatherError::Stopped);
            }
            let root_left = self.look()?;
            if let Some(request) = self.inbox.take(wanted) {
                return Ok(Some(request));
            }
            if root_left {
                return Err(GatherError::RootLeft);
            }
            if until.is_over() {
                return Ok(None);
            }
            until.sleep(pause);
            pause = (pause * 2).min(IDLE);
        }
    }

    fn answer(
        &mut self,
        request: Request,
        own: Contribution<'_>,
        until: Until<'_>,
    ) -> Result<(), GatherError> {
        let (kind, vector) = match own {
            Contribution::Host(vector) => (Kind::Vector, vector),
            Contribution::Skipped(reason) => (Kind::Skipped(reason), Default::default()),
            Contribution::Device { .. } => return Err(GatherError::Residence),
        };
        if kind == Kind::Vector && vector.len() != request.len {
            let (rank, length) = (self.membership.rank(), vector.len());
            return Err(GatherError::Length { rank, length, expected: request.len });
        }
        let late = || GatherError::NotSent("the root takes no answer".to_owned());
        let Some((comm, root)) = &mut self.root else { return Err(GatherError::RootLeft) };
        // The answer before this one may be under way still.
        if !root.talking.wait(until)? {
            return Err(late());
        }
        let token = self.token;
        root.talking.send(comm, root.rank, ANSWER, |out| {
            token.frame(kind, request, out);
            encode_vector(vector, out);
        })?;
        // Waiting makes progress: the program may not call MPI for a while.
        if root.talking.wait(until)? { Ok(()) } else { Err(late()) }
    }

    fn goodbye(&mut self) {
        if let Some((comm, root)) = self.root.take() {
            leave(comm, self.token, vec![root]);
        }
    }
}

impl Drop for MpiLeaf {
    fn drop(&mut self) {
        self.goodbye();
    }
}
