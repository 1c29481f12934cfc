use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use deepxtrace::collect::{DeviceError, Identity, LocalGroup, SkipReason, Status};
use deepxtrace::config::{Config, Mode};
use deepxtrace::counters::{CompletionProbe, Layout, NotifyProbe, Topology};
use deepxtrace::normal::{Finding, IncidentKind, WindowState};
use deepxtrace::{Counters, Diagnose, DiagnoseError, Notice, Report, SyncStep};
use deepxtrace_sim::{Fault, Workload, WorkloadConfig};

use super::{
    PATIENCE, build, build_all, every, every_step, is_diagnosed, next, start_all, step_all,
};

#[test]
fn disabled_everywhere_is_none_and_nothing_is_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("logs");
    let config = Config { enabled: false, ..every_step(&path) };
    for rank in
        build_all(vec![config; 3], |_, builder| builder.memory(|_| panic!("nothing is allocated")))
    {
        assert!(rank.unwrap().is_none());
    }
    assert!(!path.exists(), "no log either");
}

#[test]
fn ranks_that_disagree_get_an_error_on_every_rank_that_names_them() {
    let folder = tempfile::tempdir().unwrap();
    let base = every_step(folder.path());
    for (other, text) in [
        (
            Config { enabled: false, ..base.clone() },
            "enabled is true on ranks 0-1, false on rank 2",
        ),
        (
            Config { mode: Mode::Asynchronous, ..base.clone() },
            "DEEPEP_DIAGNOSE_ASYNC is 0 on ranks 0-1, 1 on rank 2",
        ),
        (
            Config { interval: Duration::from_millis(1500), ..base.clone() },
            "DEEPEP_DIAGNOSE_INTERVAL is 20 on ranks 0-1, 1.5 on rank 2",
        ),
        (
            Config { log_path: PathBuf::from("/elsewhere"), ..base.clone() },
            "DEEPEP_DIAGNOSE_LOG_PATH is ",
        ),
    ] {
        for rank in build_all(vec![base.clone(), base.clone(), other], |_, builder| builder) {
            let error = rank.err().expect("they disagree").to_string();
            assert!(error.contains(text), "{error}");
        }
    }
}

#[test]
fn a_rank_without_memory_or_with_a_wrong_setting_is_an_error_on_all() {
    let folder = tempfile::tempdir().unwrap();
    let config = every_step(folder.path());
    let results = build_all(vec![config.clone(); 2], |rank, builder| match rank {
        1 => builder.memory(|len| {
            let device = "test device".to_owned();
            Err(DeviceError::OutOfMemory { bytes: 8 * len, device })
        }),
        _ => builder,
    });
    let [first, second] = <[_; 2]>::try_from(results).ok().unwrap();
    let error = first.err().unwrap().to_string();
    assert!(error.contains("ready is yes on rank 0, no, cannot allocate"), "{error}");
    assert!(matches!(second.err().unwrap(), DiagnoseError::Device(_)));

    let wrong = Config { sync_step: 0, ..config.clone() };
    let results = build_all(vec![config, wrong], |_, builder| builder);
    let [first, second] = <[_; 2]>::try_from(results).ok().unwrap();
    let error = first.err().unwrap().to_string();
    assert!(error.contains("no, DEEPEP_DIAGNOSE_SYNC_STEP=0"), "{error}");
    assert!(matches!(second.err().unwrap(), DiagnoseError::Config(_)));
}

#[test]
fn ranks_that_want_other_counters_disagree() {
    let folder = tempfile::tempdir().unwrap();
    let results = build_all(vec![every_step(folder.path()); 2], |rank, builder| {
        builder.counters(if rank == 0 { Counters::Both } else { Counters::Normal })
    });
    for rank in results {
        let error = rank.err().unwrap().to_string();
        assert!(error.contains("counters is both on rank 0, normal on rank 1"), "{error}");
        assert!(error.contains("vector length is "), "{error}");
    }
}

#[test]
fn every_window_equals_the_difference_of_what_was_counted() {
    let folder = tempfile::tempdir().unwrap();
    let topology = Topology::new(16, 8).unwrap();
    let mut workload = Workload::new(WorkloadConfig::new(topology), 3).unwrap();
    let (mut ranks, windows) = start_all(16, &every_step(folder.path()));
    workload.phase([Fault::LateBeforeDispatch { rank: 9, ns: 1_400_000 }]).unwrap();
    for window in 0..4 {
        for (i, rank) in ranks.iter().enumerate() {
            rank.set_all(workload.snapshot().vector(i).unwrap());
        }
        step_all(&mut ranks);
        workload.run_window();
        if window == 0 {
            continue;
        }
        let diagnosis = next(&windows);
        assert_eq!((diagnosis.window_index, diagnosis.state), (window, WindowState::Diagnosed));
        assert_eq!(diagnosis.missing_ranks, [0; 0]);
        let kinds: Vec<_> = diagnosis.incidents.iter().map(|incident| incident.kind()).collect();
        assert_eq!(kinds, [IncidentKind::PreStageArrivalSkew; 2], "{:?}", diagnosis.incidents);
    }
    let last = ranks[0].diagnose.last_normal().unwrap();
    assert_eq!(last.window_index, 3);
    assert!(ranks[1].diagnose.last_normal().is_none(), "only the root diagnoses");
}

#[test]
fn the_reset_of_one_rank_refuses_that_window_and_the_next_is_right() {
    let folder = tempfile::tempdir().unwrap();
    let (mut ranks, windows) = start_all(3, &every_step(folder.path()));
    let layout = Layout::new(3).unwrap();
    let count = layout.count(NotifyProbe::CachedNotifyDispatch);
    let duration = layout.duration_ns(NotifyProbe::CachedNotifyDispatch);
    let mut step = |counts: [i64; 3]| {
        for (rank, launches) in ranks.iter().zip(counts) {
            rank.set(count, launches);
            rank.set(duration, 1_000 * launches);
        }
        step_all(&mut ranks);
    };
    step([10, 10, 10]);
    step([20, 20, 20]);
    assert_eq!(next(&windows).state, WindowState::Diagnosed);
    step([30, 0, 30]);
    let refused = next(&windows);
    assert_eq!((refused.window_index, refused.state), (2, WindowState::Refused));
    let reason = refused.reason.unwrap();
    let expected = "rank 1, probe cached_notify_dispatch, counter duration_ns went from 20000 to 0";
    assert!(reason.contains(expected), "{reason}");
    step([40, 7, 40]);
    let next_one = next(&windows);
    assert_eq!((next_one.window_index, next_one.state), (3, WindowState::Diagnosed));
}

#[test]
fn what_is_counted_in_the_warm_up_is_in_no_window() {
    for mode in [Mode::Synchronous, Mode::Asynchronous] {
        let folder = tempfile::tempdir().unwrap();
        let config = Config {
            mode,
            warming_time: Some(Duration::from_millis(200)),
            interval: Duration::from_millis(50),
            ..every_step(folder.path())
        };
        let (send, receive) = channel();
        let group = LocalGroup::new(1).unwrap().remove(0);
        let mut rank = build(group, config, |builder| {
            builder.on_report(move |report| {
                if let Report::Normal(report) = report {
                    let window = report.window.expect("nothing goes back");
                    let launches = window.notify(NotifyProbe::NotifyDispatch).count[0];
                    let _ = send.send((window.index(), launches));
                }
            })
        })
        .unwrap()
        .unwrap();
        let count = Layout::new(1).unwrap().count(NotifyProbe::NotifyDispatch);
        let begin = Instant::now();
        rank.diagnose.start().unwrap();
        // A launch every 10 ms, and a million at once early in the warm-up.
        let (mut launches, mut seen) = (1_000_000, Vec::new());
        while seen.len() < 3 {
            launches += 1;
            rank.set(count, launches);
            if mode == Mode::Synchronous {
                rank.diagnose.diagnose_normal_sync().unwrap();
            }
            std::thread::sleep(Duration::from_millis(10));
            seen.extend(receive.try_iter());
            assert!(begin.elapsed() < PATIENCE);
        }
        assert!(begin.elapsed() >= Duration::from_millis(200));
        let indices: Vec<_> = seen.iter().map(|(index, _)| *index).collect();
        assert_eq!(indices[..3], [1, 2, 3]);
        assert!(seen.iter().all(|(_, launches)| *launches < 1_000_000), "{seen:?}");
    }
}

#[test]
fn both_modes_are_collected_together_and_each_alone() {
    let folder = tempfile::tempdir().unwrap();
    for counters in [Counters::Normal, Counters::LowLatency, Counters::Both] {
        let (send, receive) = channel();
        let send = Mutex::new(send);
        let mut ranks: Vec<_> =
            build_all(vec![every(Duration::from_millis(20), folder.path()); 2], move |rank, b| {
                let b = b.counters(counters);
                if rank > 0 {
                    return b;
                }
                let send = send.lock().unwrap().clone();
                b.on_report(move |report| {
                    let _ = match report {
                        Report::Normal(report) => {
                            send.send(("normal", report.diagnosis.state, None))
                        }
                        Report::LowLatency(report) => {
                            let column = report.dispatch.and_then(|dispatch| {
                                dispatch.mean_ratio.abnormal_cols.first().map(|col| col.index)
                            });
                            send.send(("ll", report.state, column))
                        }
                        _ => Ok(()),
                    };
                })
            })
            .into_iter()
            .map(|rank| rank.unwrap().unwrap())
            .collect();
        let n = 2;
        let len = ranks[0].counters.get().len();
        let expected = match counters {
            Counters::Normal => 6 + 9 * n,
            Counters::LowLatency => 2 * n,
            Counters::Both => 6 + 11 * n,
        };
        assert_eq!(len, expected);
        assert_eq!(ranks[0].diagnose.dispatch_bundle().is_some(), counters != Counters::LowLatency);
        assert_eq!(ranks[0].diagnose.ll_bundle().is_some(), counters != Counters::Normal);
        for rank in &mut ranks {
            rank.diagnose.start().unwrap();
        }
        let (begin, mut value) = (Instant::now(), 0);
        let (mut normal, mut ll) = (0, 0);
        let wanted = (counters != Counters::LowLatency, counters != Counters::Normal);
        while (wanted.0 && normal < 2) || (wanted.1 && ll < 2) {
            value += 1;
            for rank in &ranks {
                rank.set_all(&vec![value; len]);
            }
            std::thread::sleep(Duration::from_millis(2));
            for (mode, state, _) in receive.try_iter() {
                if state == WindowState::Diagnosed {
                    if mode == "normal" { normal += 1 } else { ll += 1 }
                }
            }
            assert!(begin.elapsed() < PATIENCE);
        }
        assert_eq!((normal > 0, ll > 0), wanted);
    }
}

#[test]
fn low_latency_steps_are_counted_apart_from_normal_ones() {
    let folder = tempfile::tempdir().unwrap();
    let (send, receive) = channel();
    let group = LocalGroup::new(1).unwrap().remove(0);
    let config = Config { sync_step: 2, ..every_step(folder.path()) };
    let mut rank = build(group, config, |builder| {
        builder.on_report(move |report| {
            let _ = match report {
                Report::Normal(report) => send.send(("normal", report.diagnosis.window_index)),
                Report::LowLatency(report) => send.send(("ll", report.window_index)),
                _ => Ok(()),
            };
        })
    })
    .unwrap()
    .unwrap();
    rank.diagnose.start().unwrap();
    let steps: Vec<_> = (0..4).map(|_| rank.diagnose.diagnose_normal_sync().unwrap()).collect();
    let (not_due, collected) = (SyncStep::NotDue, SyncStep::Collected);
    assert_eq!(steps, [not_due, collected, not_due, collected]);
    assert_eq!(rank.diagnose.diagnose_ll_sync().unwrap(), not_due);
    assert_eq!(rank.diagnose.diagnose_ll_now().unwrap(), collected);
    assert_eq!(rank.diagnose.diagnose_ll_sync().unwrap(), collected);
    assert_eq!(receive.try_iter().collect::<Vec<_>>(), [("normal", 1), ("ll", 1)]);
}

#[test]
fn a_missing_rank_is_named_with_its_place_and_the_others_are_diagnosed() {
    let folder = tempfile::tempdir().unwrap();
    let (send, receive) = channel();
    let send = Mutex::new(send);
    let config = every(Duration::from_millis(100), folder.path());
    let mut ranks: Vec<_> = build_all(vec![config; 4], move |rank, builder| {
        let builder = builder.round_timeout(Duration::from_millis(300)).memory(move |len| {
            let identity = Identity {
                host: "node-a".to_owned(),
                device: "NVIDIA H200".to_owned(),
                uuid: format!("GPU-{rank}"),
                nics: vec!["mlx5_0".to_owned()],
            };
            let memory = deepxtrace::collect::HostMemory::new(len).with_identity(identity);
            // Every rank launches at the same pace; nobody stops counting.
            let counters = memory.counters();
            std::thread::spawn(move || {
                for launches in 1..2_000 {
                    counters.get()[0].store(1_000 * launches, std::sync::atomic::Ordering::Relaxed);
                    counters.get()[1].store(launches, std::sync::atomic::Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            Ok(std::sync::Arc::new(memory) as _)
        });
        if rank > 0 {
            return builder;
        }
        let send = send.lock().unwrap().clone();
        builder.on_report(move |report| {
            if let Report::Normal(report) = report {
                let place = report.ranks.place(2).to_string();
                let _ = send.send((report.diagnosis.clone(), report.ranks.status(2), place));
            }
        })
    })
    .into_iter()
    .map(|rank| match rank {
        Err(error) => panic!("{error}"),
        Ok(rank) => rank,
    })
    .map(|rank| rank.map(|rank| rank.diagnose))
    .map(Option::unwrap)
    .collect();
    for (rank, diagnose) in ranks.iter_mut().enumerate() {
        if rank != 2 {
            diagnose.start().unwrap();
        }
    }
    let begin = Instant::now();
    let (diagnosis, status, place) = loop {
        let seen = receive.recv_timeout(PATIENCE).unwrap();
        if is_diagnosed(&seen.0) {
            break seen;
        }
        assert!(begin.elapsed() < PATIENCE);
    };
    assert_eq!(diagnosis.missing_ranks, [2]);
    assert_eq!(status, Some(Status::Missing));
    let expected = "rank 2 (global rank 2, host node-a, NVIDIA H200 GPU-2, mlx5_0, no answer)";
    assert_eq!(place, expected);
    // It starts late, and is in after two snapshots.
    ranks[2].start().unwrap();
    loop {
        let (diagnosis, status, _) = receive.recv_timeout(PATIENCE).unwrap();
        if diagnosis.missing_ranks.is_empty() {
            assert_eq!(status, Some(Status::Ok));
            break;
        }
        assert!(begin.elapsed() < PATIENCE);
    }
}

#[test]
fn a_rank_that_skips_is_missing_and_told_why() {
    let folder = tempfile::tempdir().unwrap();
    let (send, receive) = channel();
    let group = LocalGroup::new(1).unwrap().remove(0);
    let memory = std::sync::Arc::new(deepxtrace::collect::HostMemory::new(6 + 9));
    let given = std::sync::Arc::clone(&memory);
    let mut diagnose = Diagnose::builder(group, every_step(folder.path()))
        .counters(Counters::Normal)
        .memory(move |_| Ok(given))
        .on_report(move |report| {
            let _ = match report {
                Report::Notice(notice) => send.send(Err(notice.clone())),
                Report::Normal(report) => send.send(Ok(report.diagnosis.missing_ranks.clone())),
                _ => Ok(()),
            };
        })
        .build()
        .unwrap()
        .unwrap();
    diagnose.start().unwrap();
    assert_eq!(receive.try_recv().unwrap(), Err(Notice::Unordered));
    diagnose.diagnose_normal_sync().unwrap();
    memory.set_capturing(true);
    for _ in 0..2 {
        let skipped = SyncStep::Skipped(SkipReason::Capturing);
        assert_eq!(diagnose.diagnose_normal_sync().unwrap(), skipped);
    }
    memory.set_capturing(false);
    assert_eq!(diagnose.diagnose_normal_sync().unwrap(), SyncStep::Collected);
    let told: Vec<_> = receive.try_iter().collect();
    // Told once, and missing until two snapshots in a row are there.
    let notice = Err(Notice::Skipped("stream capture".to_owned()));
    assert_eq!(told, [notice, Ok(vec![0]), Ok(vec![0]), Ok(vec![0])]);
    assert_eq!(diagnose.health().skipped, 2);
}

#[test]
fn snapshots_can_be_triggered_by_the_producer() {
    let folder = tempfile::tempdir().unwrap();
    let (send, receive) = channel();
    let group = LocalGroup::new(1).unwrap().remove(0);
    let config = every(Duration::from_millis(10), folder.path());
    let mut rank = build(group, config, |builder| {
        builder.triggered_by_producer().round_timeout(PATIENCE).on_report(super::normal_to(&send))
    })
    .unwrap()
    .unwrap();
    assert!(!rank.diagnose.snapshot_if_due());
    rank.diagnose.start().unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert!(receive.try_recv().is_err(), "nobody has triggered");
    let begin = Instant::now();
    let mut triggered = 0;
    while receive.try_recv().is_err() {
        triggered += usize::from(rank.diagnose.snapshot_if_due());
        assert!(begin.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    assert!(triggered >= 2);
}

#[test]
fn stop_returns_at_once_although_the_interval_is_an_hour() {
    let folder = tempfile::tempdir().unwrap();
    let config = every(Duration::from_secs(3600), folder.path());
    let config = Config { warming_time: None, ..config };
    let (ranks, _) = start_all(2, &config);
    for mut rank in ranks {
        let begin = Instant::now();
        assert!(rank.diagnose.stop());
        // Under 100 ms on a free machine.
        assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
        assert!(rank.diagnose.stop(), "once more does nothing");
        assert!(matches!(rank.diagnose.start(), Err(DiagnoseError::Misuse { .. })));
    }
}

#[test]
fn calls_that_do_not_fit_the_mode_say_so() {
    let folder = tempfile::tempdir().unwrap();
    let group = || LocalGroup::new(1).unwrap().remove(0);
    let mut rank =
        build(group(), every_step(folder.path()), |builder| builder.counters(Counters::Normal))
            .unwrap()
            .unwrap();
    let error = rank.diagnose.diagnose_normal_sync().unwrap_err().to_string();
    assert_eq!(error, "diagnose_normal_sync: it is not started");
    rank.diagnose.start().unwrap();
    let error = rank.diagnose.diagnose_ll_sync().unwrap_err().to_string();
    assert_eq!(error, "diagnose_ll_sync: this Diagnose has no such counters");
    assert!(rank.diagnose.start().is_err());
    rank.diagnose.stop();
    let error = rank.diagnose.diagnose_normal_sync().unwrap_err().to_string();
    assert_eq!(error, "diagnose_normal_sync: it is stopped");

    let config = every(Duration::from_secs(9), folder.path());
    let mut rank = build(group(), config, |builder| builder).unwrap().unwrap();
    rank.diagnose.forget_history().unwrap();
    rank.diagnose.start().unwrap();
    let error = rank.diagnose.diagnose_normal_sync().unwrap_err().to_string();
    assert!(error.contains("DEEPEP_DIAGNOSE_ASYNC=0"), "{error}");
    assert!(rank.diagnose.forget_history().is_err());
}

#[test]
fn bundles_give_the_addresses_of_their_parts_and_keep_them_alive() {
    let folder = tempfile::tempdir().unwrap();
    let group = LocalGroup::new(1).unwrap().remove(0);
    let rank = build(group, every_step(folder.path()), |builder| builder).unwrap().unwrap();
    let base = rank.diagnose.memory().address();
    let dispatch = rank.diagnose.dispatch_bundle().unwrap();
    let combine = rank.diagnose.combine_bundle().unwrap();
    let ll = rank.diagnose.ll_bundle().unwrap();
    let place = |part: deepxtrace::RawPart| ((part.address - base) / 8, part.len);
    // One rank: every Completion part has one element. The order is that of the kernels' arguments.
    let places = dispatch.raw().map(place);
    let expected =
        [(0, 1), (1, 1), (2, 1), (3, 1), (6, 1), (7, 1), (8, 1), (9, 1), (10, 1), (11, 1)];
    assert_eq!(places, expected);
    assert_eq!(combine.raw().map(place), [(4, 1), (5, 1), (12, 1), (13, 1), (14, 1)]);
    assert_eq!(ll.raw().map(place), [(15, 1), (16, 1)]);
    let counters = std::sync::Arc::downgrade(rank.diagnose.memory());
    drop(rank.diagnose);
    drop((dispatch, combine));
    assert!(counters.upgrade().is_some(), "the low-latency bundle holds them");
    drop(ll);
    assert!(counters.upgrade().is_none());
}

#[test]
fn a_callback_that_panics_is_not_called_again_and_harms_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let group = LocalGroup::new(1).unwrap().remove(0);
    let mut rank = build(group, every_step(folder.path()), |builder| {
        builder.on_report(|report| {
            if matches!(report, Report::Normal(_)) {
                panic!("of the program, expected in this test");
            }
        })
    })
    .unwrap()
    .unwrap();
    rank.diagnose.start().unwrap();
    for _ in 0..4 {
        assert_eq!(rank.diagnose.diagnose_normal_sync().unwrap(), SyncStep::Collected);
    }
    assert_eq!(rank.diagnose.health().windows, 3);
}

#[test]
fn a_sink_gets_every_window_and_its_failures_are_told_once() {
    struct Sink(std::sync::mpsc::Sender<(u64, String)>);
    impl deepxtrace::WindowSink for Sink {
        fn normal(
            &mut self,
            record: deepxtrace::WindowRecord<'_>,
        ) -> Result<(), deepxtrace::SinkError> {
            assert_eq!(record.diagnosis.window_index, record.window.index());
            let _ = self.0.send((record.window.index(), record.instance.to_string()));
            Err("the disk is full".into())
        }
    }
    let folder = tempfile::tempdir().unwrap();
    let (send, receive) = channel();
    let (notices, told) = channel();
    let group = LocalGroup::new(1).unwrap().remove(0);
    let mut rank = build(group, every_step(folder.path()), |builder| {
        builder.sink(Sink(send)).on_report(move |report| {
            if let Report::Notice(notice @ Notice::Sink(_)) = report {
                let _ = notices.send(notice.to_string());
            }
        })
    })
    .unwrap()
    .unwrap();
    rank.diagnose.start().unwrap();
    for _ in 0..4 {
        rank.diagnose.diagnose_normal_sync().unwrap();
    }
    let instance = rank.diagnose.instance().to_string();
    let windows: Vec<_> = receive.try_iter().collect();
    assert_eq!(windows, [1, 2, 3].map(|index| (index, instance.clone())));
    let told: Vec<_> = told.try_iter().collect();
    assert_eq!(told, ["a window was not handed on: the disk is full"]);
    assert_eq!(rank.diagnose.health().sink_failures, 3);
}

#[test]
fn a_slow_path_is_found_in_the_background() {
    let folder = tempfile::tempdir().unwrap();
    let topology = Topology::new(8, 4).unwrap();
    let mut workload = Workload::new(WorkloadConfig::new(topology), 5).unwrap();
    workload.phase([Fault::LateBeforeCombine { rank: 6, ns: 3_000_000 }]).unwrap();
    let config = Config { ranks_per_node: 4, ..every(Duration::from_millis(50), folder.path()) };
    let (ranks, windows) = start_all(8, &config);
    let begin = Instant::now();
    let found = loop {
        workload.run_window();
        for (i, rank) in ranks.iter().enumerate() {
            rank.set_all(workload.snapshot().vector(i).unwrap());
        }
        std::thread::sleep(Duration::from_millis(2));
        if let Some(window) = windows.try_iter().find(is_diagnosed) {
            break window;
        }
        assert!(begin.elapsed() < PATIENCE);
    };
    let probe = found.probes.get(NotifyProbe::CachedNotifyCombine).unwrap();
    assert!(
        probe.findings.iter().any(|f| matches!(f, Finding::LateRank { rank: 6, .. })),
        "{:?}",
        probe.findings
    );
    assert!(found.probes.get(CompletionProbe::DispatchFinal).is_some());
    drop(ranks);
    // Nothing of them is left: the channel is closed.
    while windows.recv_timeout(PATIENCE).is_ok() {}
    assert!(windows.try_recv().is_err());
}
