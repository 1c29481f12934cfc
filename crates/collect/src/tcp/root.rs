//! The root: one thread that serves all connections, and the gather over it.

use std::net::TcpStream;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::doors::{Doors, send_verdict};
use super::peer::{End, Peer};
use super::rounds::Rounds;
use crate::device::Identity;
use crate::gather::{Contribution, Gather, GatherError, GatherEvents, Gathered, Request, Wanted};
use crate::group::{Agreement, Hello, JoinError, Joined, Membership, Proposal, agree};
use crate::stop::{Backoff, Until, lock};
use crate::wire::{Header, Kind, Verdict};

/// Bytes taken from a connection at a time.
const SCRATCH: usize = 256 * 1024;
/// How often the door is looked at between rounds.
const IDLE: Duration = Duration::from_millis(50);
/// How often quiet connections are looked at between rounds.
const QUIET: Duration = Duration::from_millis(250);
/// How long to wait for further hellos once the ranks do not even agree on how many they are.
const SIZE_DISPUTE: Duration = Duration::from_secs(3);
/// How long the verdict may take, when all wait for it and when the others must not.
const MEETING_VERDICT: Duration = Duration::from_secs(1);
const LATER_VERDICT: Duration = Duration::from_millis(20);
/// How long the last words may take.
const FAREWELL: Duration = Duration::from_millis(50);

/// Collects all hellos, answers them, and starts the thread if collection is wanted.
pub(super) fn join(
    membership: Membership,
    doors: Doors,
    proposal: &Proposal,
    until: Until<'_>,
) -> Result<Option<Joined>, JoinError> {
    let mut meeting = Meeting::new(&membership, doors, Hello::new(&membership, proposal));
    let outcome = meeting.hold(until);
    let verdict = match &outcome {
        Ok(agreement) => Verdict::Agreed(*agreement),
        Err(JoinError::Disagreement(differences)) => Verdict::Disagreement(differences.clone()),
        Err(JoinError::Missing { ranks, size }) => {
            Verdict::Missing { ranks: ranks.clone(), size: *size }
        }
        Err(error) => Verdict::Refused(error.to_string()),
    };
    for (stream, _) in meeting.everybody() {
        send_verdict(stream, &verdict, MEETING_VERDICT);
    }
    match outcome? {
        Agreement::Disabled => Ok(None),
        Agreement::Enabled(instance) => {
            let gather = meeting.into_gather(membership, instance)?;
            Ok(Some(Joined { instance, gather: Box::new(gather) }))
        }
    }
}

/// The time before all have come.
struct Meeting {
    doors: Doors,
    own: Hello,
    /// By rank; the own place stays empty.
    come: Vec<Option<(TcpStream, Hello)>>,
    /// Who claims a rank that this group does not have.
    beyond: Vec<(TcpStream, Hello)>,
    dispute: Option<Instant>,
    events: GatherEvents,
}

impl Meeting {
    fn new(membership: &Membership, doors: Doors, own: Hello) -> Self {
        let come = (0..membership.size()).map(|_| None).collect();
        let (beyond, dispute, events) = (Vec::new(), None, GatherEvents::default());
        Self { doors, own, come, beyond, dispute, events }
    }

    fn everybody(&self) -> impl Iterator<Item = &(TcpStream, Hello)> {
        self.come.iter().flatten().chain(&self.beyond)
    }

    fn hold(&mut self, until: Until<'_>) -> Result<Agreement, JoinError> {
        let mut scratch = vec![0; 64 * 1024];
        let mut backoff = Backoff::default();
        while !self.is_complete() {
            if until.stop().is_set() {
                return Err(JoinError::Stopped);
            }
            if until.is_over() {
                return Err(self.missing());
            }
            if self.look(&mut scratch) {
                backoff.reset();
            } else {
                until.sleep(backoff.pause());
            }
        }
        let others = self.everybody().map(|(_, hello)| hello.clone());
        let mut hellos: Vec<Hello> = std::iter::once(self.own.clone()).chain(others).collect();
        hellos.sort_by_key(|hello| hello.rank);
        agree(&hellos, Uuid::new_v4()).map_err(JoinError::Disagreement)
    }

    fn look(&mut self, scratch: &mut [u8]) -> bool {
        let Self { doors, own, come, beyond, dispute, events } = self;
        doors.look(scratch, events, |stream, hello| {
            if hello.global_ranks.len() != own.global_ranks.len() {
                dispute.get_or_insert_with(Instant::now);
            }
            match come.get_mut(hello.rank) {
                Some(place) if hello.rank != own.rank => *place = Some((stream, hello)),
                _ if beyond.len() < 64 => beyond.push((stream, hello)),
                _ => {}
            }
        })
    }

    fn is_complete(&self) -> bool {
        let disputed = self.dispute.is_some_and(|since| since.elapsed() > SIZE_DISPUTE);
        disputed || self.absent().next().is_none()
    }

    fn absent(&self) -> impl Iterator<Item = usize> {
        let places = self.come.iter().enumerate();
        places
            .filter(|(rank, place)| place.is_none() && *rank != self.own.rank)
            .map(|(rank, _)| rank)
    }

    fn missing(&self) -> JoinError {
        match &self.doors.trouble {
            Some(error) => JoinError::Transport {
                what: "taking connections of the other ranks".to_owned(),
                reason: error.to_string(),
            },
            None => JoinError::Missing { ranks: self.absent().collect(), size: self.come.len() },
        }
    }

    fn into_gather(self, membership: Membership, instance: Uuid) -> Result<TcpRoot, JoinError> {
        let identity = |hello: &Hello| Arc::new(hello.proposal.identity.clone());
        let own = identity(&self.own);
        let mut rounds = Rounds::new(
            membership.rank(),
            self.own.proposal.vector_len,
            vec![own; membership.size()],
        );
        rounds.events = self.events;
        let mut peers = Vec::new();
        for (rank, place) in self.come.into_iter().enumerate() {
            peers.push(place.map(|(stream, hello)| {
                rounds.set_connected(rank, identity(&hello));
                Peer::new(stream)
            }));
        }
        let shared = Arc::new(Shared {
            rounds: Mutex::new(rounds),
            work: Condvar::new(),
            done: Condvar::new(),
        });
        let (doors, own) = (self.doors, self.own);
        let server = Server { doors, own, instance, peers, shared: Arc::clone(&shared) };
        let thread = std::thread::Builder::new()
            .name("deepxtrace-tcp".to_owned())
            .spawn(move || server.run())
            .map_err(|error| JoinError::Transport {
                what: "starting the connection thread".to_owned(),
                reason: error.to_string(),
            })?;
        Ok(TcpRoot { membership, shared, thread: Some(thread) })
    }
}

struct Shared {
    rounds: Mutex<Rounds>,
    /// Wakes the connection thread.
    work: Condvar,
    /// Wakes the caller.
    done: Condvar,
}

/// The connection thread.
struct Server {
    doors: Doors,
    own: Hello,
    instance: Uuid,
    peers: Vec<Option<Peer>>,
    shared: Arc<Shared>,
}

impl Server {
    fn run(mut self) {
        let mut scratch = vec![0; SCRATCH];
        let mut backoff = Backoff::default();
        let mut served = None;
        let mut looked = Instant::now();
        loop {
            let (active, closing) = {
                let rounds = lock(&self.shared.rounds);
                (rounds.active(), rounds.closing)
            };
            if closing {
                break;
            }
            let mut progress = self.admit(&mut scratch, active);
            if active != served {
                served = active;
                backoff.reset();
                if let Some(request) = active {
                    self.each(|_, peer| {
                        peer.send(Header::of(Kind::Request, request)).map(|()| true)
                    });
                }
            }
            if active.is_some() || looked.elapsed() > QUIET {
                looked = Instant::now();
                progress |= self.serve(&mut scratch, active);
            }
            if active.is_some() && lock(&self.shared.rounds).is_done() {
                self.shared.done.notify_all();
            }
            if progress {
                backoff.reset();
                continue;
            }
            let busy = active.is_some() || self.doors.is_busy();
            let pause = if busy { backoff.pause() } else { IDLE };
            let rounds = lock(&self.shared.rounds);
            if rounds.active() == active && !rounds.closing {
                let waited = self.shared.work.wait_timeout(rounds, pause);
                drop(waited.unwrap_or_else(PoisonError::into_inner));
            }
        }
        self.farewell();
        lock(&self.shared.rounds).ended = true;
        self.shared.done.notify_all();
    }

    /// Looks at the door; ranks that come back are taken in again.
    fn admit(&mut self, scratch: &mut [u8], active: Option<Request>) -> bool {
        let Self { doors, own, instance, peers, shared } = self;
        let mut events = GatherEvents::default();
        let mut refused = 0;
        let progress = doors.look(scratch, &mut events, |stream, hello| {
            let rank = hello.rank;
            let place = peers.get_mut(rank).filter(|_| rank != own.rank);
            let agreed = agree(&[own.clone(), hello.clone()], *instance);
            let (place, verdict) = match (place, agreed) {
                (Some(place), Ok(agreement)) => (Some(place), Verdict::Agreed(agreement)),
                (_, Err(differences)) => (None, Verdict::Disagreement(differences)),
                (None, Ok(_)) => {
                    (None, Verdict::Refused(format!("rank {rank} is not another rank's place")))
                }
            };
            let sent = send_verdict(&stream, &verdict, LATER_VERDICT);
            let Some(place) = place.filter(|_| sent) else {
                refused += 1;
                return;
            };
            let mut peer = Peer::new(stream);
            if let Some(request) = active {
                // If this fails, so will the next look at the connection.
                let _ = peer.send(Header::of(Kind::Request, request));
            }
            let lost = place.replace(peer).is_some();
            let mut rounds = lock(&shared.rounds);
            if lost {
                rounds.set_gone(rank, false);
            }
            rounds.set_connected(rank, Arc::new(hello.proposal.identity));
            rounds.events.rejoined += 1;
        });
        if progress {
            let mut rounds = lock(&shared.rounds);
            rounds.events.strangers_refused += events.strangers_refused + refused;
            rounds.events.bad_frames += events.bad_frames;
        }
        progress
    }

    /// Reads and writes all connections that may have something to say.
    fn serve(&mut self, scratch: &mut [u8], active: Option<Request>) -> bool {
        let shared = Arc::clone(&self.shared);
        self.each(|rank, peer| {
            peer.flush()?;
            peer.ping()?;
            // Who has answered is silent until the next round.
            if active.is_some() && !lock(&shared.rounds).is_awaited(rank) {
                return Ok(false);
            }
            peer.read(rank, scratch, &shared.rounds)
        })
    }

    /// Does something with every connection, and drops those that end at it.
    fn each(&mut self, mut work: impl FnMut(usize, &mut Peer) -> Result<bool, End>) -> bool {
        let mut progress = false;
        for (rank, place) in self.peers.iter_mut().enumerate() {
            let Some(peer) = place else { continue };
            match work(rank, peer) {
                Ok(any) => progress |= any,
                Err(end) => {
                    *place = None;
                    progress = true;
                    let mut rounds = lock(&self.shared.rounds);
                    rounds.set_gone(rank, end == End::Goodbye);
                    rounds.events.bad_frames += u64::from(end == End::BadFrame);
                }
            }
        }
        progress
    }

    fn farewell(&mut self) {
        let since = Instant::now();
        self.each(|_, peer| peer.send(Header::bare(Kind::Goodbye)).map(|()| true));
        while since.elapsed() < FAREWELL && self.peers.iter().flatten().any(|p| !p.is_flushed()) {
            std::thread::sleep(Duration::from_millis(1));
            self.each(|_, peer| peer.flush().map(|()| true));
        }
    }
}

/// The root's gather.
pub(super) struct TcpRoot {
    membership: Membership,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Gather for TcpRoot {
    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn identity(&self, rank: usize) -> Option<Arc<Identity>> {
        lock(&self.shared.rounds).identities.get(rank).map(Arc::clone)
    }

    fn announce(&mut self, request: Request) -> Result<(), GatherError> {
        lock(&self.shared.rounds).begin(request)?;
        self.shared.work.notify_all();
        Ok(())
    }

    fn gather(
        &mut self,
        request: Request,
        own: Contribution<'_>,
        into: &mut Gathered,
        until: Until<'_>,
    ) -> Result<(), GatherError> {
        let rank = self.membership.rank();
        let mut rounds = lock(&self.shared.rounds);
        let expected = into.vector_len();
        let buffer = rounds.buffer(request).filter(|buffer| buffer.vector_len() == expected);
        let Some(buffer) = buffer else {
            return Err(GatherError::Length { rank, length: request.len, expected });
        };
        buffer.accept(rank, own)?;
        while !rounds.is_done() && !until.is_over() && !rounds.ended {
            let time = until.remaining().min(Duration::from_millis(10));
            let waited = self.shared.done.wait_timeout(rounds, time);
            rounds = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        rounds.end(request, into);
        if until.stop().is_set() {
            return Err(GatherError::Stopped);
        }
        Ok(())
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
        lock(&self.shared.rounds).closing = true;
        self.shared.work.notify_all();
    }

    fn events(&self) -> GatherEvents {
        lock(&self.shared.rounds).events
    }
}

impl Drop for TcpRoot {
    fn drop(&mut self) {
        self.goodbye();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
