//! What the findings of several probes mean together.

use std::collections::BTreeMap;

use deepxtrace_counters::{CompletionProbe, NotifyProbe, Probe, Topology, Window};

use crate::finding::Finding;
use crate::incident::{Evidence, Incident};
use crate::report::{ProbeReports, ProbeStatus};
use crate::scope::{Direction, Rails, Zone};
use crate::stage::StageTimes;

use CompletionProbe::{CombineLogicalRecv, DispatchFinal, DispatchRdmaRecv};

/// The probe of the stage before a Notify kernel: a rank that it was slow for comes late.
fn upstream(probe: NotifyProbe) -> CompletionProbe {
    match probe {
        NotifyProbe::NotifyDispatch | NotifyProbe::CachedNotifyDispatch => CombineLogicalRecv,
        NotifyProbe::CachedNotifyCombine => DispatchFinal,
    }
}

/// A late rank is explained when the stage before took it longer by at least this share of its
/// lateness. Measured on two H200s: 1.4 or more where a slow path or more tokens make a rank late,
/// 0.03 or less where computation does.
const EXPLAINING_SHARE: f64 = 0.5;

/// Marks the late ranks that the stage before explains: it took them longer than the others, and by
/// enough to make up their lateness.
pub(crate) fn explain(reports: &mut ProbeReports, window: &Window, times: &mut StageTimes) {
    let mut measured = None;
    for probe in NotifyProbe::ALL {
        let upstream = upstream(probe);
        let counts = &window.notify(probe).count;
        for finding in &mut reports.get_mut(probe).findings {
            let Finding::LateRank { rank, excess_ns, explained_by, .. } = finding else { continue };
            if measured != Some(upstream) {
                times.measure(window.completion(upstream), window.valid());
                measured = Some(upstream);
            }
            // A cycle counts as a nanosecond. GPUs run faster, so that the stage seems to take
            // longer than it does: in case of doubt it is the reason.
            let lateness_ns = *excess_ns / counts[*rank] as f64;
            let explains = |excess| excess >= EXPLAINING_SHARE * lateness_ns;
            *explained_by = times.excess(*rank).is_some_and(explains).then_some(upstream);
        }
    }
}

/// The incidents of one window, in the order of the specification's table. `zones` receives the
/// cells of the localized one.
pub(crate) fn incidents(
    topology: Topology,
    reports: &ProbeReports,
    incidents: &mut Vec<Incident>,
    zones: &mut Vec<Zone>,
) {
    zones.clear();
    arrivals(reports, incidents);
    let before = incidents.len();
    incidents.extend(global(reports));
    incidents.extend(localized(topology, reports, zones));
    if incidents.len() == before {
        incidents.extend(unclassified(reports));
    }
}

fn arrivals(reports: &ProbeReports, incidents: &mut Vec<Incident>) {
    for probe in NotifyProbe::ALL {
        let downstream: &[CompletionProbe] = match probe {
            NotifyProbe::CachedNotifyCombine => &[CombineLogicalRecv],
            _ => &[DispatchFinal, DispatchRdmaRecv],
        };
        let report = reports.of(probe);
        if report.status != ProbeStatus::Anomalous
            || !downstream.iter().all(|&probe| reports.of(probe).status.is_clear())
        {
            continue;
        }
        let late = report.findings.iter().filter_map(|finding| match finding {
            Finding::LateRank { rank, explained_by: None, .. } => Some(*rank),
            _ => None,
        });
        let mut ranks: Vec<usize> = late.collect();
        ranks.sort_unstable();
        if !ranks.is_empty() {
            incidents.push(Incident::PreStageArrivalSkew { probe, ranks });
        }
    }
}

fn global(reports: &ProbeReports) -> Option<Incident> {
    let of = |probe: CompletionProbe| {
        let findings = &reports.of(probe).findings;
        let index =
            findings.iter().position(|finding| matches!(finding, Finding::Global { .. }))?;
        Some(Evidence { probe: probe.into(), index })
    };
    let (dispatch, combine) = (of(DispatchFinal)?, of(CombineLogicalRecv)?);
    let evidence = [Some(dispatch), of(DispatchRdmaRecv), Some(combine)];
    Some(Incident::GlobalDataPathSlowdown { evidence: evidence.into_iter().flatten().collect() })
}

fn unclassified(reports: &ProbeReports) -> Option<Incident> {
    let evidence: Vec<Evidence> = CompletionProbe::ALL
        .into_iter()
        .flat_map(|probe| {
            let findings = 0..reports.of(probe).findings.len();
            findings.map(move |index| Evidence { probe: probe.into(), index })
        })
        .collect();
    (!evidence.is_empty()).then_some(Incident::Unclassified { evidence })
}

/// The local findings of one dense probe, to be looked up by where they are.
struct Findings {
    zones: Vec<Option<Zone>>,
    rails: Vec<Option<Rails>>,
    by_zone: BTreeMap<Zone, usize>,
    by_rails: BTreeMap<Rails, usize>,
    by_cells: Vec<bool>,
    matched: Vec<bool>,
}

impl Findings {
    fn new(topology: Topology, findings: &[Finding], direction: Direction) -> Self {
        let zone = |finding| Zone::of(topology, finding, direction);
        let rails = |finding| Rails::of(topology, finding, direction);
        let zones: Vec<_> = findings.iter().map(zone).collect();
        let rails: Vec<_> = findings.iter().map(rails).collect();
        let index = |(i, zone): (usize, &Option<Zone>)| Some(((*zone)?.key(), i));
        Self {
            by_zone: zones.iter().enumerate().filter_map(index).collect(),
            by_rails: rails.iter().enumerate().filter_map(|(i, r)| Some(((*r)?, i))).collect(),
            by_cells: vec![false; findings.len()],
            matched: vec![false; findings.len()],
            zones,
            rails,
        }
    }

    /// Marks the findings of both that meet by cells. A cell looks for what holds it, a larger
    /// zone for its like; so this is called both ways.
    fn meet_by_cells(&mut self, other: &mut Self, topology: Topology) {
        for (i, zone) in self.zones.iter().enumerate() {
            let Some(zone) = *zone else { continue };
            zone.partners(topology, |key| {
                let Some(&j) = other.by_zone.get(&key) else { return };
                if other.zones[j].is_some_and(|partner| zone.meets(partner, topology)) {
                    (self.by_cells[i], self.matched[i]) = (true, true);
                    (other.by_cells[j], other.matched[j]) = (true, true);
                }
            });
        }
    }

    /// Marks the findings of both that meet by rails, and appends the rails they share.
    fn meet_by_rails(&mut self, other: &mut Self, topology: Topology, rails: &mut Vec<[usize; 3]>) {
        for (i, own) in self.rails.iter().enumerate() {
            let Some(own) = *own else { continue };
            own.partners(topology, |key| {
                let Some(&j) = other.by_rails.get(&key) else { return };
                if own.meet(key, topology, rails) {
                    (self.matched[i], other.matched[j]) = (true, true);
                }
            });
        }
    }
}

fn localized(
    topology: Topology,
    reports: &ProbeReports,
    zones: &mut Vec<Zone>,
) -> Option<Incident> {
    let findings = |probe: CompletionProbe| &reports.of(probe).findings;
    if !findings(DispatchFinal).iter().any(Finding::is_local)
        || !findings(CombineLogicalRecv).iter().any(Finding::is_local)
    {
        return None;
    }
    let mut dispatch = Findings::new(topology, findings(DispatchFinal), Direction::Dispatch);
    let mut combine = Findings::new(topology, findings(CombineLogicalRecv), Direction::Combine);
    let mut rails = Vec::new();
    dispatch.meet_by_cells(&mut combine, topology);
    combine.meet_by_cells(&mut dispatch, topology);
    dispatch.meet_by_rails(&mut combine, topology, &mut rails);
    let matched = |probe: CompletionProbe, matched: &[bool]| {
        let indices = matched.iter().enumerate().filter(|&(_, &matched)| matched);
        indices.map(|(index, _)| Evidence { probe: probe.into(), index }).collect::<Vec<_>>()
    };
    let mut evidence = matched(DispatchFinal, &dispatch.matched);
    if evidence.is_empty() {
        return None;
    }
    rails.sort_unstable();
    rails.dedup();
    for found in [&dispatch, &combine] {
        let by_cells = found.zones.iter().zip(&found.by_cells).filter(|&(_, &met)| met);
        zones.extend(by_cells.filter_map(|(zone, _)| *zone));
    }
    zones.sort_unstable();
    zones.dedup();
    evidence.extend(gateway_support(topology, findings(DispatchRdmaRecv), zones, &rails));
    evidence.extend(matched(CombineLogicalRecv, &combine.matched));
    Some(describe(zones, rails, evidence))
}

/// The gateway findings whose node pair or node lies within the cells or rails of the incident.
fn gateway_support(
    topology: Topology,
    findings: &[Finding],
    zones: &[Zone],
    rails: &[[usize; 3]],
) -> Vec<Evidence> {
    let nodes = topology.nodes();
    let mut within = vec![false; nodes * nodes];
    for zone in zones {
        let area = zone.area(topology);
        let touched = |ranks: &std::ops::Range<usize>| {
            topology.node(ranks.start)..topology.node(ranks.end.saturating_sub(1)) + 1
        };
        for a in touched(&area.owners) {
            for b in touched(&area.experts) {
                let (owner, expert) = (topology.ranks_of(a).start, topology.ranks_of(b).start);
                within[a * nodes + b] |= area.holds(topology, owner, expert);
            }
        }
    }
    for &[_, src, dst] in rails {
        within[src * nodes + dst] = true;
    }
    let supports = |finding: &Finding| match *finding {
        Finding::GatewayEdge { src, dst, .. } => {
            within[topology.node(src) * nodes + topology.node(dst)]
        }
        Finding::SourceGateway { rank, .. } => {
            within.iter().skip(topology.node(rank) * nodes).take(nodes).any(|&within| within)
        }
        Finding::DestinationGateway { rank, .. } => {
            within.iter().skip(topology.node(rank)).step_by(nodes).any(|&within| within)
        }
        _ => false,
    };
    let supporting = findings.iter().enumerate().filter(|&(_, finding)| supports(finding));
    let evidence = |index| Evidence { probe: Probe::DispatchRdmaRecv, index };
    supporting.map(|(index, _)| evidence(index)).collect()
}

fn describe(zones: &[Zone], rails: Vec<[usize; 3]>, evidence: Vec<Evidence>) -> Incident {
    let (mut owners, mut experts) = (Vec::new(), Vec::new());
    let (mut node_pairs, mut edges) = (Vec::new(), Vec::new());
    for &zone in zones {
        match zone {
            Zone::Owner(owner, _) => owners.push(owner),
            Zone::Expert(expert, _) => experts.push(expert),
            Zone::Block(a, b) => node_pairs.push([a, b]),
            Zone::Cell(owner, expert) => edges.push([owner, expert]),
            Zone::Segment(..) => {}
        }
    }
    // Sorted as the zones are; a rank may stand there with two paths.
    owners.dedup();
    experts.dedup();
    Incident::LocalizedDataPathSlowdown { owners, experts, node_pairs, edges, rails, evidence }
}
