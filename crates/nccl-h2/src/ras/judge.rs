//! From answers to findings.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::Config;
use crate::finding::{Finding, HangType};
use crate::ras::answer::{Answer, Communicator, Rank};
use crate::ras::error::RasError;
use crate::ras::findings;
use crate::ras::report::{Motion, RasFinding, RasReport, State};

/// How answers are judged.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Options {
    /// Timeouts: `collective_timeout_s` and `no_progress_timeout_s` count.
    pub config: Config,
    /// The run that findings name.
    pub run_id: String,
}

/// Judges the answers of one job in the order of time.
///
/// What is said of the present is said of the last answer; the others tell how long it has been so.
/// Ranks whose launch counts differ are behind for certain only where their communicator stands
/// still: in a running job some ranks are always ahead. With one answer nobody knows whether the job
/// moves, and what differs is at most suspected.
///
/// # Errors
/// [`RasError::Order`] where an answer is older than the one before it.
pub fn judge(answers: &[Answer], options: &Options) -> Result<RasReport, RasError> {
    check_order(answers)?;
    let Some(last) = answers.last() else { return Ok(RasReport::default()) };
    let world = World::new(last);
    let mut report = RasReport::default();
    for communicator in &last.communicators {
        let history = History::new(answers, communicator);
        report.communicators.push(history.state());
        let found = history.differences(options);
        report.findings.extend(
            found
                .into_iter()
                .map(|difference| findings::difference(&history, &world, difference, options)),
        );
        report.findings.extend(findings::errors(communicator, &world));
    }
    report.findings.extend(findings::missing(answers, &world));
    if report.findings.is_empty() {
        report.findings.extend(no_progress(&report.communicators, last, options));
    }
    for found in &mut report.findings {
        found.finding.run_id.clone_from(&options.run_id);
        found.finding.detected_at_unix_ns =
            last.timestamp_s().map_or(-1, |seconds| seconds.saturating_mul(1_000_000_000));
    }
    report.mended = answers.iter().map(|answer| answer.mended).sum();
    Ok(report)
}

fn check_order(answers: &[Answer]) -> Result<(), RasError> {
    for (number, pair) in answers.windows(2).enumerate() {
        let [before, after] = pair else { continue };
        if let (Some(first), Some(second)) = (before.timestamp_s(), after.timestamp_s())
            && second < first
        {
            return Err(RasError::Order {
                number: number.saturating_add(2),
                found: after.timestamp.clone(),
                before: number.saturating_add(1),
                expected: before.timestamp.clone(),
            });
        }
    }
    Ok(())
}

/// Everything stands still, everything agrees, and it has been so for long.
fn no_progress(states: &[State], last: &Answer, options: &Options) -> Option<RasFinding> {
    let still = states.iter().map(|state| match state.motion {
        Motion::Still { seconds } => seconds,
        Motion::Moving | Motion::OneAnswer => 0.0,
    });
    let silent_s = still.fold(f64::INFINITY, f64::min);
    let long = silent_s.is_finite() && silent_s >= options.config.no_progress_timeout_s;
    long.then(|| findings::no_progress(last, silent_s))
}

/// Global ranks: those of the largest communicator, by process.
pub(crate) struct World {
    ranks: BTreeMap<(String, i64), Option<i64>>,
}

impl World {
    fn new(answer: &Answer) -> Self {
        let mut ranks = BTreeMap::new();
        let largest = answer.communicators.iter().max_by_key(|found| (found.size, &found.hash));
        if let Some(world) = largest {
            let present = world.ranks.iter().map(|rank| (&rank.host, rank.pid, rank.rank));
            let missing = world.missing_ranks.iter().map(|rank| (&rank.host, rank.pid, rank.rank));
            for (host, pid, rank) in present.chain(missing) {
                // A process with several devices has several ranks: it has no rank of its own.
                ranks
                    .entry((host.clone(), pid))
                    .and_modify(|known| *known = None)
                    .or_insert(Some(rank));
            }
        }
        Self { ranks }
    }

    pub(crate) fn rank(&self, host: &str, pid: i64) -> Option<i64> {
        self.ranks.get(&(host.to_owned(), pid)).copied().flatten()
    }
}

/// One communicator in all answers.
pub(crate) struct History<'a> {
    pub(crate) last: &'a Communicator,
    /// The communicator in each answer that has it, latest first, with the answer's time.
    past: Vec<(&'a Communicator, Option<i64>)>,
}

/// In what the ranks of a communicator differ.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Difference {
    pub(crate) kind: HangType,
    /// Ranks with what they have launched less, or more, than others, by operation.
    pub(crate) ranks: Vec<(i64, Vec<(String, i64)>)>,
    pub(crate) still_s: f64,
    pub(crate) long: bool,
}

impl<'a> History<'a> {
    fn new(answers: &'a [Answer], last: &'a Communicator) -> Self {
        let same = |found: &&Communicator| {
            (&found.hash, &found.secondary_hash) == (&last.hash, &last.secondary_hash)
        };
        let past = answers.iter().rev().map_while(|answer| {
            let found = answer.communicators.iter().find(same)?;
            Some((found, answer.timestamp_s()))
        });
        Self { last, past: past.collect() }
    }

    /// Seconds for which something was the same in all answers up to the last. `None` where it
    /// changed between the last two.
    fn same_for<T: PartialEq>(&self, of: impl Fn(&Communicator) -> T) -> Option<f64> {
        let now = of(self.last);
        let same: Vec<_> = self.past.iter().take_while(|(then, _)| of(then) == now).collect();
        match same.as_slice() {
            [(_, last), .., (_, first)] => {
                let seconds =
                    last.zip(*first).map_or(0, |(last, first)| last.saturating_sub(first));
                Some(seconds as f64)
            }
            _ => None,
        }
    }

    fn motion(&self) -> Motion {
        if self.past.len() < 2 {
            return Motion::OneAnswer;
        }
        match self.same_for(counts) {
            Some(seconds) => Motion::Still { seconds },
            None => Motion::Moving,
        }
    }

    fn state(&self) -> State {
        let totals = || self.last.ranks.iter().map(total);
        let first = self.last.ranks.first().map(|rank| &rank.collective_counts);
        State {
            hash: self.last.hash.clone(),
            size: self.last.size,
            answered: self.last.ranks.len(),
            missing: self.last.missing_ranks.len(),
            launched: [totals().min().unwrap_or(0), totals().max().unwrap_or(0)],
            agree: self.last.ranks.iter().all(|rank| Some(&rank.collective_counts) == first),
            motion: self.motion(),
        }
    }

    /// Ranks that are behind, and ranks that have called other operations than others.
    fn differences(&self, options: &Options) -> Vec<Difference> {
        let timeout = options.config.collective_timeout_s;
        let (still_s, moving) = match self.motion() {
            Motion::Still { seconds } => (seconds, false),
            Motion::OneAnswer => (0.0, false),
            Motion::Moving => (0.0, true),
        };
        if moving {
            return self.left_behind(timeout).into_iter().collect();
        }
        let long = still_s >= timeout;
        let difference = |kind, ranks| Difference { kind, ranks, still_s, long };
        let crossed = self.crossed();
        if !crossed.is_empty() {
            return vec![difference(HangType::CollectiveSignatureMismatch, crossed)];
        }
        let behind = self.behind(|_| true);
        if behind.is_empty() {
            return Vec::new();
        }
        vec![difference(HangType::CollectiveMissingEnter, behind)]
    }

    /// Ranks that have launched nothing for long and are behind, while others went on.
    fn left_behind(&self, timeout: f64) -> Option<Difference> {
        let still_for = |rank: i64| self.same_for(|then| counts_of(then, rank)).unwrap_or(0.0);
        let ranks = self.behind(|rank| still_for(rank) >= timeout);
        let still_s = ranks.iter().map(|(rank, _)| still_for(*rank)).fold(f64::INFINITY, f64::min);
        let kind = HangType::CollectiveMissingEnter;
        (!ranks.is_empty()).then_some(Difference { kind, ranks, still_s, long: false })
    }

    /// Ranks that have launched less than the most, by operation.
    fn behind(&self, which: impl Fn(i64) -> bool) -> Vec<(i64, Vec<(String, i64)>)> {
        let most = self.extreme(i64::max);
        let missing = |rank: &Rank| {
            let missing = most.iter().filter_map(|(operation, most)| {
                let missing = most.saturating_sub(launched(rank, operation));
                (missing > 0).then(|| ((*operation).to_owned(), missing))
            });
            (rank.rank, missing.collect::<Vec<_>>())
        };
        let ranks = self.last.ranks.iter().filter(|rank| which(rank.rank)).map(missing);
        let mut behind: Vec<_> = ranks.filter(|(_, missing)| !missing.is_empty()).collect();
        behind.sort();
        behind
    }

    /// Ranks of which each has launched something more than another that has launched something
    /// else more. Ranks that run the same program never do, however far one is ahead.
    fn crossed(&self) -> Vec<(i64, Vec<(String, i64)>)> {
        let operations = self.operations();
        let ahead = |a: &Rank, b: &Rank| {
            operations.iter().any(|operation| launched(a, operation) > launched(b, operation))
        };
        // Ranks with equal counts stand for each other: their number does not matter here.
        let mut distinct: Vec<&Rank> = Vec::new();
        for rank in &self.last.ranks {
            let known =
                distinct.iter().any(|known| known.collective_counts == rank.collective_counts);
            if !known {
                distinct.push(rank);
            }
        }
        let crosses =
            |rank: &Rank| distinct.iter().any(|other| ahead(rank, other) && ahead(other, rank));
        let least = self.extreme(i64::min);
        let more = |rank: &Rank| {
            let more = least.iter().filter_map(|(operation, least)| {
                let more = launched(rank, operation).saturating_sub(*least);
                (more > 0).then(|| ((*operation).to_owned(), more))
            });
            (rank.rank, more.collect::<Vec<_>>())
        };
        let mut crossed: Vec<_> =
            self.last.ranks.iter().filter(|rank| crosses(rank)).map(more).collect();
        crossed.sort();
        crossed
    }

    fn operations(&self) -> BTreeSet<&'a str> {
        let last: &'a Communicator = self.last;
        last.ranks
            .iter()
            .flat_map(|rank| rank.collective_counts.keys())
            .map(String::as_str)
            .collect()
    }

    /// The most or least of each operation.
    fn extreme(&self, pick: fn(i64, i64) -> i64) -> Vec<(&'a str, i64)> {
        let of = |operation: &'a str| {
            let counts = self.last.ranks.iter().map(|rank| launched(rank, operation));
            (operation, counts.reduce(pick).unwrap_or(0))
        };
        self.operations().into_iter().map(of).collect()
    }
}

/// The counts of all ranks that answered.
fn counts(communicator: &Communicator) -> BTreeMap<i64, BTreeMap<String, i64>> {
    let counts = |rank: &Rank| (rank.rank, rank.collective_counts.clone());
    communicator.ranks.iter().map(counts).collect()
}

fn counts_of(communicator: &Communicator, rank: i64) -> Option<BTreeMap<String, i64>> {
    let found = communicator.ranks.iter().find(|found| found.rank == rank)?;
    Some(found.collective_counts.clone())
}

fn launched(rank: &Rank, operation: &str) -> i64 {
    rank.collective_counts.get(operation).copied().unwrap_or(0)
}

pub(crate) fn total(rank: &Rank) -> i64 {
    rank.collective_counts.values().fold(0_i64, |sum, count| sum.saturating_add(*count))
}

/// An empty finding of a kind, to be labelled by [`judge`].
pub(crate) fn finding(kind: HangType, hash: &str, details: crate::finding::Details) -> Finding {
    Finding {
        comm_seq: -1,
        comm_uid_hash: hash.to_owned(),
        details,
        detected_at_unix_ns: -1,
        hang_type: kind,
        run_id: String::new(),
    }
}
