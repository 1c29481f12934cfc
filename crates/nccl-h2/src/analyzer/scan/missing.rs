//! What is given of a wait that stands alone: ranks missing in a round, a send or receive without
//! counterpart, ranks missing in a creation.

use super::super::p2p::{ChannelId, Pending, Side, api_of};
use super::super::round::Round;
use super::super::{Analyzer, Ready, nanoseconds, seconds};
use super::judge::process_of;
use super::waits::{Node, Wait, What};
use super::{Scan, early};
use crate::analyzer::ingest::CLOCKS;
use crate::analyzer::operation::Creation;
use crate::finding::{
    CollectiveMissingEnter, CommInitMissingEnter, Confidence, Details, HangType, Heartbeats,
    MissingRankStatus, P2pMissingCounterpart, WaitKind,
};

const LOSS: &str = "probe_event_loss_possible";

impl Wait {
    /// The kind of the finding that this wait is when it stands alone.
    pub(super) fn hang_type(&self) -> HangType {
        match self.kind {
            WaitKind::Collective => HangType::CollectiveMissingEnter,
            WaitKind::P2p => HangType::P2pMissingCounterpart,
            WaitKind::CommInit => HangType::CommInitMissingEnter,
        }
    }
}

impl Analyzer {
    /// The finding of a wait that stands alone.
    pub(super) fn plain(&self, wait: &Wait, scan: Scan) -> Ready {
        let details = match &wait.what {
            What::Round(id) => {
                Details::CollectiveMissingEnter(self.missing_enter(&self.rounds[*id], wait, scan))
            }
            What::Creation(key) => {
                let parent = (key.kind != Creation::Init).then(|| self.text(key.of));
                Details::CommInitMissingEnter(self.missing_creation(wait, parent, scan))
            }
            What::Pair(channels) => {
                Details::P2pMissingCounterpart(self.missing_counterpart(channels, wait, scan))
            }
        };
        Ready { comm: wait.comm, comm_seq: wait.seq, hang_type: wait.hang_type(), details }
    }

    fn missing_enter(&self, round: &Round, wait: &Wait, scan: Scan) -> CollectiveMissingEnter {
        let comm = &self.comms[round.comm];
        let missing = wait.edges.first().map_or(&[][..], |edge| &edge.missing);
        let statuses = self.statuses(missing, scan);
        let mut missing_rank_status: Vec<MissingRankStatus> = statuses
            .into_iter()
            .zip(round.missing(comm.nranks))
            .map(|(status, rank)| MissingRankStatus { comm_rank: rank as i64, ..status })
            .collect();
        missing_rank_status.sort_by_key(|status| status.comm_rank);
        let (reason, lost) = self.reason(&missing_rank_status, missing);
        let loss = lost || self.loss_in(wait);
        let trace_ended_early = !wait.overdue;
        // A call that was recorded into a graph waits for nobody yet.
        let recorded = round.calls().all(|(_, entry, _)| entry.captured);
        let sure = !loss && !recorded;
        let seen = if sure { Confidence::Observed } else { Confidence::Suspected };
        let mut apis: Vec<&str> =
            round.calls().map(|(_, _, called)| self.names.text(called.api)).collect();
        apis.sort_unstable();
        apis.dedup();
        CollectiveMissingEnter {
            api: apis.join("|"),
            confidence: early(seen, trace_ended_early),
            detection_phase: self.phase_of(missing),
            detection_threshold_s: seconds(wait.threshold),
            entered_comm_ranks: round.calls().map(|(rank, _, _)| rank).collect(),
            expected_nranks: comm.nranks,
            missing_comm_ranks: missing_rank_status.iter().map(|s| s.comm_rank).collect(),
            missing_rank_status,
            reason: if loss { LOSS } else { reason },
            threshold_reason: match round.checkpointing {
                true => "heartbeat_phase_checkpointing",
                false => "normal_collective_phase",
            },
            trace_ended_early,
            trace_event_loss_possible: loss,
            waited_s: seconds(scan.age(round.first_receipt)),
        }
    }

    fn missing_creation(
        &self,
        wait: &Wait,
        parent_hash: Option<String>,
        scan: Scan,
    ) -> CommInitMissingEnter {
        let none: &[Node] = &[];
        let (waiting, missing) =
            wait.edges.first().map_or((none, none), |edge| (&edge.waiting[..], &edge.missing[..]));
        let rank_of = |node: &Node| match (node, wait.comm) {
            (Node::Process(id), Some(comm)) => {
                self.comms[comm].rank_of(*id).map_or(-1, |rank| rank as i64)
            }
            (Node::Unseen(_, rank), _) => *rank as i64,
            _ => -1,
        };
        let mut missing_rank_status: Vec<MissingRankStatus> = missing
            .iter()
            .zip(self.statuses(missing, scan))
            .map(|(node, status)| MissingRankStatus { comm_rank: rank_of(node), ..status })
            .collect();
        self.place_rest(wait, &mut missing_rank_status);
        missing_rank_status.sort_by_key(|status| (status.comm_rank, status.rank));
        let (reason, loss) = self.reason(&missing_rank_status, missing);
        let mut entered: Vec<i64> = waiting.iter().map(rank_of).collect();
        entered.sort_unstable();
        let trace_ended_early = !wait.overdue;
        let seen = if loss { Confidence::Suspected } else { Confidence::Observed };
        CommInitMissingEnter {
            api: self.text(wait.api),
            confidence: early(seen, trace_ended_early),
            expected_nranks: (entered.len() + missing.len()) as i64,
            entered_comm_ranks: entered,
            missing_comm_ranks: missing_rank_status.iter().map(|s| s.comm_rank).collect(),
            missing_rank_status,
            parent_hash,
            reason,
            trace_ended_early,
            trace_event_loss_possible: loss,
            waited_s: seconds(scan.age(wait.first_receipt)),
        }
    }

    /// Gives the only missing rank, whose process is known but has no rank yet, its rank.
    fn place_rest(&self, wait: &Wait, statuses: &mut [MissingRankStatus]) {
        let ([status], Some(comm)) = (statuses, wait.comm) else { return };
        if status.comm_rank < 0 {
            let comm = &self.comms[comm];
            let free = (0..comm.nranks).find(|&rank| comm.process(rank as usize).is_none());
            status.comm_rank = free.unwrap_or(-1);
        }
    }

    fn missing_counterpart(
        &self,
        channels: &[ChannelId],
        wait: &Wait,
        scan: Scan,
    ) -> P2pMissingCounterpart {
        let timeout = nanoseconds(self.config.p2p_timeout_s);
        let mut burst: Vec<(Pending, i64, i64)> = Vec::new();
        let mut dropped = 0;
        for &id in channels {
            let channel = &self.channels[id];
            dropped += channel.dropped;
            let overdue =
                self.unmatched(id).filter(|call| scan.ended || scan.age(call.receipt) >= timeout);
            burst.extend(overdue.map(|call| (call, channel.src, channel.dst)));
        }
        burst.sort_by_key(|(call, src, dst)| (call.receipt, call.side, *src, *dst, call.call_seq));
        let trace_ended_early = !wait.overdue;
        let (first, src, dst) = match burst.first() {
            Some((first, src, dst)) => (Some(*first), *src, *dst),
            None => (None, -1, -1),
        };
        let (first_seq, last_seq) = bounds(burst.iter().map(|(call, _, _)| call.comm_seq));
        let indices: Vec<i64> = burst.iter().filter_map(|(call, _, _)| call.index).collect();
        let mut directions: Vec<(i64, i64)> =
            burst.iter().map(|&(_, src, dst)| (src, dst)).collect();
        directions.sort_unstable();
        directions.dedup();
        let side = first.map_or(Side::Send, |call| call.side);
        let number = |of: fn(&Pending) -> i64| first.as_ref().map_or(-1, of);
        P2pMissingCounterpart {
            affected_directions: directions
                .iter()
                .map(|(src, dst)| format!("{src}->{dst}"))
                .collect(),
            aggregated_missing_call_count: burst.len() as i64 + dropped,
            clock_assumption: CLOCKS,
            comm_seq_range: [first_seq, last_seq],
            confidence: Confidence::Suspected,
            count: number(|call| call.called.count),
            datatype: number(|call| call.called.datatype),
            dst_comm_rank: dst,
            expected_api: api_of(side.other()),
            local_group_id: number(|call| call.group_id),
            local_group_op_index: number(|call| call.group_op_index),
            local_p2p_op_index: first.and_then(|call| call.index),
            local_p2p_op_index_range: (!indices.is_empty()).then(|| {
                let (low, high) = bounds(indices.iter().copied());
                [low, high]
            }),
            observed_api: first.map_or(String::new(), |call| self.text(call.called.api)),
            reason: "counterpart_not_observed_in_match_window",
            src_comm_rank: src,
            trace_ended_early,
            waited_s: seconds(scan.age(wait.first_receipt)),
        }
    }

    /// What is known of ranks that have not entered. The rank in a communicator is -1 where the
    /// node does not tell it.
    pub(super) fn statuses(&self, nodes: &[Node], scan: Scan) -> Vec<MissingRankStatus> {
        let timeout = nanoseconds(self.config.heartbeat_timeout_s);
        let status = |node: &Node| match node {
            Node::Process(id) => {
                let process = &self.processes[*id];
                let (heartbeat, heartbeat_age_s) = process.liveness(scan.alive_at, timeout);
                MissingRankStatus {
                    comm_rank: -1,
                    heartbeat,
                    heartbeat_age_s,
                    probe_dropped_events: process.dropped,
                    rank: (process.rank >= 0).then_some(process.rank),
                }
            }
            Node::Unseen(_, rank) => MissingRankStatus {
                comm_rank: *rank as i64,
                heartbeat: Heartbeats::Unknown,
                heartbeat_age_s: None,
                probe_dropped_events: None,
                rank: None,
            },
        };
        nodes.iter().map(status).collect()
    }

    /// Why ranks may have not entered, and whether their absence may be a loss of events.
    pub(super) fn reason(
        &self,
        statuses: &[MissingRankStatus],
        nodes: &[Node],
    ) -> (&'static str, bool) {
        let lost = statuses.iter().any(|s| s.probe_dropped_events.is_some_and(|n| n > 0));
        // Of a rank that never wrote anything, not even the trace may be there.
        let unseen = nodes.iter().any(|node| process_of(node).is_none());
        let any = |heartbeat| statuses.iter().any(|s| s.heartbeat == heartbeat);
        let reason = if lost {
            LOSS
        } else if any(Heartbeats::Stale) {
            "rank_exit_or_crash_suspected"
        } else if any(Heartbeats::Unknown) || statuses.is_empty() {
            "missing_rank_status_unknown"
        } else {
            "rank_alive_but_not_entered"
        };
        (reason, lost || unseen)
    }

    /// Whether the ranks that wait tell that the others' events are lost: a round could not be kept,
    /// or they have gone on calling on the communicator for longer than the timeout.
    pub(super) fn loss_in(&self, wait: &Wait) -> bool {
        let (What::Round(_), Some(id)) = (&wait.what, wait.comm) else { return false };
        let comm = &self.comms[id];
        let latest = comm.members.iter().map(|member| member.enter_receipt).max();
        comm.lossy
            || latest.is_some_and(|at| at.saturating_sub(wait.first_receipt) >= wait.threshold)
    }

    /// The phase by the heartbeats of ranks: `mixed` where they differ, `unknown` where none tells.
    fn phase_of(&self, nodes: &[Node]) -> String {
        let mut phases: Vec<&str> = nodes
            .iter()
            .filter_map(process_of)
            .map(|id| self.names.text(self.processes[id].phase()))
            .filter(|phase| !phase.is_empty())
            .collect();
        phases.sort_unstable();
        phases.dedup();
        match phases[..] {
            [] => "unknown".to_owned(),
            [phase] => phase.to_owned(),
            _ => "mixed".to_owned(),
        }
    }
}

/// The least and the greatest of some numbers, -1 for none.
fn bounds(numbers: impl Iterator<Item = i64>) -> (i64, i64) {
    let (mut low, mut high) = (i64::MAX, i64::MIN);
    for number in numbers {
        low = low.min(number);
        high = high.max(number);
    }
    if low > high { (-1, -1) } else { (low, high) }
}
