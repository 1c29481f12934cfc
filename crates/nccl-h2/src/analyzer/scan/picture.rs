//! The wait-for graph as a picture.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::super::{Analyzer, Moment};
use super::Scan;
use super::graph::Graph;
use crate::finding::WaitEdge;

/// Who waits for whom at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitGraph {
    /// Ranks that wait in the same call, and those that they wait for; sorted by communicator and
    /// number.
    pub waits: Vec<WaitEdge>,
    /// Global ranks that are waited for and wait for nobody, sorted.
    pub roots: Vec<i64>,
}

impl Analyzer {
    /// Everything that is waited in at a moment, however short, whether it was given or not. Sends
    /// and receives that were given as missing their counterpart are left out.
    pub fn wait_graph(&mut self, now: Moment) -> WaitGraph {
        let waits = self.collect_waits(Scan::ended(now.monotonic_ns));
        let graph = Graph::new(&waits, |_, _| true, |_| Vec::new());
        let missing = waits.iter().flat_map(|wait| &wait.edges).flat_map(|edge| &edge.missing);
        let roots: Vec<_> = missing.copied().filter(|&node| graph.is_root(node)).collect();
        WaitGraph {
            roots: self.ranks_of(&roots),
            waits: waits.iter().flat_map(|wait| self.edges(wait, None)).collect(),
        }
    }
}

/// Numbers of the waits that a rank is in, and of those that miss it.
type Place = (BTreeSet<usize>, BTreeSet<usize>);

impl WaitGraph {
    /// The graph in the language of Graphviz: an arrow from the ranks to the call in which they wait,
    /// and from there to the ranks that have not made it. Ranks in the same place are one node; those
    /// that wait for nobody are filled.
    pub fn to_dot(&self) -> String {
        let mut text =
            String::from("digraph waits {\n  rankdir=LR;\n  node [fontname=\"sans-serif\"];\n");
        let mut places: BTreeMap<i64, Place> = BTreeMap::new();
        for (at, wait) in self.waits.iter().enumerate() {
            for &rank in &wait.waiting_ranks {
                places.entry(rank).or_default().0.insert(at);
            }
            for &rank in &wait.waits_for_ranks {
                places.entry(rank).or_default().1.insert(at);
            }
            let label = format!(
                "{}\\n{}{}",
                escaped(&wait.api),
                escaped(&wait.comm_uid_hash),
                if wait.comm_seq < 0 { String::new() } else { format!(" call {}", wait.comm_seq) },
            );
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  w{at} [shape=box, label=\"{label}\"];");
            if wait.waits_for_unseen > 0 {
                let unseen = wait.waits_for_unseen;
                let _ = writeln!(text, "  u{at} [label=\"{unseen} unseen\", style=dashed];");
                let _ = writeln!(text, "  w{at} -> u{at};");
            }
        }
        let mut nodes: BTreeMap<Place, Vec<i64>> = BTreeMap::new();
        for (rank, place) in places {
            nodes.entry(place).or_default().push(rank);
        }
        for (number, ((waits_in, missed_by), ranks)) in nodes.into_iter().enumerate() {
            let root = ranks.first().is_some_and(|rank| self.roots.contains(rank));
            let style = if root { ", style=filled, fillcolor=\"#f4cccc\"" } else { "" };
            let _ = writeln!(text, "  r{number} [label=\"{}\"{style}];", ranges(&ranks));
            for wait in waits_in {
                let _ = writeln!(text, "  r{number} -> w{wait};");
            }
            for wait in missed_by {
                let _ = writeln!(text, "  w{wait} -> r{number};");
            }
        }
        text.push_str("}\n");
        text
    }
}

/// Text for a label between quotes.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars().filter(|c| !c.is_control()) {
        if matches!(c, '"' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Sorted ranks as `rank 3` or `ranks 0-2, 5`.
fn ranges(ranks: &[i64]) -> String {
    let mut ranges: Vec<(i64, i64)> = Vec::new();
    for &rank in ranks {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(rank) => *last = rank,
            _ => ranges.push((rank, rank)),
        }
    }
    let words: Vec<String> = ranges
        .into_iter()
        .map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        })
        .collect();
    format!("{} {}", if ranks.len() == 1 { "rank" } else { "ranks" }, words.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::WaitKind;

    #[test]
    fn ranks_in_the_same_place_are_one_node_and_roots_are_filled() {
        let wait = WaitEdge {
            api: "nccl\"All\\Reduce".to_owned(),
            assumed: None,
            comm_seq: 5,
            comm_uid_hash: "ab".to_owned(),
            kind: WaitKind::Collective,
            waiting_ranks: vec![0, 1, 2, 4],
            waits_for_ranks: vec![3],
            waits_for_unseen: 1,
        };
        let graph = WaitGraph { waits: vec![wait], roots: vec![3] };
        let expected = "digraph waits {
  rankdir=LR;
  node [fontname=\"sans-serif\"];
  w0 [shape=box, label=\"nccl\\\"All\\\\Reduce\\nab call 5\"];
  u0 [label=\"1 unseen\", style=dashed];
  w0 -> u0;
  r0 [label=\"rank 3\", style=filled, fillcolor=\"#f4cccc\"];
  w0 -> r0;
  r1 [label=\"ranks 0-2, 4\"];
  r1 -> w0;
}
";
        assert_eq!(graph.to_dot(), expected);
    }
}
