//! A part of an analyzer's state, and one analyzer of several parts.
//!
//! A trace may be analyzed in several places: each follows some of the processes and places the
//! calls of some of the communicators. Numbers of names, processes and communicators differ between
//! the places. In the whole they stand in the order in which they were first met, so that it does
//! not differ from an analyzer that met everything itself.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::comm::{Comm, CommId};
use super::creation::{CreationKey, OpenCreation};
use super::names::Name;
use super::noted::Noted;
use super::p2p::{ChannelPart, Pending};
use super::process::{Process, ProcessId};
use super::renumber::{Numbers, Renumber as _};
use super::round::Round;
use super::{Analyzer, LimitsReached};
use crate::reader::Turn;

/// What one place knows, with numbers of its own.
#[derive(Debug, Serialize, Deserialize)]
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

impl Analyzer {
    /// The state of this place as one part. `follows` tells by rank, process number and host whether
    /// a process is followed here, `places` by name whether the calls of a communicator are placed
    /// here: what else is known of them is of the other places.
    pub(crate) fn into_part(
        self,
        met: &Met,
        follows: impl Fn(i64, i64, &str) -> bool,
        places: impl Fn(&str) -> bool,
    ) -> Part {
        let processes: Vec<KnownProcess> = self
            .processes
            .into_list()
            .into_iter()
            .enumerate()
            .map(|(at, ((rank, pid, host), state))| KnownProcess {
                rank,
                pid,
                host,
                met: met.processes.get(at).copied().flatten(),
                state: follows(rank, pid, self.names.text(host)).then_some(state),
            })
            .collect();
        let comms: Vec<KnownComm> = self
            .comms
            .into_list()
            .into_iter()
            .enumerate()
            .map(|(at, state)| KnownComm {
                name: state.name,
                met: met.comms.get(at).copied().flatten(),
                state: places(self.names.text(state.name)).then_some(state),
            })
            .collect();
        let pairs = self.differing_pairs.into_iter();
        let differing_pairs = pairs.map(|(id, send, recv)| (id.number(), send, recv)).collect();
        Part {
            names: self.names.into_texts(),
            processes,
            comms,
            rounds: self.rounds.into_open(),
            channels: self.channels.into_parts(),
            creations: self.creations.into_list(),
            noted: self.noted,
            differing_pairs,
            datatype_warned: self.known.datatype_warned.into_iter().collect(),
            failing: self.known.failing.into_iter().collect(),
            errors: self.known.errors.into_iter().collect(),
            reached: self.reached,
            newest: self.newest,
        }
    }

    /// Takes in the parts of all places; this analyzer has met nothing before.
    ///
    /// # Errors
    ///
    /// When a part is not whole.
    pub(crate) fn take_parts(&mut self, parts: Vec<Part>) -> Result<(), BadPart> {
        let numbers = self.number(&parts)?;
        for (part, numbers) in parts.into_iter().zip(&numbers) {
            self.take_part(part, numbers)?;
        }
        Ok(())
    }

    /// Numbers of this analyzer for those of each part.
    fn number(&mut self, parts: &[Part]) -> Result<Vec<Numbers>, BadPart> {
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
        Ok(numbers)
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
