//! Jobs of common shapes.

use super::job::{Call, Job, Step};

/// The calls of a training step, again and again: no two neighbours are equal.
fn training_call(at: usize) -> Call {
    let layer = (at / 4 % 5) as i64;
    match at % 4 {
        0 => Call::all_gather(4096 + layer),
        1 => Call::all_reduce(1024 + layer),
        2 => Call::reduce_scatter(2048 + layer),
        _ => Call::broadcast(64 + layer, 0),
    }
}

impl Job {
    /// All ranks make collectives on one communicator and wait for each: gather, reduce, scatter
    /// and broadcast in turn.
    pub fn collectives(ranks: usize, calls: usize) -> Self {
        Self::of_calls(ranks, (0..calls).map(training_call))
    }

    /// All ranks make the same calls on one communicator and wait for each.
    pub fn of_calls(ranks: usize, calls: impl Iterator<Item = Call> + Clone) -> Self {
        let mut job = Self::new(ranks);
        let comm = job.add_comm((0..ranks).collect());
        for rank in 0..ranks {
            for call in calls.clone() {
                job.push(rank, Step::Collective { comm, call });
                job.push(rank, Step::Sync);
            }
        }
        job
    }

    /// Every rank makes equal AllReduces on one communicator.
    pub fn all_reduces(ranks: usize, calls: usize) -> Self {
        Self::of_calls(ranks, std::iter::repeat_n(Call::all_reduce(1 << 20), calls))
    }

    /// Every rank sends to the next and receives from the one before, a number of times.
    pub fn ring(ranks: usize, rounds: usize) -> Self {
        let mut job = Self::new(ranks);
        let comm = job.add_comm((0..ranks).collect());
        for rank in 0..ranks {
            let (to, from) = ((rank + 1) % ranks, (rank + ranks - 1) % ranks);
            for _ in 0..rounds {
                job.push(rank, Step::Send { comm, to, count: 1024 });
                job.push(rank, Step::Recv { comm, from, count: 1024 });
                job.push(rank, Step::Sync);
            }
        }
        job
    }

    /// Ranks in a mesh of tensor, pipeline and data parallelism, the first index fastest: in every
    /// step each makes an AllReduce among its tensor group, passes activations on along the
    /// pipeline, and makes an AllReduce among its data group.
    pub fn mesh(tensor: usize, pipeline: usize, data: usize, steps: usize) -> Self {
        let mut job = Self::new(tensor * pipeline * data);
        let rank = |t: usize, p: usize, d: usize| t + tensor * (p + pipeline * d);
        let mut groups = vec![[0; 3]; job.ranks()];
        let mut add = |job: &mut Self, axis: usize, members: Vec<usize>| {
            let comm = job.add_comm(members.clone());
            for member in members {
                groups[member][axis] = comm;
            }
        };
        for d in 0..data {
            for p in 0..pipeline {
                add(&mut job, 0, (0..tensor).map(|t| rank(t, p, d)).collect());
            }
            for t in 0..tensor {
                add(&mut job, 1, (0..pipeline).map(|p| rank(t, p, d)).collect());
            }
        }
        for p in 0..pipeline {
            for t in 0..tensor {
                add(&mut job, 2, (0..data).map(|d| rank(t, p, d)).collect());
            }
        }
        for (member, comms) in groups.into_iter().enumerate() {
            let stage = member / tensor % pipeline;
            for step in 0..steps {
                job.mesh_step(member, comms, (stage, pipeline), step as i64);
            }
        }
        job
    }

    fn mesh_step(
        &mut self,
        rank: usize,
        comms: [usize; 3],
        (stage, stages): (usize, usize),
        step: i64,
    ) {
        if stage > 0 {
            self.push(rank, Step::Recv { comm: comms[1], from: stage - 1, count: 4096 });
            self.push(rank, Step::Sync);
        }
        let call = Call::all_reduce(1024 + step % 7);
        self.push(rank, Step::Collective { comm: comms[0], call });
        self.push(rank, Step::Sync);
        if stage + 1 < stages {
            self.push(rank, Step::Send { comm: comms[1], to: stage + 1, count: 4096 });
            self.push(rank, Step::Sync);
        }
        let call = Call::reduce_scatter(2048 + step % 5);
        self.push(rank, Step::Collective { comm: comms[2], call });
        self.push(rank, Step::Sync);
    }
}
