//! One place of an analysis: reading, following processes, placing calls, and the whole at the root.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::exchange::scatter;
use super::files::{Files, Homes, Plan};
use super::wire::{Decoder, Encoder, How, Received};
use super::{Damaged, Exchange, SpreadError, gather, share};
use crate::analyzer::Analyzer;
use crate::analyzer::ingest::Followed;
use crate::analyzer::part::{Division, Met};
use crate::config::Config;
use crate::event::Event;
use crate::reader::{ReadReport, Stepped, Turn};

/// How an analysis is spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// Bytes that one place receives in a round, at most but for one block of each file reader
    /// (some 30 kB).
    pub chunk_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { chunk_bytes: 16 << 20 }
    }
}

/// What was moved between places.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Rounds of reading and exchanging.
    pub rounds: u64,
    /// Bytes of events that this place sent to others.
    pub event_bytes: u64,
    /// Bytes of what was open at the end that this place sent to the root.
    pub open_bytes: u64,
}

/// What one place has of an analysis.
#[derive(Debug)]
#[non_exhaustive]
pub struct Spread {
    /// The whole, at the root.
    pub analyzer: Option<Analyzer>,
    /// What was read here.
    pub report: ReadReport,
    /// What this place sent.
    pub traffic: Traffic,
}

/// Reads the files of all places, and gives the root the analyzer that has taken them all in. All
/// places call it with the same run, configuration and options, and each with its own files.
///
/// A file that cannot be read is noted in the report of its place. `progress` is told how many bytes
/// of events have been read here.
///
/// # Errors
///
/// When the exchange fails, or another place sends what is not understood.
///
/// ```
/// use deepxtrace_nccl_h2::Config;
/// use deepxtrace_nccl_h2::spread::{Files, InMemory, Options, analyze};
///
/// let mut places = InMemory::places(1);
/// let files = Files::default(); // a place may have none
/// let spread = analyze(files, "r", Config::default(), Options::default(), &mut places[0])?;
/// let analyzer = spread.analyzer.ok_or("not the root")?;
/// assert_eq!(analyzer.process_count(), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn analyze<X: Exchange + ?Sized>(
    files: Files,
    run_id: &str,
    config: Config,
    options: Options,
    exchange: &mut X,
) -> Result<Spread, SpreadError<X::Error>> {
    let Plan { files, homes } = files.plan(exchange)?;
    let mut files = Stepped::new(files);
    let mut place = Place::new(run_id, config, homes, exchange.size());
    let budget = (options.chunk_bytes / exchange.size().max(1)).max(1);
    loop {
        while place.waiting() < budget && files.may_step() {
            let mut failed = None;
            files.step(|turn, event, receipt| {
                if failed.is_none() {
                    failed = place.take_in(turn, event, receipt.monotonic_ns).err();
                }
            });
            failed.map_or(Ok(()), Err)?;
        }
        let horizon = agree(&mut files, exchange)?;
        place.round(horizon, exchange)?;
        if horizon.is_none() {
            break;
        }
    }
    let whole = place.give(options.chunk_bytes, exchange)?;
    let analyzer = whole.map(|(analyzer, _)| analyzer);
    Ok(Spread { analyzer, report: files.report(), traffic: place.traffic })
}

/// How far a place has read.
#[derive(Debug, Serialize, Deserialize)]
struct Progress {
    /// The turn of its next block.
    next: Option<Turn>,
    /// How far files have been read that go on elsewhere.
    open: Vec<(u32, Turn)>,
    /// Those of them that have ended since, with the wall clock at their end.
    ended: Vec<(u32, i64)>,
}

/// The turn before which all places have read everything; `None` when there is nothing left.
fn agree<X: Exchange + ?Sized>(
    files: &mut Stepped,
    exchange: &mut X,
) -> Result<Option<Turn>, SpreadError<X::Error>> {
    let (open, ended) = (files.open(), files.take_ended());
    let mine = Progress { next: files.next(), open, ended };
    let mine = postcard::to_stdvec(&mine).map_err(Damaged::from)?;
    let mut horizon: Option<Turn> = None;
    for progress in share(exchange, &mine).map_err(SpreadError::Exchange)? {
        let progress: Progress = postcard::from_bytes(&progress).map_err(Damaged::from)?;
        for (file, turn) in progress.open {
            files.has_come_to(file, turn);
        }
        for (file, time) in progress.ended {
            files.has_ended(file, time);
            // What continues it begins here.
            let begins = Turn { time, file: file.saturating_add(1), block: 0, event: 0 };
            horizon = Some(horizon.map_or(begins, |known| known.min(begins)));
        }
        if let Some(next) = progress.next {
            horizon = Some(horizon.map_or(next, |known| known.min(next)));
        }
    }
    Ok(horizon)
}

/// One place: it follows some processes, and places the calls of some communicators.
#[derive(Debug)]
pub(super) struct Place {
    run_id: String,
    pub(super) analyzer: Analyzer,
    met: Met,
    homes: Homes,
    /// Events to the places that follow their processes, and from those that read them.
    to_follow: Vec<Encoder>,
    following: Vec<Decoder>,
    /// Calls to the places of their communicators, and from those that follow their processes.
    to_place: Vec<Encoder>,
    placing: Vec<Decoder>,
    pub(super) traffic: Traffic,
}

impl Place {
    pub(super) fn new(run_id: &str, config: Config, homes: Homes, places: usize) -> Self {
        fn each<T: Default>(places: usize) -> Vec<T> {
            (0..places).map(|_| T::default()).collect()
        }
        Self {
            run_id: run_id.to_owned(),
            analyzer: Analyzer::new(run_id, config),
            met: Met::default(),
            homes,
            to_follow: each(places),
            following: each(places),
            to_place: each(places),
            placing: each(places),
            traffic: Traffic::default(),
        }
    }

    /// Bytes of events that were read here and wait for the next round.
    pub(super) fn waiting(&self) -> usize {
        self.to_follow.iter().map(Encoder::len).sum()
    }

    /// Takes in an event that was read here. Turns never go back.
    pub(super) fn take_in(
        &mut self,
        turn: Turn,
        event: &Event<'_>,
        receipt: i64,
    ) -> Result<(), Damaged> {
        if !self.analyzer.accepts(event) {
            return Ok(());
        }
        let header = &event.header;
        let home = self.homes.of_process(header.rank, header.pid, &header.hostname);
        let encoder = self.to_follow.get_mut(home).ok_or(Damaged::Unknown)?;
        encoder.push(turn, How::Follow, event, receipt)
    }

    /// Moves the events before a turn to where their processes are followed, and what their calls do
    /// to where it is placed.
    pub(super) fn round<X: Exchange + ?Sized>(
        &mut self,
        before: Option<Turn>,
        exchange: &mut X,
    ) -> Result<(), SpreadError<X::Error>> {
        self.traffic.rounds += 1;
        let messages = self.to_follow.iter_mut().map(|encoder| encoder.take(before)).collect();
        let received = self.exchange(messages, exchange)?;
        self.follow(received)?;
        let messages = self.to_place.iter_mut().map(|encoder| encoder.take(None)).collect();
        let received = self.exchange(messages, exchange)?;
        self.place(received)?;
        Ok(())
    }

    fn exchange<X: Exchange + ?Sized>(
        &mut self,
        messages: Vec<Vec<u8>>,
        exchange: &mut X,
    ) -> Result<Vec<Vec<u8>>, SpreadError<X::Error>> {
        let own = exchange.rank();
        let others = messages.iter().enumerate().filter(|(place, _)| *place != own);
        self.traffic.event_bytes += others.map(|(_, bytes)| bytes.len() as u64).sum::<u64>();
        exchange.all_to_all(messages).map_err(SpreadError::Exchange)
    }

    fn follow(&mut self, received: Vec<Vec<u8>>) -> Result<(), Damaged> {
        let Self { run_id, analyzer, met, homes, following, to_place, .. } = self;
        merged(following, received, run_id, |received| {
            let Received { turn, event, receipt, .. } = received;
            let followed = analyzer.follow(&event, receipt);
            met.note(analyzer, Some(turn));
            let Followed::Places(places, placing) = followed else { return Ok(()) };
            for &place in places {
                let Some(target) = Analyzer::target(place, &placing) else { continue };
                let encoder = to_place.get_mut(homes.of_comm(target)).ok_or(Damaged::Unknown)?;
                let (fresh, complete) = (placing.fresh, placing.complete);
                let how = How::Place { place, fresh, complete };
                encoder.push(turn, how, &event, receipt)?;
            }
            Ok(())
        })
    }

    fn place(&mut self, received: Vec<Vec<u8>>) -> Result<(), Damaged> {
        let Self { run_id, analyzer, met, placing, .. } = self;
        merged(placing, received, run_id, |received| {
            let Received { how, event, receipt, .. } = received;
            if let How::Place { place, fresh, complete } = how {
                analyzer.place_sent(place, (fresh, complete), &event, receipt);
            }
            met.note(analyzer, None);
            Ok(())
        })
    }

    /// Gives the root what is open everywhere, as one analyzer, and where its processes and
    /// communicators were met. This place has nothing left.
    pub(super) fn give<X: Exchange + ?Sized>(
        &mut self,
        chunk: usize,
        exchange: &mut X,
    ) -> Result<Option<(Analyzer, Met)>, SpreadError<X::Error>> {
        let own = exchange.rank();
        let config = *self.analyzer.config();
        let fresh = Analyzer::new(&self.run_id, config);
        let analyzer = std::mem::replace(&mut self.analyzer, fresh);
        let met = std::mem::take(&mut self.met);
        let mut part = analyzer.into_parts(&met, &division(&self.homes, own..own + 1, own)).pop();
        let mut bytes = Vec::new();
        if own != 0 {
            bytes = postcard::to_stdvec(&part.take()).map_err(Damaged::from)?;
            self.traffic.open_bytes += bytes.len() as u64;
        }
        let Some(others) = gather(exchange, bytes, chunk)? else { return Ok(None) };
        let mut parts: Vec<_> = part.into_iter().collect();
        for bytes in others.into_iter().skip(1) {
            let part: Option<_> = postcard::from_bytes(&bytes).map_err(Damaged::from)?;
            parts.extend(part);
        }
        let mut whole = Analyzer::new(&self.run_id, config);
        let met = whole.take_parts(parts).map_err(Damaged::from)?;
        Ok(Some((whole, met)))
    }

    /// Takes back from the root what is of this place. Only the root has the whole.
    pub(super) fn take_back<X: Exchange + ?Sized>(
        &mut self,
        whole: Option<(Analyzer, Met)>,
        chunk: usize,
        exchange: &mut X,
    ) -> Result<(), SpreadError<X::Error>> {
        let mut messages = None;
        if let Some((whole, met)) = whole {
            let parts = whole.into_parts(&met, &division(&self.homes, 0..exchange.size(), 0));
            let written: Result<Vec<Vec<u8>>, _> = parts.iter().map(postcard::to_stdvec).collect();
            let written = written.map_err(Damaged::from)?;
            let others = written.iter().skip(1);
            self.traffic.open_bytes += others.map(|bytes| bytes.len() as u64).sum::<u64>();
            messages = Some(written);
        }
        let bytes = scatter(exchange, messages, chunk)?;
        let part = postcard::from_bytes(&bytes).map_err(Damaged::from)?;
        self.met = self.analyzer.take_parts(vec![part]).map_err(Damaged::from)?;
        Ok(())
    }
}

/// Who has what, as the homes tell.
fn division(
    homes: &Homes,
    wanted: Range<usize>,
    rest: usize,
) -> Division<impl Fn(i64, i64, &str) -> usize, impl Fn(&str) -> usize> {
    Division {
        wanted,
        rest,
        follows: |rank, pid, host: &str| homes.of_process(rank, pid, host),
        places: |name: &str| homes.of_comm(name),
    }
}

/// Hands on the events of all places in the order of their turns.
fn merged(
    decoders: &mut [Decoder],
    received: Vec<Vec<u8>>,
    run_id: &str,
    mut sink: impl FnMut(Received<'_>) -> Result<(), Damaged>,
) -> Result<(), Damaged> {
    for (decoder, bytes) in decoders.iter_mut().zip(received) {
        decoder.fill(bytes)?;
    }
    loop {
        let mut first: Option<(Turn, usize)> = None;
        let mut second: Option<Turn> = None;
        for (at, decoder) in decoders.iter().enumerate() {
            let Some(turn) = decoder.turn() else { continue };
            match first {
                Some((least, _)) if least <= turn => {
                    second = Some(second.map_or(turn, |known| known.min(turn)));
                }
                _ => {
                    second = first.map(|(turn, _)| turn).into_iter().chain(second).min();
                    first = Some((turn, at));
                }
            }
        }
        let Some((_, at)) = first else { return Ok(()) };
        let Some(decoder) = decoders.get_mut(at) else { return Ok(()) };
        while decoder.turn().is_some_and(|turn| second.is_none_or(|second| turn <= second)) {
            if let Some(received) = decoder.event(run_id)? {
                sink(received)?;
            }
            decoder.advance()?;
        }
    }
}
