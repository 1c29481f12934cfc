//! What is allocated for a matrix: nothing, once the first is done and while nothing is found.
//!
//! A binary of its own, for the allocator that counts.
#![allow(clippy::unwrap_used)]

use allocation_counter::measure;
use deepxtrace_counters::{LlLayout, LlPhase, LlWindows, Step, Topology};
use deepxtrace_ll::{LlDiagnoser, MeanRatioPolicy, Policy};

/// Adds healthy waits that differ a little from window to window: 20 times longer between nodes.
fn advance(counters: &mut [i64], topology: Topology, window: i64) {
    let layout = LlLayout::new(topology.ep_size()).unwrap();
    for (waiter, vector) in counters.chunks_exact_mut(layout.vector_len()).enumerate() {
        for phase in LlPhase::ALL {
            for (awaited, wait) in vector[layout.wait(phase)].iter_mut().enumerate() {
                let mixed =
                    (waiter as i64 * 7_919 + awaited as i64 * 104_729 + window * 31) % 1_000;
                let level = if topology.same_node(waiter, awaited) { 1 } else { 20 };
                *wait += if waiter == awaited { 0 } else { level * (50_000 + 5 * mixed) };
            }
        }
    }
}

#[test]
fn a_window_without_findings_allocates_nothing_after_the_first() {
    // The last size is large enough for samples instead of full selections.
    for (ep_size, ranks_per_node) in [(2, 8), (8, 8), (16, 8), (20, 8), (56, 8)] {
        let topology = Topology::new(ep_size, ranks_per_node).unwrap();
        let mut windows = LlWindows::new(topology);
        let mut diagnoser =
            LlDiagnoser::new(topology, MeanRatioPolicy::default(), Policy::default()).unwrap();
        let mut counters = vec![0; ep_size * 2 * ep_size];
        let mut present = vec![true; ep_size];
        for window in 0..25_i64 {
            advance(&mut counters, topology, window);
            present[1] = window != 12;
            let mut diagnosed = 0;
            let allocations = measure(|| {
                let step = windows.advance(window, &counters, &present).unwrap();
                let Step::Window(window) = step else { return };
                for phase in LlPhase::ALL {
                    let found = diagnoser.diagnose(window.wait(phase).view()).unwrap();
                    assert!(found.mean_ratio.is_empty() && found.topology.findings.is_empty());
                    diagnosed += 1;
                }
            });
            assert_eq!(diagnosed, if window == 0 { 0 } else { 2 });
            let count = allocations.count_total;
            assert!(window < 2 || count == 0, "EP{ep_size}, window {window}: {count} allocations");
        }
    }
}

#[test]
fn the_counter_counts() {
    assert_eq!(measure(|| drop(std::hint::black_box(Box::new(5)))).count_total, 1);
}
