//! What must hold for any window.

use std::collections::BTreeMap;

use deepxtrace_counters::{
    CompletionProbe, NotifyProbe, Probe, Snapshot, Topology, Window, Windows,
};
use deepxtrace_normal::{Diagnoser, Finding, PathScope, Policy, WindowDiagnosis, WindowState};
use proptest::prelude::*;

use crate::build::{
    CombineLogicalRecv, DispatchFinal, SAMPLES, diagnoser, is_edge, set_cells, topology,
};

/// A small generator, so that a window is one number to shrink.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn below(&mut self, n: usize) -> usize {
        (self.unit() * n as f64) as usize
    }

    /// About normal, of variance 1.
    fn normal(&mut self) -> f64 {
        ((0..4).map(|_| self.unit()).sum::<f64>() - 2.0) * 3_f64.sqrt()
    }
}

/// A window with noise, faults of any kind, hot experts, cells without samples and late ranks.
fn random_window(topology: Topology, seed: u64) -> Window {
    let mut random = Random(seed);
    let n = topology.ep_size();
    let mut window = Window::empty(topology);
    window.set_place(1, 0, 1_000_000_000);
    for probe in NotifyProbe::ALL {
        window.edit_notify(probe, |delta| {
            for rank in 0..n {
                delta.count[rank] = 64;
                let late = if random.unit() < 0.1 { 0.05 } else { 1.0 };
                delta.duration_ns[rank] = (6.4e6 * late * (0.8 + 0.4 * random.unit())) as i64;
            }
        });
    }
    for probe in CompletionProbe::ALL {
        let noise = [0.0, 0.02, 0.15][random.below(3)];
        // With the larger costs a slow column makes up for lateness.
        let base = [1_000.0, 60_000.0][random.below(2)];
        let empty = [0.0, 0.3][random.below(2)];
        let (row, column) = (random.below(n), random.below(n));
        let factors =
            [1.0 + 2.0 * random.unit(), 1.0 + 2.0 * random.unit(), 1.0 + 4.0 * random.unit()];
        let cells: Vec<(f64, f64)> = (0..n * n)
            .map(|at| {
                let (s, d) = (at / n, at % n);
                let level = if topology.same_node(s, d) { base } else { 5.0 * base };
                let mut cost = level * (noise * random.normal()).exp();
                if s == row {
                    cost *= factors[0];
                }
                if d == column && !topology.same_node(s, d) {
                    cost *= factors[1];
                }
                if (s, d) == (column, row) {
                    cost *= factors[2];
                }
                let tokens = 10.0 * (1.0 + 3.0 * random.unit());
                let sparse = probe == CompletionProbe::DispatchRdmaRecv && !is_edge(topology, s, d);
                if sparse || random.unit() < empty { (0.0, 0.0) } else { (cost, tokens) }
            })
            .collect();
        set_cells(&mut window, probe, |s, d| cells[s * n + d]);
    }
    window
}

/// The place of a finding, and its numbers: ratio, score (or 0) and cost.
fn place(finding: &Finding) -> (String, [f64; 3]) {
    let json = serde_json::to_value(finding).unwrap();
    let mut object = json.as_object().unwrap().clone();
    for number in ["ratio", "score", "excess_cycles", "excess_ns"] {
        object.remove(number);
    }
    let score = json.get("score").map_or(0.0, |score| score.as_f64().unwrap());
    (serde_json::Value::Object(object).to_string(), [finding.ratio(), score, finding.excess()])
}

type Places = BTreeMap<(Probe, String), [f64; 3]>;

fn places(diagnosis: &WindowDiagnosis) -> Places {
    assert_eq!(diagnosis.state, WindowState::Diagnosed);
    let all = diagnosis.probes.iter().flat_map(|(probe, report)| {
        report.findings.iter().map(move |finding| {
            let (place, numbers) = place(finding);
            ((probe, place), numbers)
        })
    });
    all.collect()
}

/// Findings at the same places, with the same ratio and score, and `factor` times the cost.
fn assert_same(ours: &Places, expected: &Places, factor: f64) -> Result<(), TestCaseError> {
    prop_assert_eq!(ours.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (key, numbers) in ours {
        let [ratio, score, excess] = expected[key];
        for (a, b) in numbers.iter().zip([ratio, score, factor * excess]) {
            prop_assert!((a - b).abs() <= 1e-6 * b.abs().max(1e-3), "{:?}: {} and {}", key, a, b);
        }
    }
    Ok(())
}

type Explanations = BTreeMap<(NotifyProbe, usize), Option<CompletionProbe>>;

/// The late ranks of a first window, and what explains them.
fn explanations(window: &Window) -> Explanations {
    let mut diagnoser = diagnoser(window.topology());
    let diagnosis = diagnoser.diagnose(window);
    let late = NotifyProbe::ALL.into_iter().flat_map(|probe| {
        let findings = &diagnosis.probes.get(probe).unwrap().findings;
        findings.iter().map(move |finding| match *finding {
            Finding::LateRank { rank, explained_by, .. } => ((probe, rank), explained_by),
            ref other => panic!("{other}"),
        })
    });
    late.collect()
}

fn shapes() -> impl Strategy<Value = (usize, usize)> {
    prop_oneof![
        Just((4, 8)),
        Just((8, 4)),
        Just((9, 3)),
        Just((12, 4)),
        Just((16, 8)),
        Just((20, 5)),
        Just((24, 8))
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn permuting_local_indices_in_every_node_permutes_the_findings(
        (ep_size, per_node) in shapes(),
        seed in any::<u64>(),
        turn in 1..8_usize,
    ) {
        let topology = topology(ep_size, per_node);
        let size = per_node.min(ep_size);
        let turned = |rank: usize| topology.node(rank) * per_node + (rank % per_node + turn) % size;
        let window = random_window(topology, seed);
        let mut permuted = Window::empty(topology);
        for probe in NotifyProbe::ALL {
            permuted.edit_notify(probe, |delta| {
                for rank in 0..ep_size {
                    delta.duration_ns[turned(rank)] = window.notify(probe).duration_ns[rank];
                    delta.count[turned(rank)] = window.notify(probe).count[rank];
                }
            });
        }
        for probe in CompletionProbe::ALL {
            let from = window.completion(probe);
            permuted.edit_completion(probe, |delta| {
                for ((s, d), &cost) in from.cost.indexed_iter() {
                    let to = [turned(s), turned(d)];
                    delta.cost[to] = cost;
                    delta.samples[to] = from.samples[[s, d]];
                    delta.tokens[to] = from.tokens[[s, d]];
                }
            });
        }
        let map = |finding: &Finding| {
            let mut finding = finding.clone();
            match &mut finding {
                Finding::LateRank { rank, .. }
                | Finding::SourceRow { rank, .. }
                | Finding::DestinationColumn { rank, .. }
                | Finding::SourceGateway { rank, .. }
                | Finding::DestinationGateway { rank, .. } => *rank = turned(*rank),
                Finding::Rail { local_index, .. } => *local_index = (*local_index + turn) % size,
                Finding::Point { src, dst, .. } | Finding::GatewayEdge { src, dst, .. } => {
                    (*src, *dst) = (turned(*src), turned(*dst));
                }
                _ => {}
            }
            finding
        };
        let original = diagnoser(topology).diagnose(&window).clone();
        let expected: Places = original
            .probes
            .iter()
            .flat_map(|(probe, report)| {
                report.findings.iter().map(move |finding| {
                    let (place, numbers) = place(&map(finding));
                    ((probe, place), numbers)
                })
            })
            .collect();
        let ours = diagnoser(topology).diagnose(&permuted).clone();
        assert_same(&places(&ours), &expected, 1.0)?;
        let kinds = |diagnosis: &WindowDiagnosis| {
            diagnosis.incidents.iter().map(|incident| incident.kind()).collect::<Vec<_>>()
        };
        prop_assert_eq!(kinds(&ours), kinds(&original));
    }

    #[test]
    fn scaling_all_costs_changes_only_the_level_and_the_cost_of_findings(
        (ep_size, per_node) in shapes(),
        seed in any::<u64>(),
        factor in 2..1_000_i64,
    ) {
        let topology = topology(ep_size, per_node);
        let window = random_window(topology, seed);
        let mut scaled = window.clone();
        for probe in CompletionProbe::ALL {
            scaled.edit_completion(probe, |delta| delta.cost *= factor);
        }
        for probe in NotifyProbe::ALL {
            scaled.edit_notify(probe, |delta| delta.duration_ns.iter_mut().for_each(|ns| *ns *= factor));
        }
        let original = diagnoser(topology).diagnose(&window).clone();
        let ours = diagnoser(topology).diagnose(&scaled).clone();
        assert_same(&places(&ours), &places(&original), factor as f64)?;
        for probe in CompletionProbe::ALL {
            let scalar = |diagnosis: &WindowDiagnosis| {
                diagnosis.probes.get(probe).unwrap().level.unwrap().scalar
            };
            match (scalar(&ours), scalar(&original)) {
                (Some(a), Some(b)) => {
                    prop_assert!((a / b / factor as f64 - 1.0).abs() < 1e-9);
                }
                (a, b) => prop_assert_eq!(a, b),
            }
        }
        prop_assert_eq!(ours.incidents.len(), original.incidents.len());
    }

    #[test]
    fn more_lateness_is_explained_less_and_more_cost_more(
        (ep_size, per_node) in shapes(),
        seed in any::<u64>(),
        factor in 2..1_000_i64,
    ) {
        let topology = topology(ep_size, per_node);
        let window = random_window(topology, seed);
        let (mut later, mut costlier) = (window.clone(), window.clone());
        for probe in NotifyProbe::ALL {
            later.edit_notify(probe, |delta| delta.duration_ns.iter_mut().for_each(|ns| *ns *= factor));
        }
        for probe in CompletionProbe::ALL {
            costlier.edit_completion(probe, |delta| delta.cost *= factor);
        }
        let [before, later, costlier] = [&window, &later, &costlier].map(explanations);
        let all = |map: &Explanations| map.keys().copied().collect::<Vec<_>>();
        prop_assert_eq!(all(&later), all(&before));
        prop_assert_eq!(all(&costlier), all(&before));
        for (key, by) in before {
            let upstream = if key.0 == NotifyProbe::CachedNotifyCombine {
                DispatchFinal
            } else {
                CombineLogicalRecv
            };
            prop_assert!(by.is_none() || by == Some(upstream));
            prop_assert!(later[&key].is_none() || by.is_some());
            prop_assert!(by.is_none() || costlier[&key].is_some());
        }
    }

    #[test]
    fn a_factor_on_every_token_count_changes_no_finding_of_a_first_window(
        (ep_size, per_node) in shapes(),
        seed in any::<u64>(),
        factor in 2..1_000_i64,
    ) {
        let topology = topology(ep_size, per_node);
        let window = random_window(topology, seed);
        let mut more = window.clone();
        for probe in CompletionProbe::ALL {
            more.edit_completion(probe, |delta| delta.tokens *= factor);
        }
        let original = diagnoser(topology).diagnose(&window).clone();
        let ours = diagnoser(topology).diagnose(&more).clone();
        assert_same(&places(&ours), &places(&original), 1.0)?;
        prop_assert_eq!(&ours.incidents, &original.incidents);
    }

    #[test]
    fn costs_that_grow_with_tokens_have_the_findings_of_costs_that_do_not(
        seed in any::<u64>(),
        exponent in 0.0..1.0_f64,
        owner in 0..24_usize,
        factor in 1.8..3.0_f64,
    ) {
        let topology = topology(24, 8);
        let mut random = Random(seed);
        let heat: Vec<f64> = (0..24).map(|_| 10.0 * (0.5 + 4.0 * random.unit())).collect();
        let noise: Vec<f64> = (0..24 * 24).map(|_| (0.02 * random.normal()).exp()).collect();
        let found = |exponent: f64| {
            let mut window = Window::empty(topology);
            for (probe, combine) in [(DispatchFinal, false), (CombineLogicalRecv, true)] {
                set_cells(&mut window, probe, |s, d| {
                    let (owner_of, expert) = if combine { (d, s) } else { (s, d) };
                    let level = if topology.same_node(s, d) { 2_000.0 } else { 10_000.0 };
                    let slow = if owner_of == owner { factor } else { 1.0 };
                    let tokens = heat[expert] * (1.0 + 0.1 * ((s + d) % 3) as f64);
                    (level * slow * noise[s * 24 + d] * (tokens / 10.0).powf(exponent), tokens)
                });
            }
            let diagnosis = diagnoser(topology).diagnose(&window).clone();
            let keys: Vec<_> = places(&diagnosis).into_keys().collect();
            (keys, diagnosis.incidents.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let flat = found(0.0);
        prop_assert_eq!(flat.0.len(), 2);
        prop_assert_eq!(&flat.1, &[format!("localized_data_path_slowdown owners {owner}")]);
        prop_assert_eq!(found(exponent), flat);
    }

    #[test]
    fn receivers_that_are_full_above_a_load_are_not_slow_columns(
        seed in any::<u64>(),
        skew in 0.3..0.5_f64,
        full_at in 0.97..1.03_f64,
        slow in 0..24_usize,
        factor in 1.6..3.0_f64,
    ) {
        // Loads around 1 without a gap; flat, then in proportion to load. And one column slower.
        let topology = topology(24, 8);
        let mut random = Random(seed);
        let mut heat: Vec<f64> = (0..24).map(|i| (skew * (f64::from(i) - 11.5) / 5.0).exp()).collect();
        for i in (1..24).rev() {
            heat.swap(i, random.below(i + 1));
        }
        let noise: Vec<f64> = (0..24 * 24).map(|_| (0.02 * random.normal()).exp()).collect();
        let columns = |factor: f64| {
            let mut window = Window::empty(topology);
            set_cells(&mut window, DispatchFinal, |s, d| {
                let level = if topology.same_node(s, d) { 20_000.0 } else { 100_000.0 };
                let slower = if d == slow { factor } else { 1.0 };
                let cost = level * slower * noise[s * 24 + d] * (heat[d] / full_at).max(1.0);
                (cost, 1_000.0 * heat[d])
            });
            let diagnosis = diagnoser(topology).diagnose(&window).clone();
            places(&diagnosis).into_keys().map(|(_, place)| place).collect::<Vec<_>>()
        };
        prop_assert_eq!(columns(1.0), Vec::<String>::new());
        let found = columns(factor);
        prop_assert!(found.len() == 1 && found[0].contains("destination_column"), "{:?}", found);
    }

    #[test]
    fn turning_a_matrix_over_turns_its_finding_over(
        rank in 0..16_usize,
        factor in 1.3..5.0_f64,
    ) {
        // A row of dispatch and the column of combine are one and the same token owner.
        let topology = topology(16, 8);
        let mut window = Window::empty(topology);
        let cost = |s: usize, d: usize| {
            let level = if topology.same_node(s, d) { 2_000.0 } else { 10_000.0 };
            if s == rank { factor * level } else { level }
        };
        set_cells(&mut window, DispatchFinal, |s, d| (cost(s, d), 10.0));
        set_cells(&mut window, CombineLogicalRecv, |s, d| (cost(d, s), 10.0));
        let mut diagnoser = diagnoser(topology);
        let diagnosis = diagnoser.diagnose(&window);
        let dispatch = &diagnosis.probes.get(DispatchFinal).unwrap().findings;
        let combine = &diagnosis.probes.get(CombineLogicalRecv).unwrap().findings;
        let [Finding::SourceRow { rank: r, path: PathScope::All, ratio, score, excess_cycles }] = dispatch[..]
        else {
            return Err(TestCaseError::fail(format!("{dispatch:?}")));
        };
        prop_assert_eq!(r, rank);
        // Costs are whole cycles, so the ratio is that of rounded costs.
        let rounded = (factor * 10_000.0 * SAMPLES as f64).round() / (10_000.0 * SAMPLES as f64);
        prop_assert!((ratio / rounded - 1.0).abs() < 1e-6);
        let mirrored =
            Finding::DestinationColumn { rank, path: PathScope::All, ratio, score, excess_cycles };
        prop_assert_eq!(&combine[..], &[mirrored]);
    }

    #[test]
    fn noise_hides_no_slow_row_and_accuses_nobody_else(
        seed in any::<u64>(),
        noise in 0.0..0.04_f64,
        row in 0..16_usize,
    ) {
        let topology = topology(16, 8);
        let mut random = Random(seed);
        let mut window = Window::empty(topology);
        let cells: Vec<f64> = (0..256).map(|_| (noise * random.normal()).exp()).collect();
        set_cells(&mut window, DispatchFinal, |s, d| {
            let level = if topology.same_node(s, d) { 2_000.0 } else { 10_000.0 };
            (cells[s * 16 + d] * if s == row { 1.6 * level } else { level }, 10.0)
        });
        let mut diagnoser = diagnoser(topology);
        let found = places(diagnoser.diagnose(&window));
        prop_assert_eq!(found.len(), 1, "{:?}", &found);
        let numbers = found.values().next().unwrap();
        prop_assert!((numbers[0] / 1.6 - 1.0).abs() < 4.0 * noise + 1e-3);
        let (_, key) = found.keys().next().unwrap();
        prop_assert_eq!(key, &format!(r#"{{"kind":"source_row","path":"all","rank":{row}}}"#));
    }

    #[test]
    fn no_window_panics_and_every_number_is_finite(
        ep_size in 1..14_usize,
        per_node in 1..9_usize,
        seed in any::<u64>(),
    ) {
        let topology = topology(ep_size, per_node);
        let mut random = Random(seed);
        let mut diagnoser = diagnoser(topology);
        for _ in 0..6 {
            let mut window = Window::empty(topology);
            let style = random.next();
            let mut counter = || {
                let bits = random.next();
                match (style ^ bits) % 7 {
                    0 => 0,
                    1 => 1,
                    2 => i64::MAX,
                    3 => (bits >> 1) as i64,
                    // No difference of snapshots is negative, but a window can be made by hand.
                    4 if style.is_multiple_of(5) => bits as i64,
                    _ => (bits >> (1 + bits % 60)) as i64,
                }
            };
            for probe in NotifyProbe::ALL {
                window.edit_notify(probe, |delta| {
                    delta.duration_ns.iter_mut().for_each(|value| *value = counter());
                    delta.count.iter_mut().for_each(|value| *value = counter());
                });
            }
            for probe in CompletionProbe::ALL {
                window.edit_completion(probe, |delta| {
                    delta.cost.mapv_inplace(|_| counter());
                    delta.samples.mapv_inplace(|_| counter());
                    delta.tokens.mapv_inplace(|_| counter());
                });
            }
            window.set_place(random.next(), random.next() as i64, random.next() as i64);
            for valid in window.valid_mut() {
                *valid = random.unit() < 0.9;
            }
            let diagnosis = diagnoser.diagnose(&window);
            // A number that is not finite becomes null, which is no number when read back.
            let text = serde_json::to_string(diagnosis).unwrap();
            let read: WindowDiagnosis = serde_json::from_str(&text).unwrap();
            for (probe, report) in read.probes.iter() {
                let level = report.level.unwrap_or_default();
                let known = diagnosis.probes.get(probe).unwrap().level.unwrap_or_default();
                prop_assert_eq!(level.scalar.is_some(), known.scalar.is_some());
                prop_assert_eq!(level.global_ratio.is_some(), known.global_ratio.is_some());
                prop_assert_eq!(level.best_ratio.is_some(), known.best_ratio.is_some());
            }
        }
    }

    #[test]
    fn the_same_windows_give_the_same_reports(
        (ep_size, per_node) in shapes(),
        seeds in prop::collection::vec(any::<u64>(), 1..6),
    ) {
        let topology = topology(ep_size, per_node);
        // One of them has diagnosed something else before, at another size of its memory's content.
        let mut used = Diagnoser::new(topology, Policy::default()).unwrap();
        used.diagnose(&random_window(topology, 77));
        let mut fresh = diagnoser(topology);
        used.forget_history();
        for &seed in &seeds {
            let window = random_window(topology, seed);
            let expected = fresh.diagnose(&window).clone();
            let ours = used.diagnose(&window);
            prop_assert_eq!(&ours.probes, &expected.probes);
            prop_assert_eq!(&ours.incidents, &expected.incidents);
        }
    }

    #[test]
    fn arbitrary_snapshots_are_diagnosed_or_refused(
        ep_size in 1..6_usize,
        counters in prop::collection::vec(any::<i64>(), 2 * 5 * 51),
        low in 0..63_u32,
    ) {
        let topology = topology(ep_size, 2);
        let mut diagnoser = diagnoser(topology);
        let mut windows = Windows::new(topology);
        let len = ep_size * (6 + 9 * ep_size);
        windows.advance(&mut Snapshot::zeros(topology, 0)).unwrap();
        for part in counters.chunks_exact(len).take(2) {
            let counters = part.iter().map(|counter| counter >> low).collect();
            let mut snapshot = Snapshot::new(topology, 1, counters, None).unwrap();
            let index = windows.next_index();
            match windows.advance(&mut snapshot) {
                Ok(deepxtrace_counters::Step::Window(window)) => {
                    diagnoser.diagnose(window);
                }
                Ok(_) => {}
                Err(error) => {
                    prop_assert_eq!(diagnoser.refuse(index, &error, &[]).state, WindowState::Refused);
                }
            }
        }
    }
}
