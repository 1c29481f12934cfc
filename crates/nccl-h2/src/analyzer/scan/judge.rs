//! From waits to findings: one a cause.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::super::comm::CommId;
use super::super::operation::Operation;
use super::super::p2p::Pending;
use super::super::process::ProcessId;
use super::super::round::RoundId;
use super::super::{Analyzer, Ready, nanoseconds, seconds};
use super::graph::{ActiveCause, End, Graph};
use super::mismatch::Blamed;
use super::waits::{Node, Wait, What};
use super::{Scan, early};
use crate::finding::{
    CommunicatorDeadlock, Confidence, Details, Explained, HangType, LastCall, RootBlocker,
    RootRank, WaitEdge,
};

/// Explained symptoms that a finding lists; it counts the others.
const MAX_EXPLAINED: usize = 1000;
/// Edges of the graph that a finding lists.
const MAX_EDGES: usize = 16;
/// Root ranks that a finding lists.
const MAX_ROOTS: usize = 256;

impl Analyzer {
    /// Gives what ranks wait for, one finding a cause. Answers which processes wait or are named as
    /// the cause of waits: that their calls do not return is no finding of its own.
    pub(super) fn judge_waits(
        &mut self,
        scan: Scan,
        blamed: &Blamed,
        found: &mut Vec<Ready>,
    ) -> HashSet<ProcessId> {
        let mut excused = self.waiting_processes();
        let waits = self.collect_waits(scan);
        if !waits.iter().any(|wait| is_fresh(wait, scan)) {
            return excused;
        }
        self.forget_past_causes();
        let stuck = self.stuck_in(blamed);
        let placed: HashSet<(CommId, ProcessId)> = places(&waits);
        let graph = Graph::new(
            &waits,
            |node, wait| self.is_blocked(node, wait, scan, &placed),
            |node| match node {
                Node::Process(id) => stuck.get(&id).cloned().unwrap_or_default(),
                Node::Unseen(..) => Vec::new(),
            },
        );
        let mut groups: BTreeMap<(u8, usize), (End, Vec<usize>)> = BTreeMap::new();
        for (at, end) in graph.ends(&waits).into_iter().enumerate() {
            let key = match end {
                End::Circle(circle) => (0, circle),
                End::Roots { group } => (1, group),
                End::Known(comm) => (2, self.order_of(comm)),
            };
            groups.entry(key).or_insert_with(|| (end, Vec::new())).1.push(at);
        }
        for (end, members) in groups.into_values() {
            let members: Vec<&Wait> = members.into_iter().map(|at| &waits[at]).collect();
            self.judge_group(&end, &members, &graph, scan, found, &mut excused);
        }
        excused
    }

    fn judge_group(
        &mut self,
        end: &End,
        members: &[&Wait],
        graph: &Graph,
        scan: Scan,
        found: &mut Vec<Ready>,
        excused: &mut HashSet<ProcessId>,
    ) {
        if !members.iter().any(|wait| is_fresh(wait, scan)) {
            return;
        }
        let ranks = match end {
            End::Known(comm) => {
                attach(found, *comm, self.explained(members), |from| self.open_from(*comm, from));
                self.mark_reported(members, scan);
                return;
            }
            End::Circle(circle) => graph.circle(*circle),
            End::Roots { .. } => roots(members, graph),
        };
        if !self.is_active(&ranks) {
            match (members, end) {
                ([wait], _) => found.push(self.plain(wait, scan)),
                (_, End::Circle(_)) => found.push(self.deadlock(members, &ranks, scan)),
                _ => {
                    let named: Vec<ProcessId> = ranks.iter().filter_map(process_of).collect();
                    excused.extend(&named);
                    found.push(self.root_blocker(members, &ranks, scan));
                    self.mark_returns(&named, |_| true);
                }
            }
            let ranks = ranks.iter().map(|&node| (node, self.calls_of(node))).collect();
            self.known.causes.push(ActiveCause { ranks });
        }
        self.mark_reported(members, scan);
    }

    /// Processes that are in a round, pair or creation which others have not entered.
    fn waiting_processes(&mut self) -> HashSet<ProcessId> {
        let mut waiting = HashSet::new();
        let everything = Scan::ended(i64::MAX);
        for wait in self.collect_waits(everything) {
            for node in wait.edges.iter().flat_map(|edge| &edge.waiting) {
                waiting.extend(process_of(node));
            }
        }
        waiting
    }

    /// Whether a rank cannot go on before a wait is over. Its later calls say no, unless they stand
    /// still as well or it has long called nothing.
    fn is_blocked(
        &self,
        node: Node,
        wait: &Wait,
        scan: Scan,
        placed: &HashSet<(CommId, ProcessId)>,
    ) -> bool {
        let Node::Process(id) = node else { return false };
        let process = &self.processes[id];
        let last_waits = process.last_placed.is_none_or(|comm| placed.contains(&(comm, id)));
        let silent = process.enter_receipt.map_or(i64::MAX, |at| scan.age(at));
        last_waits || silent >= scan.age(wait.first_receipt) / 2
    }

    /// The communicators whose rounds differ and in which a process is stuck for that reason.
    fn stuck_in(&self, blamed: &Blamed) -> HashMap<ProcessId, Vec<CommId>> {
        let mut stuck: HashMap<ProcessId, Vec<CommId>> = HashMap::new();
        let mut comms: Vec<(CommId, i64)> =
            blamed.iter().map(|(&comm, &seq)| (comm, seq)).collect();
        comms.sort_by_cached_key(|&(comm, _)| self.text(self.comms[comm].name));
        for (comm, first) in comms {
            for member in &self.comms[comm].members {
                if let (Some(process), true) = (member.process, member.highest >= first) {
                    stuck.entry(process).or_default().push(comm);
                }
            }
        }
        stuck
    }

    fn order_of(&self, comm: CommId) -> usize {
        self.comms.iter().position(|(id, _)| id == comm).unwrap_or(0)
    }

    fn calls_of(&self, node: Node) -> u64 {
        process_of(&node).map_or(0, |id| self.processes[id].entered)
    }

    /// Forgets causes whose ranks have gone on.
    fn forget_past_causes(&mut self) {
        let mut causes = std::mem::take(&mut self.known.causes);
        causes
            .retain(|cause| cause.ranks.iter().all(|&(node, calls)| self.calls_of(node) == calls));
        self.known.causes = causes;
    }

    /// Whether all of these ranks were named as a cause and have called nothing since.
    fn is_active(&self, ranks: &[Node]) -> bool {
        let active = |node: &Node| {
            self.known.causes.iter().any(|cause| cause.ranks.iter().any(|(known, _)| known == node))
        };
        !ranks.is_empty() && ranks.iter().all(active)
    }

    fn mark_reported(&mut self, members: &[&Wait], scan: Scan) {
        for wait in members {
            match &wait.what {
                What::Round(id) => self.rounds[*id].missing_reported = true,
                What::Creation(key) => {
                    for (known, creation) in self.creations.iter_mut() {
                        creation.reported |= known == key;
                    }
                }
                What::Pair(channels) => self.mark_pair(channels, scan),
            }
        }
    }

    /// Notes in the overdue calls of a pair of ranks that they were given.
    fn mark_pair(&mut self, channels: &[super::super::p2p::ChannelId], scan: Scan) {
        let timeout = nanoseconds(self.config.p2p_timeout_s);
        for &id in channels {
            self.channels[id].missing_reported = true;
            let overdue = |call: &Pending| scan.ended || scan.age(call.receipt) >= timeout;
            let marked = self.channels.mark(id, scan.now, overdue);
            self.mark_returns(&marked, |_| true);
        }
    }

    /// That a process does not return from what it is in is no finding of its own, now or at a later
    /// scan, when its sends and receives are given (these, the group around them, or what it called
    /// behind them), or when it is named as what others wait for, with its latest call.
    pub(super) fn mark_returns(
        &mut self,
        processes: &[ProcessId],
        which: impl Fn(Operation) -> bool,
    ) {
        for id in processes {
            for open in &mut self.processes[*id].open {
                open.reported |= which(open.operation);
            }
        }
    }

    /// How many rounds from a number on are open, beside those that differ already.
    fn open_from(&self, id: CommId, from: i64) -> i64 {
        let comm = &self.comms[id];
        let is_open = |round: &RoundId| {
            let round = &self.rounds[*round];
            round.seq >= from
                && round.entered > 0
                && !round.mismatch_reported
                && !round.is_unsure()
                && round.missing(comm.nranks).next().is_some()
        };
        comm.rounds.values().filter(|round| is_open(round)).count() as i64
    }

    fn explained(&self, members: &[&Wait]) -> Vec<Explained> {
        let explained = members.iter().map(|wait| Explained {
            comm_seq: wait.seq,
            comm_uid_hash: self.text(wait.hash),
            hang_type: wait.hang_type().as_str(),
        });
        explained.collect()
    }

    fn deadlock(&self, members: &[&Wait], ranks: &[Node], scan: Scan) -> Ready {
        let inside = |wait: &&&Wait| {
            wait.edges.iter().any(|edge| {
                edge.waiting.iter().any(|node| ranks.contains(node))
                    && edge.missing.iter().any(|node| ranks.contains(node))
            })
        };
        let circle: Vec<&Wait> = members.iter().filter(inside).copied().collect();
        let first = earliest(members);
        let trace_ended_early = !members.iter().any(|wait| wait.overdue);
        let (comm, comm_seq) = circle.first().map_or((None, -1), |wait| (wait.comm, wait.seq));
        let mut explained_findings = self.explained(members);
        explained_findings.truncate(MAX_EXPLAINED);
        let keep: HashSet<Node> = ranks.iter().copied().collect();
        let mut orders: Vec<LastCall> = Vec::new();
        for wait in &circle {
            orders.extend(self.entered_calls(wait, &keep));
        }
        orders.sort_by(|a, b| {
            (a.rank, a.timestamp_unix_ns, a).cmp(&(b.rank, b.timestamp_unix_ns, b))
        });
        let details = Details::CommunicatorDeadlock(CommunicatorDeadlock {
            confidence: Confidence::Suspected,
            cycle: circle
                .iter()
                .take(MAX_EDGES)
                .flat_map(|wait| self.edges(wait, Some(&keep)))
                .collect(),
            explained_findings,
            orders,
            ranks: self.ranks_of(ranks),
            trace_ended_early,
            waited_s: seconds(scan.age(first)),
        });
        Ready { comm, comm_seq, hang_type: HangType::CommunicatorDeadlock, details }
    }

    fn root_blocker(&self, members: &[&Wait], ranks: &[Node], scan: Scan) -> Ready {
        let trace_ended_early = !members.iter().any(|wait| wait.overdue);
        let statuses = self.statuses(ranks, scan);
        let (reason, loss) = self.reason(&statuses, ranks);
        let loss = loss || members.iter().any(|wait| self.loss_in(wait));
        let confidence = if loss { Confidence::Suspected } else { Confidence::Observed };
        let nearest = self.nearest_first(members, ranks);
        let (comm, comm_seq) = nearest.first().map_or((None, -1), |wait| (wait.comm, wait.seq));
        let mut waiting: HashSet<Node> = HashSet::new();
        for wait in members {
            waiting.extend(wait.edges.iter().flat_map(|edge| &edge.waiting));
        }
        let mut explained_findings = self.explained(members);
        let explained_findings_count = explained_findings.len() as i64;
        explained_findings.truncate(MAX_EXPLAINED);
        let details = Details::RootBlocker(RootBlocker {
            confidence: early(confidence, trace_ended_early),
            explained_findings,
            explained_findings_count,
            reason,
            root_count: ranks.len() as i64,
            roots: self.roots_of(ranks, scan),
            trace_ended_early,
            waited_s: seconds(scan.age(earliest(members))),
            waiting_rank_count: waiting.len() as i64,
            waits: nearest.iter().flat_map(|wait| self.edges(wait, None)).take(MAX_EDGES).collect(),
        });
        Ready { comm, comm_seq, hang_type: HangType::RootBlocker, details }
    }

    fn roots_of(&self, ranks: &[Node], scan: Scan) -> Vec<RootRank> {
        let statuses = self.statuses(ranks, scan);
        let mut roots: Vec<RootRank> = ranks
            .iter()
            .zip(statuses)
            .map(|(node, status)| {
                let process = process_of(node).map(|id| &self.processes[id]);
                let phase = process.map(|process| self.text(process.phase()));
                RootRank {
                    comm_rank: status.comm_rank,
                    heartbeat: status.heartbeat,
                    heartbeat_age_s: status.heartbeat_age_s,
                    last_call: process.and_then(|process| self.last_call(process)),
                    phase: phase.filter(|phase| !phase.is_empty()),
                    pid: process.map(|process| process.pid),
                    probe_dropped_events: status.probe_dropped_events,
                    rank: status.rank,
                }
            })
            .collect();
        roots.sort_by_key(|root| (root.rank.is_none(), root.rank, root.comm_rank, root.pid));
        roots.truncate(MAX_ROOTS);
        roots
    }

    /// Waits in the order of their distance from the roots.
    fn nearest_first<'w>(&self, members: &[&'w Wait], ranks: &[Node]) -> Vec<&'w Wait> {
        let mut known: HashSet<Node> = ranks.iter().copied().collect();
        let mut left: Vec<&Wait> = members.to_vec();
        let mut order = Vec::with_capacity(left.len());
        while !left.is_empty() && order.len() < MAX_EDGES {
            let (near, far): (Vec<&Wait>, Vec<&Wait>) = left.iter().partition(|wait| {
                wait.edges.iter().any(|edge| edge.missing.iter().any(|node| known.contains(node)))
            });
            if near.is_empty() {
                order.extend(far);
                break;
            }
            for wait in &near {
                known.extend(wait.edges.iter().flat_map(|edge| &edge.waiting));
            }
            order.extend(near);
            left = far;
        }
        order
    }

    /// The edges of a wait with global ranks, within some ranks only where these are given.
    pub(super) fn edges(&self, wait: &Wait, within: Option<&HashSet<Node>>) -> Vec<WaitEdge> {
        let inside = |node: &&Node| within.is_none_or(|keep| keep.contains(node));
        let edges = wait.edges.iter().map(|edge| {
            let waiting: Vec<Node> = edge.waiting.iter().filter(inside).copied().collect();
            let missing: Vec<Node> = edge.missing.iter().filter(inside).copied().collect();
            let unseen = missing.iter().filter(|node| process_of(node).is_none()).count();
            WaitEdge {
                api: self.text(wait.api),
                assumed: self.assumed(wait, &waiting),
                comm_seq: wait.seq,
                comm_uid_hash: self.text(wait.hash),
                kind: wait.kind,
                waiting_ranks: self.ranks_of(&waiting),
                waits_for_ranks: self.ranks_of(&missing),
                waits_for_unseen: unseen as i64,
            }
        });
        edges.filter(|edge| !edge.waiting_ranks.is_empty()).collect()
    }

    /// What is assumed of waiting ranks: whether all of them are inside the call is seen, that the
    /// host of a rank whose call has returned stands still is not.
    fn assumed(&self, wait: &Wait, waiting: &[Node]) -> Option<&'static str> {
        let inside = |node: &Node| {
            process_of(node).is_some_and(|id| {
                self.processes[id]
                    .open
                    .iter()
                    .any(|open| open.comm == wait.comm && open.comm_seq == wait.seq || wait.seq < 0)
            })
        };
        (!waiting.iter().all(inside)).then_some("host_blocked_by_stream")
    }

    /// The calls that ranks have made in a wait.
    fn entered_calls(&self, wait: &Wait, keep: &HashSet<Node>) -> Vec<LastCall> {
        let mut calls = Vec::new();
        for node in wait.edges.iter().flat_map(|edge| &edge.waiting) {
            let Some(id) = process_of(node).filter(|_| keep.contains(node)) else { continue };
            let timestamp_unix_ns = self.entered_at(wait, id);
            calls.push(LastCall {
                api: self.text(wait.api),
                comm_seq: wait.seq,
                comm_uid_hash: self.text(wait.hash),
                phase: "enter",
                rank: self.processes[id].rank,
                timestamp_unix_ns,
            });
        }
        calls
    }

    /// When a process entered what it waits in, by the wall clock of its host; -1 where unknown.
    fn entered_at(&self, wait: &Wait, id: ProcessId) -> i64 {
        match &wait.what {
            What::Round(round) => {
                let round = &self.rounds[*round];
                let rank = self.comms[round.comm].rank_of(id);
                rank.and_then(|rank| round.entries.get(rank)).map_or(-1, |entry| entry.unix)
            }
            What::Pair(channels) => channels
                .iter()
                .flat_map(|&channel| self.channels.calls(channel))
                .filter(|call| call.process == id)
                .map(|call| call.unix)
                .min()
                .unwrap_or(-1),
            What::Creation(_) => self.processes[id].open.last().map_or(-1, |open| open.unix),
        }
    }

    /// Global ranks, sorted; those of which no event was seen are left out.
    pub(super) fn ranks_of(&self, nodes: &[Node]) -> Vec<i64> {
        let mut ranks: Vec<i64> = nodes
            .iter()
            .filter_map(|node| process_of(node).map(|id| self.processes[id].rank))
            .collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }
}

pub(super) fn process_of(node: &Node) -> Option<ProcessId> {
    match node {
        Node::Process(id) => Some(*id),
        Node::Unseen(..) => None,
    }
}

fn is_fresh(wait: &Wait, scan: Scan) -> bool {
    !wait.reported && (wait.overdue || scan.ended)
}

fn earliest(members: &[&Wait]) -> i64 {
    members.iter().map(|wait| wait.first_receipt).min().unwrap_or(i64::MAX)
}

/// The ranks that a group of waits misses and that wait for nobody.
fn roots(members: &[&Wait], graph: &Graph) -> Vec<Node> {
    let mut roots: Vec<Node> = members
        .iter()
        .flat_map(|wait| wait.edges.iter().flat_map(|edge| edge.missing.iter().copied()))
        .filter(|&node| graph.is_root(node))
        .collect();
    roots.sort_unstable();
    roots.dedup();
    roots
}

/// Where processes wait: the communicator and the process.
fn places(waits: &[Wait]) -> HashSet<(CommId, ProcessId)> {
    let mut places = HashSet::new();
    for wait in waits {
        for node in wait.edges.iter().flat_map(|edge| &edge.waiting) {
            if let (Some(comm), Some(process)) = (wait.comm, process_of(node)) {
                places.insert((comm, process));
            }
        }
    }
    places
}

/// Adds symptoms to the finding about the rounds of a communicator that differ. `open` counts the
/// rounds of the communicator that are open from a number on.
fn attach(
    found: &mut [Ready],
    comm: CommId,
    mut explained: Vec<Explained>,
    open: impl Fn(i64) -> i64,
) {
    let about =
        found.iter_mut().filter(|ready| ready.comm == Some(comm)).find_map(
            |ready| match &mut ready.details {
                Details::SequenceDivergence(details) => {
                    // Symptoms come once: what is open on the communicator is one of them.
                    details.explained_rounds += open(ready.comm_seq);
                    Some(&mut details.explained_findings)
                }
                Details::SignatureMismatch(details) => Some(&mut details.explained_findings),
                _ => None,
            },
        );
    if let Some(list) = about {
        list.append(&mut explained);
        list.sort();
        list.truncate(MAX_EXPLAINED);
    }
}
