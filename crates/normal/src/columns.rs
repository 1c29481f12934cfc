//! Columns of a row-major matrix.

use std::ops::Range;

/// Columns that are gathered together, so that each cache line of the matrix is read once.
pub(crate) const COLUMNS: usize = 16;

/// Some columns of a matrix, each in one piece without the cells that are not there.
#[derive(Debug, Clone)]
pub(crate) struct Columns {
    lines: Vec<f64>,
    len: [usize; COLUMNS],
    height: usize,
}

impl Columns {
    pub(crate) fn new(height: usize) -> Self {
        Self { lines: vec![0.0; COLUMNS * height], len: [0; COLUMNS], height }
    }

    pub(crate) fn gather(&mut self, rows: &[f64], width: usize, columns: Range<usize>) {
        self.len = [0; COLUMNS];
        for row in rows.chunks_exact(width) {
            for (lane, &value) in row[columns.clone()].iter().enumerate() {
                let len = &mut self.len[lane];
                self.lines[lane * self.height + *len] = value;
                *len += usize::from(!value.is_nan());
            }
        }
    }

    pub(crate) fn line(&mut self, lane: usize) -> &mut [f64] {
        &mut self.lines[lane * self.height..][..self.len[lane]]
    }
}
