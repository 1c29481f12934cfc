//! What was seen: per phase, beside what was expected, and beside the baseline.

use std::fs::File;

use deepxtrace::counters::{CompletionProbe, Layout, NotifyProbe, Snapshot, Topology, Window};
use deepxtrace::normal::{Incident, WindowDiagnosis};
use deepxtrace_npz::Writer;
use serde_json::{Value, json};

use crate::Failure;
use crate::options::Options;
use crate::phases::{Expected, Phase};

/// Figures of one window.
#[derive(Debug, Clone, Copy, Default)]
struct Figures {
    /// The late rank's Notify average over the median of the others', by probe.
    notify: [f64; 3],
    /// The median cost of a cell, cycles, by probe: all cells, and the inter-node ones.
    cost: [f64; 3],
    far: [f64; 3],
}

struct PhaseRecord {
    phase: Phase,
    first_window: u64,
    figures: Vec<Figures>,
    as_expected: usize,
    /// What was said otherwise.
    deviations: Vec<String>,
    ms_per_round: f64,
    /// The host's time to enqueue a round of one GPU.
    enqueue_us: f64,
}

/// The record of one run.
pub struct Record {
    topology: Topology,
    last: Snapshot,
    counters: Vec<i64>,
    timestamps: Vec<i64>,
    phases: Vec<PhaseRecord>,
}

impl Record {
    pub fn new(options: &Options) -> Result<Self, Failure> {
        let topology = Topology::new(options.ranks(), options.ranks_per_node as usize)?;
        // The boundary; later snapshots are its sum with the windows.
        let last = Snapshot::zeros(topology, 0);
        let counters = last.counters().to_vec();
        Ok(Self { topology, last, counters, timestamps: Vec::new(), phases: Vec::new() })
    }

    /// Adds the window to the last snapshot.
    fn snapshot(&mut self, window: &Window) {
        if self.timestamps.is_empty() {
            self.timestamps.push(window.begin_unix_ns());
        }
        self.timestamps.push(window.end_unix_ns());
        let layout = Layout::of(self.topology);
        for rank in 0..self.topology.ep_size() {
            let Some(vector) = self.last.vector_mut(rank) else { continue };
            for probe in NotifyProbe::ALL {
                let delta = window.notify(probe);
                vector[layout.duration_ns(probe)] += delta.duration_ns[rank];
                vector[layout.count(probe)] += delta.count[rank];
            }
            for probe in CompletionProbe::ALL {
                let delta = window.completion(probe);
                let parts = [
                    (layout.cost(probe), &delta.cost),
                    (layout.samples(probe), &delta.samples),
                    (layout.tokens(probe), &delta.tokens),
                ];
                for (range, matrix) in parts {
                    for (counter, value) in vector[range].iter_mut().zip(matrix.column(rank)) {
                        *counter += value;
                    }
                }
            }
        }
        self.counters.extend_from_slice(self.last.counters());
    }

    pub fn begin(&mut self, phase: &Phase) {
        self.phases.push(PhaseRecord {
            phase: phase.clone(),
            first_window: self.timestamps.len().max(1) as u64,
            figures: Vec::new(),
            as_expected: 0,
            deviations: Vec::new(),
            ms_per_round: 0.0,
            enqueue_us: 0.0,
        });
    }

    pub fn window(&mut self, window: Option<&Window>, diagnosis: &WindowDiagnosis) {
        let Some(window) = window else {
            eprintln!("window {} was refused: {:?}", diagnosis.window_index, diagnosis.reason);
            return;
        };
        self.snapshot(window);
        let Some(record) = self.phases.last_mut() else { return };
        let last = record.figures.len() + 1 == record.phase.windows;
        record.figures.push(figures(window, record.phase.expected.late_rank()));
        if record.phase.expected.fits(&diagnosis.incidents, last) {
            record.as_expected += 1;
        } else {
            let incidents = serde_json::to_string(&diagnosis.incidents).unwrap_or_default();
            let findings: Vec<String> = diagnosis
                .probes
                .iter()
                .flat_map(|(probe, report)| {
                    report.findings.iter().map(move |finding| format!("{probe}: {finding}"))
                })
                .collect();
            let index = diagnosis.window_index;
            record.deviations.push(format!("window {index}: {incidents} from {findings:?}"));
        }
    }

    pub fn end(&mut self, ms_per_round: f64, enqueue_us: f64) {
        if let Some(record) = self.phases.last_mut() {
            (record.ms_per_round, record.enqueue_us) = (ms_per_round, enqueue_us);
        }
    }

    /// Prints the table and writes the files; whether every phase came out in 95 % of its windows
    /// and no baseline window has an incident.
    pub fn finish(&self, options: &Options, run: usize) -> Result<bool, Failure> {
        println!("run {run}:");
        println!(
            "{:<22} {:>9} {:>8}  {:>20}  {:>20}  {:>20}",
            "phase",
            "as exp.",
            "ms/round",
            "notify ratios",
            "median cost / base",
            "inter-node / base"
        );
        let base = self.phases.first().map(|base| median_figures(&base.figures));
        let base = base.unwrap_or_default();
        let mut fine = true;
        for record in &self.phases {
            let middle = median_figures(&record.figures);
            let over = |value: [f64; 3], base: [f64; 3]| {
                let ratios = value.iter().zip(base).map(|(value, base)| value / base);
                ratios.map(|ratio| format!("{ratio:6.3}")).collect::<Vec<_>>().join(" ")
            };
            println!(
                "{:<22} {:>4}/{:<4} {:>8.3}  {:>20}  {:>20}  {:>20}",
                record.phase.name,
                record.as_expected,
                record.figures.len(),
                record.ms_per_round,
                over(middle.notify, [1.0; 3]),
                over(middle.cost, base.cost),
                over(middle.far, base.far),
            );
            for deviation in record.deviations.iter().take(3) {
                println!("    {deviation}");
            }
            let strict = record.phase.name.starts_with("baseline");
            let enough = if strict { 1.0 } else { 0.95 };
            fine &= record.as_expected as f64 >= enough * record.figures.len() as f64;
        }
        println!(
            "baseline cost of a sample, cycles: {:.0?}, inter-node {:.0?}",
            base.cost, base.far
        );
        if let Some(folder) = &options.out {
            std::fs::create_dir_all(folder)?;
            let name = folder.join(format!("five_phases_run{run}"));
            self.write(&name.with_extension("npz"))?;
            std::fs::write(name.with_extension("json"), self.about(options).to_string())?;
        }
        Ok(fine)
    }

    /// The snapshots file that `deepxtrace normal analyze` reads.
    fn write(&self, path: &std::path::Path) -> Result<(), Failure> {
        let (ranks, snapshots) = (self.topology.ep_size(), self.timestamps.len());
        let each = self.counters.len() / (ranks * snapshots).max(1);
        let mut writer = Writer::new(File::create(path)?);
        writer.array("counters", &[snapshots, ranks, each], &self.counters[..])?;
        writer.array("timestamps_unix_ns", &[snapshots], &self.timestamps[..])?;
        let per_node = [self.topology.ranks_per_node() as i64];
        writer.array("ranks_per_node", &[], &per_node[..])?;
        writer.finish()?;
        Ok(())
    }

    fn about(&self, options: &Options) -> Value {
        let phases: Vec<Value> = self
            .phases
            .iter()
            .map(|record| {
                json!({
                    "phase": record.phase.name,
                    "what": record.phase.what,
                    "first_window": record.first_window,
                    "windows": record.figures.len(),
                    "as_expected": record.as_expected,
                    "expected": format!("{:?}", record.phase.expected),
                    "ms_per_round": record.ms_per_round,
                })
            })
            .collect();
        json!({ "options": format!("{options:?}"), "phases": phases })
    }
}

impl Expected {
    fn late_rank(&self) -> usize {
        match self {
            Self::Late(_, rank) => *rank,
            _ => 9,
        }
    }

    /// Whether these are the incidents of a window of the phase.
    fn fits(&self, incidents: &[Incident], last: bool) -> bool {
        match self {
            Self::Nothing => incidents.is_empty(),
            Self::Late(probes, rank) => {
                incidents.len() == probes.len()
                    && incidents.iter().all(|incident| match incident {
                        Incident::PreStageArrivalSkew { probe, ranks } => {
                            probes.contains(&probe.name()) && ranks == &[*rank]
                        }
                        _ => false,
                    })
            }
            Self::Global => matches!(incidents, [Incident::GlobalDataPathSlowdown { .. }]),
            Self::GlobalAtLast => {
                !last || matches!(incidents, [Incident::GlobalDataPathSlowdown { .. }])
            }
            Self::Owners(wanted) => match incidents {
                [Incident::LocalizedDataPathSlowdown { owners, .. }] => owners == wanted,
                _ => false,
            },
            Self::Rail(rail) => match incidents {
                [Incident::LocalizedDataPathSlowdown { rails, .. }] => rails.contains(rail),
                _ => false,
            },
            Self::Localized => matches!(incidents, [Incident::LocalizedDataPathSlowdown { .. }]),
            Self::Unclassified => matches!(incidents, [Incident::Unclassified { .. }]),
        }
    }
}

fn median(values: &mut [f64]) -> f64 {
    deepxtrace::normal::robust::median(values).unwrap_or(f64::NAN)
}

fn figures(window: &Window, late: usize) -> Figures {
    let topology = window.topology();
    let mut figures = Figures::default();
    for (probe, into) in NotifyProbe::ALL.into_iter().zip(&mut figures.notify) {
        let delta = window.notify(probe);
        let average = |rank: usize| delta.duration_ns[rank] as f64 / delta.count[rank] as f64;
        let others = (0..topology.ep_size()).filter(|&rank| rank != late);
        *into = average(late) / median(&mut others.map(average).collect::<Vec<_>>());
    }
    for (i, probe) in CompletionProbe::ALL.into_iter().enumerate() {
        let delta = window.completion(probe);
        let (mut all, mut far) = (Vec::new(), Vec::new());
        for ((source, destination), &samples) in delta.samples.indexed_iter() {
            if samples == 0 || source == destination {
                continue;
            }
            let cost = delta.cost[[source, destination]] as f64 / samples as f64;
            all.push(cost);
            if !topology.same_node(source, destination) {
                far.push(cost);
            }
        }
        (figures.cost[i], figures.far[i]) = (median(&mut all), median(&mut far));
    }
    figures
}

/// The median over windows of every figure.
fn median_figures(windows: &[Figures]) -> Figures {
    let of = |get: fn(&Figures) -> [f64; 3]| {
        std::array::from_fn(|i| median(&mut windows.iter().map(|w| get(w)[i]).collect::<Vec<_>>()))
    };
    Figures { notify: of(|w| w.notify), cost: of(|w| w.cost), far: of(|w| w.far) }
}
