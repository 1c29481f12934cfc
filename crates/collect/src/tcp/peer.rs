//! The root's side of one connection: requests go out, answers come in.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::rounds::Rounds;
use crate::gather::{Request, Status};
use crate::stop::lock;
use crate::wire::{HEADER, Header, Kind, VectorReader};

/// Reads of one connection in one look, so that a fast one does not keep the others waiting.
const READS: usize = 4;
/// A connection without other traffic shows that the root is there, this often.
const PING: Duration = Duration::from_secs(5);

/// One rank's connection.
pub(super) struct Peer {
    stream: TcpStream,
    header: [u8; HEADER],
    received: usize,
    body: Body,
    /// What is being sent, and from where on.
    sending: [u8; HEADER],
    sent: usize,
    /// What to send after it; a newer frame takes the place of an older one.
    next: Option<[u8; HEADER]>,
    last_sent: Instant,
}

/// What the next bytes are.
enum Body {
    Header,
    Vector { request: Request, left: usize, reader: VectorReader },
    Discard { left: usize },
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Goodbye,
    Lost,
    BadFrame,
}

impl Peer {
    pub(super) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            header: [0; HEADER],
            received: 0,
            body: Body::Header,
            sending: [0; HEADER],
            sent: HEADER,
            next: None,
            last_sent: Instant::now(),
        }
    }

    /// Sends a frame without payload, as soon as the socket takes it.
    pub(super) fn send(&mut self, header: Header) -> Result<(), End> {
        self.next = Some(header.encode());
        self.flush()
    }

    /// Whether all has been handed to the socket.
    pub(super) fn is_flushed(&self) -> bool {
        self.sent == HEADER && self.next.is_none()
    }

    pub(super) fn flush(&mut self) -> Result<(), End> {
        loop {
            if self.sent == HEADER {
                let Some(next) = self.next.take() else { return Ok(()) };
                (self.sending, self.sent) = (next, 0);
            }
            let rest = self.sending.get(self.sent..).unwrap_or_default();
            match self.stream.write(rest) {
                Ok(0) => return Err(End::Lost),
                Ok(n) => {
                    self.sent += n;
                    self.last_sent = Instant::now();
                }
                Err(error) => match waiting(&error) {
                    Some(true) => return Ok(()),
                    Some(false) => {}
                    None => return Err(End::Lost),
                },
            }
        }
    }

    /// Shows a quiet connection that the root is there.
    pub(super) fn ping(&mut self) -> Result<(), End> {
        if self.is_flushed() && self.last_sent.elapsed() > PING {
            return self.send(Header::bare(Kind::Ping));
        }
        Ok(())
    }

    /// Reads what has come, and files it for `rank`. Says whether anything came.
    pub(super) fn read(
        &mut self,
        rank: usize,
        scratch: &mut [u8],
        rounds: &Mutex<Rounds>,
    ) -> Result<bool, End> {
        let mut progress = false;
        for _ in 0..READS {
            match self.stream.read(scratch) {
                Ok(0) => return Err(End::Lost),
                Ok(n) => {
                    progress = true;
                    let bytes = scratch.get(..n).unwrap_or_default();
                    self.consume(rank, bytes, &mut lock(rounds))?;
                    if n < scratch.len() {
                        break;
                    }
                }
                Err(error) => match waiting(&error) {
                    Some(true) => break,
                    Some(false) => {}
                    None => return Err(End::Lost),
                },
            }
        }
        Ok(progress)
    }

    fn consume(&mut self, rank: usize, mut bytes: &[u8], rounds: &mut Rounds) -> Result<(), End> {
        while !bytes.is_empty() {
            let used = match &mut self.body {
                Body::Header => self.consume_header(rank, bytes, rounds)?,
                Body::Discard { left } => {
                    let used = bytes.len().min(*left);
                    *left -= used;
                    used
                }
                Body::Vector { request, left, reader } => {
                    let used = bytes.len().min(*left);
                    *left -= used;
                    // The round may have ended in the middle of the vector.
                    if let Some(row) = rounds.row(*request, rank) {
                        reader.take(bytes.get(..used).unwrap_or_default(), row);
                        if *left == 0 {
                            rounds.answer(*request, rank, Status::Ok);
                        }
                    } else if *left == 0 {
                        rounds.events.late_answers += 1;
                    }
                    used
                }
            };
            if let Body::Vector { left: 0, .. } | Body::Discard { left: 0 } = self.body {
                self.body = Body::Header;
            }
            bytes = bytes.get(used..).unwrap_or_default();
        }
        Ok(())
    }

    fn consume_header(
        &mut self,
        rank: usize,
        bytes: &[u8],
        rounds: &mut Rounds,
    ) -> Result<usize, End> {
        let room = self.header.get_mut(self.received..).unwrap_or_default();
        let used = bytes.len().min(room.len());
        for (to, from) in room.iter_mut().zip(bytes) {
            *to = *from;
        }
        self.received += used;
        if self.received < HEADER {
            return Ok(used);
        }
        self.received = 0;
        let header = Header::decode(&self.header).ok_or(End::BadFrame)?;
        let request = header.request;
        match header.kind {
            Kind::Goodbye => return Err(End::Goodbye),
            Kind::Skipped(reason) if header.payload == 0 => {
                rounds.answer(request, rank, Status::Skipped(reason));
            }
            Kind::Vector => {
                let expected = request.len.checked_mul(size_of::<i64>());
                if expected != Some(header.payload) || request.len > rounds.vector_len {
                    return Err(End::BadFrame);
                }
                let left = header.payload;
                self.body = if rounds.row(request, rank).is_some() {
                    Body::Vector { request, left, reader: VectorReader::new() }
                } else {
                    rounds.events.late_answers += 1;
                    Body::Discard { left }
                };
            }
            _ => return Err(End::BadFrame),
        }
        Ok(used)
    }
}

/// `Some(true)`: the socket has nothing now; `Some(false)`: try again; `None`: it is broken.
pub(super) fn waiting(error: &io::Error) -> Option<bool> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Some(true),
        ErrorKind::Interrupted => Some(false),
        _ => None,
    }
}
