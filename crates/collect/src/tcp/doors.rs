//! The root's listener: strangers are turned away, members say hello.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::peer::waiting;
use super::secret::{PREAMBLE, Secret, Visitor};
use crate::gather::GatherEvents;
use crate::group::Hello;
use crate::wire::{HEADER, Header, Kind, TEXT_MAX, Verdict};

/// How long a visitor may take to say hello.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections taken in one look.
const ACCEPTS: usize = 256;

/// Takes connections and reads their hello, without ever waiting for one of them.
pub(super) struct Doors {
    listener: TcpListener,
    secret: Secret,
    visitors: Vec<Visit>,
    limit: usize,
    /// Why no connection can be taken, since the last one was.
    pub(super) trouble: Option<io::Error>,
}

/// A connection that has not said hello yet.
struct Visit {
    stream: TcpStream,
    since: Instant,
    received: Vec<u8>,
    /// Bytes that must have come before the next part can be judged.
    target: usize,
}

/// What a look at a visitor led to.
enum Look {
    Waiting,
    Progress,
    Hello(Box<Hello>),
    Stranger,
    BadFrame,
}

impl Doors {
    /// `limit`: visitors that may stand at the door at a time.
    pub(super) fn new(listener: TcpListener, secret: Secret, limit: usize) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener, secret, visitors: Vec::new(), limit, trouble: None })
    }

    /// Whether somebody is at the door.
    pub(super) fn is_busy(&self) -> bool {
        !self.visitors.is_empty()
    }

    /// Lets in who has come; hands over who has said a complete hello. Says whether anything
    /// happened.
    pub(super) fn look(
        &mut self,
        scratch: &mut [u8],
        events: &mut GatherEvents,
        mut arrived: impl FnMut(TcpStream, Hello),
    ) -> bool {
        let mut progress = self.accept(events);
        let mut i = 0;
        while let Some(visit) = self.visitors.get_mut(i) {
            match visit.look(&self.secret, scratch) {
                Look::Waiting => i += 1,
                Look::Progress => {
                    progress = true;
                    i += 1;
                }
                Look::Hello(hello) => {
                    progress = true;
                    arrived(self.visitors.swap_remove(i).stream, *hello);
                }
                Look::Stranger => {
                    events.strangers_refused += 1;
                    self.visitors.swap_remove(i);
                }
                Look::BadFrame => {
                    events.bad_frames += 1;
                    self.visitors.swap_remove(i);
                }
            }
        }
        progress
    }

    fn accept(&mut self, events: &mut GatherEvents) -> bool {
        let mut progress = false;
        for _ in 0..ACCEPTS {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    progress = true;
                    self.trouble = None;
                    let usable = stream.set_nonblocking(true).and(stream.set_nodelay(true));
                    if self.visitors.len() >= self.limit || usable.is_err() {
                        events.strangers_refused += 1;
                        continue;
                    }
                    let since = Instant::now();
                    let received = Vec::new();
                    self.visitors.push(Visit { stream, since, received, target: PREAMBLE });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return progress,
                // Of this connection, or of the process: too many open files.
                Err(error) => {
                    self.trouble = Some(error);
                    return progress;
                }
            }
        }
        progress
    }
}

impl Visit {
    fn look(&mut self, secret: &Secret, scratch: &mut [u8]) -> Look {
        let mut progress = false;
        loop {
            let missing = self.target.saturating_sub(self.received.len()).min(scratch.len());
            let Some(room) = scratch.get_mut(..missing) else { return self.gone() };
            match self.stream.read(room) {
                Ok(0) => return self.gone(),
                Ok(n) => {
                    progress = true;
                    self.received.extend(room.iter().take(n));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() != ErrorKind::WouldBlock => return self.gone(),
                Err(_) if self.since.elapsed() > PATIENCE => return self.gone(),
                Err(_) if progress => return Look::Progress,
                Err(_) => return Look::Waiting,
            }
            if self.received.len() >= self.target
                && let Some(look) = self.advance(secret)
            {
                return look;
            }
        }
    }

    /// A part is complete: preamble, header or hello.
    fn advance(&mut self, secret: &Secret) -> Option<Look> {
        const HEAD: usize = PREAMBLE + HEADER;
        match self.target {
            PREAMBLE => {
                let preamble = self.received.first_chunk()?;
                match secret.check(preamble) {
                    Visitor::Member => self.target = HEAD,
                    Visitor::Stranger => return Some(Look::Stranger),
                    Visitor::WrongSecret => return Some(self.refuse("wrong secret")),
                    Visitor::OtherVersion => {
                        return Some(self.refuse("another version of the protocol"));
                    }
                }
                None
            }
            HEAD => {
                let header = self.received.get(PREAMBLE..).and_then(<[u8]>::first_chunk)?;
                match Header::decode(header) {
                    Some(Header { kind: Kind::Hello, payload: payload @ 1..=TEXT_MAX, .. }) => {
                        self.target = HEAD + payload;
                        None
                    }
                    _ => Some(Look::BadFrame),
                }
            }
            _ => {
                let text = self.received.get(HEAD..).unwrap_or_default();
                let hello = serde_json::from_slice(text);
                Some(hello.map_or(Look::BadFrame, |hello| Look::Hello(Box::new(hello))))
            }
        }
    }

    /// The connection ended or took too long.
    fn gone(&self) -> Look {
        if self.target == PREAMBLE { Look::Stranger } else { Look::BadFrame }
    }

    fn refuse(&self, reason: &str) -> Look {
        let verdict = Verdict::Refused(reason.to_owned());
        send_verdict(&self.stream, &verdict, Duration::ZERO);
        Look::Stranger
    }
}

/// Sends a verdict as far as the socket takes it within `patience`; whether it took all.
pub(super) fn send_verdict(mut stream: &TcpStream, verdict: &Verdict, patience: Duration) -> bool {
    let Ok(text) = serde_json::to_vec(verdict) else { return false };
    let mut frame = Header::text(Kind::Verdict, text.len()).encode().to_vec();
    frame.extend(text);
    let (since, mut rest) = (Instant::now(), frame.as_slice());
    while !rest.is_empty() {
        match stream.write(rest) {
            Ok(n @ 1..) => rest = rest.get(n..).unwrap_or_default(),
            Err(error) if waiting(&error).is_some() && since.elapsed() < patience => {
                std::thread::sleep(Duration::from_millis(1));
            }
            _ => return false,
        }
    }
    true
}
