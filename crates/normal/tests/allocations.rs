//! What is allocated for a window: nothing, once the first is done and while nothing is found.
//!
//! A binary of its own, for the allocator that counts.
#![allow(clippy::unwrap_used)]

use allocation_counter::measure;
use deepxtrace_counters::{CompletionProbe, Layout as Counters, NotifyProbe, Snapshot, Step};
use deepxtrace_counters::{Topology, Windows};
use deepxtrace_normal::{Diagnoser, Policy, WindowState};

/// Adds healthy counts that differ a little from window to window, with loads that differ more.
fn advance(snapshot: &mut Snapshot, window: i64) {
    let topology = snapshot.topology();
    let layout = Counters::of(topology);
    for d in 0..topology.ep_size() {
        let vector = snapshot.vector_mut(d).unwrap();
        for probe in NotifyProbe::ALL {
            vector[layout.duration_ns(probe)] += 1_000_000 + (d as i64 * 37 + window) % 1_000;
            vector[layout.count(probe)] += 100;
        }
        for probe in CompletionProbe::ALL {
            for s in 0..topology.ep_size() {
                let mixed = (s as i64 * 7_919 + d as i64 * 104_729 + window * 31) % 1_000;
                let inter = !topology.same_node(s, d);
                let rail = topology.local_index(s) == topology.local_index(d);
                if probe == CompletionProbe::DispatchRdmaRecv && !(inter && rail) {
                    continue;
                }
                let tokens = 900 + 3 * (mixed % 100);
                let level = if inter { 5 } else { 1 };
                vector[layout.cost(probe).start + s] += level * tokens * (9_900 + mixed / 5);
                vector[layout.samples(probe).start + s] += 100;
                vector[layout.tokens(probe).start + s] += tokens;
            }
        }
    }
}

#[test]
fn a_window_without_findings_allocates_nothing_after_the_first() {
    // The last size is large enough for samples instead of full selections.
    for (ep_size, ranks_per_node) in [(8, 8), (16, 8), (20, 8), (72, 8)] {
        if cfg!(feature = "rayon") && ep_size > 20 {
            // Handing work to other threads allocates.
            continue;
        }
        let topology = Topology::new(ep_size, ranks_per_node).unwrap();
        let mut windows = Windows::new(topology);
        let mut diagnoser = Diagnoser::new(topology, Policy::default()).unwrap();
        let mut counters = Snapshot::zeros(topology, 0);
        let mut buffer = counters.clone();
        for window in 0..25_i64 {
            advance(&mut counters, window);
            let mut state = None;
            let count = measure(|| {
                // The gather fills the buffer that the window before gave back.
                buffer.counters_mut().copy_from_slice(counters.counters());
                let present = window != 12;
                buffer.set_present(1, present);
                if let Step::Window(window) = windows.advance(&mut buffer).unwrap() {
                    state = Some(diagnoser.diagnose(window).state);
                }
            })
            .count_total;
            if state.is_some() {
                assert!(!diagnoser.report().has_findings(), "{:?}", diagnoser.report());
            }
            assert!(window == 0 || state == Some(WindowState::Diagnosed));
            assert!(window < 2 || count == 0, "EP{ep_size}, window {window}: {count} allocations");
        }
    }
}

#[test]
fn the_counter_counts() {
    assert_eq!(measure(|| drop(std::hint::black_box(Box::new(5)))).count_total, 1);
}
