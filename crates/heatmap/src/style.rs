//! How a picture looks.

use crate::color::Colormap;
use crate::scale::ScaleChoice;

/// Whether values are written into the cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Annotate {
    /// Where every value fits into its cell.
    #[default]
    Auto,
    /// Always, however small.
    Always,
    /// Never.
    Never,
}

/// How a picture looks; the default suits every size of group.
#[derive(Debug, Clone, PartialEq)]
pub struct Style {
    /// Takes the place of the picture's own title.
    pub title: Option<String>,
    /// Width and height of the whole picture, inches; by default what the group needs.
    pub figsize: Option<(f64, f64)>,
    /// Height of a cell over its width.
    pub cell_ratio: f64,
    /// The colour map.
    pub colormap: Colormap,
    /// Linear or logarithmic colours.
    pub scale: ScaleChoice,
    /// Values in the cells.
    pub annotate: Annotate,
    /// Beginning of every id in the SVG; give each picture of one HTML page its own.
    pub id_prefix: String,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            title: None,
            figsize: None,
            cell_ratio: 1.0,
            colormap: Colormap::default(),
            scale: ScaleChoice::default(),
            annotate: Annotate::default(),
            id_prefix: "dx".into(),
        }
    }
}
