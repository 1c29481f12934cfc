use std::time::{Duration, Instant};

use deepxtrace_collect::{
    Difference, Group, JoinError, LocalGroup, Membership, Proposal, SkipReason, Status, Stop, Until,
};

use super::{PATIENCE, collectors, count, counted, join_all, local_groups, proposal, tcp_groups};

const LEN: usize = 150;

/// Three rounds over all ranks; every vector arrives in its row.
fn gathers<G: Group + 'static>(groups: Vec<G>, root: usize) {
    let ranks = groups.len();
    let mut all = collectors(groups, LEN, PATIENCE);
    let (memory, mut leader) = all.remove(root);
    let followers: Vec<_> = all
        .into_iter()
        .enumerate()
        .map(|(i, (memory, mut collector))| {
            let rank = if i < root { i } else { i + 1 };
            std::thread::spawn(move || {
                let stop = Stop::new();
                for round in 0..3 {
                    count(&memory, 1_000_000 * (rank as i64 + 1) + 1_000 * round);
                    let until = Until::after(PATIENCE, &stop);
                    let answered = collector.follow(until).unwrap().unwrap();
                    assert_eq!(answered.request.round, round as u64);
                    assert_eq!(answered.skipped, None);
                }
            })
        })
        .collect();
    let stop = Stop::new();
    for round in 0..3 {
        count(&memory, 1_000_000 * (root as i64 + 1) + 1_000 * round);
        // The others write their counters before they look for the request.
        std::thread::sleep(Duration::from_millis(20));
        let led = leader.lead(0, Until::after(PATIENCE, &stop)).unwrap();
        assert_eq!(led.gathered.statuses(), vec![Status::Ok; ranks]);
        for rank in 0..ranks {
            let vector = led.gathered.vector(rank).unwrap();
            let base = 1_000_000 * (rank as i64 + 1);
            let due = base + 1_000 * round;
            // A follower may be one round behind in writing, never in answering.
            let is = vector[0];
            assert!(is == due || is == due - 1_000, "rank {rank} round {round}: {is}");
            assert_eq!(vector, counted(LEN, is));
        }
    }
    for follower in followers {
        follower.join().unwrap();
    }
}

#[test]
fn every_vector_arrives_in_its_row() {
    for size in [1, 2, 3, 8] {
        gathers(local_groups(size), 0);
        gathers(tcp_groups(&(0..size).collect::<Vec<_>>(), 0, "secret"), 0);
    }
}

#[test]
fn the_root_may_be_any_rank_of_a_subgroup_in_any_order() {
    gathers(LocalGroup::subgroup(vec![9, 2, 31, 4], 2).unwrap(), 2);
    gathers(tcp_groups(&[9, 2, 31, 4], 2, "secret"), 2);
}

/// One rank does not answer: the root names it and has the others.
fn misses<G: Group + 'static>(groups: Vec<G>) {
    let timeout = Duration::from_millis(300);
    let mut all = collectors(groups, 4, timeout);
    let stop = Stop::new();
    let (silent_memory, mut silent) = all.pop().unwrap();
    let (memory, mut follower) = all.pop().unwrap();
    let (_, mut leader) = all.pop().unwrap();
    count(&memory, 50);
    count(&silent_memory, 70);
    let answering = std::thread::spawn(move || {
        let stop = Stop::new();
        for _ in 0..2 {
            follower.follow(Until::after(PATIENCE, &stop)).unwrap().unwrap();
        }
        follower
    });
    let start = Instant::now();
    let led = leader.lead(0, Until::after(PATIENCE, &stop)).unwrap();
    assert!(start.elapsed() >= timeout);
    assert_eq!(led.gathered.statuses(), [Status::Ok, Status::Ok, Status::Missing]);
    assert_eq!(led.gathered.vector(1).unwrap(), counted(4, 50));
    assert_eq!(led.gathered.vector(2), None);
    // It wakes up: it answers the newest request only, and is in the next round.
    let waking = std::thread::spawn(move || {
        let stop = Stop::new();
        let mut rounds = Vec::new();
        while rounds.last() != Some(&1) {
            let answered = silent.follow(Until::after(PATIENCE, &stop)).unwrap().unwrap();
            rounds.push(answered.request.round);
        }
        (silent, rounds)
    });
    // It may first answer the old request, which is dropped.
    std::thread::sleep(Duration::from_millis(50));
    let led = leader.lead(0, Until::after(PATIENCE, &stop)).unwrap();
    assert_eq!(led.gathered.statuses(), [Status::Ok, Status::Ok, Status::Ok]);
    assert_eq!(led.gathered.vector(2).unwrap(), counted(4, 70));
    let (mut silent, _) = waking.join().unwrap();
    assert!(leader.gather().events().late_answers <= 1);
    // It leaves: the next round does not wait for it.
    silent.goodbye();
    drop(answering.join().unwrap());
    std::thread::sleep(Duration::from_millis(50));
    let led = leader.lead(0, Until::after(PATIENCE, &stop)).unwrap();
    assert_eq!(led.gathered.statuses(), [Status::Ok, Status::Goodbye, Status::Goodbye]);
}

#[test]
fn a_silent_rank_is_named_and_taken_in_again() {
    misses(local_groups(3));
    misses(tcp_groups(&[0, 1, 2], 0, "secret"));
}

/// A rank that skips says why, and shifts nobody.
fn skips<G: Group + 'static>(groups: Vec<G>) {
    let mut all = collectors(groups, 4, PATIENCE);
    let stop = Stop::new();
    let (memory, mut follower) = all.pop().unwrap();
    let (_, mut leader) = all.pop().unwrap();
    memory.set_capturing(true);
    let answering = std::thread::spawn(move || {
        let stop = Stop::new();
        let until = Until::after(PATIENCE, &stop);
        let first = follower.follow(until).unwrap().unwrap();
        assert_eq!(first.skipped, Some(SkipReason::Capturing));
        memory.set_capturing(false);
        count(&memory, 9);
        assert_eq!(follower.follow(until).unwrap().unwrap().skipped, None);
    });
    let until = Until::after(PATIENCE, &stop);
    let led = leader.lead(0, until).unwrap();
    assert_eq!(led.gathered.statuses(), [Status::Ok, Status::Skipped(SkipReason::Capturing)]);
    let led = leader.lead(0, until).unwrap();
    assert_eq!(led.gathered.vector(1).unwrap(), counted(4, 9));
    answering.join().unwrap();
}

#[test]
fn a_rank_that_skips_says_why() {
    skips(local_groups(2));
    skips(tcp_groups(&[0, 1], 0, "secret"));
}

#[test]
fn the_root_takes_its_goodbye_to_all() {
    fn says_goodbye<G: Group + 'static>(groups: Vec<G>) {
        let mut all = collectors(groups, 4, PATIENCE);
        let (_, mut follower) = all.pop().unwrap();
        drop(all);
        let stop = Stop::new();
        let error = follower.follow(Until::after(PATIENCE, &stop)).unwrap_err();
        assert_eq!(error, deepxtrace_collect::GatherError::RootLeft);
    }
    says_goodbye(local_groups(2));
    says_goodbye(tcp_groups(&[0, 1], 0, "secret"));
}

fn setting(name: &str, value: &str) -> Proposal {
    Proposal { settings: vec![(name.to_owned(), value.to_owned())], ..proposal(6) }
}

#[test]
fn ranks_that_disagree_are_named_on_every_rank() {
    fn disagree<G: Group + 'static>(groups: Vec<G>) {
        let proposals = ["20", "20", "5", "20"].map(|value| setting("INTERVAL", value)).to_vec();
        for result in join_all(groups, proposals) {
            let error = result.unwrap_err();
            let values = vec![("20".to_owned(), vec![0, 1, 3]), ("5".to_owned(), vec![2])];
            let expected = Difference { setting: "INTERVAL".to_owned(), values };
            assert_eq!(error, JoinError::Disagreement(vec![expected]));
            let text = "INTERVAL is 20 on ranks 0-1, 3, 5 on rank 2";
            assert!(error.to_string().ends_with(text), "{error}");
        }
    }
    disagree(local_groups(4));
    disagree(tcp_groups(&[0, 1, 2, 3], 0, "secret"));
}

#[test]
fn disabled_everywhere_is_none_and_disabled_somewhere_an_error() {
    fn disabled<G: Group + 'static>(all: Vec<G>, some: Vec<G>) {
        for result in join_all(all, vec![Proposal::default(); 2]) {
            assert!(result.unwrap().is_none());
        }
        for result in join_all(some, vec![proposal(6), Proposal::default()]) {
            let error = result.unwrap_err().to_string();
            assert!(error.ends_with("enabled is true on rank 0, false on rank 1"), "{error}");
        }
    }
    disabled(local_groups(2), local_groups(2));
    disabled(tcp_groups(&[0, 1], 0, "s"), tcp_groups(&[0, 1], 0, "s"));
}

#[test]
fn ranks_that_do_not_come_are_named() {
    let stop = Stop::new();
    let soon = Until::after(Duration::from_millis(200), &stop);
    let missing = JoinError::Missing { ranks: vec![1, 2], size: 3 };
    let local = Box::new(local_groups(3).remove(0));
    assert_eq!(local.join(&proposal(6), soon).unwrap_err(), missing);
    let tcp = Box::new(tcp_groups(&[0, 1, 2], 0, "secret").remove(0));
    assert_eq!(tcp.join(&proposal(6), soon).unwrap_err(), missing);
    // And the root, seen from the others.
    let mut groups = tcp_groups(&[0, 1], 0, "secret");
    let leaf = Box::new(groups.pop().unwrap());
    drop(groups);
    let soon = Until::after(Duration::from_millis(200), &stop);
    let error = leaf.join(&proposal(6), soon).unwrap_err();
    assert!(matches!(error, JoinError::NoRoot { .. }), "{error}");
}

#[test]
fn impossible_groups_are_refused_with_the_value() {
    let error = |list: Vec<usize>, own, root| {
        Membership::subgroup(list, own, root).unwrap_err().to_string()
    };
    assert_eq!(error(vec![], 0, 0), "a group of 0 ranks: it must have 1 to 4096");
    assert_eq!(error(vec![3, 5, 3], 5, 0), "global rank 3 is in the group twice");
    assert!(error(vec![3, 5], 4, 0).starts_with("global rank 4 is not among the 2"));
    assert!(error(vec![3, 5], 5, 2).starts_with("root 2 is not a rank"));
    assert!(Membership::world(0, usize::MAX).is_err());
    assert!(LocalGroup::new(0).is_err() && LocalGroup::new(5000).is_err());
    let member = Membership::subgroup(vec![7, 3, 5], 5, 1).unwrap();
    assert_eq!((member.rank(), member.root(), member.global(0)), (2, 1, Some(7)));
}
