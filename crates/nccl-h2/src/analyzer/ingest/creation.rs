//! Creations of communicators, on their way in and out.

use super::Entering;
use crate::analyzer::Analyzer;
use crate::analyzer::creation::{Caller, CreationKey, listed};
use crate::analyzer::names::Name;
use crate::analyzer::operation::{Creation, Operation};
use crate::analyzer::process::ProcessId;
use crate::event::{Header, NcclCall, Phase};

impl Analyzer {
    pub(super) fn enter_creation(&mut self, kind: Creation, entering: &Entering<'_, '_>) -> bool {
        let Entering { call, receipt, .. } = *entering;
        let Some(key) = self.creation_key(kind, call) else { return true };
        let limit = self.limits.communicators;
        let Some(creation) = self.creations.open(key, entering.api, limit) else {
            return true;
        };
        if self.names.text(entering.api) < self.names.text(creation.api) {
            creation.api = entering.api;
        }
        creation.first_receipt = creation.first_receipt.min(receipt);
        if creation.callers.iter().all(|caller| caller.process != entering.process) {
            creation.callers.push(Caller { process: entering.process, told_rank: call.comm_rank });
        }
        creation.told_nranks = creation.told_nranks.max(call.comm_nranks);
        let callers = creation.callers.len() as i64;
        let told = creation.told_nranks;
        if let (Creation::Init, Some(comm)) = (kind, entering.comm)
            && let Some(member) = self.comms[comm].member(call.comm_rank, call.comm_nranks)
        {
            member.process = Some(entering.process);
        }
        if self.expected_callers(&key, told).is_some_and(|expected| callers >= expected) {
            self.creations.complete(key);
        }
        true
    }

    /// Names the creation that a call belongs to, `None` where its ranks share no name.
    pub(super) fn creation_key(
        &mut self,
        kind: Creation,
        call: &NcclCall<'_>,
    ) -> Option<CreationKey> {
        let of = match kind {
            Creation::Init => &call.comm_uid_hash,
            Creation::Split | Creation::Shrink => &call.parent_hash,
            Creation::Grow | Creation::Alone => return None,
        };
        if of.is_empty() {
            return None;
        }
        let excluded = match kind {
            Creation::Shrink => self.names.intern(&call.excluded),
            _ => Name::EMPTY,
        };
        let of = self.names.intern(of);
        let ordinal = if kind == Creation::Init { -1 } else { call.parent_ordinal };
        Some(CreationKey { kind, of, ordinal, excluded })
    }

    /// How many ranks have to call for a creation, where that is known.
    pub(in crate::analyzer) fn expected_callers(
        &self,
        key: &CreationKey,
        told: i64,
    ) -> Option<i64> {
        let known = self.comms.named(key.of).map_or(0, |comm| self.comms[comm].nranks);
        let expected = match key.kind {
            Creation::Init => known.max(told),
            Creation::Split => known,
            Creation::Shrink => known - listed(self.names.text(key.excluded))?.len() as i64,
            Creation::Grow | Creation::Alone => 0,
        };
        (expected > 0).then_some(expected)
    }

    /// A creation has returned: the communicator exists, and the process has a rank in it.
    pub(super) fn created(
        &mut self,
        id: ProcessId,
        header: &Header<'_>,
        call: &NcclCall<'_>,
        receipt: i64,
    ) -> bool {
        let Ok(comm) = self.comm_of(id, &call.comm_uid_hash) else { return false };
        let operation = Operation::of(&call.api);
        if call.phase == Phase::Enter {
            return self.enter(id, header, call, receipt);
        }
        let mut useful = self.returned(id, header, call, comm, receipt);
        if let (Some(comm), 0 | 7) = (comm, call.result)
            && let Some(member) = self.comms[comm].member(call.comm_rank, call.comm_nranks)
        {
            member.process = Some(id);
            useful = true;
        }
        if let Operation::Create(kind) = operation {
            // A blocking creation returns when all ranks have called.
            let blocking = call.result == 0 && call.group_id <= 0;
            if let (Some(key), true) = (self.creation_key(kind, call), blocking) {
                self.creations.complete(key);
            }
        }
        useful
    }
}
