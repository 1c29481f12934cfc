//! Calls on their way out.

use super::note_last;
use crate::analyzer::Analyzer;
use crate::analyzer::comm::CommId;
use crate::analyzer::names::Name;
use crate::analyzer::process::{OpenCall, ProcessId};
use crate::event::{Header, NcclCall, Phase};

/// Errors of one process that are told apart from repetitions.
const MAX_ERRORS: usize = 64;

impl Analyzer {
    pub(super) fn destroyed(
        &mut self,
        id: ProcessId,
        header: &Header<'_>,
        call: &NcclCall<'_>,
        receipt: i64,
    ) -> bool {
        let Ok(comm) = self.comm_of(id, &call.comm_uid_hash) else { return false };
        if call.phase == Phase::Enter {
            return self.enter(id, header, call, receipt);
        }
        let useful = self.returned(id, header, call, comm, receipt);
        let Some(comm) = comm else { return useful };
        let Some(member) = self.comms[comm].member(call.comm_rank, call.comm_nranks) else {
            return useful;
        };
        if !std::mem::replace(&mut member.destroyed, true) {
            self.comms[comm].destroyed += 1;
        }
        true
    }

    pub(super) fn exit(
        &mut self,
        id: ProcessId,
        header: &Header<'_>,
        call: &NcclCall<'_>,
        receipt: i64,
    ) -> bool {
        let Ok(comm) = self.comm_of(id, &call.comm_uid_hash) else { return false };
        self.returned(id, header, call, comm, receipt)
    }

    /// A call has returned: it is open no more, and its error is a finding.
    pub(super) fn returned(
        &mut self,
        id: ProcessId,
        header: &Header<'_>,
        call: &NcclCall<'_>,
        comm: Option<CommId>,
        receipt: i64,
    ) -> bool {
        let api = self.names.intern(&call.api);
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
        true
    }

    pub(super) fn failed(
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
        if first != Some((api, call.result)) {
            self.report_error(id, header, call, comm, opened, receipt);
        }
    }
}
