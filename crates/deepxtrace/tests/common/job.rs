//! One rank of a simulated job, and what its root tells the test that started it.
//!
//! Every rank simulates the whole group from the same seed and keeps only its own counters, so that
//! the root can compare what was gathered with what all ranks have counted.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use deepxtrace::collect::{CounterMemory, Group, HostCounters, HostMemory};
use deepxtrace::config::{Config, Mode};
use deepxtrace::counters::{CompletionProbe, NotifyProbe, Step, Topology, Window, Windows};
use deepxtrace::normal::{Finding, WindowState};
use deepxtrace::{Builder, Diagnose, NormalReport, Notice, Report};
use deepxtrace_sim::{Fault, Workload, WorkloadConfig};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What all lines for the test begin with; libtest writes others.
pub const MARK: &str = "@job ";

/// The settings of a run, the same on all ranks.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    pub ranks_per_node: usize,
    /// The rank of the group that is late in every window.
    pub late: usize,
    pub log_path: PathBuf,
    pub round_timeout: Duration,
}

impl Plan {
    fn config(&self, mode: Mode, interval: Duration) -> Config {
        Config {
            enabled: true,
            mode,
            sync_step: 1,
            interval,
            warming_time: Some(Duration::ZERO),
            ranks_per_node: self.ranks_per_node,
            log_path: self.log_path.clone(),
            ..Config::default()
        }
    }

    fn workload(&self, size: usize) -> Workload {
        let topology = Topology::new(size, self.ranks_per_node).unwrap();
        let config = WorkloadConfig { rounds: 16, channels: 1, ..WorkloadConfig::new(topology) };
        let mut workload = Workload::new(config, 7).unwrap();
        workload.phase([Fault::LateBeforeDispatch { rank: self.late, ns: 2_000_000 }]).unwrap();
        workload
    }
}

/// Tells the test something.
pub fn tell(value: &Value) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n{MARK}{value}").unwrap();
    out.flush().unwrap();
}

struct Rank {
    diagnose: Diagnose,
    counters: HostCounters,
    rank: usize,
}

impl Rank {
    fn new(
        group: impl Group + 'static,
        config: Config,
        plan: &Plan,
        change: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        let rank = group.membership().rank();
        let made: Arc<Mutex<Option<HostCounters>>> = Arc::default();
        let keep = Arc::clone(&made);
        let builder = Diagnose::builder(group, config)
            .round_timeout(plan.round_timeout)
            .join_timeout(Duration::from_secs(120))
            .memory(move |len| {
                let memory = HostMemory::new(len);
                *keep.lock().unwrap() = Some(memory.counters());
                Ok(Arc::new(memory) as Arc<dyn CounterMemory>)
            });
        let mut diagnose = change(builder).build().unwrap().expect("collection is enabled");
        diagnose.start().unwrap();
        let counters = made.lock().unwrap().take().unwrap();
        Self { diagnose, counters, rank }
    }

    fn count(&self, workload: &Workload) {
        let vector = workload.snapshot().vector(self.rank).unwrap();
        for (counter, value) in self.counters.get().iter().zip(vector) {
            counter.store(*value, Relaxed);
        }
    }
}

/// Counters of a window as one list, whatever its number and times.
fn contents(window: &Window) -> Vec<i64> {
    let mut all = Vec::new();
    for probe in NotifyProbe::ALL {
        all.extend(&window.notify(probe).duration_ns);
        all.extend(&window.notify(probe).count);
    }
    for probe in CompletionProbe::ALL {
        let delta = window.completion(probe);
        all.extend(delta.cost.iter().chain(&delta.samples).chain(&delta.tokens));
    }
    all
}

fn describe(report: &NormalReport<'_>) -> Value {
    let diagnosis = report.diagnosis;
    let late: Vec<usize> = diagnosis
        .probes
        .get(NotifyProbe::NotifyDispatch)
        .into_iter()
        .flat_map(|probe| &probe.findings)
        .filter_map(|finding| match finding {
            Finding::LateRank { rank, .. } => Some(*rank),
            _ => None,
        })
        .collect();
    let places: Vec<String> =
        late.iter().map(|rank| report.ranks.place(*rank).to_string()).collect();
    json!({
        "window": diagnosis.window_index,
        "state": diagnosis.state,
        "missing": diagnosis.missing_ranks,
        "late": late,
        "places": places,
    })
}

/// Synchronous: `windows` windows, in step. The root tells each, and whether what it gathered is
/// what all ranks counted.
pub fn run_in_step(group: impl Group + 'static, plan: &Plan, windows: u64) {
    let size = group.membership().size();
    let root = group.membership().is_root();
    // The counters of the last window, and what is to be told of it.
    let gathered = Arc::new(Mutex::new(None::<(Vec<i64>, Value)>));
    let keep = Arc::clone(&gathered);
    let config = plan.config(Mode::Synchronous, Duration::from_secs(1));
    let mut rank = Rank::new(group, config, plan, |builder| {
        builder.on_report(move |report| {
            if let Report::Normal(report) = report {
                let counters = report.window.map(contents).unwrap_or_default();
                *keep.lock().unwrap() = Some((counters, describe(&report)));
            }
        })
    });
    let mut workload = plan.workload(size);
    let mut direct = Windows::new(*workload_topology(&workload));
    for _ in 0..=windows {
        rank.count(&workload);
        rank.diagnose.diagnose_normal_sync().unwrap();
        let step = direct.advance(&mut workload.snapshot().clone()).map(|step| match step {
            Step::Boundary => None,
            Step::Window(window) => Some(contents(window)),
        });
        if let (true, Some((counters, mut told))) = (root, gathered.lock().unwrap().take()) {
            told["equal"] = json!(step.unwrap() == Some(counters));
            tell(&told);
        }
        workload.run_window();
    }
    let begin = Instant::now();
    let ended = rank.diagnose.stop();
    tell(
        &json!({"rank": rank.rank, "ended": ended, "stop_ms": begin.elapsed().as_millis() as u64}),
    );
}

fn workload_topology(workload: &Workload) -> &Topology {
    &workload.config().topology
}

/// Asynchronous: counts until a line comes on standard input, the root leaves, or `most` has passed. The root
/// tells each window.
pub fn run_until_told(
    group: impl Group + 'static,
    plan: &Plan,
    interval: Duration,
    most: Duration,
) {
    let size = group.membership().size();
    let told_to_stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&told_to_stop);
    std::thread::spawn(move || {
        // The end of the input is no line: under `mpirun` only the first rank has any.
        if let Ok(1..) = std::io::stdin().lock().read_line(&mut String::new()) {
            flag.store(true, Relaxed);
        }
    });
    let windows = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&windows);
    let config = plan.config(Mode::Asynchronous, interval);
    let root_left = Arc::clone(&told_to_stop);
    let mut rank = Rank::new(group, config, plan, |builder| {
        builder.on_report(move |report| match report {
            Report::Normal(report) => {
                count.fetch_add(1, Relaxed);
                if report.diagnosis.state != WindowState::Idle {
                    tell(&describe(&report));
                }
            }
            Report::Notice(Notice::RootLeft) => root_left.store(true, Relaxed),
            _ => {}
        })
    });
    tell(&json!({"rank": rank.rank, "started": true}));
    let mut workload = plan.workload(size);
    let begin = Instant::now();
    while !told_to_stop.load(Relaxed) && begin.elapsed() < most {
        workload.run_window();
        rank.count(&workload);
        std::thread::sleep(Duration::from_millis(10));
    }
    let (begin, windows) = (Instant::now(), windows.load(Relaxed));
    let ended = rank.diagnose.stop();
    let stop_ms = begin.elapsed().as_millis() as u64;
    let gather = rank.diagnose.health().gather;
    tell(&json!({
        "rank": rank.rank, "ended": ended, "stop_ms": stop_ms, "windows": windows,
        "rejoined": gather.rejoined, "lost": gather.lost,
    }));
}
