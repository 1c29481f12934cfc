//! A group of 1,024 ranks on one machine: the root is real, the others are sockets that a few
//! threads serve.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::TcpGroup;
use super::secret::Secret;
use crate::collector::Collector;
use crate::device::CounterMemory;
use crate::gather::Status;
use crate::group::{Group, Hello, Membership, Proposal};
use crate::host::HostMemory;
use crate::stop::{Stop, Until};
use crate::wire::{HEADER, Header, Kind, encode_vector};

const RANKS: usize = 1024;
const LEN: usize = 6 + 9 * RANKS;
const ROUNDS: u64 = 5;
const SERVERS: usize = 4;
const PATIENCE: Duration = Duration::from_secs(120);

/// Joins as `rank`, up to the hello; the verdict comes when all are there.
fn connect(rank: usize, port: u16) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let membership = Membership::world(rank, RANKS).unwrap();
    let proposal = Proposal { enabled: true, vector_len: LEN, ..Proposal::default() };
    let text = serde_json::to_vec(&Hello::new(&membership, &proposal)).unwrap();
    let mut opening = Secret::new("secret").unwrap().preamble().to_vec();
    opening.extend(Header::text(Kind::Hello, text.len()).encode());
    opening.extend(text);
    stream.write_all(&opening).unwrap();
    stream
}

fn header(stream: &mut TcpStream) -> Header {
    let mut bytes = [0; HEADER];
    stream.read_exact(&mut bytes).unwrap();
    Header::decode(&bytes).unwrap()
}

/// Serves the ranks `first, first + SERVERS, ...` for all rounds.
fn serve(first: usize, port: u16) {
    let mut streams: Vec<_> =
        (first..RANKS).step_by(SERVERS).map(|rank| (rank, connect(rank, port))).collect();
    for (_, stream) in &mut streams {
        let verdict = header(stream);
        assert_eq!(verdict.kind, Kind::Verdict);
        stream.read_exact(&mut vec![0; verdict.payload]).unwrap();
    }
    let mut frame = Vec::new();
    for _ in 0..ROUNDS {
        for (rank, stream) in &mut streams {
            let request = loop {
                let header = header(stream);
                if header.kind == Kind::Request {
                    break header.request;
                }
            };
            frame.clear();
            frame.extend(Header::of(Kind::Vector, request).encode());
            let base = (*rank as i64) << 32 | (request.round as i64) << 20;
            encode_vector(&(base..base + LEN as i64).collect::<Vec<_>>(), &mut frame);
            stream.write_all(&frame).unwrap();
        }
    }
}

#[test]
fn a_round_of_1024_ranks_takes_under_a_second_at_the_root() {
    let membership = Membership::world(0, RANKS).unwrap();
    let mut group = Box::new(TcpGroup::new(membership, "127.0.0.1", 0, "secret").unwrap());
    let port = group.listen().unwrap().port();
    let servers: Vec<_> =
        (1..=SERVERS).map(|first| std::thread::spawn(move || serve(first, port))).collect();
    let stop = Stop::new();
    let until = Until::after(PATIENCE, &stop);
    let proposal = Proposal { enabled: true, vector_len: LEN, ..Proposal::default() };
    let joined = group.join(&proposal, until).unwrap().unwrap();
    let memory: Arc<dyn CounterMemory> = Arc::new(HostMemory::new(LEN));
    let whole = 0..LEN;
    let mut collector = Collector::new(memory, joined.gather, &[whole], PATIENCE).unwrap();
    let mut times = Vec::new();
    for number in 0..ROUNDS {
        let begin = Instant::now();
        let round = collector.lead(0, until).unwrap();
        times.push(begin.elapsed());
        assert_eq!(round.gathered.statuses(), [Status::Ok; RANKS]);
        for rank in [1, 511, 1023] {
            let base = (rank as i64) << 32 | (number as i64) << 20;
            let expected: Vec<_> = (base..base + LEN as i64).collect();
            assert_eq!(round.gathered.vector(rank).unwrap(), expected);
        }
    }
    for server in servers {
        server.join().unwrap();
    }
    // The first allocates; the machine may be loaded in any of the others.
    let best = times.iter().min().unwrap();
    assert!(*best < Duration::from_secs(1), "{times:?}");
}
