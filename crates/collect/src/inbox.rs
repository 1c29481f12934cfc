//! Requests of the root that wait to be answered: the newest of each channel.

use crate::gather::{CHANNELS, Request, Wanted};

/// Holds one request a channel; a newer one replaces it.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    newest: [Option<Request>; CHANNELS],
    new_root: bool,
}

impl Inbox {
    pub(crate) fn put(&mut self, request: Request) {
        if let Some(slot) = self.newest.get_mut(usize::from(request.channel)) {
            *slot = Some(request);
        }
    }

    /// Another root has taken over: its ticks begin anew, so the next request is taken whatever
    /// its tick.
    pub(crate) fn root_changed(&mut self) {
        self.newest = [None; CHANNELS];
        self.new_root = true;
    }

    /// Takes a request that fits, the lowest channel first; drops what is too old for `wanted`.
    pub(crate) fn take(&mut self, wanted: Wanted) -> Option<Request> {
        let wanted = if self.new_root { Wanted { tick: 0, ..wanted } } else { wanted };
        for slot in &mut self.newest {
            let Some(request) = *slot else { continue };
            if wanted.channel.is_some_and(|channel| channel != request.channel) {
                continue;
            }
            *slot = None;
            if wanted.takes(request) {
                self.new_root = false;
                return Some(request);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(channel: u8, round: u64, tick: u64) -> Request {
        Request { channel, round, len: 1, tick }
    }

    #[test]
    fn the_newest_request_of_a_channel_is_taken_once() {
        let mut inbox = Inbox::default();
        inbox.put(request(1, 0, 1));
        inbox.put(request(1, 1, 2));
        inbox.put(request(0, 7, 1));
        assert_eq!(inbox.take(Wanted::ANY), Some(request(0, 7, 1)));
        assert_eq!(inbox.take(Wanted::ANY), Some(request(1, 1, 2)));
        assert_eq!(inbox.take(Wanted::ANY), None);
    }

    #[test]
    fn late_requests_are_dropped_and_other_channels_stay() {
        let mut inbox = Inbox::default();
        inbox.put(request(1, 4, 4));
        inbox.put(request(2, 9, 9));
        assert_eq!(inbox.take(Wanted { channel: Some(1), tick: 5 }), None);
        assert_eq!(inbox.take(Wanted { channel: Some(1), tick: 0 }), None);
        assert_eq!(inbox.take(Wanted { channel: Some(2), tick: 5 }), Some(request(2, 9, 9)));
    }

    #[test]
    fn a_new_root_begins_its_ticks_anew() {
        let mut inbox = Inbox::default();
        inbox.root_changed();
        inbox.put(request(1, 0, 1));
        assert_eq!(inbox.take(Wanted { channel: Some(1), tick: 58 }), Some(request(1, 0, 1)));
        inbox.put(request(1, 1, 2));
        assert_eq!(inbox.take(Wanted { channel: Some(1), tick: 58 }), None);
    }

    #[test]
    fn a_channel_that_cannot_be_is_ignored() {
        let mut inbox = Inbox::default();
        inbox.put(request(200, 0, 0));
        assert_eq!(inbox.take(Wanted::ANY), None);
    }
}
