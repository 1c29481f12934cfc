//! Each fault changes the cells it is about by the factor asked for, and no others.

use deepxtrace_counters::{CompletionProbe, NotifyProbe, Topology, Window, WindowError};
use deepxtrace_sim::{Fault, FaultError, PathClass, Slowdown, Stage, WorkloadConfig};

use crate::{Job, average, exact};

const DISPATCH: CompletionProbe = CompletionProbe::DispatchFinal;
const GATEWAY: CompletionProbe = CompletionProbe::DispatchRdmaRecv;
const COMBINE: CompletionProbe = CompletionProbe::CombineLogicalRecv;

/// The cells whose cost is another one than without the fault, with the factor.
fn changed(topology: Topology, fault: Fault, probe: CompletionProbe) -> Vec<(usize, usize, f64)> {
    let healthy = Job::new(exact(topology), 1).next([]);
    let faulty = Job::new(exact(topology), 1).next([fault]);
    let samples = &healthy.completion(probe).samples;
    samples
        .indexed_iter()
        .filter(|&(_, &samples)| samples > 0)
        .map(|((src, dst), _)| {
            let ratio = average(&faulty, probe, src, dst) / average(&healthy, probe, src, dst);
            (src, dst, (ratio * 1e3).round() / 1e3)
        })
        .filter(|&(_, _, ratio)| ratio != 1.0)
        .collect()
}

fn three_nodes_of_two() -> Topology {
    Topology::new(6, 2).unwrap()
}

#[test]
fn a_late_rank_waits_only_for_the_kernel_and_all_others_for_it() {
    let mut job = Job::ep16(1);
    let ratio = |window: &Window, probe| {
        let waits = window.notify(probe);
        let average = |rank: usize| waits.duration_ns[rank] as f64 / waits.count[rank] as f64;
        average(9) / average(2)
    };
    let near = |value: f64, expected: f64| (value / expected - 1.0).abs() < 0.1;

    let window = job.next([Fault::LateBeforeDispatch { rank: 9, ns: 1_400_000 }]);
    assert!(near(ratio(&window, NotifyProbe::NotifyDispatch), 50.0 / 1450.0));
    assert!(near(ratio(&window, NotifyProbe::CachedNotifyDispatch), 8.4 / 1408.4));
    assert!(ratio(&window, NotifyProbe::CachedNotifyCombine) > 0.5);

    let window = job.next([Fault::LateBeforeCombine { rank: 9, ns: 1_400_000 }]);
    assert!(near(ratio(&window, NotifyProbe::CachedNotifyCombine), 8.4 / 1408.4));
    assert!(ratio(&window, NotifyProbe::NotifyDispatch) > 0.5);
}

#[test]
fn pressure_slows_all_inter_node_cells_by_the_factor_of_each_matrix() {
    let slowdown = Slowdown { dispatch: 1.5, gateway: 1.25, combine: 2.0 };
    let topology = three_nodes_of_two();
    for (probe, factor, cells) in [(DISPATCH, 1.5, 24), (GATEWAY, 1.25, 12), (COMBINE, 2.0, 24)] {
        let changed = changed(topology, Fault::Pressure(slowdown), probe);
        assert_eq!(changed.len(), cells, "{probe}");
        for (src, dst, ratio) in changed {
            assert!(!topology.same_node(src, dst) && ratio == factor, "{probe} {src} -> {dst}");
        }
    }
}

#[test]
fn an_adapter_slows_its_owners_tokens_on_the_way_out_and_back() {
    let fault = Fault::HcaPressure { owners: vec![1], slowdown: Slowdown::all(2.0) };
    let topology = three_nodes_of_two();
    let out: Vec<_> = (2..6).map(|dst| (1, dst, 2.0)).collect();
    assert_eq!(changed(topology, fault.clone(), DISPATCH), out);
    assert_eq!(changed(topology, fault.clone(), GATEWAY), [(1, 3, 2.0), (1, 5, 2.0)]);
    let back: Vec<_> = (2..6).map(|src| (src, 1, 2.0)).collect();
    assert_eq!(changed(topology, fault, COMBINE), back);
}

#[test]
fn a_rail_slows_one_local_index_in_one_direction() {
    let fault =
        Fault::Rail { local_index: 1, src_node: 0, dst_node: 2, slowdown: Slowdown::all(1.5) };
    let topology = three_nodes_of_two();
    // Rank 1 sends to node 2 (ranks 4 and 5); what node 0 returns to rank 5 comes the same way.
    assert_eq!(changed(topology, fault.clone(), DISPATCH), [(1, 4, 1.5), (1, 5, 1.5)]);
    assert_eq!(changed(topology, fault.clone(), GATEWAY), [(1, 5, 1.5)]);
    assert_eq!(changed(topology, fault, COMBINE), [(0, 5, 1.5), (1, 5, 1.5)]);
}

#[test]
fn rows_columns_points_and_blocks_are_where_they_are_said_to_be() {
    let topology = Topology::new(4, 2).unwrap();
    let row = |path| Fault::SourceRow { stage: Stage::Dispatch, rank: 1, path, factor: 2.0 };
    let of_row = |dsts: &[usize]| dsts.iter().map(|&dst| (1, dst, 2.0)).collect::<Vec<_>>();
    assert_eq!(changed(topology, row(PathClass::All), DISPATCH), of_row(&[0, 1, 2, 3]));
    assert_eq!(changed(topology, row(PathClass::IntraNode), DISPATCH), of_row(&[0, 1]));
    assert_eq!(changed(topology, row(PathClass::InterNode), DISPATCH), of_row(&[2, 3]));
    assert_eq!(changed(topology, row(PathClass::InterNode), GATEWAY), of_row(&[3]));
    assert_eq!(changed(topology, row(PathClass::IntraNode), GATEWAY), []);
    assert_eq!(changed(topology, row(PathClass::All), COMBINE), []);

    let column = Fault::DestinationColumn {
        stage: Stage::Combine,
        rank: 2,
        path: PathClass::InterNode,
        factor: 3.0,
    };
    assert_eq!(changed(topology, column.clone(), COMBINE), [(0, 2, 3.0), (1, 2, 3.0)]);
    assert_eq!(changed(topology, column, DISPATCH), []);

    let point = Fault::Point { stage: Stage::Combine, src: 3, dst: 0, factor: 4.0 };
    assert_eq!(changed(topology, point, COMBINE), [(3, 0, 4.0)]);

    let block = Fault::NodeBlock { stage: Stage::Dispatch, src_node: 1, dst_node: 0, factor: 1.5 };
    let cells = [(2, 0, 1.5), (2, 1, 1.5), (3, 0, 1.5), (3, 1, 1.5)];
    assert_eq!(changed(topology, block.clone(), DISPATCH), cells);
    assert_eq!(changed(topology, block, GATEWAY), [(2, 0, 1.5), (3, 1, 1.5)]);
}

#[test]
fn a_slow_way_into_a_rank_makes_it_late_for_the_next_stage() {
    let topology = Topology::new(4, 2).unwrap();
    let fault =
        |stage| Fault::DestinationColumn { stage, rank: 2, path: PathClass::All, factor: 2.0 };
    let wait = |window: &Window, probe, rank: usize| {
        let waits = window.notify(probe);
        waits.duration_ns[rank] as f64 / waits.count[rank] as f64
    };
    let window = Job::new(exact(topology), 1).next([fault(Stage::Dispatch)]);
    // Its dispatch takes twice (240,000 + 480,000) / 2 cycles of 1.98 GHz: 181,818 ns more.
    let others = wait(&window, NotifyProbe::CachedNotifyCombine, 0);
    assert!((others - 8_400.0 - 181_818.0).abs() < 1.0, "{others}");
    assert_eq!(wait(&window, NotifyProbe::CachedNotifyCombine, 2), 8_400.0);
    assert_eq!(wait(&window, NotifyProbe::CachedNotifyDispatch, 0), 8_400.0);

    let window = Job::new(exact(topology), 1).next([fault(Stage::Combine)]);
    // Cached ones are all after a combine of the window: (190,000 + 500,000) / 2 cycles.
    let others = wait(&window, NotifyProbe::CachedNotifyDispatch, 0);
    assert!((others - 8_400.0 - 174_242.4).abs() < 1.0, "{others}");
}

#[test]
fn a_restarted_rank_counts_from_zero() {
    let mut job = Job::ep16(1);
    job.next([]);
    job.next([]);
    job.workload.phase([Fault::Restart { rank: 3 }]).unwrap();
    let error = job.try_next().unwrap_err();
    assert!(matches!(error, WindowError::CounterDecreased(_)), "{error}");
    assert_eq!(error.counter().unwrap().rank, 3);
    // The refused snapshot is the new boundary.
    assert!(job.next([]).valid().iter().all(|&valid| valid));
}

#[test]
fn a_rank_without_tokens_has_no_samples_and_takes_part_in_notify() {
    let window = Job::ep16(1).next([Fault::NoTokens { rank: 4 }]);
    for probe in CompletionProbe::ALL {
        let delta = window.completion(probe);
        assert!(delta.samples.row(4).iter().all(|&n| n == 0), "{probe}");
        if probe != GATEWAY {
            assert!(delta.cost.column(4).iter().all(|&n| n == 0), "{probe}");
        }
        assert!(delta.samples.row(5).iter().any(|&n| n > 0), "{probe}");
    }
    assert_eq!(window.notify(NotifyProbe::CachedNotifyCombine).count[4], 128);
}

#[test]
fn an_idle_window_counts_nothing_and_takes_time() {
    let window = Job::ep16(1).next([Fault::Idle]);
    assert!(window.is_idle());
    assert_eq!(window.duration_ns(), 1_000_000_000);
}

#[test]
fn a_missing_snapshot_makes_its_rank_invalid_in_two_windows() {
    let mut job = Job::ep16(1);
    let missing = |window: &Window| window.missing_ranks().collect::<Vec<_>>();
    assert_eq!(missing(&job.next([Fault::MissingSnapshot { rank: 6 }])), [6]);
    assert_eq!(missing(&job.next([])), [6]);
    assert_eq!(missing(&job.next([])), [] as [usize; 0]);
}

#[test]
fn faults_that_make_no_sense_are_refused_and_change_nothing() {
    let topology = Topology::new(11, 4).unwrap();
    let mut job = Job::new(WorkloadConfig::new(topology), 1);
    job.workload.phase([Fault::Idle]).unwrap();
    let slowdown = Slowdown::all(2.0);
    for (fault, text) in [
        (Fault::Restart { rank: 11 }, "rank 11 does not exist, there are 11"),
        (
            Fault::Rail { local_index: 3, src_node: 0, dst_node: 2, slowdown },
            "local index 3 does not exist, there are 3",
        ),
        (
            Fault::Rail { local_index: 0, src_node: 1, dst_node: 1, slowdown },
            "a rail connects two nodes, both are 1",
        ),
        (
            Fault::NodeBlock { stage: Stage::Combine, src_node: 0, dst_node: 3, factor: 2.0 },
            "node 3 does not exist, there are 3",
        ),
        (
            Fault::Point { stage: Stage::Combine, src: 0, dst: 3, factor: f64::INFINITY },
            "factor inf is not a finite number above 0",
        ),
    ] {
        let error: FaultError = job.workload.phase([fault]).unwrap_err();
        assert_eq!(error.to_string(), text);
    }
    assert!(job.try_next().unwrap().is_idle());
}
