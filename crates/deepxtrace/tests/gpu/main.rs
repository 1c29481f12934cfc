//! `Diagnose` over counters on real GPUs. Without one it compiles, says that it was skipped, and
//! passes.
//!
//! `cargo test -p deepxtrace --features nccl --test gpu`, or `diagnose` in the folder that
//! `cargo xtask gpu` makes. Arguments: parts of the names of the tests to run, `--seconds N` (how
//! long the start and stop test lasts, 10 by default), `--device N` (0 by default), `--any-diagnosis`
//! (under a tool that slows kernels down: what the low-latency rules say is not judged).

#![allow(
    unsafe_code,
    missing_docs,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "tests"
)]

mod held;
/// What starting and stopping leaves behind.
mod leaks;
/// Wait counters that kernels fill, diagnosed by the low-latency rules.
mod low_latency;
mod parts;
mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use deepxtrace::collect::CudaDevice;
use deepxtrace::config::Mode;
use support::{Failure, Tested};

/// What the arguments say.
pub struct Options {
    names: Vec<String>,
    pub time: Duration,
    pub device: usize,
    pub any_diagnosis: bool,
}

impl Options {
    fn read(arguments: impl Iterator<Item = String>) -> Result<Self, Failure> {
        let time = Duration::from_secs(10);
        let mut options = Self { names: Vec::new(), time, device: 0, any_diagnosis: false };
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} has no value"));
            match argument.as_str() {
                "--seconds" => options.time = Duration::from_secs(value()?.parse()?),
                "--device" => options.device = value()?.parse()?,
                "--any-diagnosis" => options.any_diagnosis = true,
                // Those of cargo's own harness.
                flag if flag.starts_with('-') => {}
                _ => options.names.push(argument),
            }
        }
        Ok(options)
    }

    fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|word| name.contains(word.as_str()))
    }
}

type Test = fn(&Options) -> Tested;

const TESTS: [(&str, Test); 4] = [
    ("a_slow_rank_is_found_in_every_synchronous_low_latency_windows", |options| {
        low_latency::slow_rank(options, Mode::Synchronous)
    }),
    ("a_slow_rank_is_found_in_every_asynchronous_low_latency_windows", |options| {
        low_latency::slow_rank(options, Mode::Asynchronous)
    }),
    ("each_part_leaves_nothing_behind", parts::each),
    ("starting_and_stopping_leaves_nothing_behind", leaks::start_stop),
];

fn main() -> ExitCode {
    let options = match Options::read(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(error) => {
            println!("{error}");
            return ExitCode::from(2);
        }
    };
    let missing = missing(options.device);
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for (name, test) in TESTS.iter().filter(|(name, _)| options.wants(name)) {
        if let Some(reason) = &missing {
            println!("test {name} ... skipped ({reason})");
            skipped += 1;
            continue;
        }
        let start = Instant::now();
        let outcome = match catch_unwind(AssertUnwindSafe(|| test(&options))) {
            Ok(outcome) => outcome.map_err(|error| error.to_string()),
            Err(_) => Err("panicked".to_owned()),
        };
        let seconds = start.elapsed().as_secs_f64();
        match outcome {
            Ok(()) => {
                println!("test {name} ... ok ({seconds:.1} s)");
                passed += 1;
            }
            Err(error) => {
                println!("test {name} ... FAILED ({seconds:.1} s): {error}");
                failed += 1;
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Why nothing can be run here, if so.
fn missing(device: usize) -> Option<String> {
    match CudaDevice::count() {
        Err(error) => Some(error.to_string()),
        Ok(count) if count <= device => Some(format!("{count} CUDA devices")),
        // SAFETY: it only tries to load the library.
        Ok(_) if !unsafe { cudarc::nvrtc::sys::is_culib_present() } => {
            Some("no NVRTC library".to_owned())
        }
        Ok(_) => None,
    }
}
