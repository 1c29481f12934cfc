//! The wait-for graph: who waits, through whom, for which ranks in the end.
//!
//! Its nodes are ranks, waits and causes that are known already (rounds that differ). A rank points
//! to what it waits in, a wait to the ranks that it misses, a rank stuck in a round that differs to
//! that cause. What the edges lead to in the end is a rank that waits for nobody, ranks that wait
//! for each other, or a known cause.

use std::collections::HashMap;

use super::super::comm::CommId;
use super::waits::{Node, Wait};

/// What a wait leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum End {
    /// Ranks that wait for nobody; the group of waits that share ranks.
    Roots { group: usize },
    /// Ranks that wait for each other: the number of the circle.
    Circle(usize),
    /// The rounds of a communicator differ.
    Known(CommId),
}

/// The graph of one scan.
#[derive(Debug)]
pub(super) struct Graph {
    /// Ranks, by number of the node.
    nodes: Vec<Node>,
    numbers: HashMap<Node, usize>,
    /// First node that is a wait; the causes follow the waits.
    first_wait: usize,
    first_cause: usize,
    causes: Vec<CommId>,
    next: Vec<Vec<usize>>,
    /// Strongly connected component of each node, numbered so that edges lead to lower numbers.
    component: Vec<usize>,
    /// Ranks of each component.
    ranks: Vec<usize>,
    /// Whether no edge leaves a component.
    sink: Vec<bool>,
}

/// A cause of waits that was given: these ranks have called nothing since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ActiveCause {
    /// Each rank with the number of calls that it had made.
    pub(super) ranks: Vec<(Node, u64)>,
}

impl Graph {
    /// The graph of waits. `blocked` tells whether a rank cannot go on before the wait of a number
    /// is over, `stuck` in which rounds that differ a rank is.
    pub(super) fn new(
        waits: &[Wait],
        blocked: impl Fn(Node, &Wait) -> bool,
        stuck: impl Fn(Node) -> Vec<CommId>,
    ) -> Self {
        let mut graph = Self {
            nodes: Vec::new(),
            numbers: HashMap::new(),
            first_wait: 0,
            first_cause: 0,
            causes: Vec::new(),
            next: Vec::new(),
            component: Vec::new(),
            ranks: Vec::new(),
            sink: Vec::new(),
        };
        for wait in waits {
            for node in wait.edges.iter().flat_map(|edge| edge.waiting.iter().chain(&edge.missing))
            {
                graph.number(*node);
            }
        }
        graph.first_wait = graph.nodes.len();
        // A wait is as many nodes as it has edges: two ranks that wait for each other stay apart.
        let wait_nodes: usize = waits.iter().map(|wait| wait.edges.len()).sum();
        graph.first_cause = graph.first_wait + wait_nodes;
        graph.next = vec![Vec::new(); graph.first_cause];
        let mut at = graph.first_wait;
        for wait in waits {
            for edge in &wait.edges {
                for node in &edge.waiting {
                    if blocked(*node, wait) {
                        let from = graph.numbers[node];
                        graph.next[from].push(at);
                    }
                }
                graph.next[at] = edge.missing.iter().map(|node| graph.numbers[node]).collect();
                at += 1;
            }
        }
        graph.add_causes(stuck);
        graph.find_components();
        graph
    }

    fn number(&mut self, node: Node) -> usize {
        let next = self.nodes.len();
        let number = *self.numbers.entry(node).or_insert(next);
        if number == next {
            self.nodes.push(node);
        }
        number
    }

    fn add_causes(&mut self, stuck: impl Fn(Node) -> Vec<CommId>) {
        for number in 0..self.nodes.len() {
            for comm in stuck(self.nodes[number]) {
                let known = self.causes.iter().position(|cause| *cause == comm);
                let cause = known.unwrap_or_else(|| {
                    self.causes.push(comm);
                    self.next.push(Vec::new());
                    self.causes.len() - 1
                });
                self.next[number].push(self.first_cause + cause);
            }
        }
    }

    /// Tarjan's strongly connected components, without recursion.
    fn find_components(&mut self) {
        let count = self.next.len();
        let (mut index, mut low) = (vec![usize::MAX; count], vec![0; count]);
        let mut on_stack = vec![false; count];
        let (mut stack, mut work): (Vec<usize>, Vec<(usize, usize)>) = (Vec::new(), Vec::new());
        let mut counter = 0;
        self.component = vec![0; count];
        for root in 0..count {
            if index[root] != usize::MAX {
                continue;
            }
            work.push((root, 0));
            while let Some((node, edge)) = work.pop() {
                if edge == 0 {
                    index[node] = counter;
                    low[node] = counter;
                    counter += 1;
                    stack.push(node);
                    on_stack[node] = true;
                }
                match self.next[node].get(edge) {
                    Some(&to) => {
                        work.push((node, edge + 1));
                        if index[to] == usize::MAX {
                            work.push((to, 0));
                        } else if on_stack[to] {
                            low[node] = low[node].min(index[to]);
                        }
                    }
                    None => {
                        if let Some(&(parent, _)) = work.last() {
                            low[parent] = low[parent].min(low[node]);
                        }
                        if low[node] == index[node] {
                            self.close_component(node, &mut stack, &mut on_stack);
                        }
                    }
                }
            }
        }
        self.sink = vec![true; self.ranks.len()];
        for node in 0..count {
            for &to in &self.next[node] {
                if self.component[to] != self.component[node] {
                    self.sink[self.component[node]] = false;
                }
            }
        }
    }

    fn close_component(&mut self, last: usize, stack: &mut Vec<usize>, on_stack: &mut [bool]) {
        let component = self.ranks.len();
        let mut ranks = 0;
        while let Some(node) = stack.pop() {
            on_stack[node] = false;
            self.component[node] = component;
            ranks += usize::from(node < self.first_wait);
            if node == last {
                break;
            }
        }
        self.ranks.push(ranks);
    }

    /// What each wait leads to. A rank that waits for nobody outranks a circle, a circle outranks a
    /// cause that is known: nothing that those explain is hidden behind these.
    pub(super) fn ends(&self, waits: &[Wait]) -> Vec<End> {
        let reach = self.reach();
        let mut groups = Groups::new(self.first_cause);
        let mut at = self.first_wait;
        let mut ends = Vec::with_capacity(waits.len());
        for wait in waits {
            let nodes = at..at + wait.edges.len();
            at = nodes.end;
            let mut best = Reach::default();
            for node in nodes.clone() {
                best = best.and(reach[self.component[node]]);
            }
            ends.push(match best {
                Reach { root: true, .. } => {
                    for node in nodes.clone() {
                        self.join(node, nodes.start, &mut groups);
                        for waiting in wait.edges.iter().flat_map(|edge| &edge.waiting) {
                            groups.join(nodes.start, self.numbers[waiting]);
                        }
                    }
                    End::Roots { group: nodes.start }
                }
                Reach { circle: Some(circle), .. } => End::Circle(circle),
                Reach { cause: Some(cause), .. } => End::Known(self.causes[cause]),
                // Nothing is missing: it leads nowhere. Such a wait is not collected.
                _ => End::Roots { group: nodes.start },
            });
        }
        for end in &mut ends {
            if let End::Roots { group } = end {
                *group = groups.find(*group);
            }
        }
        ends
    }

    fn join(&self, node: usize, with: usize, groups: &mut Groups) {
        groups.join(node, with);
        for &to in &self.next[node] {
            groups.join(node, to);
        }
    }

    /// What each component leads to.
    fn reach(&self) -> Vec<Reach> {
        let mut reach = vec![Reach::default(); self.ranks.len()];
        let mut members: Vec<Vec<usize>> = vec![Vec::new(); self.ranks.len()];
        for (node, &component) in self.component.iter().enumerate() {
            members[component].push(node);
        }
        // Edges lead to lower numbers: what they lead to is known already.
        for component in 0..members.len() {
            let mut here = Reach::default();
            for &node in &members[component] {
                for &to in &self.next[node] {
                    here = here.and(reach[self.component[to]]);
                }
                if self.sink[component] {
                    match node.checked_sub(self.first_cause) {
                        Some(cause) => here.cause = Some(cause),
                        None if self.ranks[component] > 1 => here.circle = Some(component),
                        None => here.root = true,
                    }
                }
            }
            reach[component] = here;
        }
        reach
    }

    /// Whether a rank waits for nobody (but perhaps for itself).
    pub(super) fn is_root(&self, node: Node) -> bool {
        self.numbers.get(&node).is_some_and(|&number| {
            let component = self.component[number];
            self.sink[component] && self.ranks[component] == 1
        })
    }

    /// The ranks of a circle.
    pub(super) fn circle(&self, circle: usize) -> Vec<Node> {
        (0..self.first_wait)
            .filter(|&number| self.component[number] == circle)
            .map(|number| self.nodes[number])
            .collect()
    }
}

/// What a component leads to.
#[derive(Debug, Clone, Copy, Default)]
struct Reach {
    root: bool,
    circle: Option<usize>,
    cause: Option<usize>,
}

impl Reach {
    fn and(self, other: Self) -> Self {
        let lower = |a: Option<usize>, b: Option<usize>| match (a, b) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        Self {
            root: self.root || other.root,
            circle: lower(self.circle, other.circle),
            cause: lower(self.cause, other.cause),
        }
    }
}

/// Disjoint sets of nodes.
struct Groups {
    parent: Vec<usize>,
}

impl Groups {
    fn new(count: usize) -> Self {
        Self { parent: (0..count).collect() }
    }

    fn find(&mut self, mut node: usize) -> usize {
        while self.parent[node] != node {
            self.parent[node] = self.parent[self.parent[node]];
            node = self.parent[node];
        }
        node
    }

    fn join(&mut self, a: usize, b: usize) {
        let (a, b) = (self.find(a), self.find(b));
        self.parent[a.max(b)] = a.min(b);
    }
}
