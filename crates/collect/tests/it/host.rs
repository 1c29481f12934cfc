use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::channel;
use std::time::Duration;

use deepxtrace_collect::{
    CounterMemory, DeviceError, Enqueued, HostMemory, HostQueue, SkipReason, Stop, Ticket, Until,
};

use super::PATIENCE;

fn ticket(memory: &HostMemory) -> Ticket {
    match memory.enqueue_snapshot().unwrap() {
        Enqueued::Ticket(ticket) => ticket,
        other @ Enqueued::Skipped(_) => panic!("{other:?}"),
    }
}

fn read(memory: &HostMemory, ticket: Ticket) -> Vec<i64> {
    let stop = Stop::new();
    assert!(memory.wait_ready(ticket, Until::after(PATIENCE, &stop)).unwrap());
    let mut out = vec![0; memory.len()];
    memory.read(ticket, 0..memory.len(), &mut out).unwrap();
    memory.release(ticket);
    out
}

#[test]
fn a_snapshot_between_two_writes_sees_exactly_the_first() {
    let queue = HostQueue::new().unwrap();
    let memory = HostMemory::with_queue(1000, &queue);
    let write = |value| {
        let counters = memory.counters();
        queue.run(move || counters.get().iter().for_each(|counter| counter.store(value, Relaxed)));
    };
    // The queue is held, so that all three are enqueued before the first runs.
    let (release, held) = channel::<()>();
    queue.run(move || held.recv().unwrap_or_default());
    write(1);
    let between = ticket(&memory);
    write(2);
    let after = ticket(&memory);
    assert!(!memory.is_ready(between).unwrap());
    drop(release);
    assert_eq!(read(&memory, between), vec![1; 1000]);
    assert_eq!(read(&memory, after), vec![2; 1000]);
}

#[test]
fn a_held_queue_neither_blocks_the_producer_nor_the_reader_for_ever() {
    let queue = HostQueue::new().unwrap();
    let memory = HostMemory::with_queue(4, &queue);
    let (release, held) = channel::<()>();
    queue.run(move || held.recv().unwrap_or_default());
    let first = ticket(&memory);
    let second = ticket(&memory);
    assert_eq!(memory.enqueue_snapshot(), Ok(Enqueued::Skipped(SkipReason::Busy)));
    let stop = Stop::new();
    let soon = Until::after(Duration::from_millis(5), &stop);
    assert_eq!(memory.wait_ready(first, soon), Ok(false));
    let mut out = [0; 4];
    assert_eq!(memory.read(first, 0..4, &mut out), Err(DeviceError::NotReady(first)));
    // Given back before the device has come to it: still busy, and free after it.
    memory.release(first);
    memory.release(second);
    assert_eq!(memory.enqueue_snapshot(), Ok(Enqueued::Skipped(SkipReason::Busy)));
    drop(release);
    queue.synchronize();
    let third = ticket(&memory);
    assert_eq!(memory.is_ready(first), Err(DeviceError::UnknownTicket(first)));
    assert_eq!(read(&memory, third), [0; 4]);
}

#[test]
fn nothing_is_enqueued_while_the_stream_is_captured() {
    let memory = HostMemory::new(2);
    memory.set_capturing(true);
    assert_eq!(memory.enqueue_snapshot(), Ok(Enqueued::Skipped(SkipReason::Capturing)));
    memory.set_capturing(false);
    assert!(matches!(memory.enqueue_snapshot(), Ok(Enqueued::Ticket(_))));
}

#[test]
fn ranges_beyond_the_memory_are_refused_with_their_numbers() {
    let memory = HostMemory::new(3);
    let ticket = ticket(&memory);
    let error = memory.read(ticket, 2..5, &mut [0; 3]).unwrap_err();
    assert_eq!(error, DeviceError::Range { start: 2, end: 5, out: 3, length: 3 });
    assert!(memory.read(ticket, 0..2, &mut [0; 3]).is_err());
    assert!(memory.read(ticket, 1..3, &mut [0; 2]).is_ok());
    assert!(memory.staged_address(ticket).is_some());
    memory.release(ticket);
    assert_eq!(memory.staged_address(ticket), None);
}

#[test]
fn counters_outlive_the_memory_that_made_them_and_stay_in_place() {
    let memory = HostMemory::new(2);
    let counters = memory.counters();
    let address = memory.address();
    assert_eq!(counters.get().as_ptr().addr() as u64, address);
    drop(memory);
    counters.get()[1].fetch_add(1, Relaxed);
    assert_eq!(counters.get()[1].load(Relaxed), 1);
}

#[test]
fn work_that_panics_does_not_end_the_queue() {
    let queue = HostQueue::new().unwrap();
    queue.run(|| panic!("of the program, expected in this test"));
    let (send, receive) = channel();
    queue.run(move || send.send(7).unwrap());
    assert_eq!(receive.recv_timeout(PATIENCE), Ok(7));
}
