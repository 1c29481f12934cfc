//! Dropping what was given and waits for nothing more.

use super::super::process::ProcessId;
use super::super::round::{EntryState, Round, RoundId};
use super::super::{Analyzer, nanoseconds};
use super::Scan;

impl Analyzer {
    pub(super) fn clean_up(&mut self, scan: Scan) {
        let gone: Vec<_> = self
            .rounds
            .iter()
            .filter(|(_, round)| self.nobody_waits(round, scan))
            .map(|(id, _)| id)
            .collect();
        for id in gone {
            self.mark_returns_from(id);
            self.drop_round(id);
        }
        let grace = nanoseconds(self.config.p2p_timeout_s);
        for id in self.channels.active() {
            self.channels.forget(id, |call| {
                call.reported.is_some_and(|reported| scan.age(reported) >= grace)
            });
        }
    }

    /// A rank that calls on a communicator which it has destroyed is in a round that is given, and then
    /// forgotten: that the call does not return is no finding of its own later.
    fn mark_returns_from(&mut self, id: RoundId) {
        let round = &self.rounds[id];
        if !round.missing_reported {
            return;
        }
        let (comm, seq) = (round.comm, round.seq);
        let members: Vec<ProcessId> =
            self.comms[comm].members.iter().filter_map(|member| member.process).collect();
        for process in members {
            for open in &mut self.processes[process].open {
                open.reported |= open.comm == Some(comm) && open.comm_seq == seq;
            }
        }
    }

    /// Whether a round was given, or can never be, and none of its ranks is still in it.
    fn nobody_waits(&self, round: &Round, scan: Scan) -> bool {
        let timeout = nanoseconds(self.config.collective_timeout_s);
        if round.entered == 0 || round.is_unsure() {
            return scan.age(round.opened) >= timeout;
        }
        let comm = &self.comms[round.comm];
        let left = |rank: usize| {
            comm.members.get(rank).is_some_and(|member| {
                member.destroyed
                    || member.process.is_some_and(|process| self.processes[process].ended)
            })
        };
        let entered = |&rank: &usize| round.state(rank) == EntryState::Entered;
        round.missing_reported && (0..round.entries.len()).filter(entered).all(left)
    }
}
