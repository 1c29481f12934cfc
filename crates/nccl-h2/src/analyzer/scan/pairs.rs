//! Sends and receives: pairs that differ, and calls without a number that cannot be attributed.

use super::super::noted::Noted;
use super::super::operation::Operation;
use super::super::p2p::{ChannelId, Pending, api_of};
use super::super::signature::Relation;
use super::super::{Analyzer, Ready, nanoseconds};
use super::{Scan, early};
use crate::analyzer::ingest::CLOCKS;
use crate::finding::{AmbiguousP2p, Confidence, Details, HangType, P2pCallMismatch, P2pSide};

/// Candidates that an ambiguity lists.
const MAX_LISTED: usize = 16;

impl Analyzer {
    /// Judges a send and its receive. `late` is true when one of them had been given as missing.
    pub(in crate::analyzer) fn judge_pair(
        &mut self,
        id: ChannelId,
        send: Pending,
        recv: Pending,
        late: bool,
    ) {
        let relation = send.called.amount(&recv.called, true);
        if !late {
            // Calls pair again: what was missing before is over.
            self.channels[id].missing_reported = false;
            if let Some(reverse) = self.channels.reverse(id) {
                self.channels[reverse].missing_reported = false;
            }
        }
        match relation {
            Relation::Equal => self.channels[id].mismatch_reported = false,
            Relation::OtherDatatype => self.warn_of_pair(id, &send, &recv),
            Relation::Differ { .. } => {
                let known = std::mem::replace(&mut self.channels[id].mismatch_reported, true);
                if !known && self.differing_pairs.len() < self.limits.findings {
                    self.differing_pairs.push((id, send, recv));
                } else if !known {
                    self.reached.findings += 1;
                }
            }
        }
    }

    fn warn_of_pair(&mut self, id: ChannelId, send: &Pending, recv: &Pending) {
        let channel = &self.channels[id];
        let comm = channel.comm;
        let calls = vec![(channel.src, send.called), (channel.dst, recv.called)];
        if !self.known.datatype_warned.insert((comm, send.called.api)) {
            return;
        }
        let bytes = send.called.bytes().and_then(|bytes| i64::try_from(bytes).ok());
        self.note(Noted::Datatypes { comm, seq: send.comm_seq, bytes, calls });
    }

    /// Gives the pairs that differ, and what is ambiguous.
    pub(super) fn judge_pairs(&mut self, scan: Scan, found: &mut Vec<Ready>) {
        for (id, send, recv) in std::mem::take(&mut self.differing_pairs) {
            // A number that was counted here is worth nothing once events are lost.
            let unsettled =
                |call: &Pending| call.counted && !self.processes[call.process].trace_is_complete();
            if unsettled(&send) || unsettled(&recv) {
                self.loosen(id);
                continue;
            }
            let channel = &self.channels[id];
            let details = Details::P2pCallMismatch(P2pCallMismatch {
                clock_assumption: CLOCKS,
                confidence: Confidence::Confirmed,
                dst_comm_rank: channel.dst,
                mismatch_type: "count_or_datatype_mismatch",
                recv: self.side(&recv),
                send: self.side(&send),
                src_comm_rank: channel.src,
            });
            found.push(Self::about(
                channel.comm,
                send.comm_seq,
                HangType::P2pCallMismatch,
                details,
            ));
        }
        for id in self.channels.active() {
            self.judge_channel(id, scan, found);
        }
    }

    fn loosen(&mut self, id: ChannelId) {
        let window = nanoseconds(self.config.p2p_match_window_s);
        self.channels.loosen(id, window, self.limits.p2p_calls);
    }

    fn judge_channel(&mut self, id: ChannelId, scan: Scan, found: &mut Vec<Ready>) {
        let unsettled = self
            .channels
            .calls(id)
            .any(|call| call.counted && !self.processes[call.process].trace_is_complete());
        if unsettled {
            self.loosen(id);
        }
        if self.channels.is_loose(id) {
            self.judge_ambiguous(id, scan, found);
        }
    }

    /// Gives the calls of a channel that are overdue, and for which there are calls on the other
    /// side that might be theirs.
    fn judge_ambiguous(&mut self, id: ChannelId, scan: Scan, found: &mut Vec<Ready>) {
        let timeout = nanoseconds(self.config.p2p_timeout_s);
        let window = nanoseconds(self.config.p2p_match_window_s);
        let times = self.times(id);
        let mut open: Vec<Pending> =
            self.channels.calls(id).filter(|call| times.near(call, window)).copied().collect();
        let overdue = |call: &Pending| call.reported.is_none() && scan.age(call.receipt) >= timeout;
        let any_overdue = open.iter().any(overdue);
        let fresh = open.iter().any(|call| call.reported.is_none());
        if !(any_overdue || scan.ended && fresh) {
            return;
        }
        open.sort_by_key(|call| (call.unix, call.side, call.call_seq));
        let marked = self.channels.mark(id, scan.now, |call| times.near(call, window));
        // Calls that might belong together excuse themselves, and nothing else of their ranks.
        use Operation::{GroupEnd, Recv, Send};
        self.mark_returns(&marked, |operation| matches!(operation, Send | Recv | GroupEnd));
        if std::mem::replace(&mut self.channels[id].missing_reported, true) {
            return;
        }
        let channel = &self.channels[id];
        let comm_seq = open.first().map_or(-1, |call| call.comm_seq);
        let details = Details::AmbiguousP2p(AmbiguousP2p {
            candidate_calls: open.iter().take(MAX_LISTED).map(|call| self.side(call)).collect(),
            clock_assumption: CLOCKS,
            confidence: early(Confidence::Unknown, !any_overdue),
            dst_comm_rank: channel.dst,
            reason: "multiple_time_window_candidates",
            src_comm_rank: channel.src,
            trace_ended_early: !any_overdue,
        });
        found.push(Self::about(channel.comm, comm_seq, HangType::AmbiguousP2pMatch, details));
    }

    /// One side of a pair with its text.
    fn side(&self, call: &Pending) -> P2pSide {
        let api = self.names.text(call.called.api);
        P2pSide {
            api: if api.is_empty() { api_of(call.side) } else { api }.to_owned(),
            call_seq: call.call_seq,
            comm_seq: call.comm_seq,
            count: call.called.count,
            datatype: call.called.datatype,
            group_id: call.group_id,
            p2p_op_index: call.index,
            timestamp_unix_ns: call.unix,
        }
    }
}
