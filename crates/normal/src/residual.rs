//! Step 5: what no group explains.

use crate::family::{FLOOR, MAD_TO_SIGMA};
use crate::policy::MIN_SCORE;

/// The scale on which residuals are judged.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Residuals {
    centre: f64,
    scale: f64,
}

impl Residuals {
    /// The scale of residuals with this median and median absolute deviation.
    pub(crate) fn new(centre: f64, mad: f64, sigma: f64) -> Self {
        Self { centre, scale: (MAD_TO_SIGMA * mad).max(sigma).max(FLOOR) }
    }

    /// Whether one of `residuals` may stand out; a quick look at many.
    #[inline]
    pub(crate) fn any(&self, residuals: &[f64], min_ratio: f64) -> bool {
        // A little below both bounds, so that rounding decides nothing here. NaN compares false.
        let bound = min_ratio.ln().max(self.centre + MIN_SCORE * self.scale);
        let bound = bound - 1e-9 * (1.0 + bound.abs());
        residuals.iter().filter(|&&residual| residual > bound).count() > 0
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
