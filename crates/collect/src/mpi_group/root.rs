//! The root of a group of MPI ranks.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::farewell::{LastWords, leave};
use super::message::{ANSWER, HEAD, HELLO, REQUEST, Token, VERDICT};
use super::raw::{Duplicate, MpiError, Slot};
use crate::device::Identity;
use crate::gather::{
    Contribution, Gather, GatherError, GatherEvents, Gathered, Request, Status, Wanted,
};
use crate::group::{Agreement, Hello, JoinError, Joined, Membership, Proposal, agree};
use crate::stop::{Backoff, Until};
use crate::wire::{Header, Kind, TEXT_MAX, VectorReader, Verdict};

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
    let agreement = match outcome {
        Ok(agreement) => agreement,
        Err(error) => {
            if !matches!(error, JoinError::Disagreement(_)) {
                // A late hello may still come.
                comm.keep();
            }
            return Err(error);
        }
    };
    let Agreement::Enabled(instance) = agreement else { return Ok(None) };
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
    /// Empty once this rank has left.
    peers: Vec<LastWords>,
    /// `None` once this rank has left.
    comm: Option<Duplicate>,
    membership: Membership,
    token: Token,
    identities: Vec<Arc<Identity>>,
    /// Bytes of the longest answer.
    longest: usize,
    events: GatherEvents,
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
        let peer = |rank| -> Result<LastWords, MpiError> {
            let mut listening = Slot::new(longest);
            listening.receive(&comm, rank, ANSWER, longest)?;
            Ok(LastWords {
                rank,
                tag: ANSWER,
                most: longest,
                listening,
                talking: Slot::new(HEAD),
                talking_tag: REQUEST,
                has_left: false,
                told: false,
            })
        };
        let peers = others.map(peer).collect::<Result<_, _>>()?;
        let (token, events) = (Token::of(instance), GatherEvents::default());
        Ok(Self { peers, comm: Some(comm), membership, token, identities, longest, events })
    }

    /// Files what has come; whether anything has.
    fn look(&mut self, request: Request, into: &mut Gathered) -> Result<bool, MpiError> {
        let Some(comm) = &self.comm else { return Ok(false) };
        let mut progress = false;
        for peer in self.peers.iter_mut().filter(|peer| !peer.has_left) {
            let rank = peer.rank;
            let Some(message) = peer.listening.test()? else { continue };
            progress = true;
            match self.token.read(message) {
                Some((header, payload)) => {
                    peer.has_left = header.kind == Kind::Goodbye;
                    if !file(rank, header, payload, request, into) {
                        self.events.late_answers += 1;
                    }
                }
                None => self.events.bad_frames += 1,
            }
            if !peer.has_left {
                peer.listening.receive(comm, rank, ANSWER, self.longest)?;
            }
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
        let Some(comm) = &self.comm else { return Err(GatherError::Stopped) };
        for peer in self.peers.iter_mut().filter(|peer| !peer.has_left) {
            // One that has not even taken the request before this is not sent another.
            peer.talking.test()?;
            let token = self.token;
            let fill = |out: &mut Vec<u8>| token.frame(Kind::Request, request, out);
            peer.talking.send(comm, peer.rank, REQUEST, fill)?;
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
        for peer in self.peers.iter().filter(|peer| peer.has_left) {
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
        if let Some(comm) = self.comm.take() {
            leave(comm, self.token, std::mem::take(&mut self.peers));
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
