//! Asks the RAS socket of a running job.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use crate::ras::error::RasError;

/// Port on which NCCL's RAS listens.
pub const DEFAULT_PORT: u16 = 28028;

/// Version of the protocol that is spoken here.
const PROTOCOL: u32 = 2;

/// Longest line that is an answer to a command.
const MAX_LINE: usize = 4096;

/// Whom to ask, and how long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// The host.
    pub host: String,
    /// The port.
    pub port: u16,
    /// How long one question may take from the first byte to the last.
    pub timeout: Duration,
    /// Bytes of an answer that are read at most.
    pub max_bytes: usize,
}

impl Default for Client {
    /// `localhost:28028`, 15 seconds, 64 MiB.
    fn default() -> Self {
        Self {
            host: "localhost".to_owned(),
            port: DEFAULT_PORT,
            timeout: Duration::from_secs(15),
            max_bytes: 64 << 20,
        }
    }
}

impl Client {
    /// Asks for the state of all communicators, and gives the text of the answer in JSON.
    ///
    /// The connection is closed before this returns: RAS serves few clients. RAS is told to give
    /// ranks that do not answer up in two thirds of the [timeout](Self::timeout), 5 seconds at most.
    ///
    /// # Errors
    /// Nobody listens, something else does, no JSON (NCCL before 2.28), no whole answer in time or
    /// within the limit.
    pub fn ask(&self) -> Result<String, RasError> {
        let mut talk = Talk::connect(self)?;
        let version = talk.command(&format!("CLIENT PROTOCOL {PROTOCOL}"))?;
        if !version.starts_with("SERVER PROTOCOL") {
            return Err(RasError::NoRas { address: talk.address, answer: version });
        }
        let patience = (self.timeout.as_secs() * 2 / 3).clamp(1, 5);
        for command in [format!("TIMEOUT {patience}"), "SET FORMAT json".to_owned()] {
            let answer = talk.command(&command)?;
            if answer != "OK" {
                return Err(RasError::Refused { command, answer });
            }
        }
        talk.send("VERBOSE STATUS")?;
        talk.rest()
    }
}

/// One connection.
struct Talk<'a> {
    client: &'a Client,
    address: String,
    stream: TcpStream,
    deadline: Instant,
    /// Bytes that were read and not used yet.
    waiting: Vec<u8>,
}

impl<'a> Talk<'a> {
    fn connect(client: &'a Client) -> Result<Self, RasError> {
        let deadline = Instant::now() + client.timeout;
        let address = format!("{}:{}", client.host, client.port);
        let targets = (client.host.as_str(), client.port)
            .to_socket_addrs()
            .map_err(|source| RasError::Resolve { host: client.host.clone(), source })?;
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "it has no address");
        for target in targets {
            let left = deadline.saturating_duration_since(Instant::now());
            match TcpStream::connect_timeout(&target, left.max(Duration::from_millis(1))) {
                Ok(stream) => {
                    return Ok(Self { client, address, stream, deadline, waiting: Vec::new() });
                }
                Err(error) => failure = error,
            }
        }
        Err(RasError::Connect { address, source: failure })
    }

    fn broke(&self, source: io::Error) -> RasError {
        match source.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => self.timed_out(),
            _ => RasError::Io { address: self.address.clone(), source },
        }
    }

    fn timed_out(&self) -> RasError {
        RasError::TimedOut { address: self.address.clone(), waited: self.client.timeout }
    }

    /// The time that is left, never zero: a timeout of zero is none.
    fn left(&self) -> Result<Duration, RasError> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left < Duration::from_millis(1) { Err(self.timed_out()) } else { Ok(left) }
    }

    fn send(&mut self, command: &str) -> Result<(), RasError> {
        let left = self.left()?;
        let line = format!("{command}\n");
        self.stream
            .set_write_timeout(Some(left))
            .and_then(|()| self.stream.write_all(line.as_bytes()))
            .map_err(|source| self.broke(source))
    }

    /// Reads what is there, waiting for something. False at the end.
    fn read_some(&mut self) -> Result<bool, RasError> {
        let left = self.left()?;
        let mut buffer = [0_u8; 16 * 1024];
        loop {
            let read = self
                .stream
                .set_read_timeout(Some(left))
                .and_then(|()| self.stream.read(&mut buffer));
            match read {
                Ok(count) => {
                    self.waiting.extend_from_slice(buffer.get(..count).unwrap_or_default());
                    return Ok(count > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.broke(error)),
            }
        }
    }

    /// Sends a command and returns the line that answers it, without its end.
    fn command(&mut self, command: &str) -> Result<String, RasError> {
        self.send(command)?;
        loop {
            if let Some(end) = self.waiting.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.waiting.drain(..=end).collect();
                return Ok(shown(&line));
            }
            if self.waiting.len() > MAX_LINE || !self.read_some()? {
                // No line: the beginning of whatever it is tells what listens there.
                let answer = shown(&self.waiting);
                return Err(RasError::NoRas { address: self.address.clone(), answer });
            }
        }
    }

    /// Everything up to the end of the connection.
    fn rest(mut self) -> Result<String, RasError> {
        loop {
            if self.waiting.len() > self.client.max_bytes {
                let (address, limit) = (self.address, self.client.max_bytes);
                return Err(RasError::TooLarge { address, limit });
            }
            if !self.read_some()? {
                return Ok(String::from_utf8_lossy(&self.waiting).into_owned());
            }
        }
    }
}

/// A line for a person: without its end, and not too long.
fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line.get(..200).unwrap_or(line)).into_owned();
    text.trim_end().to_owned()
}
