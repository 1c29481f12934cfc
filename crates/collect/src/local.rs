//! A group of threads of one process.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use crate::device::{Identity, SkipReason};
use crate::gather::{
    Contribution, Gather, GatherError, GatherEvents, Gathered, Request, Status, Wanted,
};
use crate::group::{
    Agreement, Difference, Group, Hello, JoinError, Joined, Membership, MembershipError, Proposal,
    agree,
};
use crate::inbox::Inbox;
use crate::stop::{Until, lock};

/// How long to wait before the deadline and the flag are looked at again.
const LOOK: Duration = Duration::from_millis(10);

/// One rank of a group of threads.
///
/// ```
/// use std::time::Duration;
/// use deepxtrace_collect::{Group, LocalGroup, Proposal, Stop, Until};
///
/// let stop = Stop::new();
/// let until = Until::after(Duration::from_secs(60), &stop);
/// let proposal = Proposal { enabled: true, vector_len: 2, ..Proposal::default() };
/// let [a, b] = <[LocalGroup; 2]>::try_from(LocalGroup::new(2)?).expect("two ranks");
/// std::thread::scope(|scope| {
///     let other = scope.spawn(|| Box::new(b).join(&proposal, until));
///     let joined = Box::new(a).join(&proposal, until)?.expect("both want it");
///     let other = other.join().expect("no panic")?.expect("both want it");
///     assert_eq!(joined.instance, other.instance);
///     Ok::<(), Box<dyn std::error::Error>>(())
/// })
/// # ?; Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct LocalGroup {
    membership: Membership,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    proposals: Vec<Option<Proposal>>,
    verdict: Option<Result<Agreement, Vec<Difference>>>,
    identities: Vec<Arc<Identity>>,
    members: Vec<Member>,
    late_answers: u64,
}

/// What a rank and the root leave for each other.
#[derive(Debug, Default)]
struct Member {
    inbox: Inbox,
    answered: Option<Request>,
    skipped: Option<SkipReason>,
    vector: Vec<i64>,
    left: bool,
}

impl LocalGroup {
    /// A group of `size` threads, in rank order; rank 0 is the root.
    ///
    /// # Errors
    ///
    /// As [`Membership::subgroup`].
    pub fn new(size: usize) -> Result<Vec<Self>, MembershipError> {
        if size > deepxtrace_counters::MAX_EP_SIZE {
            return Err(MembershipError::Size(size));
        }
        Self::subgroup((0..size).collect(), 0)
    }

    /// A group of threads that stand for these global ranks, in this order; `root` is a rank of
    /// the group.
    ///
    /// # Errors
    ///
    /// As [`Membership::subgroup`].
    pub fn subgroup(global_ranks: Vec<usize>, root: usize) -> Result<Vec<Self>, MembershipError> {
        let size = global_ranks.len();
        let state = State {
            proposals: vec![None; size],
            verdict: None,
            identities: Vec::new(),
            members: (0..size).map(|_| Member::default()).collect(),
            late_answers: 0,
        };
        let shared = Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() });
        if size == 0 {
            return Err(MembershipError::Size(0));
        }
        let member = |&own: &usize| {
            let membership = Membership::subgroup(global_ranks.clone(), own, root)?;
            Ok(Self { membership, shared: Arc::clone(&shared) })
        };
        global_ranks.iter().map(member).collect()
    }
}

impl Shared {
    fn wait<'a>(&self, state: MutexGuard<'a, State>, until: Until<'_>) -> MutexGuard<'a, State> {
        let time = LOOK.min(until.remaining());
        self.changed.wait_timeout(state, time).unwrap_or_else(PoisonError::into_inner).0
    }
}

impl State {
    /// Compares the proposals once all are there.
    fn decide(&mut self, membership: &Membership) {
        if self.verdict.is_some() || self.proposals.iter().any(Option::is_none) {
            return;
        }
        let proposals = self.proposals.iter().flatten();
        if !proposals.clone().any(|proposal| proposal.enabled) {
            self.verdict = Some(Ok(Agreement::Disabled));
            return;
        }
        let hellos: Vec<Hello> = proposals
            .enumerate()
            .map(|(rank, proposal)| Hello { rank, ..Hello::new(membership, proposal) })
            .collect();
        self.identities =
            hellos.iter().map(|hello| Arc::new(hello.proposal.identity.clone())).collect();
        self.verdict = Some(agree(&hellos, Uuid::new_v4()));
    }
}

impl Group for LocalGroup {
    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn join(
        self: Box<Self>,
        proposal: &Proposal,
        until: Until<'_>,
    ) -> Result<Option<Joined>, JoinError> {
        let shared = &self.shared;
        let mut state = lock(&shared.state);
        if let Some(own) = state.proposals.get_mut(self.membership.rank()) {
            *own = Some(proposal.clone());
        }
        state.decide(&self.membership);
        shared.changed.notify_all();
        loop {
            match &state.verdict {
                Some(Ok(Agreement::Disabled)) => return Ok(None),
                Some(Ok(Agreement::Enabled(instance))) => {
                    let instance = *instance;
                    drop(state);
                    return Ok(Some(Joined { instance, gather: Box::new(LocalGather(*self)) }));
                }
                Some(Err(differences)) => {
                    return Err(JoinError::Disagreement(differences.clone()));
                }
                None if until.stop().is_set() => return Err(JoinError::Stopped),
                None if until.is_over() => {
                    let absent = |(rank, said): (usize, &Option<_>)| said.is_none().then_some(rank);
                    let ranks = state.proposals.iter().enumerate().filter_map(absent).collect();
                    return Err(JoinError::Missing { ranks, size: self.membership.size() });
                }
                None => state = shared.wait(state, until),
            }
        }
    }
}

/// The gather of a [`LocalGroup`].
#[derive(Debug)]
struct LocalGather(LocalGroup);

impl Gather for LocalGather {
    fn membership(&self) -> &Membership {
        &self.0.membership
    }

    fn identity(&self, rank: usize) -> Option<Arc<Identity>> {
        lock(&self.0.shared.state).identities.get(rank).map(Arc::clone)
    }

    fn announce(&mut self, request: Request) -> Result<(), GatherError> {
        if !self.0.membership.is_root() {
            return Err(GatherError::WrongSide("announce"));
        }
        let mut state = lock(&self.0.shared.state);
        for member in &mut state.members {
            member.inbox.put(request);
        }
        self.0.shared.changed.notify_all();
        Ok(())
    }

    fn gather(
        &mut self,
        request: Request,
        own: Contribution<'_>,
        into: &mut Gathered,
        until: Until<'_>,
    ) -> Result<(), GatherError> {
        let root = self.0.membership.rank();
        if !self.0.membership.is_root() {
            return Err(GatherError::WrongSide("gather"));
        }
        into.clear();
        into.accept(root, own)?;
        let mut state = lock(&self.0.shared.state);
        loop {
            let mut waiting = false;
            for rank in (0..self.0.membership.size()).filter(|&rank| rank != root) {
                waiting |= !state.take_answer(rank, request, into)?;
            }
            if !waiting {
                return Ok(());
            }
            if until.stop().is_set() {
                return Err(GatherError::Stopped);
            }
            if until.is_over() {
                return Ok(());
            }
            state = self.0.shared.wait(state, until);
        }
    }

    fn await_request(
        &mut self,
        wanted: Wanted,
        until: Until<'_>,
    ) -> Result<Option<Request>, GatherError> {
        let (rank, root) = (self.0.membership.rank(), self.0.membership.root());
        let mut state = lock(&self.0.shared.state);
        loop {
            if until.stop().is_set() {
                return Err(GatherError::Stopped);
            }
            let own = state.members.get_mut(rank);
            if let Some(request) = own.and_then(|own| own.inbox.take(wanted)) {
                return Ok(Some(request));
            }
            if state.members.get(root).is_some_and(|root| root.left) {
                return Err(GatherError::RootLeft);
            }
            if until.is_over() {
                return Ok(None);
            }
            state = self.0.shared.wait(state, until);
        }
    }

    fn answer(
        &mut self,
        request: Request,
        own: Contribution<'_>,
        _until: Until<'_>,
    ) -> Result<(), GatherError> {
        let rank = self.0.membership.rank();
        let mut state = lock(&self.0.shared.state);
        let Some(member) = state.members.get_mut(rank) else { return Ok(()) };
        member.vector.clear();
        member.skipped = None;
        match own {
            Contribution::Host(vector) => member.vector.extend_from_slice(vector),
            Contribution::Skipped(reason) => member.skipped = Some(reason),
            Contribution::Device { .. } => return Err(GatherError::Residence),
        }
        if member.answered.replace(request).is_some() {
            state.late_answers += 1;
        }
        self.0.shared.changed.notify_all();
        Ok(())
    }

    fn goodbye(&mut self) {
        if let Some(member) = lock(&self.0.shared.state).members.get_mut(self.0.membership.rank()) {
            member.left = true;
        }
        self.0.shared.changed.notify_all();
    }

    fn events(&self) -> GatherEvents {
        let late_answers = lock(&self.0.shared.state).late_answers;
        GatherEvents { late_answers, ..GatherEvents::default() }
    }
}

impl Drop for LocalGather {
    fn drop(&mut self) {
        self.goodbye();
    }
}

impl State {
    /// Writes the answer of `rank` to `into`; whether there is nothing more to wait for.
    fn take_answer(
        &mut self,
        rank: usize,
        request: Request,
        into: &mut Gathered,
    ) -> Result<bool, GatherError> {
        let known = into.statuses().get(rank).copied();
        if known != Some(Status::Missing) {
            return Ok(true);
        }
        let Some(member) = self.members.get_mut(rank) else { return Ok(true) };
        match member.answered.take() {
            Some(answered) if answered == request => {
                let own = member.skipped.map_or(Contribution::Host(&member.vector), |reason| {
                    Contribution::Skipped(reason)
                });
                into.accept(rank, own)?;
                return Ok(true);
            }
            Some(_) => self.late_answers += 1,
            None => {}
        }
        if member.left {
            into.set_status(rank, Status::Goodbye);
        }
        Ok(member.left)
    }
}
