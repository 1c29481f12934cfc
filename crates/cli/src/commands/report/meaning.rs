//! What findings and incidents mean, for a reader who sees them for the first time.

use deepxtrace::counters::Probe;
use deepxtrace::ll::{Arrival, LlFinding};
use deepxtrace::normal::{Finding, Incident};

/// What an incident means, and what to look at.
pub fn incident(incident: &Incident) -> (&'static str, &'static str) {
    match incident {
        Incident::PreStageArrivalSkew { .. } => (
            "pre_stage_arrival_skew",
            "The ranks enter a Notify kernel after all others while the data path is healthy: what \
             they do before it takes longer. Look at their computation, their host and their clocks, \
             not at the network.",
        ),
        Incident::GlobalDataPathSlowdown { .. } => (
            "global_data_path_slowdown",
            "Dispatch and combine both cost more everywhere than in the windows before. Look at what \
             all paths share: the network as a whole, other jobs on it, a changed batch or model.",
        ),
        Incident::LocalizedDataPathSlowdown { .. } => (
            "localized_data_path_slowdown",
            "Dispatch and combine are slow in the same place: for the same token owners, experts, \
             nodes or rails. Look at the links and adapters of that place.",
        ),
        Incident::Unclassified { .. } => (
            "unclassified",
            "A path is slow in one direction only, or in places that do not agree. It is real in the \
             counters, but nothing says yet what it comes from.",
        ),
        _ => ("other", "An incident of a newer version."),
    }
}

/// What a finding of a Normal-mode probe means.
pub fn finding(probe: Probe, finding: &Finding) -> (&'static str, &'static str) {
    let combine = probe == Probe::CombineLogicalRecv;
    match finding {
        Finding::LateRank { .. } => (
            "late rank",
            "It waits in a synchronising kernel far less than the others, because it enters it last. \
             The others wait for it.",
        ),
        Finding::SourceRow { .. } => (
            "source rank",
            "Everything that comes from this rank costs more than what comes from its peers on the \
             same kind of path: the sending side of the rank is slow.",
        ),
        Finding::DestinationColumn { .. } => (
            "destination rank",
            "Everything that arrives at this rank costs more than what arrives at its peers: the \
             receiving side of the rank is slow.",
        ),
        Finding::SourceGateway { .. } | Finding::DestinationGateway { .. } => (
            "gateway",
            "Inter-node data through this proxy rank costs more. A gateway is a proxy: it tells the \
             way, not whose fault it is.",
        ),
        Finding::Rail { .. } if combine => (
            "rail",
            "Results that one local index receives from another node cost more: one direction of the \
             physical way of one local index between two nodes.",
        ),
        Finding::Rail { .. } => (
            "rail",
            "Tokens that one local index sends to another node cost more: one direction of the \
             physical way of one local index between two nodes.",
        ),
        Finding::Point { .. } => (
            "single path",
            "One pair of ranks costs more although neither rank is slow with the others.",
        ),
        Finding::GatewayEdge { .. } => (
            "gateway edge",
            "The way from one gateway to one receiver costs more than the other ways between nodes.",
        ),
        Finding::NodeBlock { .. } => (
            "node pair",
            "Everything from one node to another costs more than between other nodes.",
        ),
        Finding::Global { .. } => (
            "whole matrix",
            "The matrix as a whole costs more than in the last windows that were healthy, or than \
             the best level so far.",
        ),
        _ => ("other", "A finding of a newer version."),
    }
}

/// What a finding of the low-latency topology rule means.
pub fn low_latency(finding: &LlFinding) -> (&'static str, &'static str) {
    match finding {
        LlFinding::Column { arrival: Arrival::Late, .. } => (
            "awaited rank, late",
            "Everyone waits for this rank, and it waits for nobody: its computation delays its sends.",
        ),
        LlFinding::Column { .. } => (
            "awaited rank",
            "Everyone waits for this rank, and nothing says that it comes late: look at its link.",
        ),
        LlFinding::Row { .. } => (
            "waiting rank",
            "This rank waits for everyone: it posts its receives early, or too much arrives at once.",
        ),
        LlFinding::Point { .. } => {
            ("single path", "One rank waits for one other: the path between the two is slow.")
        }
        LlFinding::NodeBlock { .. } => {
            ("node pair", "One node waits for another longer than nodes do for each other.")
        }
        _ => ("other", "A finding of a newer version."),
    }
}

/// The mean-ratio rule.
pub const MEAN_RULE: (&str, &str) = (
    "mean rule",
    "The rank or path is above a multiple of the mean of the whole matrix, whatever kind of path it \
     is. Kept for comparison with earlier tools; the topology rule judges like with like.",
);
