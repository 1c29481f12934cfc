//! Why there is no picture.

use thiserror::Error;

/// Why a picture cannot be made.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum PictureError {
    /// The cells are not one a pair of ranks.
    #[error(
        "matrix of {rows} x {columns} cells for a group of {ep_size} ranks, it must be {ep_size} x {ep_size}"
    )]
    Shape {
        /// Rows found.
        rows: usize,
        /// Columns found.
        columns: usize,
        /// Ranks of the group.
        ep_size: usize,
    },
    /// A panel does not have one value a rank.
    #[error("panel {panel:?} has {length} values for a group of {ep_size} ranks")]
    Panel {
        /// Title of the panel.
        panel: String,
        /// Values found.
        length: usize,
        /// Ranks of the group.
        ep_size: usize,
    },
    /// The size asked for leaves no room for the plot.
    #[error(
        "figure of {width} x {height} inches is too small, it must be at least {least_width:.1} x {least_height:.1}"
    )]
    TooSmall {
        /// Width asked for, inches.
        width: f64,
        /// Height asked for, inches.
        height: f64,
        /// Least width, inches.
        least_width: f64,
        /// Least height, inches.
        least_height: f64,
    },
    /// An option has a value that makes no picture.
    #[error("{option} is {value}, it must be {allowed}")]
    Option {
        /// The option.
        option: &'static str,
        /// Its value.
        value: f64,
        /// What is allowed.
        allowed: &'static str,
    },
    /// The raster image would be larger than this crate draws.
    #[error(
        "picture of {width} x {height} pixels at {dpi} dpi is too large, the limit is {limit} pixels: choose fewer dpi or a smaller figure"
    )]
    TooLarge {
        /// Width in pixels.
        width: u32,
        /// Height in pixels.
        height: u32,
        /// Dots an inch.
        dpi: f64,
        /// The largest number of pixels.
        limit: u64,
    },
    /// The drawing could not be turned into this format.
    #[error("cannot make a {format} of the drawing: {reason}")]
    Convert {
        /// The format.
        format: &'static str,
        /// What the converter said.
        reason: String,
    },
}
