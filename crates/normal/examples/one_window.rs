//! Differences and diagnoses one window several times: for instruction counts.
//!
//! `cargo build --release -p deepxtrace-normal --example one_window`, then
//! `valgrind --tool=callgrind --toggle-collect='*::Diagnoser::diagnose' target/release/examples/one_window 64 10`
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use deepxtrace_counters::{Snapshot, Topology, Window};
use deepxtrace_normal::{Diagnoser, Policy};
use synthetic::{Random, advance};

#[path = "../benches/synthetic/mod.rs"]
mod synthetic;

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|argument| argument.parse().ok());
    let ep_size = arguments.next().unwrap_or(64);
    let times = arguments.next().unwrap_or(10);
    let topology = Topology::new(ep_size, 8).unwrap();
    let older = Snapshot::zeros(topology, 0);
    let mut newer = older.clone();
    advance(&mut newer, &mut Random(1));
    let mut window = Window::empty(topology);
    let mut diagnoser = Diagnoser::new(topology, Policy::default()).unwrap();
    let start = std::time::Instant::now();
    for index in 0..times {
        window.difference(index as u64, &older, &newer).unwrap();
        diagnoser.diagnose(&window);
    }
    let each = start.elapsed().as_secs_f64() * 1e6 / times as f64;
    println!("EP{ep_size}: {each:.1} us a window, findings: {}", diagnoser.report().has_findings());
}
