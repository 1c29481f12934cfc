//! What travels between a rank and the root, byte by byte, over transports that carry bytes.
//!
//! A frame is a header of fixed size and a payload whose length is bounded by what the receiver
//! expects.

use serde::{Deserialize, Serialize};

use crate::device::SkipReason;
use crate::gather::Request;
use crate::group::{Agreement, Difference};

/// Bytes of a frame's header.
pub(crate) const HEADER: usize = 32;
/// Longest hello or verdict, bytes: 4,096 ranks and every setting fit.
pub(crate) const TEXT_MAX: usize = 256 * 1024;

/// The root's answer to a hello.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Verdict {
    Agreed(Agreement),
    Disagreement(Vec<Difference>),
    Missing { ranks: Vec<usize>, size: usize },
    Refused(String),
}

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// To the root: JSON of a `Hello`.
    Hello,
    /// From the root: JSON of a [`Verdict`].
    Verdict,
    /// From the root: a round begins.
    Request,
    /// To the root: the vector.
    Vector,
    /// To the root: no vector, and why.
    Skipped(SkipReason),
    /// Both ways: the sender leaves.
    Goodbye,
    /// From the root: it is still there.
    Ping,
}

/// The header of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) kind: Kind,
    /// Bytes that follow.
    pub(crate) payload: usize,
    /// For a round's frames; zeros otherwise.
    pub(crate) request: Request,
}

const NO_REQUEST: Request = Request { channel: 0, round: 0, len: 0, tick: 0 };

impl Header {
    pub(crate) fn text(kind: Kind, payload: usize) -> Self {
        Self { kind, payload, request: NO_REQUEST }
    }

    pub(crate) fn bare(kind: Kind) -> Self {
        Self::text(kind, 0)
    }

    pub(crate) fn of(kind: Kind, request: Request) -> Self {
        let payload = if kind == Kind::Vector { request.len.saturating_mul(8) } else { 0 };
        Self { kind, payload, request }
    }

    pub(crate) fn encode(&self) -> [u8; HEADER] {
        let (kind, code) = match self.kind {
            Kind::Hello => (1, 0),
            Kind::Verdict => (2, 0),
            Kind::Request => (3, 0),
            Kind::Vector => (4, 0),
            Kind::Skipped(reason) => (5, reason.code()),
            Kind::Goodbye => (6, 0),
            Kind::Ping => (7, 0),
        };
        let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX).to_le_bytes();
        let mut bytes = [0; HEADER];
        let fields = [b'D', b'X', kind, code, self.request.channel, 0, 0, 0]
            .into_iter()
            .chain(number(self.payload))
            .chain(number(self.request.len))
            .chain(self.request.round.to_le_bytes())
            .chain(self.request.tick.to_le_bytes());
        for (to, from) in bytes.iter_mut().zip(fields) {
            *to = from;
        }
        bytes
    }

    /// `None` for bytes that are no header.
    pub(crate) fn decode(bytes: &[u8; HEADER]) -> Option<Self> {
        let [b'D', b'X', kind, code, channel, 0, 0, 0, rest @ ..] = bytes else { return None };
        let kind = match (kind, code) {
            (1, 0) => Kind::Hello,
            (2, 0) => Kind::Verdict,
            (3, 0) => Kind::Request,
            (4, 0) => Kind::Vector,
            (5, &code) => Kind::Skipped(SkipReason::from_code(code)),
            (6, 0) => Kind::Goodbye,
            (7, 0) => Kind::Ping,
            _ => return None,
        };
        let (payload, rest) = rest.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        let (round, rest) = rest.split_first_chunk()?;
        let tick = rest.first_chunk()?;
        let small = |bytes: &[u8; 4]| usize::try_from(u32::from_le_bytes(*bytes)).ok();
        let (round, tick) = (u64::from_le_bytes(*round), u64::from_le_bytes(*tick));
        let request = Request { channel: *channel, round, len: small(len)?, tick };
        Some(Self { kind, payload: small(payload)?, request })
    }
}

/// Appends `values` as little-endian bytes.
pub(crate) fn encode_vector(values: &[i64], out: &mut Vec<u8>) {
    out.extend(values.iter().flat_map(|value| value.to_le_bytes()));
}

/// A vector that arrives in pieces of any size.
#[derive(Debug)]
pub(crate) struct VectorReader {
    filled: usize,
    carry: [u8; 8],
    carried: usize,
}

impl VectorReader {
    pub(crate) fn new() -> Self {
        Self { filled: 0, carry: [0; 8], carried: 0 }
    }

    /// Writes the elements that `bytes` complete to their place in `row`.
    pub(crate) fn take(&mut self, mut bytes: &[u8], row: &mut [i64]) {
        let mut row = row.iter_mut().skip(self.filled);
        while self.carried > 0 {
            let Some((&first, rest)) = bytes.split_first() else { return };
            if let Some(place) = self.carry.get_mut(self.carried) {
                *place = first;
            }
            (bytes, self.carried) = (rest, self.carried + 1);
            if self.carried == 8 {
                self.carried = 0;
                self.filled += 1;
                if let Some(cell) = row.next() {
                    *cell = i64::from_le_bytes(self.carry);
                }
            }
        }
        let (whole, rest) = bytes.as_chunks::<8>();
        for (chunk, cell) in whole.iter().zip(&mut row) {
            *cell = i64::from_le_bytes(*chunk);
        }
        self.filled += whole.len();
        for (place, &byte) in self.carry.iter_mut().zip(rest) {
            *place = byte;
        }
        self.carried = rest.len();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_header_is_laid_out_as_written_down() {
        let request = Request { channel: 2, round: 0x0102, len: 3, tick: 0xff };
        let bytes = Header::of(Kind::Vector, request).encode();
        let expected = [
            b'D', b'X', 4, 0, 2, 0, 0, 0, 24, 0, 0, 0, 3, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, 255, 0,
            0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(bytes, expected);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn any_bytes_decode_to_a_header_that_encodes_to_them_or_to_none(
            bytes in proptest::array::uniform32(0..8_u8),
            known in any::<bool>(),
        ) {
            let mut bytes = bytes;
            if known {
                bytes[..2].copy_from_slice(b"DX");
                bytes[5..8].fill(0);
            }
            if let Some(header) = Header::decode(&bytes) {
                let same = header.encode();
                // Unknown reasons become `Other`.
                prop_assert!(same == bytes || matches!(header.kind, Kind::Skipped(_)));
            }
        }

        #[test]
        fn a_vector_survives_any_cutting(
            values in proptest::collection::vec(any::<i64>(), 0..20),
            cuts in proptest::collection::vec(1..30_usize, 1..40),
        ) {
            let mut bytes = Vec::new();
            encode_vector(&values, &mut bytes);
            let mut row = vec![0; values.len()];
            let mut reader = VectorReader::new();
            let mut rest = bytes.as_slice();
            for cut in cuts.iter().cycle() {
                let (piece, left) = rest.split_at((*cut).min(rest.len()));
                reader.take(piece, &mut row);
                rest = left;
                if rest.is_empty() {
                    break;
                }
            }
            prop_assert_eq!(row, values);
        }
    }
}
