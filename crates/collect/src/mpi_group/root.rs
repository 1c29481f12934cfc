//! The root of a group of MPI ranks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::message::{ANSWER, HEAD, HELLO, REQUEST, Token, VERDICT};
use super::raw::{Duplicate, MpiError, Slot, is_alive};
use crate::device::Identity;
use crate::gather::{
    Contribution, Gather, GatherError, GatherEvents, Gathered, Request, Status, Wanted,
};
use crate::group::{Agreement, Hello, JoinError, Joined, Membership, Proposal, agree};
use crate::stop::{Backoff, Until};
use crate::wire::{Header, Kind, TEXT_MAX, VectorReader, Verdict};

/// How long the last words may take.
const FAREWELL: Duration = Duration::from_millis(20);
/// How long the verdict may take.
const VERDICT_TIME: Duration = Duration::from_secs(5);

impl From<MpiError> for GatherError {
    fn from(error: MpiError) -> Self {
        Self::Transport { what: error.call, reason: error.reason }
    }
}

/// Collects all hellos, answers them, and makes the gather if collection is wanted.
pub(super) fn join(
    membership: Membership,
    comm: Duplicate,
    proposal: &Proposal,
    until: Until<'_>,
) -> Result<Option<Joined>, JoinError> {
    let own = Hello::new(&membership, proposal);
    let mut hellos: Vec<Option<Hello>> = vec![None; membership.size()];
    if let Some(place) = hellos.get_mut(membership.rank()) {
        *place = Some(own);
    }
    let outcome = meet(&membership, &comm, &mut hellos, until);
    let verdict = match &outcome {
        Ok(agreement) => Verdict::Agreed(*agreement),
        Err(JoinError::Disagreement(differences)) => Verdict::Disagreement(differences.clone()),
        Err(JoinError::Missing { ranks, size }) => {
            Verdict::Missing { ranks: ranks.clone(), size: *size }
        }
        Err(error) => Verdict::Refused(error.to_string()),
    };
    tell(&membership, &comm, &verdict, until)?;
    let Agreement::Enabled(instance) = outcome? else { return Ok(None) };
    let identity = |hello: Hello| Arc::new(hello.proposal.identity);
    let identities = hellos.into_iter().flatten().map(identity).collect();
    let gather = MpiRoot::new(membership, comm, instance, proposal.vector_len, identities)?;
    Ok(Some(Joined { instance, gather: Box::new(gather) }))
}

/// Waits for the hello of every rank and compares them.
fn meet(
    membership: &Membership,
    comm: &Duplicate,
    hellos: &mut [Option<Hello>],
    until: Until<'_>,
) -> Result<Agreement, JoinError> {
    let mut backoff = Backoff::default();
    loop {
        let mut progress = false;
        for (rank, place) in hellos.iter_mut().enumerate().filter(|(_, place)| place.is_none()) {
            if let Some(text) = comm.take(rank, HELLO, TEXT_MAX, until)? {
                *place =
                    serde_json::from_slice(&text).ok().filter(|hello: &Hello| hello.rank == rank);
                progress = true;
            }
        }
        let absent = || {
            let places = hellos.iter().enumerate();
            places.filter(|(_, place)| place.is_none()).map(|(rank, _)| rank).collect::<Vec<_>>()
        };
        if hellos.iter().all(Option::is_some) {
            let all: Vec<Hello> = hellos.iter().flatten().cloned().collect();
            return agree(&all, Uuid::new_v4()).map_err(JoinError::Disagreement);
        }
        if until.stop().is_set() {
            return Err(JoinError::Stopped);
        }
        if until.is_over() {
            return Err(JoinError::Missing { ranks: absent(), size: membership.size() });
        }
        if progress {
            backoff.reset();
        } else {
            until.sleep(backoff.pause());
        }
    }
}

/// Sends the verdict to all others, and waits a little for it to leave.
fn tell(
    membership: &Membership,
    comm: &Duplicate,
    verdict: &Verdict,
    until: Until<'_>,
) -> Result<(), JoinError> {
    let text = serde_json::to_vec(verdict).unwrap_or_default();
    let others = (0..membership.size()).filter(|rank| *rank != membership.rank());
    let mut slots = Vec::new();
    for rank in others {
        let mut slot = Slot::new(text.len());
        slot.send(comm, rank, VERDICT, |out| out.extend(&text))?;
        slots.push(slot);
    }
    let until = Until::after(VERDICT_TIME, until.stop());
    for slot in &mut slots {
        slot.wait(until)?;
    }
    Ok(())
}

/// The root's gather.
struct MpiRoot {
    // Before the communicator: operations end before it is freed.
    peers: Vec<Peer>,
    comm: Duplicate,
    membership: Membership,
    token: Token,
    identities: Vec<Arc<Identity>>,
    /// Bytes of the longest answer.
    longest: usize,
    events: GatherEvents,
    said_goodbye: bool,
}

/// One other rank.
struct Peer {
    rank: usize,
    asking: Slot,
    answering: Slot,
    left: bool,
}

impl MpiRoot {
    fn new(
        membership: Membership,
        comm: Duplicate,
        instance: Uuid,
        vector_len: usize,
        identities: Vec<Arc<Identity>>,
    ) -> Result<Self, MpiError> {
        let longest = HEAD.saturating_add(vector_len.saturating_mul(size_of::<i64>()));
        let others = (0..membership.size()).filter(|rank| *rank != membership.rank());
        let peer = |rank| -> Result<Peer, MpiError> {
            let mut answering = Slot::new(longest);
            answering.receive(&comm, rank, ANSWER, longest)?;
            Ok(Peer { rank, asking: Slot::new(HEAD), answering, left: false })
        };
        let peers = others.map(peer).collect::<Result<_, _>>()?;
        let (token, events) = (Token::of(instance), GatherEvents::default());
        let said_goodbye = false;
        Ok(Self { peers, comm, membership, token, identities, longest, events, said_goodbye })
    }

    /// Files what has come; whether anything has.
    fn look(&mut self, request: Request, into: &mut Gathered) -> Result<bool, MpiError> {
        let mut progress = false;
        for peer in &mut self.peers {
            let rank = peer.rank;
            let Some(message) = peer.answering.test()? else { continue };
            progress = true;
            match self.token.read(message) {
                Some((header, payload)) => {
                    let goodbye = header.kind == Kind::Goodbye;
                    peer.left |= goodbye;
                    if !file(rank, header, payload, request, into) && !goodbye {
                        self.events.late_answers += 1;
                    }
                }
                None => self.events.bad_frames += 1,
            }
            peer.answering.receive(&self.comm, rank, ANSWER, self.longest)?;
        }
        Ok(progress)
    }
}

/// Files an answer; `false` when it is not one to `request`.
fn file(
    rank: usize,
    header: Header,
    payload: &[u8],
    request: Request,
    into: &mut Gathered,
) -> bool {
    if header.kind == Kind::Goodbye {
        if into.statuses().get(rank) == Some(&Status::Missing) {
            into.set_status(rank, Status::Goodbye);
        }
        return true;
    }
    let (a, b) = (header.request, request);
    if (a.channel, a.round, a.len) != (b.channel, b.round, b.len)
        || into.statuses().get(rank) != Some(&Status::Missing)
    {
        return false;
    }
    match header.kind {
        Kind::Skipped(reason) => into.set_status(rank, Status::Skipped(reason)),
        Kind::Vector if payload.len() == into.vector_len() * size_of::<i64>() => {
            if let Some(row) = into.row_mut(rank) {
                VectorReader::new().take(payload, row);
            }
            into.set_status(rank, Status::Ok);
        }
        _ => return false,
    }
    true
}

impl Gather for MpiRoot {
    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn identity(&self, rank: usize) -> Option<Arc<Identity>> {
        self.identities.get(rank).map(Arc::clone)
    }

    fn announce(&mut self, request: Request) -> Result<(), GatherError> {
        for peer in self.peers.iter_mut().filter(|peer| !peer.left) {
            // One that has not even taken the request before this is not sent another.
            peer.asking.test()?;
            let token = self.token;
            let fill = |out: &mut Vec<u8>| token.frame(Kind::Request, request, out);
            peer.asking.send(&self.comm, peer.rank, REQUEST, fill)?;
        }
        Ok(())
    }

    fn gather(
        &mut self,
        request: Request,
        own: Contribution<'_>,
        into: &mut Gathered,
        until: Until<'_>,
    ) -> Result<(), GatherError> {
        into.clear();
        into.accept(self.membership.rank(), own)?;
        for peer in self.peers.iter().filter(|peer| peer.left) {
            into.set_status(peer.rank, Status::Goodbye);
        }
        let mut backoff = Backoff::default();
        loop {
            let progress = self.look(request, into)?;
            if !into.statuses().contains(&Status::Missing) {
                return Ok(());
            }
            if until.stop().is_set() {
                return Err(GatherError::Stopped);
            }
            if until.is_over() {
                return Ok(());
            }
            if progress {
                backoff.reset();
            } else {
                until.sleep(backoff.pause());
            }
        }
    }

    fn await_request(
        &mut self,
        _wanted: Wanted,
        _until: Until<'_>,
    ) -> Result<Option<Request>, GatherError> {
        Err(GatherError::WrongSide("await_request"))
    }

    fn answer(
        &mut self,
        _request: Request,
        _own: Contribution<'_>,
        _until: Until<'_>,
    ) -> Result<(), GatherError> {
        Err(GatherError::WrongSide("answer"))
    }

    fn goodbye(&mut self) {
        if std::mem::replace(&mut self.said_goodbye, true) || !is_alive() {
            return;
        }
        let (token, since) = (self.token, Instant::now());
        let farewell = Header::bare(Kind::Goodbye);
        let mut waiting = true;
        let mut told = vec![false; self.peers.len()];
        while waiting && since.elapsed() < FAREWELL {
            waiting = false;
            for (peer, told) in self.peers.iter_mut().zip(&mut told).filter(|(p, _)| !p.left) {
                // A stopped rank may not have taken the last request yet.
                if !matches!(peer.asking.test(), Ok(Some(_))) {
                    waiting = true;
                } else if !*told {
                    let fill = |out: &mut Vec<u8>| token.write(farewell, out);
                    *told = peer.asking.send(&self.comm, peer.rank, REQUEST, fill).is_ok();
                    waiting = true;
                }
            }
            if waiting {
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }

    fn events(&self) -> GatherEvents {
        self.events
    }
}

impl Drop for MpiRoot {
    fn drop(&mut self) {
        self.goodbye();
    }
}
