//! The staging buffers of a [`CounterMemory`](crate::CounterMemory): which is in use, and for whom.

use std::sync::Mutex;

use crate::device::{DeviceError, STAGING_BUFFERS, Ticket};
use crate::stop::lock;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Nobody uses it.
    Free,
    /// A snapshot is under way or held by a reader.
    Held,
    /// Given back, but the device may still write to it.
    GivenBack,
}

/// Hands out the staging buffers. The lock is held for a few instructions only.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: Mutex<[(Use, u64); STAGING_BUFFERS]>,
}

impl Slots {
    pub(crate) fn new() -> Self {
        Self { slots: Mutex::new([(Use::Free, 0); STAGING_BUFFERS]) }
    }

    /// A free buffer. One that was given back early is free once `finished` says that the device
    /// is done with it.
    pub(crate) fn acquire(&self, mut finished: impl FnMut(Ticket) -> bool) -> Option<Ticket> {
        let mut slots = lock(&self.slots);
        for (slot, (usage, generation)) in slots.iter_mut().enumerate() {
            let ticket = Ticket { slot, generation: *generation };
            if *usage == Use::Free || (*usage == Use::GivenBack && finished(ticket)) {
                *usage = Use::Held;
                *generation = generation.wrapping_add(1);
                return Some(Ticket { slot, generation: *generation });
            }
        }
        None
    }

    /// Gives a buffer back; `finished`: the device is done with it.
    pub(crate) fn release(&self, ticket: Ticket, finished: bool) {
        if let Some((usage @ Use::Held, generation)) = lock(&self.slots).get_mut(ticket.slot)
            && *generation == ticket.generation
        {
            *usage = if finished { Use::Free } else { Use::GivenBack };
        }
    }

    /// Refuses a ticket that is not held.
    pub(crate) fn check(&self, ticket: Ticket) -> Result<(), DeviceError> {
        let slots = lock(&self.slots);
        let held = slots.get(ticket.slot).is_some_and(|&(usage, generation)| {
            usage == Use::Held && generation == ticket.generation
        });
        if held { Ok(()) } else { Err(DeviceError::UnknownTicket(ticket)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_buffers_are_handed_out_and_a_third_wish_is_refused() {
        let slots = Slots::new();
        let first = slots.acquire(|_| true).unwrap();
        let second = slots.acquire(|_| true).unwrap();
        assert_ne!(first.slot, second.slot);
        assert_eq!(slots.acquire(|_| true), None);
        slots.release(first, true);
        let third = slots.acquire(|_| true).unwrap();
        assert_eq!(third.slot, first.slot);
        assert!(slots.check(third).is_ok());
        assert_eq!(slots.check(first), Err(DeviceError::UnknownTicket(first)));
    }

    #[test]
    fn a_buffer_given_back_early_waits_for_the_device() {
        let slots = Slots::new();
        let first = slots.acquire(|_| true).unwrap();
        let _second = slots.acquire(|_| true).unwrap();
        slots.release(first, false);
        assert_eq!(slots.acquire(|_| false), None);
        assert!(slots.check(first).is_err());
        assert!(slots.acquire(|ticket| ticket == first).is_some());
    }

    #[test]
    fn old_and_invented_tickets_release_nothing() {
        let slots = Slots::new();
        let first = slots.acquire(|_| true).unwrap();
        slots.release(Ticket { slot: 9, generation: 1 }, true);
        slots.release(Ticket { slot: first.slot, generation: 99 }, true);
        assert!(slots.check(first).is_ok());
    }
}
