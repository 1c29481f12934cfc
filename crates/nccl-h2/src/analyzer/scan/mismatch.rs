//! Rounds whose calls differ.

use std::collections::HashMap;

use super::super::comm::CommId;
use super::super::divergence::{Sequence, agree_without, explain};
use super::super::round::RoundId;
use super::super::signature::{Called, Relation};
use super::super::trouble::{Differing, Trouble};
use super::super::{Analyzer, Ready};
use crate::finding::{
    Confidence, Details, Explained, HangType, MismatchType, SequenceDivergence, SignatureMismatch,
};

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
            let comm = &mut self.comms[id];
            let agreed = |rounds: i64| comm.finished.contains(trouble.last.saturating_add(rounds));
            // Once rounds agree again, what stands still later has another cause.
            if let Some(first) = trouble.first_reported.filter(|_| trouble.lasting || !agreed(1)) {
                blamed.insert(id, first);
            }
            let recovered = if trouble.lasting { RECOVERED_SHIFT } else { RECOVERED };
            if !agreed(recovered) {
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
                open.push((round_id, Differing { seq, relation, calls, done: false }));
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
        if rounds.is_empty() {
            return;
        }
        self.explain(id, trouble, &mut rounds, found);
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

    /// Looks for what explains the rounds that differ, gives it, and leaves those that it does not
    /// explain.
    fn explain(
        &mut self,
        id: CommId,
        trouble: &mut Trouble,
        rounds: &mut Vec<Differing>,
        found: &mut Vec<Ready>,
    ) {
        let comm = &self.comms[id];
        let sequences: Vec<Sequence> =
            (0..trouble.sequences.len()).map(|rank| trouble.sequence(rank)).collect();
        let Some(divergence) = explain(&sequences, trouble.start, comm.agreed) else { return };
        let ranks: Vec<i64> = divergence.ranks.iter().map(|&rank| rank as i64).collect();
        let (explained, left): (Vec<Differing>, Vec<Differing>) =
            rounds.drain(..).partition(|differing| agree_without(&differing.calls, &ranks));
        *rounds = left;
        let more = if divergence.lasting { std::mem::take(&mut trouble.more) } else { 0 };
        if let Some(first) = explained.first() {
            let first = trouble.first_reported.map_or(first.seq, |known| known.min(first.seq));
            trouble.first_reported = Some(first);
        }
        if std::mem::replace(&mut trouble.explained, true) {
            return;
        }
        trouble.lasting = divergence.lasting;
        let explained_findings = explained
            .iter()
            .map(|differing| Explained {
                comm_seq: differing.seq,
                comm_uid_hash: self.text(comm.name),
                hang_type: HangType::CollectiveSignatureMismatch.as_str(),
            })
            .collect();
        let several = divergence.explanations.len() > 1;
        let (last_agreed_seq, last_agreed_call) = divergence.agreed;
        let details = Details::SequenceDivergence(SequenceDivergence {
            confidence: if several { Confidence::Unknown } else { Confidence::Suspected },
            expected_nranks: comm.nranks,
            explained_findings,
            explained_rounds: explained.len() as i64 + more,
            explanations: divergence
                .explanations
                .iter()
                .map(|one| one.worded(|called| called.describe(&self.names), |rank| rank as i64))
                .collect(),
            last_agreed_call: last_agreed_call.map(|called| called.describe(&self.names)),
            last_agreed_seq,
        });
        found.push(Self::about(id, trouble.start, HangType::SequenceDivergence, details));
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

/// Rounds that agree after the last that differed, after which a communicator has recovered: from
/// single calls, and from sequences that stay apart (and may agree by chance).
const RECOVERED: i64 = 8;
const RECOVERED_SHIFT: i64 = 512;
