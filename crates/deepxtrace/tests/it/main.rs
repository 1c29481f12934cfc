//! `Diagnose` as a program uses it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]
#![cfg(feature = "collect")]

/// Threads of this process: agreement, windows, refusals, both modes, stop.
mod diagnose;
/// Nothing grows, and nothing is allocated in steady state.
mod growth;
/// What the log holds, and what a log that cannot be written does.
mod logs;
/// Windows measured on GPUs by the example `ep_emulator`.
mod measured;
/// Figures for exporters (feature `metrics`).
#[cfg(feature = "metrics")]
mod metrics;
/// Real processes over TCP: killed, stopped, cut off and returning ones.
mod processes;

#[path = "../common/job.rs"]
mod job;

use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use deepxtrace::collect::{CounterMemory, Group, HostCounters, HostMemory, LocalGroup};
use deepxtrace::config::{Config, Mode};
use deepxtrace::normal::{WindowDiagnosis, WindowState};
use deepxtrace::{Builder, Diagnose, DiagnoseError, Report};

/// Long enough for a loaded machine; nothing waits so long when all is well.
const PATIENCE: Duration = Duration::from_secs(60);

/// Synchronous, every step, without warm-up.
fn every_step(folder: &Path) -> Config {
    Config {
        enabled: true,
        mode: Mode::Synchronous,
        sync_step: 1,
        warming_time: Some(Duration::ZERO),
        log_path: folder.to_owned(),
        ..Config::default()
    }
}

/// Asynchronous, without warm-up.
fn every(interval: Duration, folder: &Path) -> Config {
    Config { mode: Mode::Asynchronous, interval, ..every_step(folder) }
}

/// One rank: its `Diagnose`, and the counters behind it.
struct Rank {
    diagnose: Diagnose,
    counters: HostCounters,
}

impl Rank {
    fn set(&self, place: usize, value: i64) {
        self.counters.get()[place].store(value, Relaxed);
    }

    fn set_all(&self, vector: &[i64]) {
        for (counter, value) in self.counters.get().iter().zip(vector) {
            counter.store(*value, Relaxed);
        }
    }
}

/// Builds one rank over host memory; `None` when nobody has enabled collection.
fn build(
    group: impl Group + 'static,
    config: Config,
    change: impl FnOnce(Builder) -> Builder,
) -> Result<Option<Rank>, DiagnoseError> {
    let counters: Arc<Mutex<Option<HostCounters>>> = Arc::default();
    let made = Arc::clone(&counters);
    let builder = Diagnose::builder(group, config).join_timeout(PATIENCE).memory(move |len| {
        let memory = HostMemory::new(len);
        *made.lock().unwrap() = Some(memory.counters());
        Ok(Arc::new(memory) as Arc<dyn CounterMemory>)
    });
    let diagnose = change(builder).build()?;
    Ok(diagnose.map(|diagnose| {
        // A test that brings memory of its own has no use for these.
        let made = counters.lock().unwrap().take();
        Rank { diagnose, counters: made.unwrap_or_else(|| HostMemory::new(0).counters()) }
    }))
}

/// Builds all ranks of a group of threads, each on its own thread, as ranks wait for each other.
fn build_all(
    configs: Vec<Config>,
    change: impl Fn(usize, Builder) -> Builder + Send + Sync + 'static,
) -> Vec<Result<Option<Rank>, DiagnoseError>> {
    let change = Arc::new(change);
    let groups = LocalGroup::new(configs.len()).unwrap();
    let threads: Vec<_> = groups
        .into_iter()
        .zip(configs)
        .enumerate()
        .map(|(rank, (group, config))| {
            let change = Arc::clone(&change);
            std::thread::spawn(move || build(group, config, |builder| change(rank, builder)))
        })
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// All ranks of a group, started; the root's Normal-mode diagnoses come out of the channel.
fn start_all(size: usize, config: &Config) -> (Vec<Rank>, Receiver<WindowDiagnosis>) {
    let (send, receive) = channel();
    let send = Mutex::new(send);
    let ranks = build_all(vec![config.clone(); size], move |rank, builder| {
        if rank == 0 { builder.on_report(normal_to(&send.lock().unwrap())) } else { builder }
    });
    let mut ranks: Vec<_> = ranks.into_iter().map(|rank| rank.unwrap().unwrap()).collect();
    for rank in &mut ranks {
        rank.diagnose.start().unwrap();
    }
    (ranks, receive)
}

fn normal_to(send: &Sender<WindowDiagnosis>) -> impl FnMut(Report<'_>) + Send + 'static {
    let send = send.clone();
    move |report| {
        if let Report::Normal(report) = report {
            let _ = send.send(report.diagnosis.clone());
        }
    }
}

/// One synchronous Normal-mode step on all ranks at the same time.
fn step_all(ranks: &mut [Rank]) {
    std::thread::scope(|scope| {
        for rank in ranks.iter_mut() {
            scope.spawn(|| rank.diagnose.diagnose_normal_sync().unwrap());
        }
    });
}

fn next(windows: &Receiver<WindowDiagnosis>) -> WindowDiagnosis {
    windows.recv_timeout(PATIENCE).unwrap()
}

fn is_diagnosed(window: &WindowDiagnosis) -> bool {
    window.state == WindowState::Diagnosed
}
