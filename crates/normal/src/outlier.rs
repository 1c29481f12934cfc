//! What steps 4 to 6 find in one matrix.

use crate::finding::PathScope;

/// A place in a matrix `[source, destination]`.
///
/// The order of kinds is that of the steps that find them, then by place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// The cells of one source rank, of all or one path class.
    Row {
        /// The source rank.
        rank: usize,
        /// Which of its cells.
        path: PathScope,
    },
    /// The cells of one destination rank, of all or one path class.
    Column {
        /// The destination rank.
        rank: usize,
        /// Which of its cells.
        path: PathScope,
    },
    /// One local index in one direction between two nodes, see [`RailSide`].
    Rail {
        /// The local index.
        local_index: usize,
        /// The node that sends.
        src_node: usize,
        /// The node that receives.
        dst_node: usize,
    },
    /// One cell.
    Point {
        /// Source rank.
        src: usize,
        /// Destination rank.
        dst: usize,
    },
    /// All cells from one node to another, or within one.
    Block {
        /// The source node.
        src_node: usize,
        /// The destination node.
        dst_node: usize,
    },
}

/// A place that stands out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outlier {
    /// Where.
    pub place: Place,
    /// Its cost over that of its peers.
    pub ratio: f64,
    /// Its robust score.
    pub score: f64,
}

/// Which side of a matrix tells the rail of an inter-node cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RailSide {
    /// The cells of one source rank in one other destination node (dispatch).
    Source,
    /// The cells of one destination rank from one other source node (combine).
    Destination,
}

/// The ratios at which groups and cells are outliers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// Rows, columns, rails and blocks.
    pub axis_ratio: f64,
    /// Points.
    pub point_ratio: f64,
}

/// Rows or columns that stand out, gathered over the path classes.
#[derive(Debug, Clone)]
pub(crate) struct Axes {
    found: Vec<[Option<(f64, f64)>; 2]>,
}

impl Axes {
    pub(crate) fn new(ranks: usize) -> Self {
        Self { found: vec![[None; 2]; ranks] }
    }

    pub(crate) fn clear(&mut self) {
        self.found.fill([None; 2]);
    }

    pub(crate) fn add(&mut self, rank: usize, class: usize, ratio: f64, score: f64) {
        self.found[rank][class] = Some((ratio, score));
    }

    /// Every rank once: with the largest ratio and score of the classes that found it, and the
    /// path they make together when `present` tells which classes have cells at all.
    pub(crate) fn outliers(
        &self,
        present: [bool; 2],
    ) -> impl Iterator<Item = (usize, PathScope, f64, f64)> + '_ {
        self.found.iter().enumerate().filter_map(move |(rank, &[intra, inter])| {
            let (path, (ratio, score)) = match (intra, inter) {
                (None, None) => return None,
                (Some(a), Some(b)) => (PathScope::All, (a.0.max(b.0), a.1.max(b.1))),
                (Some(a), None) if present[1] => (PathScope::IntraNode, a),
                (None, Some(b)) if present[0] => (PathScope::InterNode, b),
                (Some(only), None) | (None, Some(only)) => (PathScope::All, only),
            };
            Some((rank, path, ratio, score))
        })
    }
}
