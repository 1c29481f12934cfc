//! Results do not depend on the order of files, nor on where chunks end.

use deepxtrace_nccl_h2::{Analyzer, Confidence, Config, Event, Finding, Moment};
use deepxtrace_sim::nccl::{Call, Fault, Job, Step};
use proptest::prelude::*;

/// All events of a job, by rank, and the latest wall clock.
fn events(job: &Job) -> (Vec<Vec<Event<'static>>>, i64) {
    let mut all = vec![Vec::new(); job.ranks()];
    let end = job.run(|rank, event| {
        let text = serde_json::to_string(event).unwrap();
        let event: Event<'_> = Event::parse(&text).unwrap();
        all[rank].push(owned(&event));
    });
    (all, end)
}

fn owned(event: &Event<'_>) -> Event<'static> {
    // The text outlives nothing here: tests may leak.
    let text: &'static str = serde_json::to_string(event).unwrap().leak();
    Event::parse(text).unwrap()
}

/// The findings when the ranks' events are taken in an order of the ranks.
fn findings(job: &Job, events: &[Vec<Event<'_>>], order: &[usize], end: i64) -> Vec<Finding> {
    let mut analyzer = Analyzer::new(job.run_id(), Config::default());
    let mut next = vec![0; events.len()];
    let rest: Vec<usize> =
        (0..events.len()).flat_map(|rank| vec![rank; events[rank].len()]).collect();
    for &rank in order.iter().chain(&rest) {
        let Some(event) = events[rank].get(next[rank]) else { continue };
        next[rank] += 1;
        let at = event.header.timestamp_unix_ns;
        analyzer.ingest(event, Moment { monotonic_ns: at, unix_ns: at });
    }
    analyzer.finish(Moment { monotonic_ns: end, unix_ns: end })
}

fn faults() -> impl Strategy<Value = Option<Fault>> {
    let made = Call::all_reduce(99);
    prop_oneof![
        Just(None),
        (0_usize..4, 0_usize..20).prop_map(|(rank, call)| Some(Fault::Skip { rank, call })),
        (0_usize..4, 0_usize..20).prop_map(move |(rank, call)| Some(Fault::Extra {
            rank,
            call,
            made
        })),
        (0_usize..4, 0_usize..20).prop_map(move |(rank, call)| Some(Fault::Wrong {
            rank,
            call,
            made
        })),
        (0_usize..4, 0_usize..19).prop_map(|(rank, call)| Some(Fault::Swap { rank, call })),
        (0_usize..4, 0_usize..20).prop_map(|(rank, call)| Some(Fault::Dead { rank, call })),
        (0_usize..4, 0_usize..20).prop_map(|(rank, call)| Some(Fault::Stall { rank, call })),
        (0_usize..4, 0_usize..20)
            .prop_map(|(rank, call)| { Some(Fault::Late { rank, call, ns: 45_000_000_000 }) }),
    ]
}

/// A job with collectives, and with sends and receives that are numbered or not.
fn job(indexed: bool, fault: Option<&Fault>) -> Job {
    let mut job = Job::collectives(4, 20).with_index(indexed);
    for rank in 0..4 {
        let (to, from) = ((rank + 1) % 4, (rank + 3) % 4);
        for round in 0..6 {
            job.push(rank, Step::GroupStart);
            job.push(rank, Step::Send { comm: 0, to, count: 10 + round });
            job.push(rank, Step::Recv { comm: 0, from, count: 10 + round });
            job.push(rank, Step::GroupEnd);
            job.push(rank, Step::Sync);
        }
    }
    if let Some(fault) = fault {
        job.plant(fault).unwrap();
    }
    job
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn any_interleaving_of_the_files_gives_the_same_findings(
        fault in faults(),
        indexed in any::<bool>(),
        order in prop::collection::vec(0_usize..4, 0..800),
    ) {
        let job = job(indexed, fault.as_ref());
        let (events, end) = events(&job);
        let expected = findings(&job, &events, &[], end);
        prop_assert_eq!(&findings(&job, &events, &order, end), &expected);
        prop_assert_eq!(expected.is_empty(), fault.is_none(), "{:#?}", expected);
    }

    #[test]
    fn reading_everything_again_gives_nothing_new(fault in faults(), turns in 1_usize..3) {
        let job = job(true, fault.as_ref());
        let (events, end) = events(&job);
        let mut analyzer = Analyzer::new(job.run_id(), Config::default());
        let mut found = Vec::new();
        for _ in 0..=turns {
            for event in events.iter().flatten() {
                let at = event.header.timestamp_unix_ns;
                analyzer.ingest(event, Moment { monotonic_ns: at, unix_ns: at });
            }
            found.push(analyzer.finish(Moment { monotonic_ns: end, unix_ns: end }));
        }
        prop_assert!(found[1..].iter().all(Vec::is_empty), "{:#?}", found);
    }

    #[test]
    fn a_healthy_trace_cut_at_any_moment_is_never_sure_of_anything(
        cut in 0.0_f64..1.0,
        indexed in any::<bool>(),
        mesh in any::<bool>(),
    ) {
        let job = if mesh { Job::mesh(2, 2, 2, 4) } else { job(indexed, None) };
        let (events, end) = events(&job);
        let begin = events[0][0].header.timestamp_unix_ns;
        let until = begin + ((end - begin) as f64 * cut) as i64;
        let kept: Vec<Vec<Event<'_>>> = events
            .iter()
            .map(|events| {
                let kept = events.iter().take_while(|e| e.header.timestamp_unix_ns <= until);
                kept.cloned().collect()
            })
            .collect();
        for finding in findings(&job, &kept, &[], until) {
            prop_assert!(finding.trace_ended_early(), "{:#?}", finding);
            prop_assert!(finding.confidence() <= Confidence::Suspected, "{:#?}", finding);
        }
    }

    #[test]
    fn healthy_files_copied_at_different_moments_are_never_sure_of_anything(
        cuts in prop::collection::vec(0.0_f64..1.0, 4),
    ) {
        let job = job(true, None);
        let (events, _) = events(&job);
        let kept: Vec<Vec<Event<'_>>> = events
            .iter()
            .zip(&cuts)
            .map(|(events, cut)| events[..(events.len() as f64 * cut) as usize].to_vec())
            .collect();
        let newest = kept.iter().flatten().map(|e| e.header.timestamp_unix_ns).max().unwrap_or(0);
        for finding in findings(&job, &kept, &[], newest) {
            prop_assert!(finding.confidence() <= Confidence::Suspected, "{:#?}", finding);
        }
    }
}
