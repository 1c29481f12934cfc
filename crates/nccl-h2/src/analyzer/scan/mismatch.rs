//! Rounds whose calls differ.

use std::collections::HashMap;

use super::super::comm::CommId;
use super::super::round::RoundId;
use super::super::signature::{Called, Relation};
use super::super::trouble::{Differing, Trouble};
use super::super::{Analyzer, Ready};
use crate::finding::{Confidence, Details, HangType, MismatchType, SignatureMismatch};

/// Communicators with a round that differs, and the number of the first: whatever stands still
/// there from that number on has its cause.
pub(super) type Blamed = HashMap<CommId, i64>;

impl Analyzer {
    /// Gives the rounds that differ.
    pub(super) fn judge_mismatches(&mut self, found: &mut Vec<Ready>) -> Blamed {
        let mut blamed = Blamed::new();
        let troubled: Vec<CommId> = self
            .comms
            .iter()
            .filter(|(_, comm)| comm.trouble.is_some())
            .map(|(id, _)| id)
            .collect();
        for id in troubled {
            let open = self.open_differing(id);
            let Some(mut trouble) = self.comms[id].trouble.take() else { continue };
            self.judge_trouble(id, &mut trouble, open, found);
            if let Some(first) = trouble.first_reported {
                blamed.insert(id, first);
            }
            let comm = &mut self.comms[id];
            // A long time of agreement: the communicator has recovered.
            let recovered = comm.finished.contains(trouble.last.saturating_add(RECOVERED));
            if !recovered {
                comm.trouble = Some(trouble);
            }
        }
        blamed
    }

    /// Rounds that not all ranks have entered and that differ already.
    fn open_differing(&mut self, id: CommId) -> Vec<(RoundId, Differing)> {
        let mut open = Vec::new();
        for (&seq, &round_id) in &self.comms[id].rounds {
            let round = &self.rounds[round_id];
            if round.mismatch_reported || round.variants.len() < 2 || round.is_mixed() {
                continue;
            }
            let (relation, calls) = round.verdict();
            if matches!(relation, Relation::Differ { .. }) {
                let first_receipt = round.first_receipt;
                open.push((
                    round_id,
                    Differing { seq, relation, calls, first_receipt, done: false },
                ));
            }
        }
        open.sort_by_key(|(_, differing)| differing.seq);
        open
    }

    fn judge_trouble(
        &mut self,
        id: CommId,
        trouble: &mut Trouble,
        open: Vec<(RoundId, Differing)>,
        found: &mut Vec<Ready>,
    ) {
        let nranks = self.comms[id].nranks;
        let mut rounds: Vec<Differing> =
            trouble.differing.extract_if(.., |differing| !differing.done).collect();
        trouble.differing.clear();
        for (round_id, differing) in open {
            self.rounds[round_id].mismatch_reported = true;
            rounds.push(differing);
        }
        rounds.sort_by_key(|differing| differing.seq);
        for differing in rounds {
            let first = trouble.first_reported.get_or_insert(differing.seq);
            *first = (*first).min(differing.seq);
            // The same calls differing in round after round are one finding.
            if trouble.reported.as_ref() == Some(&differing.calls) {
                continue;
            }
            found.push(self.mismatch(id, nranks, &differing));
            trouble.reported = Some(differing.calls);
        }
        self.reached.findings += u64::try_from(std::mem::take(&mut trouble.more)).unwrap_or(0);
    }

    fn mismatch(&self, id: CommId, nranks: i64, differing: &Differing) -> Ready {
        let (mismatch_type, certain) = match differing.relation {
            Relation::Differ { kind, certain } => (kind, certain),
            _ => (MismatchType::ParameterMismatch, false),
        };
        let calls = &differing.calls;
        let by_api = mismatch_type == MismatchType::ApiMismatch;
        let apis = |(rank, called): &(i64, Called)| (*rank, self.text(called.api));
        let whole = |(rank, called): &(i64, Called)| (*rank, called.describe(&self.names));
        let details = SignatureMismatch {
            api_by_comm_rank: by_api.then(|| calls.iter().map(apis).collect()),
            confidence: if certain { Confidence::Confirmed } else { Confidence::Suspected },
            entered_comm_ranks: calls.iter().map(|&(rank, _)| rank).collect(),
            expected_nranks: nranks,
            explained_findings: Vec::new(),
            mismatch_type,
            signature_by_comm_rank: (!by_api).then(|| calls.iter().map(whole).collect()),
        };
        let details = Details::SignatureMismatch(details);
        Self::about(id, differing.seq, HangType::CollectiveSignatureMismatch, details)
    }
}

/// Rounds after the last that differed, after which a communicator has recovered.
const RECOVERED: i64 = 512;
