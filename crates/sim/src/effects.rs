//! The faults of a window, spread out over ranks and cells.

use deepxtrace_counters::Topology;

use crate::fault::{Fault, PathClass, Slowdown, Stage};

/// Place of the intra-node class in pairs.
pub const INTRA: usize = 0;
/// Place of the inter-node class in pairs.
pub const INTER: usize = 1;

/// What the faults do to one matrix, as logarithms of factors.
#[derive(Debug, Clone)]
pub struct MatrixEffects {
    /// By class and source.
    pub row: [Vec<f64>; 2],
    /// By class and destination.
    pub column: [Vec<f64>; 2],
    /// Inter-node traffic, `[token owner, other node]`: in dispatch the owner is the source and the
    /// node that of the destination, in combine the owner is the destination.
    pub segment: Vec<f64>,
    /// `[source node, destination node]`.
    pub block: Vec<f64>,
    /// Source, destination, effect.
    pub points: Vec<(usize, usize, f64)>,
}

impl MatrixEffects {
    fn none(topology: Topology) -> Self {
        let (n, nodes) = (topology.ep_size(), topology.nodes());
        Self {
            row: [vec![0.0; n], vec![0.0; n]],
            column: [vec![0.0; n], vec![0.0; n]],
            segment: vec![0.0; n * nodes],
            block: vec![0.0; nodes * nodes],
            points: Vec::new(),
        }
    }
}

/// What the faults do to a window.
#[derive(Debug, Clone)]
pub struct Effects {
    pub dispatch: MatrixEffects,
    pub combine: MatrixEffects,
    /// Gateway edges, `[source, destination node]`.
    pub gateway: Vec<f64>,
    /// Lateness before dispatch, ns by rank.
    pub late_dispatch: Vec<f64>,
    /// Lateness before combine, ns by rank.
    pub late_combine: Vec<f64>,
    pub restarted: Vec<bool>,
    pub without_tokens: Vec<bool>,
    pub missing: Vec<bool>,
    pub idle: bool,
}

impl Effects {
    pub fn none(topology: Topology) -> Self {
        let (n, nodes) = (topology.ep_size(), topology.nodes());
        Self {
            dispatch: MatrixEffects::none(topology),
            combine: MatrixEffects::none(topology),
            gateway: vec![0.0; n * nodes],
            late_dispatch: vec![0.0; n],
            late_combine: vec![0.0; n],
            restarted: vec![false; n],
            without_tokens: vec![false; n],
            missing: vec![false; n],
            idle: false,
        }
    }

    /// Adds a fault that was validated.
    pub fn add(&mut self, fault: &Fault, topology: Topology) {
        let nodes = topology.nodes();
        match fault {
            Fault::LateBeforeDispatch { rank, ns } => self.late_dispatch[*rank] += f64::from(*ns),
            Fault::LateBeforeCombine { rank, ns } => self.late_combine[*rank] += f64::from(*ns),
            Fault::Pressure(slowdown) => {
                for owner in 0..topology.ep_size() {
                    self.slow_owner(owner, nodes, slowdown);
                }
            }
            Fault::HcaPressure { owners, slowdown } => {
                owners.iter().for_each(|&owner| self.slow_owner(owner, nodes, slowdown));
            }
            Fault::Rail { local_index, src_node, dst_node, slowdown } => {
                let sender = topology.ranks_of(*src_node).start + local_index;
                let receiver = topology.ranks_of(*dst_node).start + local_index;
                self.dispatch.segment[sender * nodes + dst_node] += slowdown.dispatch.ln();
                self.gateway[sender * nodes + dst_node] += slowdown.gateway.ln();
                self.combine.segment[receiver * nodes + src_node] += slowdown.combine.ln();
            }
            Fault::SourceRow { stage, rank, path, factor } => {
                slow_axis(&mut self.matrix(*stage).row, *rank, *path, *factor);
                if *stage == Stage::Dispatch && *path != PathClass::IntraNode {
                    // What leaves the node slowly also reaches the gateways slowly.
                    for node in 0..nodes {
                        self.gateway[rank * nodes + node] += factor.ln();
                    }
                }
            }
            Fault::DestinationColumn { stage, rank, path, factor } => {
                slow_axis(&mut self.matrix(*stage).column, *rank, *path, *factor);
            }
            Fault::Point { stage, src, dst, factor } => {
                self.matrix(*stage).points.push((*src, *dst, factor.ln()));
            }
            Fault::NodeBlock { stage, src_node, dst_node, factor } => {
                self.matrix(*stage).block[src_node * nodes + dst_node] += factor.ln();
                if *stage == Stage::Dispatch {
                    for rank in topology.ranks_of(*src_node) {
                        self.gateway[rank * nodes + dst_node] += factor.ln();
                    }
                }
            }
            Fault::Restart { rank } => self.restarted[*rank] = true,
            Fault::NoTokens { rank } => self.without_tokens[*rank] = true,
            Fault::MissingSnapshot { rank } => self.missing[*rank] = true,
            Fault::Idle => self.idle = true,
        }
    }

    fn matrix(&mut self, stage: Stage) -> &mut MatrixEffects {
        match stage {
            Stage::Dispatch => &mut self.dispatch,
            Stage::Combine => &mut self.combine,
        }
    }

    fn slow_owner(&mut self, owner: usize, nodes: usize, slowdown: &Slowdown) {
        for node in 0..nodes {
            self.dispatch.segment[owner * nodes + node] += slowdown.dispatch.ln();
            self.gateway[owner * nodes + node] += slowdown.gateway.ln();
            self.combine.segment[owner * nodes + node] += slowdown.combine.ln();
        }
    }
}

fn slow_axis(axis: &mut [Vec<f64>; 2], rank: usize, path: PathClass, factor: f64) {
    if path != PathClass::InterNode {
        axis[INTRA][rank] += factor.ln();
    }
    if path != PathClass::IntraNode {
        axis[INTER][rank] += factor.ln();
    }
}
