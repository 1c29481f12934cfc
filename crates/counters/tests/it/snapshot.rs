//! Snapshots: what is accepted, and how vectors are reached.

use deepxtrace_counters::{Snapshot, SnapshotError, Topology};

fn topology(ep_size: usize) -> Topology {
    Topology::new(ep_size, 8).unwrap()
}

#[test]
fn vectors_lie_one_after_the_other_in_rank_order() {
    let mut snapshot = Snapshot::new(topology(2), 5, (0..48).collect(), None).unwrap();
    assert_eq!(snapshot.vector(1).unwrap(), (24..48).collect::<Vec<i64>>());
    snapshot.vector_mut(0).unwrap()[3] = -7;
    assert_eq!(snapshot.counters()[3], -7);
    assert_eq!(snapshot.vector(2), None);
    assert_eq!(snapshot.vector_mut(usize::MAX), None);
    assert_eq!((snapshot.timestamp_unix_ns(), snapshot.present()), (5, &[true, true][..]));
    snapshot.set_timestamp_unix_ns(9);
    snapshot.set_present(1, false);
    snapshot.set_present(2, false);
    assert_eq!((snapshot.timestamp_unix_ns(), snapshot.present()), (9, &[true, false][..]));
    snapshot.counters_mut().fill(1);
    assert!(snapshot.counters().iter().all(|&counter| counter == 1));
}

#[test]
fn other_lengths_are_refused_with_what_is_needed() {
    let error = Snapshot::new(topology(2), 0, vec![0; 47], None).unwrap_err();
    assert_eq!(error, SnapshotError::Length { length: 47, ranks: 2, each: 24, expected: 48 });
    assert_eq!(error.to_string(), "gathered counters have 47 elements, 2 ranks of 24 need 48");
    let error = Snapshot::new(topology(2), 0, vec![0; 48], Some(vec![true; 3])).unwrap_err();
    assert_eq!(error.to_string(), "presence flags are 3, the group has 2 ranks");
}
