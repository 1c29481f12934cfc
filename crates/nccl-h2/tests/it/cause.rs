//! Causes behind several symptoms, on simulated jobs with a planted fault.

use std::time::Instant;

use deepxtrace_nccl_h2::{
    Analyzer, CommunicatorDeadlock, Confidence, Config, Details, DivergenceKind, Finding, HangType,
    Moment, RootBlocker, SequenceDivergence,
};
use deepxtrace_sim::nccl::{Call, Fault, Job, Step};
use proptest::prelude::*;

use crate::only;
use crate::support::kinds;

/// All findings of a job that is over.
fn found(job: &Job) -> Vec<Finding> {
    let mut analyzer = Analyzer::new(job.run_id(), Config::default());
    let end = job.run(|_, event| {
        let at = event.header.timestamp_unix_ns;
        analyzer.ingest(event, Moment { monotonic_ns: at, unix_ns: at });
    });
    analyzer.finish(Moment { monotonic_ns: end, unix_ns: end })
}

fn found_with(mut job: Job, fault: &Fault) -> Vec<Finding> {
    job.plant(fault).unwrap();
    found(&job)
}

/// Whether one of the explanations says what was planted.
fn says(details: &SequenceDivergence, kind: DivergenceKind, rank: usize, call: usize) -> bool {
    details.explanations.iter().any(|one| {
        let [first, last] = match kind {
            DivergenceKind::Skipped => one.others_position,
            _ => one.position,
        };
        one.kind == kind
            && one.comm_ranks == [rank as i64]
            && (first..=last).contains(&(call as i64))
    })
}

/// A number of ranks from 2 to 64, mostly few.
fn ranks() -> impl Strategy<Value = usize> {
    prop_oneof![3 => Just(2_usize), 3 => 3_usize..9, 1 => 9_usize..65]
}

const CALLS: usize = 200;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_skipped_call_is_the_only_finding_wherever_it_is(
        ranks in ranks(), rank in any::<prop::sample::Index>(), call in 0..CALLS,
    ) {
        let rank = rank.index(ranks);
        let found = found_with(Job::collectives(ranks, CALLS), &Fault::Skip { rank, call });
        if call == CALLS - 1 {
            let details = only!(found, CollectiveMissingEnter);
            prop_assert_eq!(details.missing_comm_ranks, [rank as i64]);
        } else {
            let details = only!(found, SequenceDivergence);
            prop_assert!(says(&details, DivergenceKind::Skipped, rank, call), "{:#?}", details);
            prop_assert_eq!(details.last_agreed_seq, call as i64 - 1);
            let unsure = details.explanations.len() > 1;
            prop_assert_eq!(details.confidence == Confidence::Unknown, unsure);
            prop_assert_eq!(unsure, ranks == 2, "with two ranks nobody can tell");
            prop_assert_eq!(details.explained_rounds, (CALLS - call) as i64);
        }
    }

    #[test]
    fn an_extra_call_is_the_only_finding_wherever_it_is(
        ranks in ranks(), rank in any::<prop::sample::Index>(), call in 0..CALLS,
    ) {
        let (rank, made) = (rank.index(ranks), Call::all_reduce(7));
        let fault = Fault::Extra { rank, call, made };
        let details = only!(found_with(Job::collectives(ranks, CALLS), &fault), SequenceDivergence);
        prop_assert!(says(&details, DivergenceKind::Extra, rank, call), "{:#?}", details);
        prop_assert_eq!(details.explanations.len() > 1, ranks == 2);
    }

    #[test]
    fn swapped_calls_are_the_only_finding_wherever_they_are(
        ranks in ranks(), rank in any::<prop::sample::Index>(), call in 0..CALLS - 1,
    ) {
        let rank = rank.index(ranks);
        let fault = Fault::Swap { rank, call };
        let details = only!(found_with(Job::collectives(ranks, CALLS), &fault), SequenceDivergence);
        prop_assert!(says(&details, DivergenceKind::Swapped, rank, call), "{:#?}", details);
        prop_assert_eq!(details.explained_rounds, 2);
    }

    #[test]
    fn another_way_for_good_is_the_only_finding_wherever_it_begins(
        ranks in ranks(), rank in any::<prop::sample::Index>(), call in 0..CALLS,
    ) {
        let rank = rank.index(ranks);
        let fault = Fault::Branch { rank, call };
        let found = found_with(Job::collectives(ranks, CALLS), &fault);
        if call == CALLS - 1 {
            prop_assert_eq!(kinds(&found), [HangType::CollectiveSignatureMismatch]);
        } else {
            let details = only!(found, SequenceDivergence);
            prop_assert!(says(&details, DivergenceKind::Branched, rank, call), "{:#?}", details);
        }
    }

    #[test]
    fn a_single_wrong_call_remains_a_mismatch(
        ranks in ranks(), rank in any::<prop::sample::Index>(), call in 0..CALLS,
    ) {
        let (rank, made) = (rank.index(ranks), Call::all_reduce(7));
        let fault = Fault::Wrong { rank, call, made };
        let found = found_with(Job::collectives(ranks, CALLS), &fault);
        prop_assert_eq!(kinds(&found), [HangType::CollectiveSignatureMismatch]);
        prop_assert_eq!(found[0].comm_seq, call as i64);
    }

    #[test]
    fn a_skip_inside_a_run_of_equal_calls_names_the_run(
        ranks in 3_usize..6, rank in any::<prop::sample::Index>(), call in 0_usize..100,
    ) {
        let rank = rank.index(ranks);
        let runs = (0..100).map(|at| Call::all_reduce(100 + (at / 10) as i64));
        let found = found_with(Job::of_calls(ranks, runs), &Fault::Skip { rank, call });
        if call >= 90 {
            prop_assert_eq!(kinds(&found), [HangType::CollectiveMissingEnter]);
        } else {
            let details = only!(found, SequenceDivergence);
            prop_assert!(says(&details, DivergenceKind::Skipped, rank, call), "{:#?}", details);
            let run = [(call / 10 * 10) as i64, (call / 10 * 10 + 9) as i64];
            prop_assert_eq!(details.explanations[0].others_position, run);
        }
    }

    #[test]
    fn healthy_jobs_give_nothing(ranks in ranks(), calls in 0_usize..60, mesh in 1_usize..4) {
        prop_assert_eq!(found(&Job::collectives(ranks, calls)), []);
        prop_assert_eq!(found(&Job::mesh(mesh, 2, 3 - mesh / 2, calls / 10)), []);
    }

    #[test]
    fn a_dead_or_stalled_rank_in_a_mesh_is_the_only_finding(
        rank in 0_usize..8, call in 0_usize..8, dead in any::<bool>(),
    ) {
        let fault = match dead {
            true => Fault::Dead { rank, call },
            false => Fault::Stall { rank, call },
        };
        let found = found_with(Job::mesh(2, 2, 2, 4), &fault);
        // Right at the end nobody but its own group waits.
        if kinds(&found) == [HangType::CollectiveMissingEnter] {
            let details = only!(found, CollectiveMissingEnter);
            prop_assert_eq!(details.missing_rank_status[0].rank, Some(rank as i64));
        } else {
            let details = root(found);
            prop_assert_eq!(root_ranks(&details), [rank as i64]);
            let expected = match dead {
                true => "rank_exit_or_crash_suspected",
                false => "rank_alive_but_not_entered",
            };
            prop_assert_eq!(details.reason, expected);
            prop_assert_eq!(details.explained_findings_count, details.explained_findings.len() as i64);
            prop_assert!(details.explained_findings_count > 1);
        }
    }

    #[test]
    fn opposite_orders_are_one_deadlock(before in 0_usize..20, comms in 2_usize..4) {
        let found = found(&circle(before, comms));
        let details = deadlock(found);
        let all: Vec<i64> = (0..comms as i64).collect();
        prop_assert_eq!(&details.ranks, &all);
        prop_assert_eq!(details.cycle.len(), comms);
        prop_assert_eq!(details.explained_findings.len(), comms);
        // Each rank is in the call that its predecessor in the circle waits for it to make later.
        prop_assert_eq!(details.orders.len(), comms);
        prop_assert!(details.cycle.iter().all(|edge| edge.waiting_ranks.len() == 1));
    }

    #[test]
    fn a_pipeline_stage_with_the_wrong_peer_is_one_finding(send in 0_usize..6) {
        let fault = Fault::WrongPeer { rank: 1, send, to: 3 };
        let found = found_with(Job::mesh(1, 4, 1, 8), &fault);
        let details = deadlock(found);
        prop_assert_eq!(&details.ranks, &[1, 2, 3]);
        let wrong = details.cycle.iter().any(|edge| {
            edge.api == "ncclSend" && edge.waiting_ranks == [1] && edge.waits_for_ranks == [3]
        });
        prop_assert!(wrong, "{:#?}", details);
    }
}

fn root(found: Vec<Finding>) -> RootBlocker {
    only!(found, RootBlocker)
}

fn deadlock(found: Vec<Finding>) -> CommunicatorDeadlock {
    only!(found, CommunicatorDeadlock)
}

fn root_ranks(details: &RootBlocker) -> Vec<i64> {
    details.roots.iter().filter_map(|root| root.rank).collect()
}

/// Two ranks that use two communicators in opposite orders, or three ranks in a circle of three
/// communicators, after some rounds that go well.
fn circle(before: usize, comms: usize) -> Job {
    let mut job = Job::new(comms);
    let all: Vec<usize> = if comms == 2 {
        vec![job.add_comm(vec![0, 1]), job.add_comm(vec![0, 1])]
    } else {
        (0..comms).map(|at| job.add_comm(vec![at, (at + 1) % comms])).collect()
    };
    let call = |comm: usize| Step::Collective { comm, call: Call::all_reduce(8) };
    for rank in 0..comms {
        // The communicators of a rank: the one with its successor, and with its predecessor.
        let (own, other) = (all[rank], all[(rank + comms - 1) % comms]);
        for _ in 0..before {
            for comm in [own.min(other), own.max(other)] {
                job.push(rank, call(comm));
                job.push(rank, Step::Sync);
            }
        }
        for comm in [own, other] {
            job.push(rank, call(comm));
            job.push(rank, Step::Sync);
        }
    }
    job
}

#[test]
fn a_thousand_ranks_in_a_mesh_with_one_dead_are_one_finding_within_a_second() {
    let mut job = Job::mesh(8, 16, 8, 3);
    job.plant(&Fault::Dead { rank: 517, call: 3 }).unwrap();
    let mut analyzer = Analyzer::new(job.run_id(), Config::default());
    let end = job.run(|_, event| {
        let at = event.header.timestamp_unix_ns;
        analyzer.ingest(event, Moment { monotonic_ns: at, unix_ns: at });
    });
    let begin = Instant::now();
    let found = analyzer.finish(Moment { monotonic_ns: end, unix_ns: end });
    let taken = begin.elapsed();
    let details = root(found);
    assert_eq!(root_ranks(&details), [517]);
    assert!(details.explained_findings_count > 100, "{}", details.explained_findings_count);
    assert!(details.waiting_rank_count > 900, "{}", details.waiting_rank_count);
    assert!(taken.as_secs_f64() < 1.0, "{taken:?}");
}

#[test]
fn a_rank_in_data_loading_while_three_groups_wait_is_the_root() {
    // Two ranks on three communicators; the second stalls before all of them.
    let mut job = Job::new(4);
    let comms = [job.add_comm(vec![0, 1]), job.add_comm(vec![2, 1]), job.add_comm(vec![3, 1])];
    for (rank, comm) in [0, 2, 3].into_iter().zip(comms) {
        for step in [Step::Collective { comm, call: Call::all_reduce(8) }, Step::Sync] {
            job.push(rank, step);
        }
    }
    job.push(1, Step::Stall);
    let details = root(found(&job));
    assert_eq!(root_ranks(&details), [1]);
    assert_eq!(details.explained_findings.len(), 3);
    assert_eq!(details.waits.len(), 3);
    assert_eq!(details.roots[0].phase.as_deref(), Some("train"));
    assert_eq!(details.confidence, Confidence::Observed);
}

#[test]
fn what_waits_for_ranks_that_are_stuck_in_a_mismatch_is_explained_by_it() {
    // Ranks 0 and 1 differ on their communicator and hang; rank 2 waits for rank 1 on another.
    let mut job = Job::new(3).with_hanging_mismatch(true);
    let (first, second) = (job.add_comm(vec![0, 1]), job.add_comm(vec![1, 2]));
    for rank in 0..2 {
        let call = Call::all_reduce(8 + rank as i64);
        job.push(rank, Step::Collective { comm: first, call });
        job.push(rank, Step::Sync);
    }
    for rank in 1..3 {
        job.push(rank, Step::Collective { comm: second, call: Call::all_reduce(8) });
        job.push(rank, Step::Sync);
    }
    let details = only!(found(&job), SignatureMismatch);
    assert_eq!(details.explained_findings.len(), 1);
    assert_eq!(details.explained_findings[0].hang_type, "collective_missing_enter");
}

#[test]
fn scanning_while_the_job_runs_gives_the_cause_once() {
    let mut job = Job::mesh(2, 2, 2, 4);
    job.plant(&Fault::Dead { rank: 3, call: 2 }).unwrap();
    let mut events = Vec::new();
    let end = job.run(|_, event| {
        let text: &'static str = serde_json::to_string(event).unwrap().leak();
        events.push(deepxtrace_nccl_h2::Event::parse(text).unwrap());
    });
    events.sort_by_key(|event| event.header.timestamp_unix_ns);
    let mut analyzer = Analyzer::new(job.run_id(), Config::default());
    let (mut found, mut next) = (Vec::new(), events[0].header.timestamp_unix_ns);
    for event in &events {
        let at = event.header.timestamp_unix_ns;
        while next <= at {
            found.extend(analyzer.scan(Moment { monotonic_ns: next, unix_ns: next }));
            next += 1_000_000_000;
        }
        analyzer.ingest(event, Moment { monotonic_ns: at, unix_ns: at });
    }
    for more in 1..1_000 {
        let at = end + more * 1_000_000_000;
        found.extend(analyzer.scan(Moment { monotonic_ns: at, unix_ns: at }));
    }
    assert_eq!(root_ranks(&root(found)), [3]);
}

#[test]
fn separate_causes_are_separate_findings() {
    let mut job = Job::new(4);
    for pair in [[0, 1], [2, 3]] {
        for _ in 0..2 {
            let comm = job.add_comm(pair.to_vec());
            job.push(pair[0], Step::Collective { comm, call: Call::all_reduce(8) });
        }
        job.push(pair[0], Step::Sync);
        job.push(pair[1], Step::Stall);
    }
    let found = found(&job);
    assert_eq!(kinds(&found), [HangType::RootBlocker; 2]);
    let roots: Vec<Vec<i64>> = found
        .iter()
        .map(|finding| match &finding.details {
            Details::RootBlocker(details) => root_ranks(details),
            _ => Vec::new(),
        })
        .collect();
    assert!(roots.contains(&vec![1]) && roots.contains(&vec![3]), "{roots:?}");
}
