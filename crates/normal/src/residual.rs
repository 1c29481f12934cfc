//! Step 5: what no group explains.

use crate::family::{FLOOR, MAD_TO_SIGMA};
use crate::policy::MIN_SCORE;
use crate::select;

/// The scale on which residuals are judged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Residuals {
    centre: f64,
    scale: f64,
}

impl Residuals {
    /// The scale of `values`, which are permuted; `None` without any.
    pub(crate) fn new(values: &mut [f64], sigma: f64) -> Option<Self> {
        let centre = select::median(values)?;
        let mad = select::deviation(values, centre)?;
        Some(Self { centre, scale: (MAD_TO_SIGMA * mad).max(sigma).max(FLOOR) })
    }

    /// Ratio and score of a residual that stands out by at least `min_ratio` and the robust score.
    #[inline]
    pub(crate) fn judge(&self, residual: f64, min_ratio: f64) -> Option<(f64, f64)> {
        let score = (residual - self.centre) / self.scale;
        // Written so that NaN, a cell that is not there, is no finding.
        if score >= MIN_SCORE {
            let ratio = residual.exp();
            (ratio >= min_ratio).then_some((ratio, score))
        } else {
            None
        }
    }
}
