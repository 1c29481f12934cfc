//! A part of an analyzer's state, and one analyzer of several parts.
//!
//! A trace may be analyzed in several places: each follows some of the processes and places the
//! calls of some of the communicators. Numbers of names, processes and communicators differ between
//! the places. In the whole they stand in the order in which they were first met, so that it does
//! not differ from an analyzer that met everything itself.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::comm::{Comm, CommId};
use super::creation::{CreationKey, OpenCreation};
use super::names::Name;
use super::noted::Noted;
use super::p2p::{ChannelPart, Pending};
use super::process::{Process, ProcessId};
use super::renumber::{Numbers, Renumber as _};
use super::replay::ReplayWindow;
use super::round::Round;
use super::scan::Given;
use super::{Analyzer, LimitsReached};
use crate::reader::Turn;

/// What one place knows, with numbers of its own.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Part {
    names: Vec<Box<str>>,
    processes: Vec<KnownProcess>,
    comms: Vec<KnownComm>,
    rounds: Vec<Round>,
    channels: Vec<ChannelPart>,
    /// Those that are complete have no state.
    creations: Vec<(CreationKey, Option<OpenCreation>)>,
    noted: Vec<Noted>,
    /// The pairs name a channel by its place in `channels`.
    differing_pairs: Vec<(u32, Pending, Pending)>,
    datatype_warned: Vec<(CommId, Name)>,
    failing: Vec<(Caller, (Name, i64))>,
    errors: Vec<(ProcessId, Vec<i64>)>,
    reached: LimitsReached,
    newest: Option<i64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KnownProcess {
    rank: i64,
    pid: i64,
    host: Name,
    /// Where it was first met, in the place that follows it.
    met: Option<Turn>,
    /// Present in the place that follows it.
    state: Option<Process>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KnownComm {
    name: Name,
    /// Where this place met it first while it followed processes.
    met: Option<Turn>,
    /// Present in the place that places its calls.
    state: Option<Comm>,
}

/// Where an analyzer met its processes and communicators first, by number.
#[derive(Debug, Clone, Default)]
pub(crate) struct Met {
    processes: Vec<Option<Turn>>,
    comms: Vec<Option<Turn>>,
}

/// Which calls were seen, by rank, process number and host.
pub(crate) type Seen = HashMap<(i64, i64, Box<str>), ReplayWindow>;

/// A process, and the communicator that it calls on.
type Caller = (ProcessId, Option<CommId>);

/// A part names something that it does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("a part of the analysis names something that it does not hold")]
pub(crate) struct BadPart;

impl Met {
    /// Notes what is new in an analyzer as met at a turn, or as only heard of.
    pub(crate) fn note(&mut self, analyzer: &Analyzer, turn: Option<Turn>) {
        if self.processes.len() < analyzer.processes.len() {
            self.processes.resize(analyzer.processes.len(), turn);
        }
        if self.comms.len() < analyzer.comms.len() {
            self.comms.resize(analyzer.comms.len(), turn);
        }
    }
}

/// Who has what.
pub(crate) struct Division<F, P> {
    /// The places whose parts are wanted: what others have is dropped.
    pub(crate) wanted: Range<usize>,
    /// The place that has what belongs to no process and no communicator.
    pub(crate) rest: usize,
    /// The place that follows a process, by rank, process number and host.
    pub(crate) follows: F,
    /// The place that places the calls of a communicator, by name.
    pub(crate) places: P,
}

impl<F: Fn(i64, i64, &str) -> usize, P: Fn(&str) -> usize> Division<F, P> {
    /// Names, processes and communicators of one part; the states are taken out of those of all.
    fn part(
        &self,
        place: usize,
        names: &[Box<str>],
        processes: &mut [(usize, KnownProcess)],
        comms: &mut [(usize, KnownComm)],
    ) -> Part {
        let process = |(of, known): &mut (usize, KnownProcess)| KnownProcess {
            state: if *of == place { known.state.take() } else { None },
            ..*known
        };
        let comm = |(of, known): &mut (usize, KnownComm)| KnownComm {
            state: if *of == place { known.state.take() } else { None },
            ..*known
        };
        Part {
            names: names.to_vec(),
            processes: processes.iter_mut().map(process).collect(),
            comms: comms.iter_mut().map(comm).collect(),
            ..Part::default()
        }
    }
}

impl Analyzer {
    /// The state, divided between places. What was given before and concerns several of them is
    /// dropped: see [`Analyzer::take_given`].
    pub(crate) fn into_parts<F, P>(self, met: &Met, division: &Division<F, P>) -> Vec<Part>
    where
        F: Fn(i64, i64, &str) -> usize,
        P: Fn(&str) -> usize,
    {
        let names = self.names.into_texts();
        let text = |name: Name| names.get(name.number()).map_or("", |text| &**text);
        let process = |(at, ((rank, pid, host), state)): (usize, _)| {
            let met = met.processes.get(at).copied().flatten();
            let of = (division.follows)(rank, pid, text(host));
            (of, KnownProcess { rank, pid, host, met, state: Some(state) })
        };
        let comm = |(at, state): (usize, Comm)| {
            let met = met.comms.get(at).copied().flatten();
            let of = (division.places)(text(state.name));
            (of, KnownComm { name: state.name, met, state: Some(state) })
        };
        let mut processes: Vec<_> =
            self.processes.into_list().into_iter().enumerate().map(process).collect();
        let mut comms: Vec<_> = self.comms.into_list().into_iter().enumerate().map(comm).collect();
        let mut parts: Vec<Part> = division
            .wanted
            .clone()
            .map(|place| division.part(place, &names, &mut processes, &mut comms))
            .collect();
        let first = division.wanted.start;
        let of_process = |id: ProcessId| processes.get(id.0 as usize).map(|(place, _)| *place);
        let of_comm = |id: CommId| comms.get(id.number()).map(|(place, _)| *place);
        for round in self.rounds.into_open() {
            if let Some(part) = at(&mut parts, first, of_comm(round.comm)) {
                part.rounds.push(round);
            }
        }
        let mut channels = Vec::new();
        for channel in self.channels.into_parts() {
            let place = of_comm(channel.comm);
            let Some(part) = at(&mut parts, first, place) else {
                channels.push(None);
                continue;
            };
            // There are no more channels than a u32 has numbers.
            channels.push(Some((place, part.channels.len() as u32)));
            part.channels.push(channel);
        }
        for (id, send, recv) in self.differing_pairs {
            let channel = channels.get(id.number() as usize).copied().flatten();
            let Some((place, number)) = channel else { continue };
            if let Some(part) = at(&mut parts, first, place) {
                part.differing_pairs.push((number, send, recv));
            }
        }
        for (key, creation) in self.creations.into_list() {
            if let Some(part) = at(&mut parts, first, Some((division.places)(text(key.of)))) {
                part.creations.push((key, creation));
            }
        }
        for noted in self.noted {
            let place = match &noted {
                Noted::Datatypes { comm, .. } | Noted::Late { comm, .. } => of_comm(*comm),
                Noted::Failed(failed) => of_process(failed.process),
            };
            if let Some(part) = at(&mut parts, first, place) {
                part.noted.push(noted);
            }
        }
        for warned in self.known.datatype_warned {
            if let Some(part) = at(&mut parts, first, of_comm(warned.0)) {
                part.datatype_warned.push(warned);
            }
        }
        for failing in self.known.failing {
            if let Some(part) = at(&mut parts, first, of_process(failing.0.0)) {
                part.failing.push(failing);
            }
        }
        for errors in self.known.errors {
            if let Some(part) = at(&mut parts, first, of_process(errors.0)) {
                part.errors.push(errors);
            }
        }
        if let Some(part) = at(&mut parts, first, Some(division.rest)) {
            part.reached = self.reached;
            part.newest = self.newest;
        }
        parts
    }

    /// Takes out what was given before and concerns the run as a whole: it belongs to no part.
    pub(crate) fn take_given(&mut self) -> Given {
        self.known.take_given()
    }

    /// Puts it into an analyzer of all parts. Numbers of processes and communicators do not change
    /// between the wholes of one run, as new ones are met later than those that were there.
    pub(crate) fn put_given(&mut self, given: Given) {
        self.known.put_given(given);
    }

    /// Takes out which calls were seen, by process: only who follows a process needs it.
    pub(crate) fn take_seen(&mut self) -> Seen {
        let names = &self.names;
        self.processes
            .keyed_mut()
            .filter(|(_, process)| !process.seen.is_empty())
            .map(|((rank, pid, host), process)| {
                ((rank, pid, names.text(host).into()), std::mem::take(&mut process.seen))
            })
            .collect()
    }

    /// Puts it in again.
    pub(crate) fn put_seen(&mut self, mut seen: Seen) {
        let names = &self.names;
        for ((rank, pid, host), process) in self.processes.keyed_mut() {
            if let Some(window) = seen.remove(&(rank, pid, names.text(host).into())) {
                process.seen = window;
            }
        }
    }

    /// Takes in the parts of all places; this analyzer has met nothing before. Answers where its
    /// processes and communicators were met.
    ///
    /// # Errors
    ///
    /// When a part is not whole.
    pub(crate) fn take_parts(&mut self, parts: Vec<Part>) -> Result<Met, BadPart> {
        let (numbers, met) = self.number(&parts)?;
        for (part, numbers) in parts.into_iter().zip(&numbers) {
            self.take_part(part, numbers)?;
        }
        Ok(met)
    }

    /// Numbers of this analyzer for those of each part.
    fn number(&mut self, parts: &[Part]) -> Result<(Vec<Numbers>, Met), BadPart> {
        let mut processes: BTreeMap<ProcessKey<'_>, Option<Turn>> = BTreeMap::new();
        let mut comms: BTreeMap<&str, Option<Turn>> = BTreeMap::new();
        for part in parts {
            for process in &part.processes {
                first(processes.entry(process.key(part)?).or_default(), process.met);
            }
            for comm in &part.comms {
                first(comms.entry(part.text(comm.name)?).or_default(), comm.met);
            }
        }
        let mut processes: Vec<(ProcessKey<'_>, Option<Turn>)> = processes.into_iter().collect();
        processes.sort_by_key(|(_, met)| (met.is_none(), *met));
        let mut comms: Vec<(&str, Option<Turn>)> = comms.into_iter().collect();
        comms.sort_by_key(|(_, met)| (met.is_none(), *met));
        let met = Met {
            processes: processes.iter().map(|(_, met)| *met).collect(),
            comms: comms.iter().map(|(_, met)| *met).collect(),
        };
        let mut process_ids: HashMap<ProcessKey<'_>, ProcessId> = HashMap::new();
        for ((rank, pid, host), _) in processes {
            let name = self.names.intern(host);
            process_ids.insert((rank, pid, host), self.processes.add((rank, pid, name)));
        }
        let mut comm_ids: HashMap<&str, CommId> = HashMap::new();
        for (text, _) in comms {
            let name = self.names.intern(text);
            comm_ids.insert(text, self.comms.of(name, usize::MAX).ok_or(BadPart)?);
        }
        let mut numbers = Vec::with_capacity(parts.len());
        for part in parts {
            let process =
                |known: &KnownProcess| process_ids.get(&known.key(part)?).copied().ok_or(BadPart);
            let comm =
                |known: &KnownComm| comm_ids.get(part.text(known.name)?).copied().ok_or(BadPart);
            numbers.push(Numbers {
                names: part.names.iter().map(|text| self.names.intern(text)).collect(),
                processes: part.processes.iter().map(process).collect::<Result<_, _>>()?,
                comms: part.comms.iter().map(comm).collect::<Result<_, _>>()?,
            });
        }
        Ok((numbers, met))
    }

    fn take_part(&mut self, mut part: Part, numbers: &Numbers) -> Result<(), BadPart> {
        part.renumber(numbers)?;
        for (known, &id) in part.processes.into_iter().zip(&numbers.processes) {
            if let Some(state) = known.state {
                self.processes[id] = state;
            }
        }
        for (known, &id) in part.comms.into_iter().zip(&numbers.comms) {
            if let Some(state) = known.state {
                self.comms[id] = state;
            }
        }
        for round in part.rounds {
            let (comm, seq) = (round.comm, round.seq);
            let id = self.rounds.put(round).ok_or(BadPart)?;
            self.comms[comm].rounds.insert(seq, id);
        }
        let mut channels = Vec::with_capacity(part.channels.len());
        for channel in part.channels {
            channels.push(self.channels.put(channel).ok_or(BadPart)?);
        }
        for (at, send, recv) in part.differing_pairs {
            let id = channels.get(at as usize).ok_or(BadPart)?;
            self.differing_pairs.push((*id, send, recv));
        }
        self.creations.put(part.creations);
        self.noted.extend(part.noted);
        self.known.datatype_warned.extend(part.datatype_warned);
        self.known.failing.extend(part.failing);
        self.known.errors.extend(part.errors);
        self.reached.add(part.reached);
        self.newest = self.newest.max(part.newest);
        Ok(())
    }
}

/// The part of a place, if it is among those from `first` on.
fn at(parts: &mut [Part], first: usize, place: Option<usize>) -> Option<&mut Part> {
    parts.get_mut(place?.checked_sub(first)?)
}

/// Rank, process number and host.
type ProcessKey<'p> = (i64, i64, &'p str);

/// The earlier of two turns, where one is known.
fn first(known: &mut Option<Turn>, met: Option<Turn>) {
    *known = match (*known, met) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    };
}

impl Part {
    fn text(&self, name: Name) -> Result<&str, BadPart> {
        self.names.get(name.number()).map(|text| &**text).ok_or(BadPart)
    }

    fn renumber(&mut self, numbers: &Numbers) -> Result<(), BadPart> {
        for process in &mut self.processes {
            process.state.renumber(numbers)?;
        }
        for comm in &mut self.comms {
            comm.state.renumber(numbers)?;
        }
        self.rounds.renumber(numbers)?;
        self.channels.renumber(numbers)?;
        self.creations.renumber(numbers)?;
        self.noted.renumber(numbers)?;
        for (_, send, recv) in &mut self.differing_pairs {
            send.renumber(numbers)?;
            recv.renumber(numbers)?;
        }
        self.datatype_warned.renumber(numbers)?;
        for (key, (api, _)) in &mut self.failing {
            key.renumber(numbers)?;
            api.renumber(numbers)?;
        }
        for (process, _) in &mut self.errors {
            process.renumber(numbers)?;
        }
        Ok(())
    }
}

impl KnownProcess {
    fn key<'p>(&self, part: &'p Part) -> Result<ProcessKey<'p>, BadPart> {
        Ok((self.rank, self.pid, part.text(self.host)?))
    }
}
