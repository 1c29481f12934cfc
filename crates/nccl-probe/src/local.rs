//! What each thread keeps for itself.

use std::cell::Cell;

use crate::library::Library;
use crate::recorder::Recorder;

/// Callers that a thread remembers the library of.
const CALLERS: usize = 8;

type Caller = (usize, Option<&'static Library>);

/// The thread's state, usable from the first call on and until the thread is gone.
pub struct Local {
    /// What records this thread's calls, null before the first.
    pub recorder: Cell<*const Recorder>,
    /// Whether the thread is inside a real NCCL function.
    pub inside: Cell<bool>,
    /// Groups begun and not ended.
    pub depth: Cell<u32>,
    callers: [Cell<Caller>; CALLERS],
}

thread_local! {
    // No destructor: it can be used while other thread-locals are destroyed.
    static LOCAL: Local = const {
        Local {
            recorder: Cell::new(std::ptr::null()),
            inside: Cell::new(false),
            depth: Cell::new(0),
            callers: [const { Cell::new((0, None)) }; CALLERS],
        }
    };
}

impl Local {
    /// Runs `work` on the thread's state.
    #[inline]
    pub fn with<T>(work: impl FnOnce(&Self) -> T) -> Option<T> {
        LOCAL.try_with(work).ok()
    }

    /// A number that no other living thread has.
    pub fn number(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    /// The library that this caller reached before.
    pub fn library_of(&self, caller: usize) -> Option<&'static Library> {
        let (known, library) = self.callers.get((caller >> 4) % CALLERS)?.get();
        library.filter(|_| caller != 0 && known == caller)
    }

    /// Remembers the library that a caller reaches.
    pub fn remember(&self, caller: usize, library: &'static Library) {
        if let Some(place) = self.callers.get((caller >> 4) % CALLERS) {
            place.set((caller, Some(library)));
        }
    }
}
