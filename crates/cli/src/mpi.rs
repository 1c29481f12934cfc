//! The processes of `mpirun` as the places of one analysis.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use deepxtrace_nccl_h2::spread::{Exchange, share};
use mpi::environment::Universe;
use mpi::point_to_point::MatchedReceiveVec as _;
use mpi::request::Request;
use mpi::topology::{Rank, SimpleCommunicator};
use mpi::traits::{Communicator as _, Destination as _, Source as _};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::output::one_line;

/// How long another process may send nothing before the job is given up. Reading what a round needs
/// takes seconds.
const PATIENCE: Duration = Duration::from_secs(600);
/// Longest pause between two looks for messages.
const PAUSE: Duration = Duration::from_millis(2);

/// The processes that were started together.
///
/// A process that dies takes the whole job with it: that is how MPI works, and `mpirun` names it. A
/// process that fails ends the job itself, with its own reason; one that keeps silent is named by
/// those who wait.
pub struct Mpi {
    world: SimpleCommunicator,
    rank: usize,
    size: usize,
    patience: Duration,
    // Ends MPI when dropped.
    _universe: Universe,
}

/// Nothing: a failure of MPI ends the job.
#[derive(Debug, thiserror::Error)]
pub enum Never {}

impl Mpi {
    /// Joins the job.
    ///
    /// # Errors
    ///
    /// When MPI is in use already.
    pub fn start() -> anyhow::Result<Self> {
        let universe = mpi::initialize().context("--mpi: MPI was initialised before")?;
        let world = universe.world();
        let number = |of: Rank| usize::try_from(of).unwrap_or(0);
        let (rank, size) = (number(world.rank()), number(world.size()));
        Ok(Self { world, rank, size, patience: PATIENCE, _universe: universe })
    }

    /// Whether this process prints what was found.
    pub fn is_root(&self) -> bool {
        self.rank == 0
    }

    /// Says that processes may pause for some time between two exchanges.
    pub fn expect_pauses(&mut self, pause: Duration) {
        self.patience = PATIENCE.saturating_add(pause);
    }

    /// How this process is called in messages.
    pub fn name(&self) -> String {
        match mpi::environment::processor_name() {
            Ok(host) => format!("process {} on {host}", self.rank),
            Err(_) => format!("process {}", self.rank),
        }
    }

    /// Waits for all processes, then gives what each of them has, in their order.
    ///
    /// # Errors
    ///
    /// When a process has something that is not understood here.
    pub fn share<T: Serialize + DeserializeOwned>(&mut self, mine: &T) -> anyhow::Result<Vec<T>> {
        let mine = serde_json::to_vec(mine)?;
        let all = match share(self, &mine) {
            Ok(all) => all,
            Err(never) => match never {},
        };
        let read = |bytes: Vec<u8>| serde_json::from_slice(&bytes);
        all.into_iter().map(read).collect::<Result<_, _>>().context("another process")
    }

    /// What the root makes, on all processes. Where the root cannot make it, the root has the reason
    /// and the others have `None`.
    ///
    /// # Errors
    ///
    /// As [`Mpi::share`].
    pub fn told_by_root<T: Serialize + DeserializeOwned>(
        &mut self,
        make: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<Option<anyhow::Result<T>>> {
        let made = self.is_root().then(make);
        let told = made.as_ref().and_then(|made| made.as_ref().ok());
        let all = self.share(&told.map(serde_json::to_value).transpose()?)?;
        if made.is_some() {
            return Ok(made);
        }
        let told = all.into_iter().next().flatten();
        Ok(told.map(serde_json::from_value).transpose()?.map(Ok))
    }

    /// Of some folders, those that no process before this one has named on the same machine.
    ///
    /// # Errors
    ///
    /// As [`Mpi::share`].
    pub fn first_to_name(&mut self, folders: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
        let host = mpi::environment::processor_name().unwrap_or_default();
        let names = folders.iter().map(|folder| folder.to_string_lossy().into_owned());
        let mine: (String, Vec<String>) = (host, names.collect());
        let all = self.share(&mine)?;
        let (host, names) = &mine;
        let known = |name: &String| {
            let mut before = all.iter().take(self.rank);
            before.any(|(other, names)| other == host && names.contains(name))
        };
        let new = folders.iter().zip(names).filter(|(_, name)| !known(name));
        Ok(new.map(|(folder, _)| folder.clone()).collect())
    }

    /// Ends the whole job: this process cannot go on, and the others would wait for it.
    pub fn abort(&self, error: &anyhow::Error) -> ! {
        self.give_up(&one_line(error))
    }

    fn give_up(&self, why: &str) -> ! {
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), "deepxtrace: {}: {why}", self.name());
        self.world.abort(2)
    }
}

impl Exchange for Mpi {
    type Error = Never;

    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn all_to_all(&mut self, mut messages: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, Never> {
        let own = messages.get_mut(self.rank).map(std::mem::take);
        let mut received: Vec<Option<Vec<u8>>> = vec![None; self.size];
        if let Some(place) = received.get_mut(self.rank) {
            *place = own;
        }
        mpi::request::scope(|scope| {
            let mut sending: Vec<Request<'_, [u8], _>> = Vec::with_capacity(self.size);
            for (rank, message) in ranks().zip(&messages) {
                if rank != self.world.rank() {
                    let to = self.world.process_at_rank(rank);
                    sending.push(to.immediate_send(scope, &message[..]));
                }
            }
            let mut since = Instant::now();
            let mut pause = Duration::ZERO;
            loop {
                let mut moved = false;
                for (rank, place) in ranks().zip(&mut received) {
                    if place.is_some() {
                        continue;
                    }
                    let from = self.world.process_at_rank(rank);
                    if let Some(message) = from.immediate_matched_probe() {
                        *place = Some(message.matched_receive_vec().0);
                        moved = true;
                    }
                }
                let before = sending.len();
                sending = sending.into_iter().filter_map(|request| request.test().err()).collect();
                moved |= sending.len() < before;
                if sending.is_empty() && received.iter().all(Option::is_some) {
                    return;
                }
                if moved {
                    (since, pause) = (Instant::now(), Duration::ZERO);
                    continue;
                }
                if since.elapsed() > self.patience {
                    // What is under way can be neither awaited nor left.
                    self.give_up(&silent(&received, self.patience));
                }
                std::thread::sleep(pause);
                pause = (pause * 2).clamp(Duration::from_micros(20), PAUSE);
            }
        });
        Ok(received.into_iter().flatten().collect())
    }
}

/// All numbers of processes.
fn ranks() -> impl Iterator<Item = Rank> {
    0..Rank::MAX
}

/// Names the processes that have sent nothing.
fn silent(received: &[Option<Vec<u8>>], patience: Duration) -> String {
    let silent = received.iter().enumerate().filter(|(_, place)| place.is_none());
    let names: Vec<String> = silent.map(|(rank, _)| rank.to_string()).collect();
    let seconds = patience.as_secs();
    match &names[..] {
        [] => format!("what was sent was not taken for {seconds} s"),
        names => format!("nothing came from process {} for {seconds} s", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_are_silent_are_named() {
        let received = [Some(vec![]), None, Some(vec![1]), None];
        assert_eq!(silent(&received, PATIENCE), "nothing came from process 1, 3 for 600 s");
        assert_eq!(silent(&[Some(vec![])], PATIENCE), "what was sent was not taken for 600 s");
    }
}
