//! Healthy jobs: reproducible, and shaped as the counters of real ranks are.

use deepxtrace_counters::{CompletionProbe, NotifyProbe, Topology};
use deepxtrace_sim::{Workload, WorkloadConfig};

use crate::{Job, average, exact};

#[test]
fn the_same_seed_gives_the_same_counters_and_another_seed_others() {
    let run = |seed| {
        let mut job = Job::ep16(seed);
        job.next([]);
        job.next([]);
        job.workload.snapshot().clone()
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8));
}

#[test]
fn a_fault_leaves_what_it_does_not_touch_as_it_was() {
    let mut with = Job::ep16(3);
    let mut without = Job::ep16(3);
    let fault = deepxtrace_sim::Fault::Point {
        stage: deepxtrace_sim::Stage::Dispatch,
        src: 2,
        dst: 5,
        factor: 3.0,
    };
    let (with, without) = (with.next([fault]), without.next([]));
    for probe in CompletionProbe::ALL {
        let (a, b) = (&with.completion(probe).cost, &without.completion(probe).cost);
        for ((place, a), b) in a.indexed_iter().zip(b) {
            if probe == CompletionProbe::DispatchFinal && place == (2, 5) {
                let ratio = *a as f64 / *b as f64;
                assert!((ratio - 3.0).abs() < 1e-6, "{ratio}");
            } else {
                assert_eq!(a, b, "{probe} {place:?}");
            }
        }
    }
}

#[test]
fn results_come_back_from_where_the_tokens_went() {
    let mut job = Job::ep16(5);
    let window = job.next([]);
    let sent = &window.completion(CompletionProbe::DispatchFinal).tokens;
    let returned = &window.completion(CompletionProbe::CombineLogicalRecv).tokens;
    assert_eq!(sent.t(), returned);
}

#[test]
fn gateways_carry_samples_only_between_equal_local_indices_of_different_nodes() {
    // The last node is short: local index 3 has no gateway there.
    let topology = Topology::new(11, 4).unwrap();
    let window = Job::new(WorkloadConfig::new(topology), 2).next([]);
    let samples = &window.completion(CompletionProbe::DispatchRdmaRecv).samples;
    for ((src, dst), &samples) in samples.indexed_iter() {
        let expected = src % 4 == dst % 4 && src / 4 != dst / 4;
        assert_eq!(samples > 0, expected, "{src} -> {dst}");
    }
}

#[test]
fn an_equal_job_sends_the_same_everywhere_and_costs_the_base() {
    let window = Job::new(exact(Topology::new(16, 8).unwrap()), 1).next([]);
    // 8 experts of 128 on each rank: 1 - (15/16)^8 of 4,096 * 128 tokens = 211,450.
    let tokens = &window.completion(CompletionProbe::DispatchFinal).tokens;
    for &tokens in tokens {
        assert!((tokens - 211_450).abs() < 5 * 356, "{tokens} is off by over 5 deviations");
    }
    let samples = &window.completion(CompletionProbe::DispatchFinal).samples;
    assert!(samples.iter().all(|&samples| samples == 128 * 4));
    let cost = |probe, src, dst| average(&window, probe, src, dst).round();
    assert_eq!(cost(CompletionProbe::DispatchFinal, 0, 7), 240_000.0);
    assert_eq!(cost(CompletionProbe::DispatchFinal, 0, 8), 480_000.0);
    assert_eq!(cost(CompletionProbe::CombineLogicalRecv, 3, 3), 190_000.0);
    assert_eq!(cost(CompletionProbe::CombineLogicalRecv, 15, 0), 500_000.0);
    assert_eq!(cost(CompletionProbe::DispatchRdmaRecv, 9, 1), 460_000.0);
}

#[test]
fn nobody_waits_longer_than_the_kernel_when_all_arrive_together() {
    let window = Job::new(exact(Topology::new(4, 2).unwrap()), 1).next([]);
    for (probe, count, kernel_ns) in [
        (NotifyProbe::NotifyDispatch, 64, 50_000),
        (NotifyProbe::CachedNotifyDispatch, 64, 8_400),
        (NotifyProbe::CachedNotifyCombine, 128, 8_400),
    ] {
        let waits = window.notify(probe);
        assert_eq!(waits.count, [count; 4]);
        assert_eq!(waits.duration_ns, [count * kernel_ns; 4]);
    }
    // 64 x (50,000 + 8,400 + 2 x 8,400) ns in Notify, 4 computations of 8,000 ns in two rounds,
    // and four stages: two of (240,000 + 480,000) / 2 and two of (190,000 + 500,000) / 2 cycles.
    let stages = 2.0 * (360_000.0 + 345_000.0) / 1.98;
    // The last stage of a window is still under way when it ends.
    let expected = 64.0 * (75_200.0 + 32_000.0 + stages) - 345_000.0 / 1.98;
    let length = (window.end_unix_ns() - window.begin_unix_ns()) as f64;
    assert!((length - expected).abs() < 1e3, "{length} ns, expected {expected}");
}

#[test]
fn hot_experts_get_more_tokens_and_cost_more() {
    let topology = Topology::new(16, 8).unwrap();
    let config =
        WorkloadConfig { expert_skew: 1.0, dispatch_load_exponent: 1.0, ..exact(topology) };
    let window = Job::new(config, 4).next([]);
    let delta = window.completion(CompletionProbe::DispatchFinal);
    let tokens = |dst: usize| delta.tokens[[0, dst]] as f64;
    let (cold, hot) = (0..8).fold((0, 0), |(cold, hot), dst| {
        (
            if tokens(dst) < tokens(cold) { dst } else { cold },
            if tokens(dst) > tokens(hot) { dst } else { hot },
        )
    });
    let ratio = tokens(hot) / tokens(cold);
    assert!(ratio > 1.5, "{ratio}");
    let cost = |dst| average(&window, CompletionProbe::DispatchFinal, 0, dst);
    assert!((cost(hot) / cost(cold) / ratio - 1.0).abs() < 1e-4, "in proportion");
}

#[test]
fn a_channel_without_a_token_gives_no_sample() {
    let topology = Topology::new(16, 8).unwrap();
    let config = WorkloadConfig { tokens: 1, rounds: 16, ..exact(topology) };
    let window = Job::new(config, 1).next([]);
    let delta = window.completion(CompletionProbe::DispatchFinal);
    for (samples, tokens) in delta.samples.iter().zip(&delta.tokens) {
        assert_eq!(samples, tokens);
        assert!(*tokens <= 16);
    }
}

#[test]
fn counters_never_go_back_in_a_healthy_job_of_any_size() {
    for (ep_size, ranks_per_node) in [(1, 8), (2, 8), (3, 2), (17, 8), (64, 8)] {
        let topology = Topology::new(ep_size, ranks_per_node).unwrap();
        let mut job = Job::new(WorkloadConfig::new(topology), 1);
        for index in 1..4 {
            let window = job.next([]);
            assert_eq!(window.index(), index);
            assert!(!window.is_idle());
        }
    }
}

#[test]
fn a_configuration_out_of_range_is_named() {
    let topology = Topology::new(4, 2).unwrap();
    let error = |config| Workload::new(config, 0).unwrap_err().to_string();
    let base = WorkloadConfig::new(topology);
    assert_eq!(
        error(WorkloadConfig { rounds: 0, ..base }),
        "rounds is 0, it must be from 1 to 65536"
    );
    assert_eq!(
        error(WorkloadConfig { cell_noise: f64::NAN, ..base }),
        "cell_noise is NaN, it must be from 0 to 1"
    );
    assert_eq!(
        error(WorkloadConfig { dispatch_load_exponent: 1.5, ..base }),
        "dispatch_load_exponent is 1.5, it must be from 0 to 1"
    );
}
