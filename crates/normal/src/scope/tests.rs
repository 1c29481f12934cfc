//! Every pair of scopes of small groups against plain sets.

use std::collections::BTreeSet;

use super::*;

fn topologies() -> impl Iterator<Item = Topology> {
    [(1, 1), (4, 8), (6, 3), (7, 3), (8, 4), (9, 4), (9, 3), (10, 8), (12, 4)]
        .into_iter()
        .map(|(ep_size, ranks_per_node)| Topology::new(ep_size, ranks_per_node).unwrap())
}

fn all_zones(topology: Topology) -> Vec<Zone> {
    let (n, nodes) = (topology.ep_size(), topology.nodes());
    let mut zones = Vec::new();
    for a in 0..n {
        for path in [PathScope::All, PathScope::IntraNode, PathScope::InterNode] {
            zones.extend([Zone::Owner(a, path), Zone::Expert(a, path)]);
        }
        zones.extend((0..n).map(|b| Zone::Cell(a, b)));
        zones.extend((0..nodes).filter(|&b| b != topology.node(a)).map(|b| Zone::Segment(a, b)));
    }
    zones.extend((0..nodes).flat_map(|a| (0..nodes).map(move |b| Zone::Block(a, b))));
    zones
}

/// The cells, from the words of the specification.
fn cells(topology: Topology, zone: Zone) -> BTreeSet<(usize, usize)> {
    let n = topology.ep_size();
    let on_path = |path, o, e| match path {
        PathScope::All => true,
        PathScope::IntraNode => topology.node(o) == topology.node(e),
        PathScope::InterNode => topology.node(o) != topology.node(e),
    };
    let all = (0..n).flat_map(|o| (0..n).map(move |e| (o, e)));
    all.filter(|&(o, e)| match zone {
        Zone::Owner(owner, path) => o == owner && on_path(path, o, e),
        Zone::Expert(expert, path) => e == expert && on_path(path, o, e),
        Zone::Block(a, b) => (topology.node(o), topology.node(e)) == (a, b),
        Zone::Segment(owner, b) => o == owner && topology.node(e) == b,
        Zone::Cell(owner, expert) => (o, e) == (owner, expert),
    })
    .collect()
}

fn intersect<T: Ord>(a: &BTreeSet<T>, b: &BTreeSet<T>) -> bool {
    2 * a.intersection(b).count() > a.len().min(b.len())
}

#[test]
fn zones_meet_when_they_share_more_than_half_of_the_smaller() {
    for topology in topologies() {
        let zones = all_zones(topology);
        let sets: Vec<_> = zones.iter().map(|&zone| cells(topology, zone)).collect();
        for (&a, a_cells) in zones.iter().zip(&sets) {
            for (&b, b_cells) in zones.iter().zip(&sets) {
                let expected = intersect(a_cells, b_cells);
                assert_eq!(a.meets(b, topology), expected, "{a:?}, {b:?} in {topology:?}");
            }
        }
    }
}

#[test]
fn one_of_two_zones_that_meet_names_the_other() {
    for topology in topologies() {
        // A row, column or rail is found only where it has three cells or more.
        let groups =
            |zone: &Zone| matches!(zone, Zone::Cell(..)) || cells(topology, *zone).len() >= 3;
        let zones: Vec<_> = all_zones(topology).into_iter().filter(groups).collect();
        let names = |a: Zone, b: Zone| {
            let mut named = false;
            a.partners(topology, |key| named |= key == b.key());
            named
        };
        for &a in &zones {
            for &b in zones.iter().filter(|&&b| a.meets(b, topology)) {
                assert!(names(a, b) || names(b, a), "{a:?}, {b:?} in {topology:?}");
            }
        }
    }
}

fn all_rails(topology: Topology) -> Vec<Rails> {
    let (locals, nodes) = (local_indices(topology), topology.nodes());
    let mut rails = Vec::new();
    for a in 0..nodes {
        for local in 0..locals {
            rails.extend([Rails::From(local, a), Rails::Into(local, a)]);
        }
        for b in (0..nodes).filter(|&b| b != a) {
            rails.push(Rails::All(a, b));
            rails.extend((0..locals).map(|local| Rails::One([local, a, b])));
        }
    }
    rails
}

#[test]
fn rails_meet_when_they_share_more_than_half_of_the_smaller_set_and_name_each_other() {
    for topology in topologies().filter(|topology| topology.nodes() > 1) {
        let (locals, nodes) = (local_indices(topology), topology.nodes());
        let set = |rails: Rails| -> BTreeSet<[usize; 3]> {
            let every = (0..locals).flat_map(|local| {
                (0..nodes).flat_map(move |a| (0..nodes).map(move |b| [local, a, b]))
            });
            every
                .filter(|&[_, a, b]| a != b)
                .filter(|&[local, a, b]| match rails {
                    Rails::From(l, node) => (l, node) == (local, a),
                    Rails::Into(l, node) => (l, node) == (local, b),
                    Rails::All(from, to) => (from, to) == (a, b),
                    Rails::One(rail) => rail == [local, a, b],
                })
                .collect()
        };
        for &a in &all_rails(topology) {
            let mut partners = BTreeSet::new();
            a.partners(topology, |key| {
                partners.insert(key);
            });
            for &b in &all_rails(topology) {
                let (a_set, b_set) = (set(a), set(b));
                let mut shared = vec![[9, 9, 9]];
                let expected = intersect(&a_set, &b_set);
                assert_eq!(a.meet(b, topology, &mut shared), expected, "{a:?}, {b:?}");
                let common: Vec<_> = a_set.intersection(&b_set).copied().collect();
                assert_eq!(shared[1..], if expected { common } else { Vec::new() });
                assert!(!expected || partners.contains(&b), "{a:?}, {b:?} in {topology:?}");
            }
        }
    }
}

#[test]
fn findings_of_combine_are_turned_to_owner_and_expert() {
    let topology = Topology::new(12, 4).unwrap();
    let (ratio, score, excess_cycles, path) = (2.0, 4.0, 1.0, PathScope::InterNode);
    let row = Finding::SourceRow { rank: 5, path, ratio, score, excess_cycles };
    let zone = |finding, direction| Zone::of(topology, finding, direction);
    assert_eq!(zone(&row, Direction::Dispatch), Some(Zone::Owner(5, path)));
    assert_eq!(zone(&row, Direction::Combine), Some(Zone::Expert(5, path)));
    let rail =
        Finding::Rail { local_index: 1, src_node: 0, dst_node: 2, ratio, score, excess_cycles };
    assert_eq!(zone(&rail, Direction::Dispatch), Some(Zone::Segment(1, 2)));
    assert_eq!(zone(&rail, Direction::Combine), Some(Zone::Segment(9, 0)));
    let block = Finding::NodeBlock { src_node: 0, dst_node: 2, ratio, score, excess_cycles };
    assert_eq!(zone(&block, Direction::Combine), Some(Zone::Block(2, 0)));
    let point = Finding::Point { src: 3, dst: 7, ratio, score, excess_cycles };
    assert_eq!(zone(&point, Direction::Combine), Some(Zone::Cell(7, 3)));
    let rails = |finding, direction| Rails::of(topology, finding, direction);
    assert_eq!(rails(&row, Direction::Dispatch), Some(Rails::From(1, 1)));
    assert_eq!(rails(&row, Direction::Combine), None);
    assert_eq!(rails(&point, Direction::Dispatch), None);
    assert_eq!(rails(&block, Direction::Combine), Some(Rails::All(0, 2)));
}
