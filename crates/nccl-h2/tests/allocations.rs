//! What is allocated for an event: nothing, once the analyzer has seen the job for a while; and
//! nothing that grows with the trace.
//!
//! A binary of its own, for the allocator that counts.
#![allow(clippy::unwrap_used)]

use allocation_counter::measure;
use deepxtrace_nccl_h2::{Analyzer, Config, Event, Moment};
use deepxtrace_sim::nccl::Job;

const RANKS: usize = 8;

/// The lines of a job with the times of their events, by rank.
fn lines_by_rank(job: &Job) -> Vec<Vec<(i64, String)>> {
    let mut lines = vec![Vec::new(); job.ranks()];
    job.run(|rank, event| {
        let line = serde_json::to_string(event).unwrap();
        lines[rank].push((event.header.timestamp_unix_ns, line));
    });
    lines
}

/// In the order of the times, as a live analyzer receives them.
fn by_time(job: &Job) -> Vec<String> {
    let mut lines: Vec<_> = lines_by_rank(job).into_iter().flatten().collect();
    lines.sort();
    lines.into_iter().map(|(_, line)| line).collect()
}

/// Many lines of each rank in turn, as they are read from files.
fn by_blocks(job: &Job) -> Vec<String> {
    let ranks = lines_by_rank(job);
    let most = ranks.iter().map(Vec::len).max().unwrap();
    let blocks = (0..most)
        .step_by(100)
        .flat_map(|from| ranks.iter().flat_map(move |lines| lines.iter().skip(from).take(100)));
    blocks.map(|(_, line)| line.clone()).collect()
}

fn ingest(analyzer: &mut Analyzer, events: &[Event<'_>]) {
    for event in events {
        let at = event.header.timestamp_unix_ns;
        analyzer.ingest(event, Moment { monotonic_ns: at, unix_ns: at });
    }
}

fn jobs(calls: usize) -> [(&'static str, Job); 5] {
    [
        ("equal collectives", Job::all_reduces(RANKS, calls)),
        ("collectives in turn", Job::collectives(RANKS, calls)),
        ("sends and receives", Job::ring(RANKS, calls)),
        ("sends and receives without index", Job::ring(RANKS, calls).with_index(false)),
        ("three kinds of parallelism", Job::mesh(2, 2, 2, calls)),
    ]
}

/// Allocations of the second half of a trace, and its events.
fn second_half(lines: &[String], job: &Job) -> (u64, usize) {
    let events: Vec<Event<'_>> = lines.iter().map(|line| Event::parse(line).unwrap()).collect();
    let mut analyzer = Analyzer::new(job.run_id(), Config::default());
    let (first, second) = events.split_at(events.len() / 2);
    ingest(&mut analyzer, first);
    let allocations = measure(|| ingest(&mut analyzer, second)).count_total;
    let at = events.last().unwrap().header.timestamp_unix_ns;
    assert!(analyzer.finish(Moment { monotonic_ns: at, unix_ns: at }).is_empty());
    (allocations, second.len())
}

#[test]
fn events_in_the_order_of_their_times_allocate_nothing() {
    for (name, job) in jobs(400) {
        let (allocations, events) = second_half(&by_time(&job), &job);
        assert!(events > 3_000, "{name}: {events} events");
        assert_eq!(allocations, 0, "{name}: in {events} events");
    }
}

#[test]
fn events_in_blocks_of_each_rank_allocate_next_to_nothing() {
    for (name, job) in jobs(400) {
        let (allocations, events) = second_half(&by_blocks(&job), &job);
        // A table of open rounds may become larger at some time: once each, not once an event.
        assert!(allocations <= 8, "{name}: {allocations} in {events} events");
    }
}

#[test]
fn a_line_without_escapes_is_parsed_without_allocating() {
    for (name, job) in jobs(20) {
        for line in by_time(&job) {
            let allocations = measure(|| drop(std::hint::black_box(Event::parse(&line))));
            assert_eq!(allocations.count_total, 0, "{name}: {line}");
        }
    }
}

#[test]
fn a_trace_that_is_ten_times_longer_takes_no_more_memory() {
    for ((name, short), (_, long)) in jobs(200).into_iter().zip(jobs(2_000)) {
        let peak = |job: &Job| {
            let lines = by_blocks(job);
            let events: Vec<Event<'_>> =
                lines.iter().map(|line| Event::parse(line).unwrap()).collect();
            measure(|| {
                let mut analyzer = Analyzer::new(job.run_id(), Config::default());
                ingest(&mut analyzer, &events);
            })
            .bytes_max
        };
        let (short, long) = (peak(&short), peak(&long));
        // Twice: a table of hashes may be at its next size.
        assert!(long <= 2 * short, "{name}: {short} and {long} bytes");
    }
}

#[test]
fn the_counter_counts() {
    assert_eq!(measure(|| drop(std::hint::black_box(Box::new(5)))).count_total, 1);
}
