use crate::support::{Job, of_api, text};

#[test]
fn a_process_without_a_rank_is_left_alone() {
    let mut job = Job::new();
    job.unset("RANK").log_calls();
    let done = job.run(&["all"]);
    assert!(done.stderr.is_empty());
    assert_eq!((job.files().len(), job.ring_files()), (0, 0));
    assert_eq!(job.arrived().len(), 52);
    // Groups and communicators work as ever.
    job.run(&["groups"]);
    job.run(&["not_blocking"]);
}

#[test]
fn a_process_that_never_calls_nccl_is_left_alone() {
    let job = Job::new();
    let done = job.run(&["none"]);
    assert!(done.stderr.is_empty());
    assert!(!job.trace().exists());
    assert_eq!(job.ring_files(), 0);
}

#[test]
fn a_variable_switches_it_off() {
    let mut job = Job::new();
    job.set("DEEPXTRACE_TRACE_ENABLE", "0");
    job.run(&["all"]);
    assert!(!job.trace().exists());
}

#[test]
fn programs_that_know_nothing_of_nccl_run_as_ever() {
    let mut job = Job::new();
    job.program("/bin/sh");
    let done = job.run(&["-c", "echo $((6 * 7)) | cat; exit 0"]);
    assert_eq!(String::from_utf8_lossy(&done.stdout), "42\n");
    assert!(done.stderr.is_empty());
}

#[test]
fn the_original_variables_are_enough() {
    let mut job = Job::new();
    let trace = job.trace();
    job.unset("DEEPXTRACE_TRACE_DIR").unset("DEEPXTRACE_RUN_ID");
    job.set("FLAGSCALE_TRACE_DIR", trace)
        .set("FLAGSCALE_TRACE_RUN_ID", "old")
        .set("FLAGSCALE_TRACE_ENABLE", "1");
    let events = job.quiet(&["burst", "3"]);
    assert_eq!(of_api(&events, "ncclAllReduce", "exit").len(), 3);
    assert_eq!(text(&events[0], "run_id"), "old");
}

#[test]
fn standard_output_belongs_to_the_program() {
    let job = Job::new();
    let done = job.run(&["burst", "100"]);
    assert!(done.stdout.is_empty() && done.stderr.is_empty());
}
