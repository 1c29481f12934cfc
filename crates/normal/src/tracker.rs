//! Incidents over time: suspected, confirmed, cleared.

use deepxtrace_counters::{NotifyProbe, Topology};

use crate::incident::{Incident, IncidentKind, IncidentState, TrackerChange};
use crate::scope::Zone;

/// Diagnosed windows that count for a state.
const WINDOWS: u32 = 3;
/// Of these, windows with the incident that confirm it.
const CONFIRMING: u32 = 2;

/// Follows the incidents of the diagnosed windows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tracker {
    followed: Vec<Followed>,
}

/// One incident that is followed.
#[derive(Debug, Clone)]
struct Followed {
    kind: IncidentKind,
    probe: Option<NotifyProbe>,
    extent: Extent,
    state: IncidentState,
    /// Whether it was seen in the last windows, the newest in the lowest bit.
    seen: u32,
}

/// Where an incident was when it was last seen.
#[derive(Debug, Clone)]
enum Extent {
    /// Everywhere, or nobody knows: it is the same as any other of its kind.
    Kind,
    Ranks(Vec<usize>),
    /// A bit each cell `[owner, expert]`, and sorted rails.
    Scope(Vec<u64>, Vec<[usize; 3]>),
}

impl Tracker {
    /// Takes the incidents of the next diagnosed window and appends what changed: first the
    /// incidents of the window in their order, then those that are gone. `zones` are the cells of
    /// the localized incident.
    pub(crate) fn observe(
        &mut self,
        topology: Topology,
        incidents: &[Incident],
        zones: &[Zone],
        changes: &mut Vec<TrackerChange>,
    ) {
        for followed in &mut self.followed {
            followed.seen = followed.seen << 1 & ((1 << WINDOWS) - 1);
        }
        for incident in incidents {
            let followed = self.follow(incident, Extent::of(topology, incident, zones));
            let confirms = followed.seen.count_ones() >= CONFIRMING;
            let new = followed.seen == 1 && followed.state == IncidentState::Cleared;
            if new {
                followed.state = IncidentState::Suspected;
                changes.push(followed.change());
            } else if confirms && followed.state == IncidentState::Suspected {
                followed.state = IncidentState::Confirmed;
                changes.push(followed.change());
            }
        }
        self.followed.retain_mut(|followed| {
            let gone = followed.seen == 0;
            if gone {
                followed.state = IncidentState::Cleared;
                changes.push(followed.change());
            }
            !gone
        });
    }

    /// The entry of an incident. Entries that it brings together become one, the oldest.
    fn follow(&mut self, incident: &Incident, extent: Extent) -> &mut Followed {
        let (kind, probe) = (incident.kind(), incident.probe());
        let same = |followed: &Followed| {
            (followed.kind, followed.probe) == (kind, probe) && followed.extent.meets(&extent)
        };
        let at = match self.followed.iter().position(same) {
            Some(at) => {
                let mut index = 0;
                let (mut seen, mut state) = (0, IncidentState::Suspected);
                self.followed.retain(|followed| {
                    let joins = same(followed);
                    if joins {
                        seen |= followed.seen;
                        state = state.max(followed.state);
                    }
                    index += 1;
                    !joins || index - 1 == at
                });
                (self.followed[at].seen, self.followed[at].state) = (seen, state);
                at
            }
            None => {
                let state = IncidentState::Cleared;
                let extent = Extent::Kind;
                self.followed.push(Followed { kind, probe, extent, state, seen: 0 });
                self.followed.len() - 1
            }
        };
        let followed = &mut self.followed[at];
        followed.seen |= 1;
        followed.extent = extent;
        followed
    }
}

impl Followed {
    fn change(&self) -> TrackerChange {
        let ranks = match &self.extent {
            Extent::Ranks(ranks) => ranks.clone(),
            _ => Vec::new(),
        };
        TrackerChange { kind: self.kind, state: self.state, probe: self.probe, ranks }
    }
}

impl Extent {
    fn of(topology: Topology, incident: &Incident, zones: &[Zone]) -> Self {
        match incident {
            Incident::PreStageArrivalSkew { ranks, .. } => Self::Ranks(ranks.clone()),
            Incident::LocalizedDataPathSlowdown { rails, .. } => {
                Self::Scope(cells(topology, zones), rails.clone())
            }
            _ => Self::Kind,
        }
    }

    fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Kind, Self::Kind) => true,
            (Self::Ranks(a), Self::Ranks(b)) => a.iter().any(|rank| b.contains(rank)),
            (Self::Scope(a, a_rails), Self::Scope(b, b_rails)) => {
                let count = |cells: &[u64]| cells.iter().map(|word| word.count_ones()).sum();
                let both: u32 = a.iter().zip(b).map(|(a, b)| (a & b).count_ones()).sum();
                let smaller: u32 = u32::min(count(a), count(b));
                let shared = a_rails.iter().filter(|&rail| b_rails.binary_search(rail).is_ok());
                2 * both > smaller || 2 * shared.count() > a_rails.len().min(b_rails.len())
            }
            _ => false,
        }
    }
}

/// A bit for each cell of any zone.
fn cells(topology: Topology, zones: &[Zone]) -> Vec<u64> {
    let n = topology.ep_size();
    let mut cells = vec![0_u64; (n * n).div_ceil(64)];
    for zone in zones {
        let area = zone.area(topology);
        for owner in area.owners.clone() {
            for expert in area.experts.clone() {
                if area.holds(topology, owner, expert) {
                    let bit = owner * n + expert;
                    cells[bit / 64] |= 1 << (bit % 64);
                }
            }
        }
    }
    cells
}
