//! Giving numbers of one analyzer to what comes from another.

use super::comm::{AgreedRun, Comm, CommId, Member};
use super::creation::{Caller, CreationKey, OpenCreation};
use super::names::Name;
use super::noted::Noted;
use super::p2p::{ChannelPart, Pending};
use super::part::BadPart;
use super::process::{Beat, LastEvent, OpenCall, Process, ProcessId};
use super::round::Round;
use super::signature::Called;
use super::trouble::{Differing, Trouble};

/// The new number of each old one.
#[derive(Debug)]
pub(crate) struct Numbers {
    pub(crate) names: Vec<Name>,
    pub(crate) processes: Vec<ProcessId>,
    pub(crate) comms: Vec<CommId>,
}

/// What has numbers of names, processes or communicators.
pub(crate) trait Renumber {
    /// Replaces every number.
    ///
    /// # Errors
    ///
    /// When there is no new number for one.
    fn renumber(&mut self, numbers: &Numbers) -> Result<(), BadPart>;
}

impl Renumber for Name {
    fn renumber(&mut self, numbers: &Numbers) -> Result<(), BadPart> {
        *self = *numbers.names.get(self.number()).ok_or(BadPart)?;
        Ok(())
    }
}

impl Renumber for ProcessId {
    fn renumber(&mut self, numbers: &Numbers) -> Result<(), BadPart> {
        *self = *numbers.processes.get(self.0 as usize).ok_or(BadPart)?;
        Ok(())
    }
}

impl Renumber for CommId {
    fn renumber(&mut self, numbers: &Numbers) -> Result<(), BadPart> {
        *self = *numbers.comms.get(self.number()).ok_or(BadPart)?;
        Ok(())
    }
}

impl<T: Renumber> Renumber for Option<T> {
    fn renumber(&mut self, numbers: &Numbers) -> Result<(), BadPart> {
        self.iter_mut().try_for_each(|value| value.renumber(numbers))
    }
}

impl<T: Renumber> Renumber for Vec<T> {
    fn renumber(&mut self, numbers: &Numbers) -> Result<(), BadPart> {
        self.iter_mut().try_for_each(|value| value.renumber(numbers))
    }
}

impl<A: Renumber, B: Renumber> Renumber for (A, B) {
    fn renumber(&mut self, numbers: &Numbers) -> Result<(), BadPart> {
        self.0.renumber(numbers)?;
        self.1.renumber(numbers)
    }
}

/// Renumbers some fields of a type; the others have no numbers.
macro_rules! renumber {
    ($($kind:ty { $($field:ident),* })*) => {$(
        impl Renumber for $kind {
            fn renumber(&mut self, numbers: &Numbers) -> Result<(), BadPart> {
                $(self.$field.renumber(numbers)?;)*
                Ok(())
            }
        }
    )*};
}

renumber! {
    Called { api }
    AgreedRun { called }
    Member { process }
    Comm { name, members, agreed, trouble }
    Round { comm, variants }
    CreationKey { of, excluded }
    Caller { process }
    OpenCreation { api, callers }
    Pending { called, process }
    ChannelPart { comm, queue, loose }
    OpenCall { api, comm }
    LastEvent { api, comm }
    Beat { phase, api, call_phase }
}

impl<T: Renumber> Renumber for Box<T> {
    fn renumber(&mut self, numbers: &Numbers) -> Result<(), BadPart> {
        (**self).renumber(numbers)
    }
}

impl<T: Renumber, const N: usize> Renumber for [T; N] {
    fn renumber(&mut self, numbers: &Numbers) -> Result<(), BadPart> {
        self.iter_mut().try_for_each(|value| value.renumber(numbers))
    }
}

impl Renumber for Process {
    fn renumber(&mut self, numbers: &Numbers) -> Result<(), BadPart> {
        self.beat.renumber(numbers)?;
        self.last.renumber(numbers)?;
        self.last_placed.renumber(numbers)?;
        self.open.renumber(numbers)?;
        match &mut self.group_round {
            Some((comm, _, _)) => comm.renumber(numbers),
            None => Ok(()),
        }
    }
}

/// Calls with a number beside them, such as a rank.
fn calls(calls: &mut [(i64, Called)], numbers: &Numbers) -> Result<(), BadPart> {
    calls.iter_mut().try_for_each(|(_, called)| called.renumber(numbers))
}

impl Renumber for Differing {
    fn renumber(&mut self, numbers: &Numbers) -> Result<(), BadPart> {
        calls(&mut self.calls, numbers)
    }
}

impl Renumber for Trouble {
    fn renumber(&mut self, numbers: &Numbers) -> Result<(), BadPart> {
        self.sequences.iter_mut().try_for_each(|sequence| calls(sequence, numbers))?;
        self.differing.renumber(numbers)?;
        self.reported.iter_mut().try_for_each(|reported| calls(reported, numbers))
    }
}

impl Renumber for Noted {
    fn renumber(&mut self, numbers: &Numbers) -> Result<(), BadPart> {
        match self {
            Self::Datatypes { comm, calls: of, .. } => {
                comm.renumber(numbers)?;
                calls(of, numbers)
            }
            Self::Late { comm, api, .. } => {
                comm.renumber(numbers)?;
                api.renumber(numbers)
            }
            Self::Failed(failed) => {
                failed.process.renumber(numbers)?;
                failed.comm.renumber(numbers)
            }
        }
    }
}
