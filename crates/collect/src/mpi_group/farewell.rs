//! The end of a group: its communicator is freed once nothing is under way on it any more.
//!
//! A message that reaches a freed communicator can meet another one that MPI has given the same
//! number since, and cancelled receives have been seen to do harm (Open MPI 4.1). So every rank says
//! goodbye as its last word, and a communicator is freed when the goodbyes of all others have come.
//! Nobody waits for that: what is not there after a moment is looked at again when the next group
//! is made. MPI belongs to the process as a whole, and so does the list of these communicators.

use std::os::raw::c_int;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::message::Token;
use super::raw::{Duplicate, Slot, is_alive};
use crate::stop::lock;
use crate::wire::{Header, Kind};

/// How long the last words may take.
const MOMENT: Duration = Duration::from_millis(20);

/// Communicators whose last words have not come yet.
static LEAVING: Mutex<Vec<Leaving>> = Mutex::new(Vec::new());

/// One other rank whose last words are awaited, and our own to it.
pub(super) struct LastWords {
    pub(super) rank: usize,
    /// Tag of what it sends.
    pub(super) tag: c_int,
    /// Longest message it may send, bytes.
    pub(super) most: usize,
    /// Receives from it.
    pub(super) listening: Slot,
    /// Sends to it, and the tag.
    pub(super) talking: Slot,
    pub(super) talking_tag: c_int,
    /// Whether its goodbye has come.
    pub(super) has_left: bool,
    /// Whether ours is on its way.
    pub(super) told: bool,
}

/// A communicator on its way to be freed.
struct Leaving {
    // Before the communicator: operations end before it is freed.
    ranks: Vec<LastWords>,
    comm: Duplicate,
    token: Token,
}

/// Ends a group: says goodbye to all, and frees the communicator when all have said theirs.
pub(super) fn leave(comm: Duplicate, token: Token, ranks: Vec<LastWords>) {
    let mut leaving = Leaving { ranks, comm, token };
    if !is_alive() {
        leaving.forget();
        return;
    }
    let since = Instant::now();
    while !leaving.is_over() {
        if since.elapsed() > MOMENT {
            lock(&LEAVING).push(leaving);
            return;
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Frees what can be freed by now.
pub(super) fn reap() {
    if is_alive() {
        lock(&LEAVING).retain_mut(|leaving| !leaving.is_over());
    }
}

impl Leaving {
    /// Looks whether all has been said, on both sides.
    fn is_over(&mut self) -> bool {
        let Self { ranks, comm, token } = self;
        let mut over = true;
        for rank in ranks {
            // A call that fails leaves it unfinished: it is not freed then.
            over &= rank.look(comm, *token).unwrap_or(false);
        }
        over
    }

    /// MPI is gone: nothing of it may be touched.
    fn forget(self) {
        std::mem::forget(self);
    }
}

impl LastWords {
    fn look(&mut self, comm: &Duplicate, token: Token) -> Result<bool, super::raw::MpiError> {
        let sent = self.talking.test()?.is_some();
        if sent && !self.told {
            let farewell = Header::bare(Kind::Goodbye);
            self.told = self.talking.send(comm, self.rank, self.talking_tag, |out| {
                token.write(farewell, out);
            })?;
        }
        while !self.has_left {
            let Some(message) = self.listening.test()? else { break };
            let header = token.read(message).map(|(header, _)| header.kind);
            self.has_left = header == Some(Kind::Goodbye);
            if !self.has_left {
                self.listening.receive(comm, self.rank, self.tag, self.most)?;
            }
        }
        Ok(self.told && self.has_left && self.talking.test()?.is_some())
    }
}
