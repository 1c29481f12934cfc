//! What one rank did on one process group, in order.

use crate::fr::op::Op;
use crate::fr::record::{Record, Shape, State};
use crate::fr::set::{Coverage, RankDump};

/// A collective, or the end of a group of calls whose members were not recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    /// `collective_seq_id`; the calls of one coalesced group share it.
    pub(crate) seq: i64,
    /// The record in the dump.
    pub(crate) record: u32,
    pub(crate) state: State,
}

/// A send or receive.
#[derive(Debug, Clone, Copy)]
pub(crate) struct P2p {
    pub(crate) record: u32,
    pub(crate) state: State,
    /// Rank of the group that sends.
    pub(crate) src: i64,
    /// Rank of the group that receives.
    pub(crate) dst: i64,
    /// Whether this is the sending side.
    pub(crate) sends: bool,
}

/// What one rank did on one process group.
#[derive(Debug)]
pub(crate) struct Timeline<'a> {
    pub(crate) dump: &'a RankDump,
    /// Rank in the group.
    pub(crate) comm_rank: i64,
    pub(crate) coverage: Coverage,
    /// In the order of their numbers.
    pub(crate) calls: Vec<Call>,
    /// In the order in which they were made.
    pub(crate) p2p: Vec<P2p>,
    /// Whether all sends and receives of the rank on this group are there.
    pub(crate) p2p_whole: bool,
    /// Whether sends and receives name another rank as this one: the file is of another rank.
    pub(crate) other_rank: bool,
}

impl<'a> Timeline<'a> {
    /// Collects the calls of a rank on a group.
    pub(crate) fn new(dump: &'a RankDump, group: u32, comm_rank: i64, shapes: &[Shape]) -> Self {
        let mut timeline = Self {
            dump,
            comm_rank,
            coverage: dump.coverage,
            calls: Vec::new(),
            p2p: Vec::new(),
            p2p_whole: false,
            other_rank: false,
        };
        for number in dump.records_of(group) {
            let Some(record) = timeline.dump.records.get(*number as usize) else { continue };
            let Some(shape) = shapes.get(record.shape as usize) else { continue };
            match shape.op {
                Op::Send { src, dst } => timeline.add_p2p(*number, record.state, (src, dst), true),
                Op::Recv { src, dst } => timeline.add_p2p(*number, record.state, (src, dst), false),
                Op::GroupEnd => timeline.end_group(*number, record),
                _ => timeline.add_call(*number, record),
            }
        }
        timeline.p2p_whole = timeline.has_all_p2p();
        // Threads of one process may record out of order.
        timeline.calls.sort_by_key(|call| call.seq);
        timeline.drop_torn_group();
        timeline
    }

    /// The record of a number.
    pub(crate) fn record(&self, number: u32) -> Record {
        self.dump.records.get(number as usize).copied().unwrap_or_default()
    }

    fn add_call(&mut self, number: u32, record: &Record) {
        if record.seq >= 0 {
            self.calls.push(Call { seq: record.seq, record: number, state: record.state });
        }
    }

    fn add_p2p(&mut self, number: u32, state: State, (src, dst): (i64, i64), sends: bool) {
        let own = if sends { src } else { dst };
        self.other_rank |= self.comm_rank >= 0 && own != self.comm_rank;
        self.p2p.push(P2p { record: number, state, src, dst, sends });
    }

    /// The end of a group: of sends and receives, of collectives, or of calls that were not
    /// recorded. It knows how far the whole group has come; its members are left `scheduled`.
    fn end_group(&mut self, number: u32, end: &Record) {
        let last_p2p = self.p2p.last().map(|p2p| self.record(p2p.record));
        let of_p2p = last_p2p.filter(|last| {
            last.p2p_seq == end.p2p_seq && last.op_id == end.op_id && last.seq == end.seq
        });
        if of_p2p.is_some() {
            let dump = self.dump;
            let members = self.p2p.iter_mut().rev().take_while(|p2p| {
                dump.records.get(p2p.record as usize).is_some_and(|p2p| p2p.p2p_seq == end.p2p_seq)
            });
            members.for_each(|p2p| p2p.state = p2p.state.max(end.state));
        } else if self.calls.last().is_some_and(|call| call.seq == end.seq) {
            let members = self.calls.iter_mut().rev().take_while(|call| call.seq == end.seq);
            members.for_each(|call| call.state = call.state.max(end.state));
        } else if number > 0 || !self.dump.wrapped {
            self.add_call(number, end);
        }
    }

    /// The oldest record of a buffer that went round may be the rest of a coalesced group.
    fn drop_torn_group(&mut self) {
        if let Some(first) = self.calls.first().copied()
            && first.record == 0
            && self.dump.wrapped
        {
            self.calls.retain(|call| call.seq != first.seq);
        }
    }

    /// All sends and receives are there where the dump is whole, or where their numbers begin with
    /// the first and something older than it is still in the buffer.
    fn has_all_p2p(&self) -> bool {
        match self.coverage {
            Coverage::Whole => true,
            Coverage::Partial => false,
            Coverage::Recent => self.p2p.first().is_some_and(|first| {
                first.record > 0 && (0..=1).contains(&self.record(first.record).p2p_seq)
            }),
        }
    }
}
