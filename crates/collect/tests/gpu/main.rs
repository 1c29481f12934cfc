//! Tests on real GPUs. Without one they compile, say that they were skipped, and pass.
//!
//! `cargo test -p deepxtrace-collect --features nccl --test gpu`, or the folder that
//! `cargo xtask gpu` makes. Arguments are parts of the names of the tests to run. One test runs at
//! a time: they measure, and they share the devices.

#![allow(unsafe_code, missing_docs, clippy::print_stdout, clippy::unwrap_used)]

mod captures;
mod consistency;
mod cost;
mod failures;
mod leaks;
mod nccl;
mod order;
mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use deepxtrace_collect::CudaDevice;
use support::Tested;

struct Test {
    name: &'static str,
    gpus: usize,
    run: fn() -> Tested,
}

const TESTS: &[Test] = &[
    Test {
        name: "a_snapshot_holds_what_was_before_it_on_the_stream",
        gpus: 1,
        run: order::both_sides,
    },
    Test {
        name: "the_synchronous_schedule_waits_for_the_work_before",
        gpus: 1,
        run: order::synchronous,
    },
    Test {
        name: "the_asynchronous_schedule_sees_all_or_nothing_of_a_kernel",
        gpus: 1,
        run: order::asynchronous,
    },
    Test { name: "the_probe_header_counts_as_documented", gpus: 1, run: order::probes },
    Test { name: "every_device_has_its_own_counters_and_order", gpus: 2, run: order::two_devices },
    Test { name: "ordered_snapshots_are_never_torn", gpus: 1, run: consistency::ordered },
    Test { name: "unordered_snapshots_are_torn_sometimes", gpus: 1, run: consistency::unordered },
    Test { name: "a_thousand_captures_of_each_mode_survive", gpus: 1, run: captures::untriggered },
    Test { name: "triggered_snapshots_never_meet_a_capture", gpus: 1, run: captures::triggered },
    Test {
        name: "a_copy_that_went_into_a_graph_is_noticed",
        gpus: 1,
        run: captures::lost_to_a_graph,
    },
    Test {
        name: "the_context_of_the_callers_thread_is_left_as_it_was",
        gpus: 1,
        run: failures::contexts,
    },
    Test { name: "everything_may_be_dropped_in_any_order", gpus: 1, run: failures::drops },
    Test { name: "too_much_memory_is_a_typed_error", gpus: 1, run: failures::out_of_memory },
    Test { name: "a_stream_of_another_context_is_refused", gpus: 2, run: failures::foreign_stream },
    Test { name: "no_visible_device_is_a_typed_error", gpus: 1, run: failures::no_device },
    Test { name: "after_a_kernel_fault_the_program_goes_on", gpus: 1, run: failures::sticky },
    Test {
        name: "nothing_is_allocated_or_waited_for_on_the_producers_side",
        gpus: 1,
        run: cost::no_allocation,
    },
    Test { name: "an_enqueue_costs_a_copy_and_an_event", gpus: 1, run: cost::enqueue },
    Test { name: "a_step_does_not_notice_the_collection", gpus: 1, run: cost::step },
    Test { name: "nccl_of_one_rank", gpus: 1, run: nccl::one_rank },
    Test { name: "nccl_of_two_processes", gpus: 2, run: nccl::two_processes },
    Test { name: "nccl_of_every_gpu_and_of_some_of_them", gpus: 2, run: nccl::every_gpu },
    Test { name: "starting_and_stopping_leaves_nothing_behind", gpus: 1, run: leaks::start_stop },
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let Some((role, rest)) = arguments.split_first()
        && let Some(role) = role.strip_prefix("child:")
    {
        return child(role, rest);
    }
    let wanted: Vec<&String> = arguments.iter().filter(|word| !word.starts_with('-')).collect();
    let devices = CudaDevice::count();
    let compiler = devices.as_ref().is_ok_and(|&count| count > 0)
        // SAFETY: it only tries to load the library.
        && unsafe { cudarc::nvrtc::sys::is_culib_present() };
    let reason = match &devices {
        Ok(0) => "no CUDA device".to_owned(),
        Ok(_) if !compiler => "no NVRTC library".to_owned(),
        Ok(count) => format!("{count} CUDA devices"),
        Err(error) => error.to_string(),
    };
    let available = if compiler { devices.unwrap_or(0) } else { 0 };
    let (mut passed, mut failed, mut skipped) = (0, 0, 0);
    for test in TESTS {
        if !wanted.is_empty() && !wanted.iter().any(|word| test.name.contains(word.as_str())) {
            continue;
        }
        if available < test.gpus {
            println!("test {} ... skipped ({reason})", test.name);
            skipped += 1;
            continue;
        }
        let start = Instant::now();
        let outcome = match catch_unwind(AssertUnwindSafe(test.run)) {
            Ok(outcome) => outcome.map_err(|error| error.to_string()),
            Err(_) => Err("panicked".to_owned()),
        };
        let seconds = start.elapsed().as_secs_f64();
        match outcome {
            Ok(()) => {
                println!("test {} ... ok ({seconds:.1} s)", test.name);
                passed += 1;
            }
            Err(error) => {
                println!("test {} ... FAILED ({seconds:.1} s): {error}", test.name);
                failed += 1;
            }
        }
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// A process that a test has started.
fn child(role: &str, arguments: &[String]) -> ExitCode {
    let outcome = match role {
        "nccl" => nccl::child(arguments),
        "nccl-every" => nccl::child_every(arguments),
        "nccl-alone" => nccl::child_alone(),
        "no-device" => failures::child_no_device(),
        "fault" => failures::child_fault(),
        _ => Err("no such role".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("child {role}: {error}");
            ExitCode::FAILURE
        }
    }
}
