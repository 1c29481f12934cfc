use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use deepxtrace_collect::{Collector, Group, JoinError, Membership, Status, Stop, TcpGroup, Until};

use super::{PATIENCE, collectors, count, counted, proposal, tcp_groups};

fn port(group: &TcpGroup) -> u16 {
    group.place().rsplit(':').next().unwrap().parse().unwrap()
}

fn preamble(secret: &str) -> Vec<u8> {
    let mut bytes = b"DXTC\x01\x00".to_vec();
    bytes.extend((secret.len() as u16).to_le_bytes());
    bytes.extend(secret.as_bytes());
    bytes.resize(264, 0);
    bytes
}

/// Leads rounds until `wanted` holds.
fn lead_until(leader: &mut Collector, wanted: impl Fn(&[Status]) -> bool) {
    let (begin, stop) = (Instant::now(), Stop::new());
    loop {
        let led = leader.lead(0, Until::after(PATIENCE, &stop)).unwrap();
        if wanted(led.gathered.statuses()) {
            return;
        }
        assert!(begin.elapsed() < PATIENCE, "{:?}", led.gathered.statuses());
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn follow_for_ever(mut collector: Collector, stop: Stop) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        while !stop.is_set() {
            let _ = collector.follow(Until::after(PATIENCE, &stop));
        }
    })
}

#[test]
fn strangers_wrong_secrets_and_broken_frames_are_refused_counted_and_harmless() {
    let groups = tcp_groups(&[0, 1], 0, "right");
    let port = port(&groups[0]);
    let mut all = collectors(groups, 4, Duration::from_secs(5));
    let (memory, follower) = all.pop().unwrap();
    let (_, mut leader) = all.pop().unwrap();
    count(&memory, 3);
    let stop = Stop::new();
    let following = follow_for_ever(follower, stop.clone());

    let connect = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // The root may close before it has read all.
        let _ = stream.write_all(bytes);
        stream
    };
    let closed = |mut stream: TcpStream| {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        rest
    };
    // A scanner, and one that says nothing and goes.
    closed(connect(&[b"GET / HTTP/1.1\r\n\r\n".as_slice(), &[0; 300]].concat()));
    drop(connect(b""));
    // A wrong secret is told so.
    let answer = closed(connect(&preamble("wrong")));
    assert!(String::from_utf8_lossy(&answer).contains("wrong secret"));
    // The right secret, then a hello of 4 GB, no hello, no JSON, and half a hello.
    let frame = |kind: u8, payload: u32| {
        let mut bytes = vec![b'D', b'X', kind, 0, 0, 0, 0, 0];
        bytes.extend(payload.to_le_bytes());
        bytes.resize(32, 0);
        [preamble("right"), bytes].concat()
    };
    closed(connect(&frame(1, u32::MAX)));
    closed(connect(&frame(4, 32)));
    closed(connect(&[frame(1, 3), b"[1,".to_vec()].concat()));
    let half = connect(&[frame(1, 100), b"{".to_vec()].concat());
    drop(half);

    let begin = Instant::now();
    let counted_so_far = loop {
        let events = leader.gather().events();
        if events.strangers_refused >= 3 && events.bad_frames >= 4 {
            break events;
        }
        assert!(begin.elapsed() < PATIENCE, "{events:?}");
        std::thread::sleep(Duration::from_millis(10));
    };
    assert_eq!((counted_so_far.strangers_refused, counted_so_far.bad_frames), (3, 4));
    assert_eq!((counted_so_far.rejoined, counted_so_far.lost), (0, 0));
    let led = leader.lead(0, Until::after(PATIENCE, &stop)).unwrap();
    assert_eq!(led.gathered.statuses(), [Status::Ok; 2]);
    assert_eq!(led.gathered.vector(1).unwrap(), counted(4, 3));
    stop.set();
    following.join().unwrap();
}

#[test]
fn a_rank_with_the_wrong_secret_is_told_so() {
    let groups = tcp_groups(&[0, 1], 0, "right");
    let port = port(&groups[0]);
    let wrong = Membership::world(1, 2).unwrap();
    let wrong = TcpGroup::new(wrong, "127.0.0.1", port, "other").unwrap();
    let root = std::thread::spawn(move || {
        let stop = Stop::new();
        let until = Until::after(Duration::from_millis(500), &stop);
        Box::new(groups.into_iter().next().unwrap()).join(&proposal(4), until)
    });
    let stop = Stop::new();
    let error = Box::new(wrong).join(&proposal(4), Until::after(PATIENCE, &stop)).unwrap_err();
    assert!(error.to_string().contains("wrong secret"), "{error}");
    let error = root.join().unwrap().unwrap_err();
    assert_eq!(error, JoinError::Missing { ranks: vec![1], size: 2 });
}

#[test]
fn a_rank_that_comes_back_takes_its_place_again() {
    let groups = tcp_groups(&[0, 1, 2], 0, "secret");
    let port = port(&groups[0]);
    let mut all = collectors(groups, 4, Duration::from_secs(5));
    let (_, dying) = all.pop().unwrap();
    let (_, follower) = all.pop().unwrap();
    let (_, mut leader) = all.pop().unwrap();
    let stop = Stop::new();
    let following = follow_for_ever(follower, stop.clone());
    drop(dying);
    lead_until(&mut leader, |statuses| statuses == [Status::Ok, Status::Ok, Status::Goodbye]);
    let again = Membership::world(2, 3).unwrap();
    let again = TcpGroup::new(again, "127.0.0.1", port, "secret").unwrap();
    let returned = collectors(vec![again], 4, Duration::from_secs(5)).pop().unwrap();
    count(&returned.0, 8);
    let returned = follow_for_ever(returned.1, stop.clone());
    lead_until(&mut leader, |statuses| statuses == [Status::Ok; 3]);
    assert_eq!(leader.gather().events().rejoined, 1);
    stop.set();
    following.join().unwrap();
    returned.join().unwrap();
}

#[test]
fn a_rank_that_comes_back_with_another_size_or_length_is_refused_by_name() {
    let groups = tcp_groups(&[0, 1], 0, "secret");
    let port = port(&groups[0]);
    let mut all = collectors(groups, 4, Duration::from_secs(5));
    let _leader = all.remove(0);
    let stop = Stop::new();
    let until = Until::after(PATIENCE, &stop);
    let other = |size| {
        let membership = Membership::world(1, size).unwrap();
        Box::new(TcpGroup::new(membership, "127.0.0.1", port, "secret").unwrap())
    };
    let error = other(2).join(&proposal(5), until).unwrap_err().to_string();
    assert!(error.ends_with("vector length is 4 on rank 0, 5 on rank 1"), "{error}");
    let error = other(3).join(&proposal(4), until).unwrap_err().to_string();
    assert!(error.contains("EP size is 2 on rank 0, 3 on rank 1"), "{error}");
}

#[test]
fn ranks_that_disagree_on_the_size_of_the_group_do_not_wait_for_each_other() {
    let groups = tcp_groups(&[0, 1], 0, "secret");
    let port = port(&groups[0]);
    let larger = Membership::world(2, 3).unwrap();
    let larger = TcpGroup::new(larger, "127.0.0.1", port, "secret").unwrap();
    let mut groups: Vec<_> = groups.into_iter().take(1).collect();
    groups.push(larger);
    for result in super::join_all(groups, vec![proposal(4); 2]) {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("EP size is 2 on rank 0, 3 on rank 2"), "{error}");
    }
}
