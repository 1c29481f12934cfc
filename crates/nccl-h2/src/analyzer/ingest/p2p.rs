//! Sends and receives on their way in.

use super::Placing;
use crate::analyzer::comm::CommId;
use crate::analyzer::p2p::{Paired, Pending, Side};
use crate::analyzer::signature::Called;
use crate::analyzer::{Analyzer, nanoseconds};

impl Analyzer {
    pub(super) fn enter_p2p(&mut self, id: CommId, side: Side, entering: &Placing<'_, '_>) -> bool {
        let Placing { call, receipt, .. } = *entering;
        let comm = &mut self.comms[id];
        let Some(member) = comm.member(call.comm_rank, call.comm_nranks) else { return false };
        member.process = Some(entering.process);
        member.enter_receipt = member.enter_receipt.max(receipt);
        if call.peer < 0 || call.peer >= comm.nranks {
            return false;
        }
        let (src, dst) = match side {
            Side::Send => (call.comm_rank, call.peer),
            Side::Recv => (call.peer, call.comm_rank),
        };
        let Some(channel) = self.channels.of(id, src, dst, self.limits.p2p_channels) else {
            self.reached.p2p_calls += 1;
            return false;
        };
        let told = call.peer_index();
        if told.is_none() && !entering.fresh {
            return true;
        }
        let index = told.or_else(|| match entering.complete {
            true => self.channels.count(channel, side),
            false => None,
        });
        let waiting = Pending {
            index,
            side,
            counted: told.is_none(),
            called: Called::new(entering.operation, entering.api, call),
            process: entering.process,
            call_seq: call.call_seq,
            comm_seq: call.comm_seq,
            group_id: call.group_id,
            group_op_index: call.group_op_index,
            unix: entering.header.timestamp_unix_ns,
            receipt,
            reported: None,
        };
        let window = nanoseconds(self.config.p2p_match_window_s);
        match self.channels.pair(channel, waiting, window, self.limits.p2p_calls) {
            Paired::Waits | Paired::Known => true,
            Paired::NoRoom => {
                self.reached.p2p_calls += 1;
                false
            }
            Paired::With(other) => {
                let (send, recv) = match side {
                    Side::Send => (waiting, other),
                    Side::Recv => (other, waiting),
                };
                self.judge_pair(channel, send, recv, other.reported.is_some());
                true
            }
        }
    }
}
