//! Diagnosis inside the program whose communication is diagnosed.

#[cfg(feature = "artifact")]
mod artifact;
mod builder;
mod bundle;
mod error;
mod health;
mod report;
mod session;
mod sink;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use deepxtrace_collect::{
    Background, Collector, CounterMemory, DeviceError, EveryInterval, EverySteps, GatherError,
    Group, Membership, Schedule, SkipReason, Status, Stop, Trigger, Until, Uuid,
};
use deepxtrace_counters::{Layout, LlLayout, Topology};
use deepxtrace_normal::WindowDiagnosis;

pub use builder::{Builder, Counters};
pub use bundle::{CombineBundle, DispatchBundle, LlBundle, RawPart};
pub use error::DiagnoseError;
pub use health::Health;
pub use report::{LlReport, NormalReport, Notice, Ranks, Report};
use session::Session;
pub use sink::{LlRecord, SinkError, WindowRecord, WindowSink};

use crate::config::{Config, Mode};

/// Longest wait for the background thread to end; it ends by itself later if its callback or a
/// file keeps it.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// Counters of one rank, collected over its EP group and diagnosed at the root.
///
/// Every rank of the group makes one, hands its bundles to the kernels, and starts it. In the
/// asynchronous mode that is all; in the synchronous mode each rank calls
/// [`diagnose_normal_sync`](Self::diagnose_normal_sync) or
/// [`diagnose_ll_sync`](Self::diagnose_ll_sync) once a step. The root's windows go to its log file,
/// to the callback and to the sink. Dropping it stops it.
///
/// ```
/// use std::sync::mpsc::channel;
/// use std::time::Duration;
/// use deepxtrace::collect::LocalGroup;
/// use deepxtrace::config::{Config, Mode};
/// use deepxtrace::{Diagnose, Report};
///
/// let folder = std::env::temp_dir().join("deepxtrace-example");
/// let config = Config {
///     enabled: true,
///     mode: Mode::Synchronous,
///     sync_step: 1,
///     warming_time: Some(Duration::ZERO),
///     log_path: folder,
///     ..Config::default()
/// };
/// let (send, receive) = channel();
/// let group = LocalGroup::new(1)?.remove(0);
/// let mut diagnose = Diagnose::builder(group, config)
///     .on_report(move |report| {
///         if let Report::Normal(report) = report {
///             let _ = send.send(report.diagnosis.window_index);
///         }
///     })
///     .build()?
///     .ok_or("collection is enabled")?;
/// diagnose.start()?;
/// diagnose.diagnose_normal_sync()?; // the boundary
/// diagnose.diagnose_normal_sync()?; // the first window
/// assert_eq!(receive.recv()?, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Diagnose {
    memory: Arc<dyn CounterMemory>,
    config: Config,
    counters: Counters,
    topology: Topology,
    membership: Membership,
    instance: Uuid,
    trigger: Option<Trigger>,
    health: Arc<Mutex<Health>>,
    state: State,
}

enum State {
    /// Not started.
    Ready(Box<(Collector, Session)>),
    Asynchronous(Background),
    Synchronous(Box<Synchronous>),
    Stopped,
}

struct Synchronous {
    collector: Collector,
    session: Session,
    normal: EverySteps,
    low_latency: EverySteps,
    /// Never set: a call ends by itself.
    stop: Stop,
}

/// What a call of the synchronous mode did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SyncStep {
    /// Nothing: it is not this step's turn.
    NotDue,
    /// This rank's counters were collected.
    Collected,
    /// This rank had no snapshot, for this reason.
    Skipped(SkipReason),
    /// The root did not come to this step in time.
    NotAsked,
}

impl fmt::Debug for Diagnose {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Diagnose")
            .field("instance", &self.instance)
            .field("membership", &self.membership)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl Diagnose {
    /// As the environment says (see [`config`](crate::config)), with counters from `allocate`, which
    /// is given their number and called only when this rank has enabled collection. Every rank of
    /// the group calls it. `None`: no rank has enabled collection, and nothing was allocated or
    /// started.
    ///
    /// # Errors
    ///
    /// - a variable has a value that cannot be used: it is named with what is allowed
    /// - the counters cannot be allocated, here or on another rank
    /// - the ranks disagree, or not all came in time: each rank gets the error, with the ranks
    ///   named
    pub fn from_env(
        group: impl Group + 'static,
        allocate: impl FnOnce(usize) -> Result<Arc<dyn CounterMemory>, DeviceError> + 'static,
    ) -> Result<Option<Self>, DiagnoseError> {
        match Config::from_env() {
            Ok(config) => Self::builder(group, config).memory(allocate).build(),
            Err(error) => Err(builder::give_up(Box::new(group), error)),
        }
    }

    /// For programs that set more than the environment does.
    #[must_use]
    pub fn builder(group: impl Group + 'static, config: Config) -> Builder {
        Builder::new(Box::new(group), config)
    }

    /// The parts that dispatch kernels count in; `None` without Normal-mode counters.
    #[must_use]
    pub fn dispatch_bundle(&self) -> Option<DispatchBundle> {
        let layout = Layout::of(self.topology);
        self.counters.normal().then(|| DispatchBundle::new(&self.memory, layout))
    }

    /// The parts that combine kernels count in; `None` without Normal-mode counters.
    #[must_use]
    pub fn combine_bundle(&self) -> Option<CombineBundle> {
        let layout = Layout::of(self.topology);
        self.counters.normal().then(|| CombineBundle::new(&self.memory, layout))
    }

    /// The parts that low-latency kernels count in; `None` without low-latency counters.
    #[must_use]
    pub fn ll_bundle(&self) -> Option<LlBundle> {
        let layout = LlLayout::new(self.topology.ep_size()).ok()?;
        let first = self.memory.len().checked_sub(layout.vector_len())?;
        self.counters.low_latency().then(|| LlBundle::new(&self.memory, layout, first))
    }

    /// The one allocation: Normal-mode counters first, then the low-latency ones.
    #[must_use]
    pub fn memory(&self) -> &Arc<dyn CounterMemory> {
        &self.memory
    }

    /// Names this run, the same on all ranks.
    #[must_use]
    pub fn instance(&self) -> Uuid {
        self.instance
    }

    /// The group, and the own place in it.
    #[must_use]
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// How the ranks are placed on nodes.
    #[must_use]
    pub fn topology(&self) -> Topology {
        self.topology
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What has happened on this rank so far.
    #[must_use]
    pub fn health(&self) -> Health {
        *self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins collection: in the asynchronous mode on a background thread, in the synchronous mode
    /// with the next call. Does not wait for the other ranks.
    ///
    /// # Errors
    ///
    /// It was started before, or the operating system gives no thread.
    pub fn start(&mut self) -> Result<(), DiagnoseError> {
        let state = std::mem::replace(&mut self.state, State::Stopped);
        let State::Ready(ready) = state else {
            self.state = state;
            let reason = "it was started before; make another one to begin anew";
            return Err(DiagnoseError::Misuse { call: "start", reason });
        };
        let (collector, mut session) = *ready;
        let warm_up = self.config.warming_time();
        session.start(warm_up, self.memory.is_ordered(), collector.gather());
        self.state = match self.config.mode {
            Mode::Asynchronous => {
                let interval = self.config.interval;
                let schedule = EveryInterval::new(Instant::now(), warm_up, interval);
                let sink = move |event: deepxtrace_collect::Event<'_>| session.event(event);
                let background = Background::start(collector, Box::new(schedule), sink)
                    .map_err(|error| DiagnoseError::Thread(error.to_string()))?;
                State::Asynchronous(background)
            }
            Mode::Synchronous => {
                let normal = EverySteps::new(self.config.sync_step);
                let low_latency = normal.clone();
                let stop = Stop::new();
                let all = Synchronous { collector, session, normal, low_latency, stop };
                State::Synchronous(Box::new(all))
            }
        };
        Ok(())
    }

    /// Synchronous mode: one step of the Normal mode. On every `sync_step`-th call the counters are
    /// collected and, on the root, diagnosed.
    ///
    /// # Errors
    ///
    /// - it is not started, not synchronous, or has no such counters
    /// - the round failed; the next step is not affected
    pub fn diagnose_normal_sync(&mut self) -> Result<SyncStep, DiagnoseError> {
        self.step("diagnose_normal_sync", session::NORMAL, false)
    }

    /// Synchronous mode: one step of the low-latency mode, as
    /// [`diagnose_normal_sync`](Self::diagnose_normal_sync).
    ///
    /// # Errors
    ///
    /// As [`diagnose_normal_sync`](Self::diagnose_normal_sync).
    pub fn diagnose_ll_sync(&mut self) -> Result<SyncStep, DiagnoseError> {
        self.step("diagnose_ll_sync", session::LOW_LATENCY, false)
    }

    /// Synchronous mode: collects and diagnoses Normal-mode counters now, whatever the step. Every
    /// rank calls it at the same place.
    ///
    /// # Errors
    ///
    /// As [`diagnose_normal_sync`](Self::diagnose_normal_sync).
    pub fn diagnose_normal_now(&mut self) -> Result<SyncStep, DiagnoseError> {
        self.step("diagnose_normal_now", session::NORMAL, true)
    }

    /// Synchronous mode: collects and diagnoses low-latency counters now, whatever the step. Every
    /// rank calls it at the same place.
    ///
    /// # Errors
    ///
    /// As [`diagnose_normal_sync`](Self::diagnose_normal_sync).
    pub fn diagnose_ll_now(&mut self) -> Result<SyncStep, DiagnoseError> {
        self.step("diagnose_ll_now", session::LOW_LATENCY, true)
    }

    fn step(
        &mut self,
        call: &'static str,
        channel: u8,
        now: bool,
    ) -> Result<SyncStep, DiagnoseError> {
        let misuse = |reason| Err(DiagnoseError::Misuse { call, reason });
        let there = match channel {
            session::LOW_LATENCY => self.counters.low_latency(),
            _ => self.counters.normal(),
        };
        if !there {
            return misuse("this Diagnose has no such counters");
        }
        let State::Synchronous(all) = &mut self.state else {
            return misuse(match self.state {
                State::Ready(_) => "it is not started",
                State::Asynchronous(_) => "only in the synchronous mode, DEEPEP_DIAGNOSE_ASYNC=0",
                _ => "it is stopped",
            });
        };
        let schedule = match channel {
            session::LOW_LATENCY => &mut all.low_latency,
            _ => &mut all.normal,
        };
        if !now && !schedule.step() {
            return Ok(SyncStep::NotDue);
        }
        all.collect(channel)
    }

    /// The diagnosis of the last Normal-mode window: on the root, in the synchronous mode, once
    /// there is one. In the asynchronous mode a callback is told.
    #[must_use]
    pub fn last_normal(&self) -> Option<&WindowDiagnosis> {
        match &self.state {
            State::Synchronous(all) => all.session.last_normal(),
            _ => None,
        }
    }

    /// Forgets the Normal-mode history after a known change, such as another batch size: before
    /// [`start`](Self::start), or in the synchronous mode.
    ///
    /// # Errors
    ///
    /// Collection runs in the background, or is stopped.
    pub fn forget_history(&mut self) -> Result<(), DiagnoseError> {
        match &mut self.state {
            State::Ready(ready) => ready.1.forget_history(),
            State::Synchronous(all) => all.session.forget_history(),
            _ => {
                let reason = "only before the start or in the synchronous mode";
                return Err(DiagnoseError::Misuse { call: "forget_history", reason });
            }
        }
        Ok(())
    }

    /// Asynchronous mode with [`triggered_by_producer`](Builder::triggered_by_producer): enqueues a
    /// snapshot if one is due; says whether it was. One atomic load when none is.
    pub fn snapshot_if_due(&self) -> bool {
        self.trigger.as_ref().is_some_and(Trigger::snapshot_if_due)
    }

    /// What [`snapshot_if_due`](Self::snapshot_if_due) calls, to be moved to another thread; `None`
    /// when snapshots are not triggered by the producer.
    #[must_use]
    pub fn trigger(&self) -> Option<Trigger> {
        self.trigger.clone()
    }

    /// Ends collection and tells the other ranks, without waiting for them. Says whether all has
    /// ended: a callback or a file that takes longer than 5 s is not waited for.
    pub fn stop(&mut self) -> bool {
        match std::mem::replace(&mut self.state, State::Stopped) {
            State::Asynchronous(mut background) => background.stop(STOP_PATIENCE),
            _ => true,
        }
    }
}

impl Drop for Diagnose {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Synchronous {
    fn collect(&mut self, channel: u8) -> Result<SyncStep, DiagnoseError> {
        let Self { collector, session, stop, .. } = self;
        let until = Until::after(Duration::from_secs(3600), stop);
        let rank = collector.gather().membership().rank();
        let result = if collector.gather().membership().is_root() {
            collector.lead(channel, until).map(|round| {
                session.round(&round);
                match round.gathered.statuses().get(rank) {
                    Some(Status::Skipped(reason)) => SyncStep::Skipped(*reason),
                    _ => SyncStep::Collected,
                }
            })
        } else {
            collector.follow_step(channel, until).map(|answered| match answered {
                None => SyncStep::NotAsked,
                Some(answered) => {
                    let skipped = answered.skipped;
                    session.answered(answered);
                    skipped.map_or(SyncStep::Collected, SyncStep::Skipped)
                }
            })
        };
        match result {
            // All ranks capture at this step: none of them has sent anything.
            Err(GatherError::Capturing) => {
                session.capturing();
                Ok(SyncStep::Skipped(SkipReason::Capturing))
            }
            result => result.map_err(|error| {
                session.failed(error.to_string());
                error.into()
            }),
        }
    }
}
