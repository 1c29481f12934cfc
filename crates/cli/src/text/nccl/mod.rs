//! NCCL findings for people.

mod cause;
mod collective;
mod p2p;
mod process;

use std::io::{self, Write};

use deepxtrace_nccl_h2::{Confidence, Details, Finding, Heartbeats};

use crate::output::{BAD, FAINT, HEADING, WARNING};

/// What a finding says: what is wrong, what is known about it, what to look at next.
pub struct Told {
    /// What is wrong, in one sentence.
    pub what: String,
    /// What is known, a line each.
    pub facts: Vec<String>,
    /// What to look at next.
    pub next: String,
}

/// Puts a finding into words.
pub fn told(finding: &Finding) -> Told {
    match &finding.details {
        Details::SequenceDivergence(d) => cause::divergence(finding, d),
        Details::CommunicatorDeadlock(d) => cause::deadlock(d),
        Details::RootBlocker(d) => cause::root(d),
        Details::SignatureMismatch(d) => collective::mismatch(finding, d),
        Details::CollectiveMissingEnter(d) => collective::missing(finding, d),
        Details::DelayedCollectiveEnter(d) => collective::delayed(finding, d),
        Details::CommInitMissingEnter(d) => collective::creation(finding, d),
        Details::DatatypeContract(d) => collective::datatypes(finding, d),
        Details::P2pMissingCounterpart(d) => p2p::missing(finding, d),
        Details::P2pCallMismatch(d) => p2p::mismatch(finding, d),
        Details::AmbiguousP2p(d) => p2p::ambiguous(finding, d),
        Details::MissingExit(d) => process::missing_exit(finding, d),
        Details::RoundMissingExit(d) => process::round_missing_exit(finding, d),
        Details::ErrorExit(d) => process::error_exit(finding, d),
        Details::RankHeartbeatTimeout(d) => process::heartbeat(d),
        Details::NoProgress(d) => process::no_progress(d),
        _ => Told { what: finding.to_json(), facts: Vec::new(), next: String::new() },
    }
}

/// What to do about a trace that ends too early.
const EARLY: &str = "The trace ends before the timeout. If the job hung from then on, say so with \
                     --stood-still SECONDS; if this is a copy of a running job, copy it again later.";

/// Prints a finding: a heading, a sentence, facts, advice.
pub fn finding(out: &mut impl Write, finding: &Finding) -> io::Result<()> {
    finding_of(out, finding, EARLY)
}

/// Prints a finding of records that end before the timeout in a way of their own.
pub fn finding_of(out: &mut impl Write, finding: &Finding, early: &str) -> io::Result<()> {
    let style = match finding.confidence() {
        Confidence::Confirmed | Confidence::Observed if !finding.trace_ended_early() => BAD,
        _ => WARNING,
    };
    let confidence = finding.confidence().as_str();
    let kind = finding.hang_type.as_str();
    writeln!(out, "{style}{kind}{style:#} {FAINT}({confidence}){FAINT:#}")?;
    let told = told(finding);
    writeln!(out, "  {HEADING}{}{HEADING:#}", told.what)?;
    for fact in &told.facts {
        writeln!(out, "  {fact}")?;
    }
    if finding.trace_ended_early() {
        writeln!(out, "  {WARNING}{early}{WARNING:#}")?;
    }
    if !told.next.is_empty() {
        writeln!(out, "  {FAINT}next:{FAINT:#} {}", told.next)?;
    }
    Ok(())
}

/// Where something happened: the communicator and the number of the call.
fn place(finding: &Finding) -> String {
    match (finding.comm_uid_hash.as_str(), finding.comm_seq) {
        ("", _) => "no communicator".to_owned(),
        (comm, seq) if seq < 0 => format!("communicator {comm}"),
        (comm, seq) => format!("communicator {comm}, call {seq}"),
    }
}

/// Most ranges of ranks that are written out.
const MOST_RANGES: usize = 12;

/// Ranks as ranges: `0-3, 7`.
pub fn ranks(ranks: &[i64]) -> String {
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    for &rank in ranks {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(rank) => *last = rank,
            _ => ranges.push((rank, rank)),
        }
    }
    let (shown, more) = super::shown(&ranges, MOST_RANGES);
    let mut words: Vec<String> = shown
        .iter()
        .map(|(first, last)| match last - first {
            0 => first.to_string(),
            _ => format!("{first}-{last}"),
        })
        .collect();
    if more > 0 {
        words.push(format!("and {more} more"));
    }
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

/// `rank 3` or `ranks 3, 5`.
fn named(all: &[i64]) -> String {
    format!("{} {}", if all.len() == 1 { "rank" } else { "ranks" }, ranks(all))
}

/// Seconds for people.
fn seconds(seconds: f64) -> String {
    match seconds {
        ..1.0 => format!("{:.0} ms", seconds * 1e3),
        ..600.0 => format!("{seconds:.1} s"),
        _ => format!("{:.0} min", seconds / 60.0),
    }
}

/// What heartbeats say of a process.
fn heartbeats(heartbeats: Heartbeats, age_s: Option<f64>) -> String {
    match (heartbeats, age_s) {
        (Heartbeats::Alive, Some(age)) => format!("alive {} ago", seconds(age)),
        (Heartbeats::Alive, None) => "alive".to_owned(),
        (Heartbeats::Stale, Some(age)) => format!("silent for {}", seconds(age)),
        (Heartbeats::Stale, None) => "ended".to_owned(),
        (Heartbeats::Unknown, _) => "no heartbeats in the trace".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_written_as_ranges() {
        assert_eq!(ranks(&[]), "none");
        assert_eq!(ranks(&[4]), "4");
        assert_eq!(ranks(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
        let far: Vec<i64> = (0..20).map(|rank| rank * 2).collect();
        assert!(ranks(&far).ends_with("22, and 8 more"), "{}", ranks(&far));
    }

    #[test]
    fn seconds_have_a_fitting_unit() {
        assert_eq!(seconds(0.004), "4 ms");
        assert_eq!(seconds(61.25), "61.2 s");
        assert_eq!(seconds(1800.0), "30 min");
    }
}
