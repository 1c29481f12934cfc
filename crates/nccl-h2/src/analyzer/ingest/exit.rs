//! Calls on their way out.

use super::{Failed, Noted, Placing, nanoseconds, note_last};
use crate::analyzer::Analyzer;
use crate::analyzer::comm::CommId;
use crate::analyzer::names::Name;
use crate::analyzer::process::{OpenCall, ProcessId};
use crate::event::{Header, NcclCall};

/// Errors of one process that are told apart from repetitions.
const MAX_ERRORS: usize = 64;

impl Analyzer {
    /// A call has returned: it is open no more, and its error is a finding.
    pub(super) fn returned(
        &mut self,
        id: ProcessId,
        header: &Header<'_>,
        call: &NcclCall<'_>,
        (api, comm): (Name, Option<CommId>),
        receipt: i64,
    ) {
        let process = &mut self.processes[id];
        note_last(process, header, call, api, comm, false, receipt);
        let opened = process.close_call(call.call_seq);
        match call.result {
            // Success, and "in progress", which is a state and no failure.
            i64::MIN..=0 | 7 => {
                if !self.known.failing.is_empty() {
                    self.known.failing.remove(&(id, comm));
                }
            }
            _ => self.failed(id, header, call, (api, comm, opened), receipt),
        }
    }

    fn failed(
        &mut self,
        id: ProcessId,
        header: &Header<'_>,
        call: &NcclCall<'_>,
        (api, comm, opened): (Name, Option<CommId>, Option<OpenCall>),
        receipt: i64,
    ) {
        let told = self.known.errors.entry(id).or_default();
        if told.contains(&call.call_seq) && call.call_seq >= 0 {
            return;
        }
        if told.len() >= MAX_ERRORS {
            told.remove(0);
        }
        told.push(call.call_seq);
        let first = self.known.failing.insert((id, comm), (api, call.result));
        if first == Some((api, call.result)) {
            return;
        }
        let alive = nanoseconds(self.config.heartbeat_timeout_s);
        self.note(Noted::Failed(Failed {
            process: id,
            comm,
            comm_seq: call.comm_seq,
            comm_rank: call.comm_rank,
            call_seq: call.call_seq,
            api: call.api.to_string(),
            entered: opened.map(|open| open.unix),
            returned: header.timestamp_unix_ns,
            result: call.result,
            result_name: call.result_name.to_string(),
            liveness: self.processes[id].liveness(receipt, alive).0,
        }));
    }

    /// A rank has left its communicator.
    pub(super) fn destroyed(&mut self, placing: &Placing<'_, '_>) -> bool {
        let Some(comm) = placing.comm else { return true };
        let comm = &mut self.comms[comm];
        let Some(member) = comm.member(placing.call.comm_rank, placing.call.comm_nranks) else {
            return true;
        };
        if !std::mem::replace(&mut member.destroyed, true) {
            comm.destroyed += 1;
        }
        true
    }
}
