//! Faults in what ranks do.

use thiserror::Error;

use super::job::{Call, Job, Step};

/// A fault of one rank. Calls are counted from 0 over all collectives of the rank, sends and
/// receives apart.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Leaves a collective out.
    Skip {
        /// Global rank.
        rank: usize,
        /// The collective.
        call: usize,
    },
    /// Makes another collective before one, on the same communicator.
    Extra {
        /// Global rank.
        rank: usize,
        /// The collective before which it is made.
        call: usize,
        /// What is called.
        made: Call,
    },
    /// Makes a collective and the next in the other order.
    Swap {
        /// Global rank.
        rank: usize,
        /// The first of the two.
        call: usize,
    },
    /// Makes other collectives from one on: AllReduces of a size of their own.
    Branch {
        /// Global rank.
        rank: usize,
        /// The first of them.
        call: usize,
    },
    /// Makes one collective with other parameters.
    Wrong {
        /// Global rank.
        rank: usize,
        /// The collective.
        call: usize,
        /// What is called instead.
        made: Call,
    },
    /// Computes for long before a collective.
    Late {
        /// Global rank.
        rank: usize,
        /// The collective.
        call: usize,
        /// Nanoseconds.
        ns: i64,
    },
    /// Lives, and never makes a collective nor anything after it.
    Stall {
        /// Global rank.
        rank: usize,
        /// The collective.
        call: usize,
    },
    /// Dies before a collective.
    Dead {
        /// Global rank.
        rank: usize,
        /// The collective.
        call: usize,
    },
    /// Sends once to another rank of the communicator than the one it should.
    WrongPeer {
        /// Global rank.
        rank: usize,
        /// The send.
        send: usize,
        /// The rank in the communicator that it sends to.
        to: usize,
    },
}

/// A fault that a job cannot have.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("rank {rank} of the job has no {what} {number}")]
pub struct FaultError {
    rank: usize,
    what: &'static str,
    number: usize,
}

impl Job {
    /// Plants a fault.
    ///
    /// # Errors
    ///
    /// When the job has no such rank, or the rank no such call.
    pub fn plant(&mut self, fault: &Fault) -> Result<(), FaultError> {
        match *fault {
            Fault::Skip { rank, call } => self.collective(rank, call, |steps, at| {
                steps.remove(at);
            }),
            Fault::Extra { rank, call, made } => self.collective(rank, call, |steps, at| {
                if let Step::Collective { comm, .. } = steps[at] {
                    steps.insert(at, Step::Collective { comm, call: made });
                }
            }),
            Fault::Wrong { rank, call, made } => self.collective(rank, call, |steps, at| {
                if let Step::Collective { call, .. } = &mut steps[at] {
                    *call = made;
                }
            }),
            Fault::Late { rank, call, ns } => {
                self.collective(rank, call, |steps, at| steps.insert(at, Step::Work(ns)))
            }
            Fault::Stall { rank, call } => {
                self.collective(rank, call, |steps, at| steps.insert(at, Step::Stall))
            }
            Fault::Dead { rank, call } => {
                self.collective(rank, call, |steps, at| steps.insert(at, Step::Die))
            }
            Fault::Swap { rank, call } => {
                let second = self.place(rank, call + 1, "collective", is_collective)?;
                self.collective(rank, call, |steps, at| steps.swap(at, second))
            }
            Fault::Branch { rank, call } => self.collective(rank, call, |steps, at| {
                let later = steps[at..].iter_mut().enumerate();
                for (number, step) in later.filter(|(_, step)| is_collective(step)) {
                    if let Step::Collective { call, .. } = step {
                        *call = Call::all_reduce(77_000 + number as i64);
                    }
                }
            }),
            Fault::WrongPeer { rank, send, to } => {
                let is_send = |step: &Step| matches!(step, Step::Send { .. });
                let at = self.place(rank, send, "send", is_send)?;
                if let Some(Step::Send { to: peer, .. }) =
                    self.steps.get_mut(rank).and_then(|steps| steps.get_mut(at))
                {
                    *peer = to;
                }
                Ok(())
            }
        }
    }

    fn collective(
        &mut self,
        rank: usize,
        call: usize,
        change: impl FnOnce(&mut Vec<Step>, usize),
    ) -> Result<(), FaultError> {
        let at = self.place(rank, call, "collective", is_collective)?;
        if let Some(steps) = self.steps.get_mut(rank) {
            change(steps, at);
        }
        Ok(())
    }

    /// Where the step of a number stands among all steps of a rank.
    fn place(
        &self,
        rank: usize,
        number: usize,
        what: &'static str,
        kind: impl Fn(&Step) -> bool,
    ) -> Result<usize, FaultError> {
        let steps = self.steps(rank).iter().enumerate();
        let mut places = steps.filter(|(_, step)| kind(step)).map(|(at, _)| at);
        places.nth(number).ok_or(FaultError { rank, what, number })
    }
}

fn is_collective(step: &Step) -> bool {
    matches!(step, Step::Collective { .. })
}
