//! From gathered vectors to reports: what the collecting thread does after a round.

use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use deepxtrace_collect::{
    Answered, Event, Gather, Gathered, Membership, Round, SkipReason, Status, Uuid,
};
use deepxtrace_counters::{LlPhase, LlWindows, Snapshot, Step, Topology, Windows};
use deepxtrace_ll::{LlDiagnoser, MeanRatioPolicy};
use deepxtrace_normal::{Diagnoser, Policy, PolicyError, WindowDiagnosis, WindowState};

use super::health::Health;
use super::report::{LlReport, NormalReport, Notice, Ranks, Report};
use super::sink::{LlRecord, SinkError, WindowRecord, WindowSink};
use crate::config::Config;
use crate::log::{Lines, LogFile, low_latency, normal};

/// The channel of Normal-mode counters; channel 0 has all, Normal-mode counters first.
pub(super) const NORMAL: u8 = 1;
/// The channel of low-latency counters.
pub(super) const LOW_LATENCY: u8 = 2;

/// What the program is told with.
pub(super) type Callback = Box<dyn FnMut(Report<'_>) + Send>;

/// What follows from rounds on one rank: windows and reports on the root, notices on all.
pub(super) struct Session {
    instance: Uuid,
    ranks: Ranks,
    teller: Teller,
    outlet: Outlet,
    details: bool,
    normal: Option<NormalSide>,
    low_latency: Option<LlSide>,
    /// Rounds before it are discarded.
    warm_up_ends: Instant,
}

/// Where windows go besides log and callback.
struct Outlet {
    sink: Option<Box<dyn WindowSink>>,
    failing: bool,
}

/// The ways to tell somebody: log, callback, counts.
struct Teller {
    lines: Lines,
    log: LogFile,
    callback: Option<Callback>,
    health: Arc<Mutex<Health>>,
    /// The notice told last, until a round succeeds: it is not told again and again.
    last: Option<Notice>,
    window: u64,
}

struct NormalSide {
    windows: Windows,
    snapshot: Snapshot,
    diagnoser: Diagnoser,
    /// Who was present in the snapshot before, and who in both.
    before: Vec<bool>,
    both: Vec<bool>,
}

struct LlSide {
    windows: LlWindows,
    counters: Vec<i64>,
    present: Vec<bool>,
    before: Vec<bool>,
    missing: Vec<usize>,
    diagnosers: [LlDiagnoser; 2],
    mean_ratio: MeanRatioPolicy,
    policy: Policy,
}

/// What a session begins with.
pub(super) struct Beginning<'a> {
    pub(super) config: &'a Config,
    pub(super) membership: &'a Membership,
    pub(super) topology: Topology,
    pub(super) instance: Uuid,
    pub(super) normal: bool,
    pub(super) low_latency: bool,
    pub(super) callback: Option<Callback>,
    pub(super) sink: Option<Box<dyn WindowSink>>,
    pub(super) health: Arc<Mutex<Health>>,
}

impl Session {
    pub(super) fn new(beginning: Beginning<'_>) -> Result<Self, PolicyError> {
        let Beginning { config, membership, topology, .. } = beginning;
        let root = membership.is_root();
        let side = || NormalSide::new(topology, config);
        let normal = (root && beginning.normal).then(side).transpose()?;
        let side = || LlSide::new(topology, config);
        let low_latency = (root && beginning.low_latency).then(side).transpose()?;
        let global = membership.global(membership.rank()).unwrap_or(membership.rank());
        Ok(Self {
            instance: beginning.instance,
            ranks: Ranks::new(membership.clone()),
            teller: Teller {
                lines: Lines::new(beginning.instance, topology.ep_size()),
                log: LogFile::new(&config.log_path, global),
                callback: beginning.callback,
                health: beginning.health,
                last: None,
                window: 0,
            },
            outlet: Outlet { sink: beginning.sink, failing: false },
            details: config.log_details,
            normal,
            low_latency,
            warm_up_ends: Instant::now(),
        })
    }

    /// Collection begins: `warm_up` is still to pass.
    pub(super) fn start(&mut self, warm_up: Duration, ordered: bool, gather: &dyn Gather) {
        self.ranks.update(gather, &[]);
        let now = Instant::now();
        self.warm_up_ends = now.checked_add(warm_up).unwrap_or(now);
        let ranks = &self.ranks;
        let own = ranks.own();
        self.teller.log(|line| {
            write!(line, "started, {}, root is rank {}", ranks.place(own), ranks.root())
        });
        if !ordered {
            self.teller.notice(Notice::Unordered);
        }
    }

    pub(super) fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Round(round) => self.round(&round),
            Event::Answered(answered) => self.answered(answered),
            Event::Failed { error, .. } => self.failed(error.to_string()),
            Event::RootLeft => self.teller.notice(Notice::RootLeft),
            _ => {}
        }
    }

    /// Root: a round has ended.
    pub(super) fn round(&mut self, round: &Round<'_>) {
        if Instant::now() < self.warm_up_ends {
            return;
        }
        let gathered = round.gathered;
        self.ranks.update(round.gather, gathered.statuses());
        let events = round.gather.events();
        self.teller.count(|health| {
            health.rounds += 1;
            health.gather = events;
        });
        let own = gathered.statuses().get(self.ranks.own()).copied();
        self.skipped(own, round.device_error.as_ref().map(ToString::to_string));
        let time = round.asked_unix_ns;
        let channel = round.request.channel;
        if let Some(side) = self.normal.as_mut().filter(|_| channel != LOW_LATENCY) {
            side.take(time, gathered);
            self.normal_window();
        }
        if let Some(side) = self.low_latency.as_mut().filter(|_| channel != NORMAL) {
            side.take(gathered);
            self.low_latency_window(time);
        }
    }

    /// Others: a request was answered.
    pub(super) fn answered(&mut self, answered: Answered) {
        self.teller.count(|health| health.rounds += 1);
        let status = answered.skipped.map_or(Status::Ok, Status::Skipped);
        self.skipped(Some(status), answered.device_error.map(|error| error.to_string()));
    }

    /// The step was skipped on all ranks, because they capture their streams.
    pub(super) fn capturing(&mut self) {
        self.skipped(Some(Status::Skipped(SkipReason::Capturing)), None);
    }

    pub(super) fn failed(&mut self, reason: String) {
        self.teller.count(|health| health.rounds_failed += 1);
        self.teller.notice(Notice::RoundFailed(reason));
    }

    fn skipped(&mut self, own: Option<Status>, error: Option<String>) {
        match own {
            Some(Status::Skipped(reason)) => {
                self.teller.count(|health| health.skipped += 1);
                let reason = match error {
                    Some(error) => format!("{}: {error}", reason.text()),
                    None => reason.text().to_owned(),
                };
                self.teller.notice(Notice::Skipped(reason));
            }
            _ => self.teller.last = None,
        }
    }

    fn normal_window(&mut self) {
        let Self { instance, ranks, teller, outlet, details, normal, .. } = self;
        let Some(NormalSide { windows, snapshot, diagnoser, both, .. }) = normal else { return };
        let policy = *diagnoser.policy();
        let index = windows.next_index();
        let (diagnosis, window) = match windows.advance(snapshot) {
            Ok(Step::Boundary) => return,
            Ok(Step::Window(window)) => (diagnoser.diagnose(window), Some(window)),
            Err(error) => (diagnoser.refuse(index, &error, both), None),
        };
        let now = teller.begin(index);
        normal::summary(&mut teller.lines, diagnosis, ranks);
        if let Some(window) = window.filter(|_| *details) {
            normal::details(&mut teller.lines, diagnosis, window);
        }
        teller.flush(now);
        let report = NormalReport { diagnosis, window, ranks };
        crate::metrics::normal(&report);
        teller.count(|health| health.windows += 1);
        teller.tell(Report::Normal(report));
        if let Some(window) = window {
            let record = WindowRecord { instance: *instance, window, diagnosis, policy: &policy };
            outlet.hand_over(teller, |sink| sink.normal(record));
        }
    }

    fn low_latency_window(&mut self, time: i64) {
        let Self { instance, ranks, teller, outlet, details, low_latency, .. } = self;
        let Some(side) = low_latency else { return };
        let LlSide { windows, counters, present, missing, diagnosers, mean_ratio, policy, .. } =
            side;
        let index = windows.next_index();
        let [dispatch, combine] = diagnosers;
        let mut reason = String::new();
        let mut report = LlReport {
            window_index: index,
            state: WindowState::Refused,
            reason: None,
            missing_ranks: missing,
            window: None,
            dispatch: None,
            combine: None,
            ranks,
        };
        match windows.advance(time, counters, present) {
            Ok(Step::Boundary) => return,
            Ok(Step::Window(window)) => {
                report.window = Some(window);
                report.state = WindowState::Idle;
                if !window.is_idle() {
                    report.state = WindowState::Diagnosed;
                    report.dispatch = dispatch.diagnose(window.wait(LlPhase::Dispatch).view()).ok();
                    report.combine = combine.diagnose(window.wait(LlPhase::Combine).view()).ok();
                }
            }
            Err(error) => reason = error.to_string(),
        }
        report.reason = (!reason.is_empty()).then_some(reason.as_str());
        let now = teller.begin(index);
        low_latency::summary(&mut teller.lines, &report);
        if let Some(window) = report.window.filter(|_| *details) {
            low_latency::details(&mut teller.lines, &report, window);
        }
        teller.flush(now);
        crate::metrics::low_latency(&report);
        teller.count(|health| health.windows += 1);
        teller.tell(Report::LowLatency(report));
        if let Some(window) = report.window {
            let (dispatch, combine) = (report.dispatch, report.combine);
            let instance = *instance;
            let record = LlRecord { instance, window, dispatch, combine, mean_ratio, policy };
            outlet.hand_over(teller, |sink| sink.low_latency(record));
        }
    }

    /// Forgets the Normal-mode history after a known change.
    pub(super) fn forget_history(&mut self) {
        if let Some(side) = &mut self.normal {
            side.diagnoser.forget_history();
        }
    }

    /// The diagnosis of the last Normal-mode window.
    pub(super) fn last_normal(&self) -> Option<&WindowDiagnosis> {
        let side = self.normal.as_ref()?;
        (side.windows.next_index() > 1).then(|| side.diagnoser.report())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.teller.log(|line| line.write_str("stopped"));
    }
}

impl Outlet {
    /// Gives a window to the sink; what it fails at is told when the trouble begins.
    fn hand_over(
        &mut self,
        teller: &mut Teller,
        give: impl FnOnce(&mut dyn WindowSink) -> Result<(), SinkError>,
    ) {
        let Some(sink) = &mut self.sink else { return };
        let reason = match catch_unwind(AssertUnwindSafe(|| give(sink.as_mut()))) {
            Ok(Ok(())) => {
                self.failing = false;
                return;
            }
            Ok(Err(error)) => format!("a window was not handed on: {error}"),
            Err(_) => "a window was not handed on: the sink panicked".to_owned(),
        };
        teller.count(|health| health.sink_failures += 1);
        if !std::mem::replace(&mut self.failing, true) {
            teller.notice(Notice::Sink(reason));
        }
    }
}

impl NormalSide {
    fn new(topology: Topology, config: &Config) -> Result<Self, PolicyError> {
        Ok(Self {
            windows: Windows::new(topology),
            snapshot: Snapshot::zeros(topology, 0),
            diagnoser: Diagnoser::new(topology, config.policy)?,
            before: vec![false; topology.ep_size()],
            both: vec![false; topology.ep_size()],
        })
    }

    /// Takes the first counters of every vector.
    fn take(&mut self, time: i64, gathered: &Gathered) {
        self.snapshot.set_timestamp_unix_ns(time);
        for rank in 0..self.before.len() {
            let vector = gathered.vector(rank);
            let row = self.snapshot.vector_mut(rank);
            let taken = vector.zip(row).and_then(|(vector, row)| {
                row.copy_from_slice(vector.get(..row.len())?);
                Some(())
            });
            let present = taken.is_some();
            self.snapshot.set_present(rank, present);
            if let (Some(both), Some(before)) = (self.both.get_mut(rank), self.before.get_mut(rank))
            {
                *both = present && *before;
                *before = present;
            }
        }
    }
}

impl LlSide {
    fn new(topology: Topology, config: &Config) -> Result<Self, PolicyError> {
        let n = topology.ep_size();
        let diagnoser = || LlDiagnoser::new(topology, config.mean_ratio, config.policy);
        Ok(Self {
            windows: LlWindows::new(topology),
            counters: vec![0; 2 * n * n],
            present: vec![false; n],
            before: vec![false; n],
            missing: Vec::with_capacity(n),
            diagnosers: [diagnoser()?, diagnoser()?],
            mean_ratio: config.mean_ratio,
            policy: config.policy,
        })
    }

    /// Takes the last `2N` counters of every vector.
    fn take(&mut self, gathered: &Gathered) {
        let len = 2 * self.present.len();
        self.missing.clear();
        self.before.copy_from_slice(&self.present);
        for (rank, (row, present)) in
            self.counters.chunks_exact_mut(len).zip(&mut self.present).enumerate()
        {
            let vector = gathered.vector(rank);
            let vector = vector.and_then(|vector| vector.get(vector.len().checked_sub(len)?..));
            if let Some(vector) = vector {
                row.copy_from_slice(vector);
            }
            *present = vector.is_some();
            if !(*present && self.before.get(rank).is_some_and(|before| *before)) {
                self.missing.push(rank);
            }
        }
    }
}

impl Teller {
    /// Begins the lines of a window; the time now.
    fn begin(&mut self, window: u64) -> i64 {
        self.window = window;
        let now = unix_ns();
        self.lines.begin(now, window);
        now
    }

    /// Writes the lines that were begun.
    fn flush(&mut self, now: i64) {
        let trouble = self.log.write(now, self.lines.text());
        let lost = self.log.lost();
        self.count(|health| health.log_lines_lost = lost);
        if let Some(trouble) = trouble {
            tracing::warn!(target: "deepxtrace", "{trouble}");
            self.count(|health| health.notices += 1);
            self.tell(Report::Notice(&Notice::Log(trouble)));
        }
    }

    fn log(&mut self, what: impl FnOnce(&mut crate::log::OneLine<'_>) -> std::fmt::Result) {
        let now = self.begin(self.window);
        self.lines.line(what);
        self.flush(now);
    }

    /// Tells a notice that is not the one told last.
    fn notice(&mut self, notice: Notice) {
        if self.last.as_ref() == Some(&notice) {
            return;
        }
        tracing::warn!(target: "deepxtrace", "{notice}");
        self.count(|health| health.notices += 1);
        self.log(|line| write!(line, "{notice}"));
        self.tell(Report::Notice(&notice));
        self.last = Some(notice);
    }

    /// Calls the program. A callback that panics is not called again.
    fn tell(&mut self, report: Report<'_>) {
        let Some(callback) = &mut self.callback else { return };
        if catch_unwind(AssertUnwindSafe(|| callback(report))).is_err() {
            self.callback = None;
            self.notice(Notice::CallbackPanicked);
        }
    }

    fn count(&self, change: impl FnOnce(&mut Health)) {
        change(&mut self.health.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// The time now, ns since 1970; 0 before 1970.
fn unix_ns() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
