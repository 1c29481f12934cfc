//! Where findings are in a matrix. Ranks and nodes that do not exist give no area.

use std::ops::Range;

use deepxtrace_counters::Topology;
use deepxtrace_normal::PathScope;

use crate::model::{Area, Place};

/// The ranks on the other side of a row or column: all, those of the own node, or the rest. One of
/// the two parts may be empty.
fn others(topology: Topology, rank: usize, path: PathScope) -> [Range<usize>; 2] {
    let own = topology.ranks_of(topology.node(rank));
    let end = topology.ep_size();
    match path {
        PathScope::All => [0..end, end..end],
        PathScope::IntraNode => [own, end..end],
        PathScope::InterNode => [0..own.start, own.end..end],
    }
}

fn within(topology: Topology, areas: impl IntoIterator<Item = Area>) -> Place {
    let n = topology.ep_size();
    let cut = |range: Range<usize>| range.start.min(n)..range.end.min(n);
    let areas = areas
        .into_iter()
        .map(|area| Area { rows: cut(area.rows), columns: cut(area.columns) })
        .filter(|area| !area.rows.is_empty() && !area.columns.is_empty())
        .collect();
    Place::Areas(areas)
}

fn one(rank: usize) -> Range<usize> {
    rank..rank.saturating_add(1)
}

/// A row, or the part of it on one kind of path.
pub(crate) fn row(topology: Topology, rank: usize, path: PathScope) -> Place {
    let parts = others(topology, rank, path).into_iter();
    within(topology, parts.map(|columns| Area { rows: one(rank), columns }))
}

/// A column, or the part of it on one kind of path.
pub(crate) fn column(topology: Topology, rank: usize, path: PathScope) -> Place {
    let parts = others(topology, rank, path).into_iter();
    within(topology, parts.map(|rows| Area { rows, columns: one(rank) }))
}

/// One cell.
pub(crate) fn point(topology: Topology, row: usize, column: usize) -> Place {
    within(topology, [Area { rows: one(row), columns: one(column) }])
}

/// All cells from one node to another.
pub(crate) fn block(topology: Topology, row_node: usize, column_node: usize) -> Place {
    let (rows, columns) = (topology.ranks_of(row_node), topology.ranks_of(column_node));
    within(topology, [Area { rows, columns }])
}

/// One local index of a node, which sends to all ranks of another.
pub(crate) fn rail_row(topology: Topology, local: usize, from: usize, to: usize) -> Place {
    let Some(rank) = nth(topology.ranks_of(from), local) else { return Place::Areas(Vec::new()) };
    within(topology, [Area { rows: one(rank), columns: topology.ranks_of(to) }])
}

/// One local index of a node, which receives from all ranks of another.
pub(crate) fn rail_column(topology: Topology, local: usize, from: usize, to: usize) -> Place {
    let Some(rank) = nth(topology.ranks_of(to), local) else { return Place::Areas(Vec::new()) };
    within(topology, [Area { rows: topology.ranks_of(from), columns: one(rank) }])
}

fn nth(mut ranks: Range<usize>, local: usize) -> Option<usize> {
    ranks.nth(local)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group() -> Topology {
        // Nodes 0..4, 4..8 and a short one 8..11.
        Topology::new(11, 4).unwrap()
    }

    fn area(rows: Range<usize>, columns: Range<usize>) -> Area {
        Area { rows, columns }
    }

    fn areas(areas: &[Area]) -> Place {
        Place::Areas(areas.to_vec())
    }

    #[test]
    fn a_row_is_cut_by_its_path() {
        assert_eq!(row(group(), 5, PathScope::All), areas(&[area(5..6, 0..11)]));
        assert_eq!(row(group(), 5, PathScope::IntraNode), areas(&[area(5..6, 4..8)]));
        let parts = row(group(), 5, PathScope::InterNode);
        assert_eq!(parts, areas(&[area(5..6, 0..4), area(5..6, 8..11)]));
        // The first node has nothing before it, the last nothing after it.
        assert_eq!(row(group(), 0, PathScope::InterNode), areas(&[area(0..1, 4..11)]));
        assert_eq!(column(group(), 10, PathScope::InterNode), areas(&[area(0..8, 10..11)]));
    }

    #[test]
    fn blocks_and_rails_are_those_of_the_specification() {
        assert_eq!(block(group(), 0, 2), areas(&[area(0..4, 8..11)]));
        assert_eq!(rail_row(group(), 1, 0, 2), areas(&[area(1..2, 8..11)]));
        assert_eq!(rail_column(group(), 1, 0, 2), areas(&[area(0..4, 9..10)]));
    }

    #[test]
    fn places_that_do_not_exist_have_no_area() {
        assert_eq!(point(group(), 11, 0), areas(&[]));
        assert_eq!(point(group(), usize::MAX, 0), areas(&[]));
        assert_eq!(block(group(), 3, 0), areas(&[]));
        // The short node has no local index 3.
        assert_eq!(rail_row(group(), 3, 2, 0), areas(&[]));
        assert_eq!(rail_row(group(), usize::MAX, 0, 1), areas(&[]));
        assert_eq!(row(group(), usize::MAX, PathScope::InterNode), areas(&[]));
    }
}
