//! A job and its counters.

use deepxtrace_counters::{CompletionProbe, Layout, NotifyProbe, Snapshot};

use crate::arrival::{Arrivals, Waits};
use crate::config::{ConfigError, WorkloadConfig};
use crate::effects::Effects;
use crate::fault::{Fault, FaultError, Stage};
use crate::path::{Cell, Costs, Sampling};
use crate::random::{Purpose, Stream};
use crate::routing::{self, Routing};

/// When a job begins, ns since 1970.
const START_UNIX_NS: i64 = 1_750_000_000_000_000_000;
/// Length of an idle window, ns.
const IDLE_NS: f64 = 1e9;
/// Cycles of the GPU clock in one ns.
const CYCLES_PER_NS: f64 = 1.98;

/// A simulated job: the cumulative counters of all its ranks, and what advances them.
///
/// A stage takes a rank as long as its average sample costs, without load and noise: how full its
/// experts are does not make a rank late, a slow path into it does.
#[derive(Debug, Clone)]
pub struct Workload {
    config: WorkloadConfig,
    seed: u64,
    window: u64,
    routing: Routing,
    dispatch: Costs,
    gateway: Costs,
    combine: Costs,
    arrivals: Arrivals,
    effects: Effects,
    snapshot: Snapshot,
    node_of: Vec<usize>,
    /// Tokens of the window, `[owner, expert rank]`.
    tokens: Vec<u32>,
    /// The same, `[expert rank, owner]`.
    received: Vec<u32>,
    /// How long dispatch and combine take each rank, ns.
    stage_ns: [Vec<f64>; 2],
}

impl Workload {
    /// A healthy job that has not run yet: all counters are 0.
    ///
    /// # Errors
    ///
    /// A field of `config` is out of range.
    pub fn new(config: WorkloadConfig, seed: u64) -> Result<Self, ConfigError> {
        config.validate()?;
        let n = config.topology.ep_size();
        Ok(Self {
            seed,
            window: 0,
            routing: Routing::new(&config, seed),
            dispatch: Costs::dispatch(&config, seed),
            gateway: Costs::gateway(&config, seed),
            combine: Costs::combine(&config, seed),
            arrivals: Arrivals::new(&config, seed),
            effects: Effects::none(config.topology),
            snapshot: Snapshot::zeros(config.topology, START_UNIX_NS),
            node_of: routing::nodes_of(config.topology),
            tokens: vec![0; n * n],
            received: vec![0; n * n],
            stage_ns: [vec![0.0; n], vec![0.0; n]],
            config,
        })
    }

    /// The job.
    #[must_use]
    pub fn config(&self) -> &WorkloadConfig {
        &self.config
    }

    /// Sets the faults of the windows from here on, in place of those before. None: healthy again.
    ///
    /// # Errors
    ///
    /// A fault names a place that does not exist or a factor that makes no sense; the faults stay
    /// as they were.
    pub fn phase(&mut self, faults: impl IntoIterator<Item = Fault>) -> Result<(), FaultError> {
        let mut effects = Effects::none(self.config.topology);
        for fault in faults {
            fault.validate(self.config.topology)?;
            effects.add(&fault, self.config.topology);
        }
        self.effects = effects;
        Ok(())
    }

    /// The cumulative counters of all ranks as they are now, and whose snapshot arrived.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Copies the snapshot into one of the same group, without allocating.
    pub fn snapshot_into(&self, out: &mut Snapshot) {
        if out.topology() != self.snapshot.topology() {
            *out = self.snapshot.clone();
            return;
        }
        out.set_timestamp_unix_ns(self.snapshot.timestamp_unix_ns());
        out.counters_mut().copy_from_slice(self.snapshot.counters());
        for (rank, &present) in self.snapshot.present().iter().enumerate() {
            out.set_present(rank, present);
        }
    }

    /// Runs one window; gives the cumulative counters at its end.
    pub fn run_window(&mut self) -> &Snapshot {
        self.window += 1;
        if self.effects.idle {
            self.arrivals.idle(IDLE_NS);
        } else {
            self.work();
        }
        // Far below 2^53 ns for any number of windows that anyone simulates.
        let passed = self.arrivals.clock_ns() as i64;
        self.snapshot.set_timestamp_unix_ns(START_UNIX_NS.saturating_add(passed));
        for (rank, &missing) in self.effects.missing.iter().enumerate() {
            self.snapshot.set_present(rank, !missing);
        }
        &self.snapshot
    }

    fn work(&mut self) {
        let stream = (self.seed, self.window);
        routing::fill_tokens(
            &self.config,
            &self.routing,
            &self.effects.without_tokens,
            stream,
            &mut self.tokens,
        );
        routing::transpose(&self.tokens, self.config.topology.ep_size(), &mut self.received);
        let usual_load = self.routing.usual_load(&self.config);
        let dispatch = Sampling::new(&self.config, Stage::Dispatch, usual_load);
        let combine = Sampling::new(&self.config, Stage::Combine, usual_load);
        let mut costs = vec![0.0; self.config.topology.ep_size()];
        for rank in 0..self.config.topology.ep_size() {
            self.restart(rank);
            let mut stream = Stream::new(self.seed, Purpose::Costs, self.window, rank);
            self.receive_tokens(rank, &dispatch, &mut costs, &mut stream);
            self.receive_at_gateway(rank, &mut stream);
            self.receive_results(rank, &combine, &mut costs, &mut stream);
        }
        let [dispatch, combine] = &self.stage_ns;
        let stages = [&dispatch[..], &combine[..]];
        let waits = self.arrivals.run(&self.config, &self.effects, stages, stream);
        self.add_waits(&waits);
    }

    fn restart(&mut self, rank: usize) {
        let restarted = self.effects.restarted[rank];
        if let Some(vector) = self.snapshot.vector_mut(rank).filter(|_| restarted) {
            vector.fill(0);
        }
    }

    fn receive_tokens(
        &mut self,
        rank: usize,
        sampling: &Sampling,
        costs: &mut [f64],
        stream: &mut Stream,
    ) {
        let effects = &self.effects.dispatch;
        self.dispatch.column(Stage::Dispatch, effects, &self.node_of, rank, costs);
        self.stage_ns[0][rank] = mean_ns(costs);
        let n = costs.len();
        let mut adder = self.adder(rank, CompletionProbe::DispatchFinal);
        for (src, &cost) in costs.iter().enumerate() {
            let tokens = self.received[rank * n + src];
            adder.add(src, sampling.cell(cost, tokens, stream), &mut self.snapshot);
        }
    }

    fn receive_results(
        &mut self,
        rank: usize,
        sampling: &Sampling,
        costs: &mut [f64],
        stream: &mut Stream,
    ) {
        let effects = &self.effects.combine;
        self.combine.column(Stage::Combine, effects, &self.node_of, rank, costs);
        self.stage_ns[1][rank] = mean_ns(costs);
        let n = costs.len();
        let mut adder = self.adder(rank, CompletionProbe::CombineLogicalRecv);
        for (src, &cost) in costs.iter().enumerate() {
            // Results come back from where the tokens went.
            let tokens = self.tokens[rank * n + src];
            adder.add(src, sampling.cell(cost, tokens, stream), &mut self.snapshot);
        }
    }

    /// Tokens reach a node through the rank with the local index of their owner.
    fn receive_at_gateway(&mut self, rank: usize, stream: &mut Stream) {
        let topology = self.config.topology;
        let (node, nodes) = (self.node_of[rank], topology.nodes());
        let usual = f64::from(self.config.tokens) * self.routing.to_node[node];
        let usual_load = (usual / f64::from(self.config.channels)).max(1.0);
        let sampling = Sampling::new(&self.config, Stage::Dispatch, usual_load);
        let mut adder = self.adder(rank, CompletionProbe::DispatchRdmaRecv);
        for src_node in (0..nodes).filter(|&other| other != node) {
            let Some(src) = topology.gateway_proxy(src_node, rank) else { continue };
            let tokens = routing::node_tokens(&self.config, &self.routing, node, stream);
            let idle = self.effects.without_tokens[src];
            let cost = self.gateway.edge(src, rank) + self.effects.gateway[src * nodes + node];
            let cell = sampling.cell(cost, if idle { 0 } else { tokens }, stream);
            adder.add(src, cell, &mut self.snapshot);
        }
    }

    fn add_waits(&mut self, waits: &Waits) {
        let layout = Layout::of(self.config.topology);
        for rank in 0..self.config.topology.ep_size() {
            let halved = self.effects.restarted[rank];
            let Some(vector) = self.snapshot.vector_mut(rank) else { continue };
            for probe in NotifyProbe::ALL {
                let (duration, count) = (layout.duration_ns(probe), layout.count(probe));
                // Whole ns; the cast keeps the value in range.
                let waited = waits.duration_ns[probe as usize][rank].round() as i64;
                vector[duration] = vector[duration].saturating_add(half(waited, halved));
                vector[count] =
                    vector[count].saturating_add(half(waits.count[probe as usize], halved));
            }
        }
    }

    fn adder(&self, rank: usize, probe: CompletionProbe) -> Adder {
        let layout = Layout::of(self.config.topology);
        let start = rank * layout.vector_len();
        Adder {
            cost: start + layout.cost(probe).start,
            samples: start + layout.samples(probe).start,
            tokens: start + layout.tokens(probe).start,
            halved: self.effects.restarted[rank],
        }
    }
}

/// Adds cells to the counters of one rank.
struct Adder {
    cost: usize,
    samples: usize,
    tokens: usize,
    /// The rank was restarted in the middle of the window.
    halved: bool,
}

impl Adder {
    fn add(&mut self, src: usize, cell: Cell, snapshot: &mut Snapshot) {
        let counters = snapshot.counters_mut();
        for (offset, value) in
            [(self.cost, cell.cost), (self.samples, cell.samples), (self.tokens, cell.tokens)]
        {
            let counter = &mut counters[offset + src];
            *counter = counter.saturating_add(half(value, self.halved));
        }
    }
}

fn half(value: i64, halved: bool) -> i64 {
    if halved { value / 2 } else { value }
}

/// The average sample of a rank, ns.
fn mean_ns(costs: &[f64]) -> f64 {
    costs.iter().map(|cost| cost.exp()).sum::<f64>() / costs.len() as f64 / CYCLES_PER_NS
}
