//! Every rank but the root: one connection, with a thread that reads it and makes it anew.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::peer::waiting;
use super::secret::Secret;
use crate::device::Identity;
use crate::gather::{Contribution, Gather, GatherError, GatherEvents, Gathered, Request, Wanted};
use crate::group::{Agreement, Hello, JoinError, Joined, Membership, Proposal};
use crate::inbox::Inbox;
use crate::stop::{Stop, Until, lock};
use crate::wire::{HEADER, Header, Kind, TEXT_MAX, Verdict, encode_vector};

/// Longest wait for one connection to be made.
const CONNECT: Duration = Duration::from_secs(1);
/// First and longest pause between attempts to reach the root.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(2));
/// How often a blocked read or write looks around.
const LOOK: Duration = Duration::from_millis(20);
/// How often a blocked read does when it is in the background, where a shutdown wakes it.
const SLOW_LOOK: Duration = Duration::from_millis(500);
/// A root that has been silent for so long is looked for anew; it pings every 5 s.
const SILENCE: Duration = Duration::from_secs(30);
/// Longest wait for the verdict when the connection is made anew.
const REJOIN: Duration = Duration::from_secs(10);
/// How long the last words, and the end of the thread, may take.
const FAREWELL: Duration = Duration::from_millis(50);
/// Bytes of a vector that are encoded at a time.
const CHUNK: usize = 64 * 1024;

/// How to reach the root.
#[derive(Clone)]
pub(super) struct Route {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) secret: Secret,
}

/// Why an attempt did not lead to an agreement.
enum Attempt {
    /// Another may.
    Again(String),
    /// No other will.
    Final(JoinError),
}

/// Says hello to the root until it answers, then starts the thread if collection is wanted.
pub(super) fn join(
    membership: Membership,
    route: Route,
    proposal: &Proposal,
    until: Until<'_>,
) -> Result<Option<Joined>, JoinError> {
    let hello = Hello::new(&membership, proposal);
    let mut pause = PAUSES.0;
    loop {
        let reason = match route.attempt(&hello, until) {
            Ok((_, Agreement::Disabled)) => return Ok(None),
            Ok((stream, Agreement::Enabled(instance))) => {
                let gather = TcpLeaf::start(membership, route, hello, stream, instance)?;
                return Ok(Some(Joined { instance, gather: Box::new(gather) }));
            }
            Err(Attempt::Final(error)) => return Err(error),
            Err(Attempt::Again(reason)) => reason,
        };
        if until.stop().is_set() {
            return Err(JoinError::Stopped);
        }
        if until.is_over() {
            return Err(JoinError::NoRoot { place: route.place(), reason });
        }
        until.sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(500));
    }
}

impl Route {
    fn place(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// One connection, hello and verdict.
    fn attempt(&self, hello: &Hello, until: Until<'_>) -> Result<(TcpStream, Agreement), Attempt> {
        let again = |error: std::io::Error| Attempt::Again(error.to_string());
        let stream = self.connect(until)?;
        stream.set_nodelay(true).map_err(again)?;
        stream.set_write_timeout(Some(LOOK)).map_err(again)?;
        stream.set_read_timeout(Some(LOOK)).map_err(again)?;
        let text = serde_json::to_vec(hello).unwrap_or_default();
        let mut opening = self.secret.preamble().to_vec();
        opening.extend(Header::text(Kind::Hello, text.len()).encode());
        opening.extend(text);
        send(&stream, &opening, until).map_err(|error| Attempt::Again(error.to_string()))?;
        let closed = || Attempt::Again("the root closed the connection".to_owned());
        let mut header = [0; HEADER];
        receive(&stream, &mut header, until)?;
        let header = Header::decode(&header).ok_or_else(closed)?;
        if header.kind != Kind::Verdict || header.payload > TEXT_MAX {
            return Err(closed());
        }
        let mut text = vec![0; header.payload];
        receive(&stream, &mut text, until)?;
        let verdict: Verdict = serde_json::from_slice(&text).map_err(|_| closed())?;
        match verdict {
            Verdict::Agreed(agreement) => Ok((stream, agreement)),
            Verdict::Disagreement(differences) => {
                Err(Attempt::Final(JoinError::Disagreement(differences)))
            }
            Verdict::Missing { ranks, size } => {
                Err(Attempt::Final(JoinError::Missing { ranks, size }))
            }
            Verdict::Refused(reason) => {
                let reason = format!("{reason} (root at {})", self.place());
                Err(Attempt::Final(JoinError::Refused { rank: hello.rank, reason }))
            }
        }
    }

    fn connect(&self, until: Until<'_>) -> Result<TcpStream, Attempt> {
        let addresses = (self.host.as_str(), self.port)
            .to_socket_addrs()
            .map_err(|error| Attempt::Again(format!("{}: {error}", self.place())))?;
        let mut last = "the name has no address".to_owned();
        for address in addresses {
            // A timeout of zero is an error.
            let timeout = until.remaining().clamp(Duration::from_millis(1), CONNECT);
            match TcpStream::connect_timeout(&address, timeout) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error.to_string(),
            }
            if until.is_over() {
                break;
            }
        }
        Err(Attempt::Again(last))
    }
}

/// Writes all of `bytes`, or fails.
fn send(mut stream: &TcpStream, mut bytes: &[u8], until: Until<'_>) -> Result<(), GatherError> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(0) => return Err(GatherError::NotSent("the connection is closed".to_owned())),
            Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
            Err(error) if waiting(&error).is_none() => {
                return Err(GatherError::NotSent(error.to_string()));
            }
            Err(_) if until.stop().is_set() => return Err(GatherError::Stopped),
            Err(_) if until.is_over() => {
                return Err(GatherError::NotSent("the connection takes nothing".to_owned()));
            }
            Err(_) => {}
        }
    }
    Ok(())
}

/// Fills `room`, or fails.
fn receive(mut stream: &TcpStream, room: &mut [u8], until: Until<'_>) -> Result<(), Attempt> {
    let mut filled = 0;
    while let Some(rest) = room.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match stream.read(rest) {
            Ok(0) => return Err(Attempt::Again("the root closed the connection".to_owned())),
            Ok(n) => filled += n,
            Err(error) if waiting(&error).is_none() => {
                return Err(Attempt::Again(error.to_string()));
            }
            Err(_) if until.is_over() => return Err(Attempt::Again("no answer".to_owned())),
            Err(_) => {}
        }
    }
    Ok(())
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    stop: Stop,
}

struct State {
    inbox: Inbox,
    /// To write to, while there is a connection.
    stream: Option<Arc<TcpStream>>,
    root_left: bool,
    /// Why there will be no connection any more.
    refused: Option<String>,
    events: GatherEvents,
}

/// The gather of a rank that is not the root.
pub(super) struct TcpLeaf {
    membership: Membership,
    identity: Arc<Identity>,
    shared: Arc<Shared>,
    bytes: Vec<u8>,
    thread: Option<JoinHandle<()>>,
}

impl TcpLeaf {
    fn start(
        membership: Membership,
        route: Route,
        hello: Hello,
        stream: TcpStream,
        instance: Uuid,
    ) -> Result<Self, JoinError> {
        let stream = Arc::new(stream);
        let state = State {
            inbox: Inbox::default(),
            stream: Some(Arc::clone(&stream)),
            root_left: false,
            refused: None,
            events: GatherEvents::default(),
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            stop: Stop::new(),
        });
        let identity = Arc::new(hello.proposal.identity.clone());
        let reader = Reader { route, hello, instance, shared: Arc::clone(&shared) };
        let thread = std::thread::Builder::new()
            .name("deepxtrace-tcp".to_owned())
            .spawn(move || reader.run(stream))
            .map_err(|error| JoinError::Transport {
                what: "starting the connection thread".to_owned(),
                reason: error.to_string(),
            })?;
        let bytes = Vec::with_capacity(CHUNK + HEADER);
        Ok(Self { membership, identity, shared, bytes, thread: Some(thread) })
    }

    fn write(
        &mut self,
        stream: &TcpStream,
        header: Header,
        vector: &[i64],
        until: Until<'_>,
    ) -> Result<(), GatherError> {
        self.bytes.clear();
        self.bytes.extend(header.encode());
        for chunk in vector.chunks(CHUNK / size_of::<i64>()) {
            encode_vector(chunk, &mut self.bytes);
            send(stream, &self.bytes, until)?;
            self.bytes.clear();
        }
        send(stream, &self.bytes, until)
    }
}

impl Gather for TcpLeaf {
    fn membership(&self) -> &Membership {
        &self.membership
    }

    fn identity(&self, rank: usize) -> Option<Arc<Identity>> {
        (rank == self.membership.rank()).then(|| Arc::clone(&self.identity))
    }

    fn announce(&mut self, _request: Request) -> Result<(), GatherError> {
        Err(GatherError::WrongSide("announce"))
    }

    fn gather(
        &mut self,
        _request: Request,
        _own: Contribution<'_>,
        _into: &mut Gathered,
        _until: Until<'_>,
    ) -> Result<(), GatherError> {
        Err(GatherError::WrongSide("gather"))
    }

    fn await_request(
        &mut self,
        wanted: Wanted,
        until: Until<'_>,
    ) -> Result<Option<Request>, GatherError> {
        let mut state = lock(&self.shared.state);
        loop {
            if until.stop().is_set() {
                return Err(GatherError::Stopped);
            }
            if let Some(request) = state.inbox.take(wanted) {
                return Ok(Some(request));
            }
            if state.root_left {
                return Err(GatherError::RootLeft);
            }
            if let Some(reason) = &state.refused {
                return Err(GatherError::OutOfUse(reason.clone()));
            }
            if until.is_over() {
                return Ok(None);
            }
            let time = until.remaining().min(LOOK);
            let waited = self.shared.changed.wait_timeout(state, time);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn answer(
        &mut self,
        request: Request,
        own: Contribution<'_>,
        until: Until<'_>,
    ) -> Result<(), GatherError> {
        let (kind, vector) = match own {
            Contribution::Host(vector) => (Kind::Vector, vector),
            Contribution::Skipped(reason) => (Kind::Skipped(reason), Default::default()),
            Contribution::Device { .. } => return Err(GatherError::Residence),
        };
        let stream = lock(&self.shared.state).stream.clone();
        let Some(stream) = stream else {
            return Err(GatherError::NotSent("there is no connection now".to_owned()));
        };
        let request = Request {
            len: if kind == Kind::Vector { vector.len() } else { request.len },
            ..request
        };
        let result = self.write(&stream, Header::of(kind, request), vector, until);
        if result.is_err() {
            // What was sent may end in the middle of a frame: nothing can follow it.
            let _ = stream.shutdown(Shutdown::Both);
        }
        result
    }

    fn goodbye(&mut self) {
        let stream = lock(&self.shared.state).stream.take();
        self.shared.stop.set();
        if let Some(stream) = stream {
            let stop = Stop::new();
            let until = Until::after(FAREWELL, &stop);
            let _ = send(&stream, &Header::bare(Kind::Goodbye).encode(), until);
            // Wakes the thread that reads.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn events(&self) -> GatherEvents {
        lock(&self.shared.state).events
    }
}

impl Drop for TcpLeaf {
    fn drop(&mut self) {
        self.goodbye();
        let since = Instant::now();
        if let Some(thread) = self.thread.take() {
            // It may be waiting for a connection; then it ends by itself within a second.
            while !thread.is_finished() && since.elapsed() < FAREWELL {
                std::thread::sleep(Duration::from_millis(1));
            }
            if thread.is_finished() {
                let _ = thread.join();
            }
        }
    }
}

/// The thread that reads the connection.
struct Reader {
    route: Route,
    hello: Hello,
    instance: Uuid,
    shared: Arc<Shared>,
}

/// Why the reading of a connection ended.
enum Ended {
    Lost,
    RootLeft,
}

impl Reader {
    fn run(mut self, mut stream: Arc<TcpStream>) {
        loop {
            let ended = self.read(&stream);
            let _ = stream.shutdown(Shutdown::Both);
            {
                let mut state = lock(&self.shared.state);
                state.stream = None;
                if matches!(ended, Ended::RootLeft) {
                    state.root_left = true;
                    self.shared.changed.notify_all();
                    return;
                }
                state.events.lost += 1;
            }
            match self.reconnect() {
                Some(next) => stream = next,
                None => return,
            }
        }
    }

    fn read(&self, mut stream: &TcpStream) -> Ended {
        // If this fails, the look is only more frequent.
        let _ = stream.set_read_timeout(Some(SLOW_LOOK));
        let mut header = [0; HEADER];
        let mut filled = 0;
        let mut heard = Instant::now();
        while !self.shared.stop.is_set() {
            let Some(room) = header.get_mut(filled..) else { return Ended::Lost };
            match stream.read(room) {
                Ok(0) => return Ended::Lost,
                Ok(n) => {
                    heard = Instant::now();
                    filled += n;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if waiting(&error).is_none() => return Ended::Lost,
                Err(_) if heard.elapsed() > SILENCE => return Ended::Lost,
                Err(_) => {}
            }
            if filled < HEADER {
                continue;
            }
            filled = 0;
            match Header::decode(&header) {
                Some(Header { kind: Kind::Request, payload: 0, request }) => {
                    lock(&self.shared.state).inbox.put(request);
                    self.shared.changed.notify_all();
                }
                Some(Header { kind: Kind::Ping, payload: 0, .. }) => {}
                Some(Header { kind: Kind::Goodbye, payload: 0, .. }) => return Ended::RootLeft,
                _ => {
                    lock(&self.shared.state).events.bad_frames += 1;
                    return Ended::Lost;
                }
            }
        }
        Ended::Lost
    }

    /// Reaches the root again, however long it takes; `None` when that is of no use any more.
    fn reconnect(&mut self) -> Option<Arc<TcpStream>> {
        let mut pause = PAUSES.0;
        loop {
            if self.shared.stop.sleep(pause) {
                return None;
            }
            pause = (pause * 2).min(PAUSES.1);
            let until = Until::after(REJOIN, &self.shared.stop);
            let refused = match self.route.attempt(&self.hello, until) {
                Err(Attempt::Again(_)) => continue,
                Err(Attempt::Final(error)) => error.to_string(),
                Ok((_, Agreement::Disabled)) => "the root does not collect any more".to_owned(),
                Ok((stream, Agreement::Enabled(instance))) => {
                    let stream = Arc::new(stream);
                    let mut state = lock(&self.shared.state);
                    if instance != self.instance {
                        self.instance = instance;
                        state.inbox.root_changed();
                    }
                    state.stream = Some(Arc::clone(&stream));
                    state.events.rejoined += 1;
                    return Some(stream);
                }
            };
            lock(&self.shared.state).refused = Some(refused);
            self.shared.changed.notify_all();
            return None;
        }
    }
}
