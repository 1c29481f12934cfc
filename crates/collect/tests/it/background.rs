use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use deepxtrace_collect::{Background, Event, EveryInterval, Status, Stop, Until};

use super::{PATIENCE, collectors, local_groups, tcp_groups};

/// Starts the background of every rank; the root's rounds come out of the channel.
fn start<G: deepxtrace_collect::Group + 'static>(
    groups: Vec<G>,
    interval: Duration,
) -> (Vec<Background>, Receiver<Vec<Status>>) {
    let (send, receive) = channel();
    let all = collectors(groups, 6, Duration::from_secs(5))
        .into_iter()
        .map(|(_, collector)| {
            let send = send.clone();
            let schedule = Box::new(EveryInterval::new(Instant::now(), interval, interval));
            Background::start(collector, schedule, move |event| {
                if let Event::Round(round) = event {
                    let _ = send.send(round.gathered.statuses().to_vec());
                }
            })
            .unwrap()
        })
        .collect();
    (all, receive)
}

#[test]
fn rounds_go_on_until_the_stop() {
    for (mut all, rounds) in [
        start(local_groups(3), Duration::from_millis(5)),
        start(tcp_groups(&[0, 1, 2], 0, "secret"), Duration::from_millis(5)),
    ] {
        for _ in 0..5 {
            assert_eq!(rounds.recv_timeout(PATIENCE).unwrap(), [Status::Ok; 3]);
        }
        // The last rank first: the root must not wait for it.
        for background in all.iter_mut().rev() {
            assert!(background.stop(PATIENCE));
        }
    }
}

#[test]
fn stop_does_not_sleep_through_an_interval_of_an_hour() {
    let hour = Duration::from_secs(3600);
    for (mut all, _) in
        [start(local_groups(2), hour), start(tcp_groups(&[0, 1], 0, "secret"), hour)]
    {
        std::thread::sleep(Duration::from_millis(30));
        for background in &mut all {
            let begin = Instant::now();
            assert!(background.stop(PATIENCE));
            // 100 ms on a free machine; this one may be loaded.
            assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
        }
    }
}

#[test]
fn stop_ends_a_round_that_waits_for_a_silent_rank() {
    let mut all = collectors(local_groups(2), 6, PATIENCE);
    let (_, _silent) = all.pop().unwrap();
    let (_, root) = all.pop().unwrap();
    let schedule = EveryInterval::new(Instant::now(), Duration::ZERO, Duration::from_secs(1));
    let mut background = Background::start(root, Box::new(schedule), |_| {}).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    let begin = Instant::now();
    assert!(background.stop(PATIENCE));
    assert!(begin.elapsed() < Duration::from_secs(5));
}

#[test]
fn ranks_learn_that_the_root_has_left() {
    let mut all = collectors(tcp_groups(&[0, 1], 0, "secret"), 6, PATIENCE);
    let (_, follower) = all.pop().unwrap();
    let (send, receive) = channel();
    let schedule = EveryInterval::new(Instant::now(), PATIENCE, PATIENCE);
    let _background = Background::start(follower, Box::new(schedule), move |event| {
        let _ = send.send(matches!(event, Event::RootLeft));
    });
    drop(all);
    assert_eq!(receive.recv_timeout(PATIENCE), Ok(true));
}

#[test]
fn a_producer_that_triggers_decides_when_the_snapshot_is_enqueued() {
    use std::sync::Arc;

    use deepxtrace_collect::{Collector, CounterMemory, Group, HostMemory, SkipReason, Trigger};

    let stop = Stop::new();
    let group = Box::new(local_groups(1).remove(0));
    let joined = group.join(&super::proposal(1), Until::after(PATIENCE, &stop)).unwrap().unwrap();
    let memory: Arc<dyn CounterMemory> = Arc::new(HostMemory::new(1));
    let trigger = Trigger::new(Arc::clone(&memory));
    assert!(!trigger.snapshot_if_due());
    let whole = 0..1;
    let timeout = Duration::from_millis(400);
    let mut collector = Collector::new(memory, joined.gather, &[whole], timeout)
        .unwrap()
        .with_trigger(trigger.clone());
    // Nobody triggers.
    let round = collector.lead(0, Until::after(PATIENCE, &stop)).unwrap();
    assert_eq!(round.gathered.statuses(), [Status::Skipped(SkipReason::NotTriggered)]);
    assert!(!trigger.snapshot_if_due(), "the wish is gone with its round");
    // The producer does.
    let producer = std::thread::spawn(move || {
        let begin = Instant::now();
        while !trigger.snapshot_if_due() && begin.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
    });
    let round = collector.lead(0, Until::after(PATIENCE, &stop)).unwrap();
    assert_eq!(round.gathered.statuses(), [Status::Ok]);
    producer.join().unwrap();
}
