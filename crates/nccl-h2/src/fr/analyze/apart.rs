//! The finding of a group whose calls go apart.

use super::{Analysis, size};
use crate::analyzer::signature::Called;
use crate::finding::{Confidence, Details, Explained, HangType, SequenceDivergence};
use crate::fr::divergence::Diverged;
use crate::fr::judged::Judged;
use crate::fr::replay::Symptom;
use crate::fr::rounds::GroupView;

impl Analysis<'_> {
    /// A symptom in the terms of a finding.
    pub(super) fn symptom(&self, judged: &[Judged<'_>], symptom: Symptom) -> Option<Explained> {
        let (Symptom::Missing(place) | Symptom::Burst(place, _)) = symptom;
        let group = judged.get(place)?;
        let (comm_seq, kind) = match symptom {
            Symptom::Missing(_) => {
                (group.rounds.missing.as_ref()?.seq, HangType::CollectiveMissingEnter)
            }
            Symptom::Burst(_, number) => {
                let first = group.pairs.bursts.get(number)?.calls.first()?;
                let seq = self.p2p_seq(&group.view, first.call.site);
                (seq, HangType::P2pMissingCounterpart)
            }
        };
        let comm_uid_hash = group.view.group.name.to_string();
        Some(Explained { comm_seq, comm_uid_hash, hang_type: kind.as_str() })
    }

    /// Adds where the calls of a group went apart; the last time explains symptoms elsewhere.
    pub(super) fn diverged(&mut self, group: &Judged<'_>, mut elsewhere: Vec<Explained>) {
        let last = group.rounds.diverged.len().saturating_sub(1);
        for (number, diverged) in group.rounds.diverged.iter().enumerate() {
            let follow = if number == last { std::mem::take(&mut elsewhere) } else { Vec::new() };
            self.divergence(&group.view, diverged, follow);
        }
    }

    fn divergence(&mut self, view: &GroupView<'_>, diverged: &Diverged, elsewhere: Vec<Explained>) {
        let Diverged { seq, divergence, missing, .. } = diverged;
        let describe = |called: &Called| self.calls.describe(called);
        let rank = |place: usize| view.timelines.get(place).map_or(-1, |one| one.comm_rank);
        let symptom = |seq: i64, kind: HangType| Explained {
            comm_seq: seq,
            comm_uid_hash: view.group.name.to_string(),
            hang_type: kind.as_str(),
        };
        let differing =
            diverged.listed.iter().map(|seq| symptom(*seq, HangType::CollectiveSignatureMismatch));
        let open = missing.iter().map(|open| symptom(open.seq, HangType::CollectiveMissingEnter));
        let mut explained_findings: Vec<Explained> =
            differing.chain(open).chain(elsewhere).collect();
        explained_findings.sort();
        let several = divergence.explanations.len() > 1;
        let details = Details::SequenceDivergence(SequenceDivergence {
            confidence: if several { Confidence::Unknown } else { Confidence::Suspected },
            expected_nranks: size(view),
            explained_findings,
            explained_rounds: diverged.rounds.saturating_add(diverged.open),
            explanations: divergence
                .explanations
                .iter()
                .map(|one| one.worded(describe, rank))
                .collect(),
            last_agreed_call: divergence.agreed.1.as_ref().map(describe),
            last_agreed_seq: divergence.agreed.0,
        });
        self.add(view, *seq, HangType::SequenceDivergence, details, &diverged.sites, &[]);
    }
}
