//! What a picture shows: a matrix or panels of bars, with a caption and marked places.

use std::ops::Range;

use deepxtrace_counters::Topology;
use ndarray::Array2;

/// One cell of a matrix.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cell {
    /// A value; one that is not finite is drawn as [`Cell::NoData`].
    Value(f64),
    /// Nothing was measured: hatched, never the colour of a value.
    NoData,
    /// Outside the test by its place, for instance a rank's traffic to itself: plain grey.
    Outside,
}

/// A rectangle of ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Area {
    /// Rows, the first axis of the matrix.
    pub rows: Range<usize>,
    /// Columns, the second axis.
    pub columns: Range<usize>,
}

/// Where a finding is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In the whole matrix.
    Everywhere,
    /// In these rectangles; none when the place is not in the matrix.
    Areas(Vec<Area>),
}

/// Something found: outlined where it is, numbered, and listed below the picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// What is said in the list.
    pub text: String,
    /// Where it is.
    pub place: Place,
}

/// How the outcome is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Nothing was found.
    Good,
    /// Something was found.
    Bad,
    /// It cannot be told.
    Neutral,
}

/// Everything that is written around a picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caption {
    /// The first line.
    pub title: String,
    /// Where and when, below the title.
    pub subtitle: String,
    /// The outcome in a word or two.
    pub outcome: Option<(Tone, String)>,
    /// What a reader must know besides, below the findings.
    pub notes: Vec<String>,
}

/// A matrix over the ranks of a group.
#[derive(Debug, Clone, PartialEq)]
pub struct MatrixPlot {
    /// Text around it.
    pub caption: Caption,
    /// The group; its node boundaries are drawn.
    pub topology: Topology,
    /// Label of the first axis, which runs downwards.
    pub row_axis: String,
    /// Label of the second axis.
    pub column_axis: String,
    /// What the values are, with their unit.
    pub value_label: String,
    /// What [`Cell::NoData`] means here.
    pub no_data_label: String,
    /// What [`Cell::Outside`] means here.
    pub outside_label: String,
    /// `[N, N]` cells.
    pub cells: Array2<Cell>,
    /// What was found, largest first.
    pub marks: Vec<Mark>,
}

/// One panel of bars, one bar a rank.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// What the bars show.
    pub title: String,
    /// The outcome in a word or two.
    pub outcome: Option<(Tone, String)>,
    /// One value a rank; `None` where nothing was measured.
    pub values: Vec<Option<f64>>,
    /// What was found, largest first: the ranks that are marked and the text in the list.
    pub marks: Vec<(usize, String)>,
    /// A dashed line at this value, with its label.
    pub limit: Option<(f64, String)>,
}

/// Panels of bars over the ranks of a group, one above the other. Values are nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct BarPlot {
    /// Text around it.
    pub caption: Caption,
    /// The group; its node boundaries are drawn.
    pub topology: Topology,
    /// The panels, from above.
    pub panels: Vec<Panel>,
}
