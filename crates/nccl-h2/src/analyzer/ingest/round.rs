//! Collectives on their way in: opening, filling and closing rounds.

use super::Placing;
use crate::analyzer::comm::CommId;
use crate::analyzer::names::Name;
use crate::analyzer::noted::Noted;
use crate::analyzer::operation::Operation;
use crate::analyzer::round::{Entry, EntryState, RoundId};
use crate::analyzer::signature::{Called, Relation};
use crate::analyzer::trouble::{Differing, Trouble};
use crate::analyzer::{Analyzer, nanoseconds};

/// What fills a communicator's open rounds before those with lost events are closed early.
const ROUNDS_BEFORE_SWEEP: usize = 1024;

impl Analyzer {
    pub(super) fn enter_round(&mut self, id: CommId, entering: &Placing<'_, '_>) -> bool {
        let Placing { call, receipt, .. } = *entering;
        let seq = call.comm_seq;
        let comm = &mut self.comms[id];
        let Some(member) = comm.member(call.comm_rank, call.comm_nranks) else { return false };
        member.process = Some(entering.process);
        if seq < 0 {
            // Of no place in the order.
            return true;
        }
        // `member` accepted the rank: it fits.
        let rank = call.comm_rank as usize;
        let empty = call.count == 0 && entering.operation != Operation::Unknown;
        if empty {
            return self.enter_empty(id, rank, entering);
        }
        member.enter_receipt = member.enter_receipt.max(receipt);
        let highest = member.highest;
        let expected = highest.max(member.empty).saturating_add(1);
        member.highest = highest.max(seq);
        if seq > expected {
            self.note_gap(id, rank, highest, seq);
        }
        if self.comms[id].finished.contains(seq) {
            return true;
        }
        let Some(round_id) = self.open_round(id, seq) else {
            self.reached.rounds += 1;
            return false;
        };
        self.fill_round(id, round_id, rank, entering);
        true
    }

    /// A collective of nothing does nothing and takes no place in NCCL's order. All that can be said
    /// of it is whether the others made it, too.
    fn enter_empty(&mut self, id: CommId, rank: usize, entering: &Placing<'_, '_>) -> bool {
        let seq = entering.call.comm_seq;
        let comm = &mut self.comms[id];
        comm.members[rank].empty = comm.members[rank].empty.max(seq);
        if !entering.fresh || comm.finished.contains(seq) {
            return true;
        }
        let nranks = comm.nranks;
        let Some(round_id) = self.open_round(id, seq) else {
            self.reached.rounds += 1;
            return false;
        };
        let called = Called::new(entering.operation, entering.api, entering.call);
        self.rounds[round_id].enter_empty(rank, called, entering.receipt);
        if self.rounds[round_id].empty >= nranks {
            self.drop_round(round_id);
        } else if self.rounds[round_id].variants.len() > 1 {
            self.compare_variant(id, round_id);
        }
        true
    }

    #[inline]
    fn fill_round(
        &mut self,
        id: CommId,
        round_id: RoundId,
        rank: usize,
        entering: &Placing<'_, '_>,
    ) {
        let called = Called::new(entering.operation, entering.api, entering.call);
        let round = &mut self.rounds[round_id];
        let variants = round.variants.len();
        let entry = Entry {
            unix: entering.header.timestamp_unix_ns,
            captured: entering.call.captured,
            ..Entry::default()
        };
        if !round.enter(rank, entry, called, entering.receipt) {
            return;
        }
        let complete = round.entered == self.comms[id].nranks;
        if round.variants.len() > variants.max(1) {
            self.compare_variant(id, round_id);
        } else if let Some(trouble) = &mut self.comms[id].trouble {
            trouble.keep(rank, round.seq, called);
        }
        if complete && !self.rounds[round_id].is_mixed() {
            self.finish_round(round_id);
        }
    }

    /// A call of a round is not the same as those before it: does it matter?
    fn compare_variant(&mut self, id: CommId, round_id: RoundId) {
        let seq = self.rounds[round_id].seq;
        let (relation, _) = self.rounds[round_id].verdict();
        let differs = matches!(relation, Relation::Differ { .. });
        let comm = &mut self.comms[id];
        let known = comm.trouble.as_ref().map(|trouble| trouble.start);
        match known {
            _ if !differs => {}
            Some(start) if start <= seq => {}
            Some(_) => {
                if let Some(trouble) = &mut comm.trouble {
                    trouble.start = seq;
                }
            }
            None => comm.trouble = Some(Box::new(Trouble::new(seq, comm.nranks))),
        }
        // Every open round of the communicator belongs to what is kept from now on.
        if let Some(trouble) = &mut comm.trouble {
            let mut seqs: Vec<i64> = comm.rounds.keys().copied().collect();
            seqs.sort_unstable();
            for seq in seqs {
                let round = &self.rounds[comm.rounds[&seq]];
                for (rank, _, called) in round.calls() {
                    // Ranks of a round are not negative.
                    trouble.keep(rank as usize, seq, *called);
                }
            }
        }
    }

    fn open_round(&mut self, id: CommId, seq: i64) -> Option<RoundId> {
        let comm = &mut self.comms[id];
        if let Some(&round) = comm.rounds.get(&seq) {
            return Some(round);
        }
        let wide = usize::try_from(comm.nranks).unwrap_or(1).max(16);
        let limit = (self.limits.round_entries / wide).max(1);
        let Some(round_id) = self.rounds.open(id, seq, limit) else {
            comm.lossy = true;
            return None;
        };
        comm.rounds.insert(seq, round_id);
        if comm.gaps {
            for rank in 0..comm.members.len() {
                if comm.members[rank].highest > seq {
                    self.rounds[round_id].lose(rank);
                }
            }
            if comm.rounds.len().is_multiple_of(ROUNDS_BEFORE_SWEEP) {
                self.sweep_lost(id, seq);
            }
        }
        Some(round_id)
    }

    /// A rank went from `highest` to `seq`: its calls between were lost.
    fn note_gap(&mut self, id: CommId, rank: usize, highest: i64, seq: i64) {
        let comm = &mut self.comms[id];
        comm.gaps = true;
        for (&open, &round) in &comm.rounds {
            if open > highest && open < seq {
                self.rounds[round].lose(rank);
            }
        }
    }

    /// Closes the rounds of a communicator, but one, for which only lost events are awaited.
    pub(in crate::analyzer) fn sweep_lost(&mut self, id: CommId, but: i64) {
        let comm = &self.comms[id];
        let mut done: Vec<(i64, RoundId)> = comm
            .rounds
            .iter()
            .map(|(&seq, &round)| (seq, round))
            .filter(|&(seq, round)| {
                let round = &self.rounds[round];
                seq != but && round.lost > 0 && round.entered + round.lost >= comm.nranks
            })
            .collect();
        done.sort_unstable_by_key(|&(seq, _)| seq);
        for (_, round) in done {
            self.finish_round(round);
        }
    }

    /// Judges a round that all ranks have entered, and leaves only its number behind.
    pub(in crate::analyzer) fn finish_round(&mut self, round_id: RoundId) {
        let round = &self.rounds[round_id];
        let (id, seq) = (round.comm, round.seq);
        let (relation, calls) = match round.variants.len() {
            0 | 1 => (Relation::Equal, Vec::new()),
            _ => round.verdict(),
        };
        match relation {
            Relation::Differ { .. } => self.keep_differing(round_id, relation, calls),
            Relation::OtherDatatype => self.warn_of_datatypes(round_id),
            Relation::Equal => {}
        }
        if !matches!(relation, Relation::Differ { .. }) {
            let round = &self.rounds[round_id];
            let first = round.calls().next().map(|(_, _, called)| *called);
            if let (Some(called), 0) = (first, round.lost) {
                self.comms[id].agree(seq, called);
            }
            self.judge_spread(round_id);
        }
        self.drop_round(round_id);
    }

    /// Leaves of a round only its number.
    pub(in crate::analyzer) fn drop_round(&mut self, round_id: RoundId) {
        let (id, seq) = (self.rounds[round_id].comm, self.rounds[round_id].seq);
        let round = &self.rounds[round_id];
        // Unknown functions, and collectives of nothing, may have no number of their own: then the
        // place stays free.
        let taken = round.entered + round.lost > 0 && !round.is_unsure();
        let comm = &mut self.comms[id];
        if taken {
            comm.finished.insert(seq);
        }
        comm.rounds.remove(&seq);
        self.rounds.close(round_id);
    }

    fn keep_differing(&mut self, round_id: RoundId, relation: Relation, calls: Vec<(i64, Called)>) {
        let round = &self.rounds[round_id];
        let differing =
            Differing { seq: round.seq, relation, calls, done: round.mismatch_reported };
        let start = round.seq;
        let comm = &mut self.comms[round.comm];
        let nranks = comm.nranks;
        let new = || Box::new(Trouble::new(start, nranks));
        comm.trouble.get_or_insert_with(new).differ(differing);
    }

    fn warn_of_datatypes(&mut self, round_id: RoundId) {
        let round = &self.rounds[round_id];
        let Some((_, _, first)) = round.calls().next() else { return };
        let (comm, seq, api) = (round.comm, round.seq, first.api);
        let bytes = first.bytes().and_then(|bytes| i64::try_from(bytes).ok());
        let calls = round.calls().map(|(rank, _, called)| (rank, *called)).collect();
        if self.known.datatype_warned.insert((comm, api)) {
            self.note(Noted::Datatypes { comm, seq, bytes, calls });
        }
    }

    /// Gives the ranks that entered a complete round much later than the first.
    fn judge_spread(&mut self, round_id: RoundId) {
        let round = &self.rounds[round_id];
        let threshold = nanoseconds(self.config.delayed_enter_threshold_s);
        let (mut first, mut last) = (i64::MAX, i64::MIN);
        for entry in &round.entries {
            if entry.state == EntryState::Entered {
                first = first.min(entry.unix);
                last = last.max(entry.unix);
            }
        }
        let spread = last.saturating_sub(first);
        if spread <= threshold || first < 0 || round.missing_reported {
            self.comms[round.comm].late.clear();
            return;
        }
        if round.calls().any(|(_, entry, _)| entry.captured) {
            // Recorded and not executed: nobody waited.
            return;
        }
        let slow_comm_ranks: Vec<i64> = round
            .calls()
            .filter(|(_, entry, _)| entry.unix.saturating_sub(first) > threshold)
            .map(|(rank, _, _)| rank)
            .collect();
        let late = &mut self.comms[round.comm].late;
        if *late == slow_comm_ranks {
            // Round after round the same ranks, or a clock that differs: one finding.
            return;
        }
        late.clone_from(&slow_comm_ranks);
        let api = round.calls().next().map_or(Name::EMPTY, |(_, _, called)| called.api);
        let (comm, seq) = (round.comm, round.seq);
        self.note(Noted::Late { comm, seq, api, spread, ranks: slow_comm_ranks });
    }
}
