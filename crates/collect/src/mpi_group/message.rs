//! Messages over MPI: a token of the run, a frame's header, its payload.
//!
//! The token tells a message of this run from one that a run before it left behind on a
//! communicator that MPI has given the same number.

use std::os::raw::c_int;

use uuid::Uuid;

use crate::gather::Request;
use crate::wire::{HEADER, Header, Kind};

/// To the root, once: JSON of a `Hello`.
pub(super) const HELLO: c_int = 1;
/// From the root, once: JSON of a `Verdict`.
pub(super) const VERDICT: c_int = 2;
/// From the root: requests, and its goodbye.
pub(super) const REQUEST: c_int = 3;
/// To the root: answers, and the goodbye of a rank.
pub(super) const ANSWER: c_int = 4;

/// Bytes before the payload.
pub(super) const HEAD: usize = 8 + HEADER;

/// What all messages of a run begin with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token([u8; 8]);

impl Token {
    pub(super) fn of(instance: Uuid) -> Self {
        let mut token = [0; 8];
        for (to, from) in token.iter_mut().zip(instance.as_bytes()) {
            *to = *from;
        }
        Self(token)
    }

    pub(super) fn write(self, header: Header, out: &mut Vec<u8>) {
        out.extend(self.0);
        out.extend(header.encode());
    }

    pub(super) fn frame(self, kind: Kind, request: Request, out: &mut Vec<u8>) {
        self.write(Header::of(kind, request), out);
    }

    /// Header and payload of a message of this run, if it is one and whole.
    pub(super) fn read(self, message: &[u8]) -> Option<(Header, &[u8])> {
        let rest = message.strip_prefix(&self.0)?;
        let (header, payload) = rest.split_first_chunk::<HEADER>()?;
        let header = Header::decode(header)?;
        (header.payload == payload.len()).then_some((header, payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_another_run_and_cut_ones_are_none() {
        let token = Token::of(Uuid::from_u128(7 << 64));
        let request = Request { channel: 1, round: 2, len: 1, tick: 3 };
        let mut message = Vec::new();
        token.frame(Kind::Vector, request, &mut message);
        message.extend(5_i64.to_le_bytes());
        let (header, payload) = token.read(&message).unwrap();
        assert_eq!((header.kind, header.request), (Kind::Vector, request));
        assert_eq!(payload, 5_i64.to_le_bytes());
        assert!(token.read(&message[..message.len() - 1]).is_none());
        assert!(token.read(&message[..10]).is_none());
        assert!(Token::of(Uuid::from_u128(8 << 64)).read(&message).is_none());
    }
}
