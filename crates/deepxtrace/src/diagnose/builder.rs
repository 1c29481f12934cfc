//! Making a [`Diagnose`].

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use deepxtrace_collect::{
    Collector, CounterMemory, DeviceError, Group, HostMemory, Joined, Proposal, Stop, Trigger,
    Until,
};
use deepxtrace_counters::{Layout, LlLayout, Topology};

use super::health::Health;
use super::report::Report;
use super::session::{Beginning, Callback, Session};
use super::sink::{WindowSink, artifacts};
use super::{Diagnose, DiagnoseError, State};
use crate::config::{Config, ConfigError, Mode};

/// The setting by which a rank says that it cannot take part.
const READY: &str = "ready";
/// Longest time that one round may take, unless set.
const ROUND_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for the other ranks to come, unless set.
const JOIN_TIMEOUT: Duration = Duration::from_secs(300);

/// Which counters a [`Diagnose`] has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Counters {
    /// Those of the Normal mode.
    Normal,
    /// Those of the low-latency mode.
    LowLatency,
    /// Those of both.
    Both,
}

impl Counters {
    pub(super) fn normal(self) -> bool {
        self != Self::LowLatency
    }

    pub(super) fn low_latency(self) -> bool {
        self != Self::Normal
    }

    fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::LowLatency => "low_latency",
            Self::Both => "both",
        }
    }
}

type Allocate = Box<dyn FnOnce(usize) -> Result<Arc<dyn CounterMemory>, DeviceError>>;

/// The settings of a [`Diagnose`] that do not come from the environment.
///
/// Every rank of the group calls [`build`](Self::build); what is set here must be equal on all of
/// them, but for memory, callback and sink.
pub struct Builder {
    group: Box<dyn Group>,
    config: Config,
    counters: Counters,
    allocate: Allocate,
    round_timeout: Option<Duration>,
    join_timeout: Duration,
    triggered: bool,
    callback: Option<Callback>,
    sink: Option<Box<dyn WindowSink>>,
}

impl fmt::Debug for Builder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("membership", self.group.membership())
            .field("config", &self.config)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

impl Builder {
    pub(super) fn new(group: Box<dyn Group>, config: Config) -> Self {
        Self {
            group,
            config,
            counters: Counters::Both,
            allocate: Box::new(|len| Ok(Arc::new(HostMemory::new(len)))),
            round_timeout: None,
            join_timeout: JOIN_TIMEOUT,
            triggered: false,
            callback: None,
            sink: None,
        }
    }

    /// Which counters there are; both by default.
    #[must_use]
    pub fn counters(mut self, counters: Counters) -> Self {
        self.counters = counters;
        self
    }

    /// How the counters are allocated, given their number. It is called only when collection is
    /// enabled on this rank. By default they lie in host memory, without a queue.
    #[must_use]
    pub fn memory(
        mut self,
        allocate: impl FnOnce(usize) -> Result<Arc<dyn CounterMemory>, DeviceError> + 'static,
    ) -> Self {
        self.allocate = Box::new(allocate);
        self
    }

    /// Longest time of one round: 10 s by default, in the asynchronous mode no more than half an
    /// interval, but 100 ms at least. A rank that has not answered by then is missing in the
    /// window.
    #[must_use]
    pub fn round_timeout(mut self, timeout: Duration) -> Self {
        self.round_timeout = Some(timeout);
        self
    }

    /// How long [`build`](Self::build) waits for the other ranks: 300 s by default.
    #[must_use]
    pub fn join_timeout(mut self, timeout: Duration) -> Self {
        self.join_timeout = timeout;
        self
    }

    /// Asynchronous mode: snapshots are enqueued by the program's own thread, which calls
    /// [`Diagnose::snapshot_if_due`], and not by the background thread.
    #[must_use]
    pub fn triggered_by_producer(mut self) -> Self {
        self.triggered = true;
        self
    }

    /// What is told of every window, on the root, and of notices, on every rank. It is called on
    /// the thread that collects.
    #[must_use]
    pub fn on_report(mut self, callback: impl FnMut(Report<'_>) + Send + 'static) -> Self {
        self.callback = Some(Box::new(callback));
        self
    }

    /// What takes every Normal-mode window on the root, in place of the artifacts that
    /// `DEEPEP_DIAGNOSE_ARTIFACT_PATH` asks for.
    #[must_use]
    pub fn sink(mut self, sink: impl WindowSink + 'static) -> Self {
        self.sink = Some(Box::new(sink));
        self
    }

    /// Meets the other ranks and agrees with them. `None`: no rank has enabled collection, and
    /// nothing was allocated or started.
    ///
    /// # Errors
    ///
    /// - a setting cannot be used
    /// - the counters cannot be allocated, here or on another rank
    /// - the ranks disagree, or not all came in time
    pub fn build(self) -> Result<Option<Diagnose>, DiagnoseError> {
        let membership = self.group.membership().clone();
        let stop = Stop::new();
        let until = Until::after(self.join_timeout, &stop);
        if !self.config.enabled {
            let joined = self.group.join(&Proposal::default(), until)?;
            // With one rank enabled this is an error, so nobody has a group here.
            drop(joined);
            return Ok(None);
        }
        let plan = Plan::new(&self.config, membership.size(), self.counters);
        let memory = plan.as_ref().ok().map(|plan| (self.allocate)(plan.vector_len));
        let background = match self.config.mode {
            Mode::Asynchronous => self.group.check_background(),
            Mode::Synchronous => Ok(()),
        };
        // The root alone uses it; that this build has none is an error on all.
        let sink = match self.sink {
            Some(sink) => Ok(Some(sink)),
            None => artifacts(&self.config),
        };
        let trouble = [
            self.config.validate().err().map(|error| error.to_string()),
            memory.as_ref().and_then(|memory| memory.as_ref().err()).map(ToString::to_string),
            background.as_ref().err().map(ToString::to_string),
            sink.as_ref().err().map(ToString::to_string),
        ];
        let trouble = trouble.into_iter().flatten().next();
        let identity = memory.as_ref().and_then(|memory| memory.as_ref().ok());
        let proposal = Proposal {
            enabled: true,
            vector_len: plan.as_ref().map_or(0, |plan| plan.vector_len),
            settings: settings(&self.config, self.counters, trouble),
            identity: identity.map(|memory| memory.identity()).unwrap_or_default(),
        };
        // Also when the memory is not there: the others must not wait for this rank.
        let joined = self.group.join(&proposal, until);
        let plan = plan?;
        background?;
        let sink = sink?.filter(|_| membership.is_root());
        let Some(memory) = memory.transpose()? else { return Ok(None) };
        let Some(Joined { instance, gather }) = joined? else { return Ok(None) };
        let asynchronous = self.config.mode == Mode::Asynchronous;
        let timeout = self.round_timeout.unwrap_or_else(|| {
            let most = if asynchronous { self.config.interval / 2 } else { ROUND_TIMEOUT };
            most.clamp(Duration::from_millis(100), ROUND_TIMEOUT)
        });
        let mut collector =
            Collector::new(Arc::clone(&memory), gather, &plan.channels(asynchronous), timeout)?;
        let trigger = self.triggered.then(|| Trigger::new(Arc::clone(&memory)));
        if let Some(trigger) = &trigger {
            collector = collector.with_trigger(trigger.clone());
        }
        let health = Arc::new(Mutex::new(Health::default()));
        let session = Session::new(Beginning {
            config: &self.config,
            membership: &membership,
            topology: plan.topology,
            instance,
            normal: self.counters.normal(),
            low_latency: self.counters.low_latency(),
            callback: self.callback,
            sink,
            health: Arc::clone(&health),
        })?;
        Ok(Some(Diagnose {
            memory,
            config: self.config,
            counters: self.counters,
            topology: plan.topology,
            membership,
            instance,
            trigger,
            health,
            state: State::Ready(Box::new((collector, session))),
        }))
    }
}

/// Where the counters stand in the one allocation: Normal first.
struct Plan {
    topology: Topology,
    normal_len: usize,
    vector_len: usize,
}

impl Plan {
    fn new(config: &Config, ep_size: usize, counters: Counters) -> Result<Self, DiagnoseError> {
        config.validate()?;
        let topology = Topology::new(ep_size, config.ranks_per_node)?;
        let normal_len = if counters.normal() { Layout::of(topology).vector_len() } else { 0 };
        let ll = LlLayout::new(ep_size).map(LlLayout::vector_len).unwrap_or_default();
        let ll_len = if counters.low_latency() { ll } else { 0 };
        Ok(Self { topology, normal_len, vector_len: normal_len + ll_len })
    }

    /// All counters, Normal-mode counters, low-latency counters. Only channels that are used have
    /// room.
    fn channels(&self, asynchronous: bool) -> [Range<usize>; 3] {
        let (normal, whole) = (self.normal_len, self.vector_len);
        if asynchronous { [0..whole, 0..0, 0..0] } else { [0..0, 0..normal, normal..whole] }
    }
}

/// Tells the other ranks, who would wait for this one, that its environment cannot be used.
pub(super) fn give_up(group: Box<dyn Group>, error: ConfigError) -> DiagnoseError {
    let settings = settings(&Config::default(), Counters::Both, Some(error.to_string()));
    let proposal = Proposal { enabled: true, settings, ..Proposal::default() };
    let stop = Stop::new();
    // Its own error is the one to report.
    let _ = group.join(&proposal, Until::after(JOIN_TIMEOUT, &stop));
    error.into()
}

/// What the ranks must agree on. A rank that cannot take part says so here, and why.
fn settings(config: &Config, counters: Counters, trouble: Option<String>) -> Vec<(String, String)> {
    let ready = trouble.map_or("yes".to_owned(), |trouble| format!("no, {trouble}"));
    let mut settings = config.settings();
    settings.push(("counters".to_owned(), counters.name().to_owned()));
    settings.push((READY.to_owned(), ready));
    settings
}
