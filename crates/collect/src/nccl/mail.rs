//! Words in both directions between the root and the others, and texts made of words.

use std::ffi::c_void;

use super::comm::{NcclComm, Transfer};
use crate::cuda::CudaDevice;
use crate::cuda::resources::{DeviceBuffer, PinnedBuffer, copy_to_device, copy_to_host};
use crate::device::DeviceError;
use crate::stop::Until;

/// Elements of a header.
pub(super) const HEADER: usize = 8;
pub(super) const WORD: usize = size_of::<i64>();
/// Longest text that a rank may send at the meeting, bytes.
const LONGEST_TEXT: usize = 16 << 20;

/// Room for words in both directions, on the device and in pinned host memory.
#[derive(Debug)]
pub(super) struct Mail {
    pub(super) out: PinnedBuffer,
    out_device: DeviceBuffer,
    pub(super) inbox: PinnedBuffer,
    in_device: DeviceBuffer,
}

impl Mail {
    pub(super) fn new(device: &CudaDevice, words: usize) -> Result<Self, DeviceError> {
        let bytes = words.saturating_mul(WORD);
        Ok(Self {
            out: PinnedBuffer::new(device, words)?,
            out_device: DeviceBuffer::new(device, bytes)?,
            inbox: PinnedBuffer::new(device, words)?,
            in_device: DeviceBuffer::new(device, bytes)?,
        })
    }

    /// Sets what the device receives into to 0, behind what is enqueued on the stream: a root
    /// brings its own part to the host with those of the others, and nobody sends it that one.
    /// The context must be current.
    pub(super) fn clear(&self, stream: *mut c_void) -> Result<(), DeviceError> {
        self.in_device.clear(stream.cast())
    }

    pub(super) fn leak(self) {
        self.out.leak();
        self.out_device.leak();
        self.inbox.leak();
        self.in_device.leak();
    }

    /// Sends `words` words of this rank's outbox to the root, or gets those of all others there:
    /// rank `r` begins at word `r * words` of the inbox.
    pub(super) fn carry_up(
        &mut self,
        comm: &mut NcclComm,
        (root, words): (usize, usize),
        stream: *mut c_void,
        until: Until<'_>,
    ) -> Result<(), DeviceError> {
        let (rank, size) = (comm.rank(), comm.size());
        if rank != root {
            copy_to_device(self.out_device.address(), &self.out, words, stream.cast())?;
        }
        let (from, into) = (self.out_device.address(), self.in_device.address());
        let transfer = |peer| {
            if rank != root {
                return Transfer::send(from, words, peer);
            }
            Transfer::recv(into + (peer * words * WORD) as u64, words, peer)
        };
        comm.exchange(peers(rank, root, size).map(transfer), stream, until)?;
        if rank == root {
            copy_to_host(&mut self.inbox, words * size, into, stream.cast())?;
        }
        Ok(())
    }

    /// The way back: from word `r * words` of the root's outbox to the start of rank `r`'s inbox.
    pub(super) fn carry_down(
        &mut self,
        comm: &mut NcclComm,
        (root, words): (usize, usize),
        stream: *mut c_void,
        until: Until<'_>,
    ) -> Result<(), DeviceError> {
        let (rank, size) = (comm.rank(), comm.size());
        if rank == root {
            copy_to_device(self.out_device.address(), &self.out, words * size, stream.cast())?;
        }
        let (from, into) = (self.out_device.address(), self.in_device.address());
        let transfer = |peer| {
            if rank != root {
                return Transfer::recv(into, words, peer);
            }
            Transfer::send(from + (peer * words * WORD) as u64, words, peer)
        };
        comm.exchange(peers(rank, root, size).map(transfer), stream, until)?;
        if rank != root {
            copy_to_host(&mut self.inbox, words, into, stream.cast())?;
        }
        Ok(())
    }
}

/// Whom a rank exchanges with: the root with all others, these with the root.
fn peers(rank: usize, root: usize, size: usize) -> impl Iterator<Item = usize> {
    let peers = if rank == root { 0..size } else { root..root + 1 };
    peers.filter(move |&peer| peer != rank)
}

pub(super) fn fill(words: &mut [i64], at: usize, header: &[i64; HEADER]) {
    words.iter_mut().skip(at).zip(header).for_each(|(to, from)| *to = *from);
}

pub(super) fn length_header(length: usize) -> [i64; HEADER] {
    let mut header = [0; HEADER];
    header[0] = i64::try_from(length).unwrap_or(i64::MAX);
    header
}

pub(super) fn length_of(header: &[i64]) -> usize {
    header.first().and_then(|&length| usize::try_from(length).ok()).unwrap_or(0)
}

pub(super) fn checked_length(length: usize) -> Result<usize, DeviceError> {
    if length <= LONGEST_TEXT {
        return Ok(length);
    }
    Err(DeviceError::Call {
        call: "NCCL meeting",
        code: 0,
        message: format!("a rank announced a text of {length} bytes, at most {LONGEST_TEXT} fit"),
    })
}

/// Words for a text of `length` bytes, at least one.
pub(super) fn words_of(length: usize) -> usize {
    length.div_ceil(WORD).max(1)
}

pub(super) fn pack(text: &[u8], words: &mut [i64]) {
    for (word, bytes) in words.iter_mut().zip(text.chunks(WORD)) {
        let mut whole = [0; WORD];
        whole.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        *word = i64::from_le_bytes(whole);
    }
}

pub(super) fn unpack(words: &[i64], length: usize) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).take(length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_exchanges_with_all_others_and_these_with_the_root() {
        let of = |rank, root, size| peers(rank, root, size).collect::<Vec<_>>();
        assert_eq!(of(1, 1, 4), [0, 2, 3]);
        assert_eq!(of(0, 1, 4), [1]);
        assert_eq!(of(3, 0, 4), [0]);
        assert!(of(0, 0, 1).is_empty());
    }

    #[test]
    fn texts_of_any_length_survive_the_packing() {
        for length in [0, 1, 7, 8, 9, 16, 1000] {
            let text: Vec<u8> = (0..length).map(|i| u8::try_from(i % 251).unwrap()).collect();
            let mut words = vec![0; words_of(length)];
            pack(&text, &mut words);
            assert_eq!(unpack(&words, length), text);
        }
        assert!(checked_length(LONGEST_TEXT).is_ok());
        assert!(checked_length(LONGEST_TEXT + 1).is_err());
    }
}
