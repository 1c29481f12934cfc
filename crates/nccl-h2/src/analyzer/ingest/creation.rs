//! Creations of communicators, on their way in and out.

use super::Placing;
use crate::analyzer::Analyzer;
use crate::analyzer::creation::{Caller, CreationKey, listed};
use crate::analyzer::names::Name;
use crate::analyzer::operation::{Creation, Operation};
use crate::event::NcclCall;

impl Analyzer {
    pub(super) fn enter_creation(&mut self, kind: Creation, entering: &Placing<'_, '_>) -> bool {
        let Placing { call, receipt, .. } = *entering;
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
    fn creation_key(&mut self, kind: Creation, call: &NcclCall<'_>) -> Option<CreationKey> {
        let of = named(kind, call)?;
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
    pub(super) fn join(&mut self, placing: &Placing<'_, '_>) -> bool {
        let call = placing.call;
        if let (Some(comm), 0 | 7) = (placing.comm, call.result)
            && let Some(member) = self.comms[comm].member(call.comm_rank, call.comm_nranks)
        {
            member.process = Some(placing.process);
        }
        true
    }

    /// A creation has returned. A blocking one does so when all ranks have called.
    pub(super) fn created(&mut self, placing: &Placing<'_, '_>) -> bool {
        let call = placing.call;
        let blocking = call.result == 0 && call.group_id <= 0;
        if let (Operation::Create(kind), true) = (placing.operation, blocking)
            && let Some(key) = self.creation_key(kind, call)
        {
            self.creations.complete(key);
        }
        true
    }
}

/// The communicator after which a creation is named: the new one or its parent. `None` where its
/// ranks share no name.
pub(super) fn named<'e>(kind: Creation, call: &'e NcclCall<'_>) -> Option<&'e str> {
    let of = match kind {
        Creation::Init => &*call.comm_uid_hash,
        Creation::Split | Creation::Shrink => &*call.parent_hash,
        Creation::Grow | Creation::Alone => return None,
    };
    (!of.is_empty()).then_some(of)
}
