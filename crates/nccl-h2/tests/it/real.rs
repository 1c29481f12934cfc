//! Recordings of real two-GPU jobs.

use deepxtrace_nccl_h2::{Confidence, Config, Details, Finding, HangType, MismatchType, Settings};

use crate::support::{analyze, unpack};

fn found(recording: &str, config: Config, stood_still_s: f64) -> Vec<Finding> {
    let folder = tempfile::tempdir().unwrap();
    unpack("real/h200x2.tar.gz", folder.path());
    analyze(&folder.path().join(recording), config, stood_still_s)
}

#[test]
fn a_healthy_job_gives_nothing() {
    assert_eq!(found("healthy_split", Config::default(), 0.0), []);
}

#[test]
fn recording_and_replaying_a_cuda_graph_gives_nothing() {
    assert_eq!(found("graph", Config::default(), 0.0), []);
}

#[test]
fn different_functions_give_one_api_mismatch() {
    let found = found("api", Config::default(), 0.0);
    assert_eq!(found.len(), 1, "{found:#?}");
    let Details::SignatureMismatch(details) = &found[0].details else { panic!("{found:#?}") };
    assert_eq!(found[0].comm_seq, 80);
    assert_eq!(details.mismatch_type, MismatchType::ApiMismatch);
    assert_eq!(details.confidence, Confidence::Confirmed);
    let apis = [(0, "ncclAllReduce".to_owned()), (1, "ncclBroadcast".to_owned())];
    assert_eq!(details.api_by_comm_rank.as_deref(), Some(&apis[..]));
}

#[test]
fn different_counts_give_one_parameter_mismatch() {
    let found = found("count", Config::default(), 0.0);
    assert_eq!(found.len(), 1, "{found:#?}");
    let Details::SignatureMismatch(details) = &found[0].details else { panic!("{found:#?}") };
    assert_eq!(details.mismatch_type, MismatchType::ParameterMismatch);
    let signatures = details.signature_by_comm_rank.as_ref().unwrap();
    let counts: Vec<_> = signatures.iter().map(|(rank, call)| (*rank, call.count)).collect();
    assert_eq!(counts, [(0, 1024), (1, 2048)]);
}

#[test]
fn a_missing_rank_is_named_and_nothing_more_as_the_trace_ended_early() {
    let early = found("missing", Config::default(), 0.0);
    assert_eq!(early.len(), 1, "{early:#?}");
    assert_eq!(early[0].hang_type, HangType::CollectiveMissingEnter);
    assert!(early[0].trace_ended_early());
    assert_eq!(early[0].confidence(), Confidence::Suspected);
    let Details::CollectiveMissingEnter(details) = &early[0].details else { panic!() };
    assert_eq!(
        (&details.missing_comm_ranks[..], &details.entered_comm_ranks[..]),
        (&[1][..], &[0][..])
    );
    assert_eq!(details.missing_rank_status[0].rank, Some(1));

    let late = found("missing", Config::default(), 60.0);
    assert_eq!(late.len(), 1, "{late:#?}");
    assert!(!late[0].trace_ended_early());
    assert_eq!(late[0].confidence(), Confidence::Observed);
}

#[test]
fn a_rank_four_seconds_late_is_found_with_a_lower_threshold_only() {
    assert_eq!(found("delayed", Config::default(), 0.0), []);
    let settings = Settings { delayed_enter_threshold_s: Some(2.0), ..Settings::default() };
    let found = found("delayed", settings.resolve().unwrap(), 0.0);
    assert_eq!(found.len(), 1, "{found:#?}");
    let Details::DelayedCollectiveEnter(details) = &found[0].details else { panic!() };
    assert_eq!(details.slow_comm_ranks, [1]);
    assert!((3.9..4.1).contains(&details.enter_spread_s), "{}", details.enter_spread_s);
}
