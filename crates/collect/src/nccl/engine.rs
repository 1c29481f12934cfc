//! What the worker thread does with the communicator: one meeting, then rounds.
//!
//! All ways lead to and from the root, so that only the connections are made that the gather needs.
//! A round has three exchanges: the root sends every rank its request; every rank answers with a
//! header; those whose header announces a vector send it. So a rank without a vector holds nobody
//! up, which `ncclGather`, for which all ranks must have one, would not allow.

use std::ffi::c_void;

use super::comm::{NcclComm, Transfer, late};
use super::mail::{
    HEADER, Mail, WORD, checked_length, fill, length_header, length_of, pack, unpack, words_of,
};
use crate::cuda::CudaDevice;
use crate::cuda::resources::{
    DeviceBuffer, Event, EventState, Patience, PinnedBuffer, PrivateStream, copy_on_device,
    copy_to_host, is_capturing,
};
use crate::device::DeviceError;
use crate::gather::Request;
use crate::stop::Until;

/// The stream that the communicator is used on.
#[derive(Debug)]
pub(super) enum Stream {
    Own(PrivateStream),
    /// Of the program; kept as a number, so that it can be sent to the worker.
    Borrowed(usize),
}

impl Stream {
    fn handle(&self) -> *mut c_void {
        match self {
            Self::Own(stream) => stream.handle().cast(),
            Self::Borrowed(address) => std::ptr::with_exposed_provenance_mut(*address),
        }
    }
}

/// What this rank brings to a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Own {
    Vector { address: u64, len: usize },
    Skipped(u8),
}

/// How a rank took part in a round, seen from the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Its vector is there.
    Vector,
    /// It has none, for the reason with this number.
    Skipped(u8),
}

impl Part {
    fn header(self) -> [i64; HEADER] {
        let mut header = [0; HEADER];
        (header[0], header[1]) = match self {
            Self::Vector => (1, 0),
            Self::Skipped(reason) => (0, i64::from(reason)),
        };
        header
    }

    fn from_header(header: &[i64]) -> Self {
        match header {
            [1, ..] => Self::Vector,
            [_, reason, ..] => Self::Skipped(u8::try_from(*reason).unwrap_or(0)),
            _ => Self::Skipped(0),
        }
    }
}

fn request_header(request: Request) -> [i64; HEADER] {
    let Request { channel, round, len, tick } = request;
    let (round, tick) = (round.cast_signed(), tick.cast_signed());
    [i64::from(channel), round, i64::try_from(len).unwrap_or(i64::MAX), tick, 0, 0, 0, 0]
}

fn request_of(header: &[i64; HEADER]) -> Option<Request> {
    let [channel, round, len, tick, ..] = *header;
    Some(Request {
        channel: u8::try_from(channel).ok()?,
        round: round.cast_unsigned(),
        len: usize::try_from(len).ok()?,
        tick: tick.cast_unsigned(),
    })
}

/// What came of a meeting.
#[derive(Debug)]
pub(super) struct Meeting {
    /// The root's answer.
    pub(super) reply: Vec<u8>,
    /// Root: what every rank said, by rank.
    pub(super) texts: Vec<Vec<u8>>,
}

/// The communicator with what it needs to work.
#[derive(Debug)]
pub(super) struct Engine {
    comm: NcclComm,
    device: CudaDevice,
    stream: Stream,
    root: usize,
    done: Event,
    headers: Mail,
    parts: Vec<Part>,
    /// Root: room for all vectors.
    area: Option<(DeviceBuffer, PinnedBuffer)>,
}

impl Engine {
    pub(super) fn new(
        comm: NcclComm,
        device: CudaDevice,
        stream: Stream,
        root: usize,
    ) -> Result<Self, DeviceError> {
        let headers = Mail::new(&device, comm.size().saturating_mul(HEADER))?;
        let done = Event::new(&device)?;
        let parts = vec![Part::Skipped(0); comm.size()];
        Ok(Self { comm, device, stream, root, done, headers, parts, area: None })
    }

    pub(super) fn device(&self) -> &CudaDevice {
        &self.device
    }

    fn is_root(&self) -> bool {
        self.comm.rank() == self.root
    }

    /// Makes room for vectors of up to `len` elements. The context must be current.
    pub(super) fn reserve(&mut self, len: usize) -> Result<(), DeviceError> {
        if self.is_root() {
            let words = len.saturating_mul(self.comm.size());
            let bytes = words.saturating_mul(WORD);
            let area = DeviceBuffer::new(&self.device, bytes)?;
            // All of it is brought to the host, also the rows of ranks that send none.
            area.clear(self.stream.handle().cast())?;
            self.area = Some((area, PinnedBuffer::new(&self.device, words)?));
        }
        Ok(())
    }

    /// Root: the gathered vectors, `len` elements a rank.
    pub(super) fn vectors(&self) -> &[i64] {
        self.area.as_ref().map_or(&[], |(_, host)| host.as_slice())
    }

    /// Waits for everything enqueued so far.
    fn wait(&self, call: &'static str, until: Until<'_>) -> Result<(), DeviceError> {
        self.done.record(self.stream.handle().cast())?;
        let mut patience = Patience::new();
        loop {
            if self.done.state()? == EventState::Done {
                return Ok(());
            }
            // An error that NCCL saw on another thread ends the wait.
            self.comm.poll(call)?;
            if until.is_over() {
                return Err(late(call));
            }
            patience.rest(until);
        }
    }

    /// Every rank's headers at the root, its own included; elsewhere nothing.
    fn headers_to_root(
        &mut self,
        own: [i64; HEADER],
        call: &'static str,
        until: Until<'_>,
    ) -> Result<(), DeviceError> {
        let stream = self.stream.handle();
        fill(self.headers.out.as_mut_slice(), 0, &own);
        let shape = (self.root, HEADER);
        self.headers.carry_up(&mut self.comm, shape, stream, until)?;
        self.wait(call, until)?;
        if self.is_root() {
            let place = self.root * HEADER;
            fill(self.headers.inbox.as_mut_slice(), place, &own);
        }
        Ok(())
    }

    /// The header that the root has for this rank. At the root `all` are its headers by rank.
    fn header_from_root(
        &mut self,
        all: impl Fn(usize) -> [i64; HEADER],
        call: &'static str,
        until: Until<'_>,
    ) -> Result<[i64; HEADER], DeviceError> {
        let (stream, rank) = (self.stream.handle(), self.comm.rank());
        if self.is_root() {
            let out = self.headers.out.as_mut_slice();
            for (rank, words) in out.chunks_exact_mut(HEADER).enumerate() {
                words.copy_from_slice(&all(rank));
            }
        }
        let shape = (self.root, HEADER);
        self.headers.carry_down(&mut self.comm, shape, stream, until)?;
        self.wait(call, until)?;
        if self.is_root() {
            return Ok(all(rank));
        }
        let mut header = [0; HEADER];
        let words = self.headers.inbox.as_slice().iter();
        header.iter_mut().zip(words).for_each(|(to, from)| *to = *from);
        Ok(header)
    }

    /// Root: enqueues the request to all others, without waiting for it.
    pub(super) fn announce(
        &mut self,
        request: Request,
        until: Until<'_>,
    ) -> Result<(), DeviceError> {
        let stream = self.stream.handle();
        for words in self.headers.out.as_mut_slice().chunks_exact_mut(HEADER) {
            words.copy_from_slice(&request_header(request));
        }
        let shape = (self.root, HEADER);
        self.headers.carry_down(&mut self.comm, shape, stream, until)
    }

    /// Others: waits for the request of the root.
    pub(super) fn listen(&mut self, until: Until<'_>) -> Result<Request, DeviceError> {
        let header = self.header_from_root(|_| [0; HEADER], "NCCL request", until)?;
        request_of(&header).ok_or_else(|| DeviceError::Call {
            call: "NCCL request",
            code: 0,
            message: format!("the root sent what is no request: {header:?}"),
        })
    }

    /// Others: the header and, behind it, the vector.
    pub(super) fn answer(&mut self, own: Own, until: Until<'_>) -> Result<(), DeviceError> {
        const CALL: &str = "NCCL answer";
        let (stream, root) = (self.stream.handle(), self.root);
        let (part, vector) = match own {
            Own::Vector { address, len } => (Part::Vector, Some((address, len))),
            Own::Skipped(reason) => (Part::Skipped(reason), None),
        };
        fill(self.headers.out.as_mut_slice(), 0, &part.header());
        let shape = (root, HEADER);
        self.headers.carry_up(&mut self.comm, shape, stream, until)?;
        if let Some((address, len)) = vector {
            self.comm.exchange([Transfer::send(address, len, root)], stream, until)?;
        }
        self.wait(CALL, until)
    }

    /// Root: all answers, and the vectors of those that have one: rank `r` begins at element
    /// `r * len` of [`vectors`](Self::vectors).
    pub(super) fn collect(
        &mut self,
        own: Own,
        len: usize,
        until: Until<'_>,
    ) -> Result<(), DeviceError> {
        const CALL: &str = "NCCL gather";
        let own_part = match own {
            Own::Vector { .. } => Part::Vector,
            Own::Skipped(reason) => Part::Skipped(reason),
        };
        self.headers_to_root(own_part.header(), CALL, until)?;
        let headers = self.headers.inbox.as_slice().chunks_exact(HEADER);
        for (header, part) in headers.zip(&mut self.parts) {
            *part = Part::from_header(header);
        }
        let (stream, root) = (self.stream.handle(), self.root);
        let Some((area, host)) = &mut self.area else { return Ok(()) };
        let place = |rank: usize| area.address() + (rank * len * WORD) as u64;
        let peers = self.parts.iter().enumerate();
        let sending = peers.filter(|&(peer, part)| peer != root && *part == Part::Vector);
        let vectors = sending.map(|(peer, _)| Transfer::recv(place(peer), len, peer));
        self.comm.exchange(vectors, stream, until)?;
        if let Own::Vector { address, .. } = own {
            copy_on_device(place(root), address, len * WORD, stream.cast())?;
        }
        copy_to_host(host, len * self.parts.len(), area.address(), stream.cast())?;
        self.wait(CALL, until)
    }

    /// How each rank took part in the last round that was collected.
    pub(super) fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Whether the program captures the stream that we borrow: nothing may be enqueued.
    pub(super) fn is_capturing(&self) -> Result<bool, DeviceError> {
        match self.stream {
            Stream::Own(_) => Ok(false),
            Stream::Borrowed(_) => is_capturing(self.stream.handle().cast()),
        }
    }

    /// Every rank's text at the root, and the root's answer on every rank. `answer` is called at
    /// the root only, with the texts by rank.
    pub(super) fn meet(
        &mut self,
        own: &[u8],
        answer: impl FnOnce(&[Vec<u8>]) -> Vec<u8>,
        until: Until<'_>,
    ) -> Result<Meeting, DeviceError> {
        const CALL: &str = "NCCL meeting";
        let (stream, size) = (self.stream.handle(), self.comm.size());
        self.headers.clear(stream)?;
        // The longest text, so that all exchanges have one length.
        self.headers_to_root(length_header(own.len()), CALL, until)?;
        let lengths: Vec<usize> =
            self.headers.inbox.as_slice().chunks_exact(HEADER).map(length_of).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let answered = self.header_from_root(|_| length_header(longest), CALL, until)?;
        let words = words_of(checked_length(length_of(&answered))?);
        let mut mail = Mail::new(&self.device, words.saturating_mul(size))?;
        pack(own, mail.out.as_mut_slice());
        let shape = (self.root, words);
        let sent = mail
            .clear(stream)
            .and_then(|()| mail.carry_up(&mut self.comm, shape, stream, until))
            .and_then(|()| self.wait(CALL, until));
        if let Err(error) = sent {
            mail.leak();
            return Err(error);
        }
        let (mut reply, mut texts) = (Vec::new(), Vec::new());
        if self.is_root() {
            let rows = mail.inbox.as_slice().chunks_exact(words.max(1)).zip(&lengths);
            texts = rows.map(|(row, &length)| unpack(row, length)).collect::<Vec<_>>();
            if let Some(text) = texts.get_mut(self.root) {
                *text = own.to_vec();
            }
            reply = answer(&texts);
        }
        Ok(Meeting { reply: self.spread(reply, until)?, texts })
    }

    /// The root's text on every rank.
    fn spread(&mut self, text: Vec<u8>, until: Until<'_>) -> Result<Vec<u8>, DeviceError> {
        const CALL: &str = "NCCL meeting";
        let stream = self.stream.handle();
        let header = self.header_from_root(|_| length_header(text.len()), CALL, until)?;
        let length = checked_length(length_of(&header))?;
        let words = words_of(length);
        let copies = if self.is_root() { self.comm.size() } else { 1 };
        let mut mail = Mail::new(&self.device, words.saturating_mul(copies))?;
        if self.is_root() {
            for row in mail.out.as_mut_slice().chunks_exact_mut(words.max(1)) {
                pack(&text, row);
            }
        }
        let shape = (self.root, words);
        let sent = mail
            .carry_down(&mut self.comm, shape, stream, until)
            .and_then(|()| self.wait(CALL, until));
        if let Err(error) = sent {
            mail.leak();
            return Err(error);
        }
        if self.is_root() { Ok(text) } else { Ok(unpack(mail.inbox.as_slice(), length)) }
    }

    /// After a call that did not end: a communicator of our own is aborted, and all is given back
    /// once that has ended its work; with a borrowed one everything is left alone for ever.
    pub(super) fn abandon(mut self) {
        if self.comm.is_owned() {
            self.comm.abort();
        } else {
            std::mem::forget(self);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_and_answers_survive_the_way() {
        let request = Request { channel: 3, round: u64::MAX, len: 150, tick: 7 };
        assert_eq!(request_of(&request_header(request)), Some(request));
        assert_eq!(request_of(&[-1; HEADER]), None);
        for part in [Part::Vector, Part::Skipped(0), Part::Skipped(255)] {
            assert_eq!(Part::from_header(&part.header()), part);
        }
        assert_eq!(Part::from_header(&[]), Part::Skipped(0));
    }
}
