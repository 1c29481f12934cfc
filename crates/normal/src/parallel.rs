//! The same work on every piece of a slice: one after the other, or with the feature `rayon` on
//! all threads where the slice is large.
//!
//! A piece writes only to itself and to its own slots, so the order of pieces changes nothing.

/// Values from which more threads pay for their start.
#[cfg(feature = "rayon")]
const MANY: usize = 1 << 15;

/// Calls `work` with the number of each piece of `len` values, the piece, and its `per` slots.
/// `scratch` is for one thread; others make their own.
pub(crate) fn pieces<T: Send, S>(
    values: &mut [f64],
    len: usize,
    (slots, per): (&mut [T], usize),
    (scratch, make): (&mut S, impl Fn() -> S + Sync + Send),
    work: impl Fn(usize, &mut [f64], &mut [T], &mut S) + Sync + Send,
) {
    #[cfg(feature = "rayon")]
    if values.len() >= MANY {
        use rayon::prelude::*;

        let pieces = values.par_chunks_mut(len).zip(slots.par_chunks_mut(per)).enumerate();
        pieces.for_each_init(make, |scratch, (i, (piece, slots))| work(i, piece, slots, scratch));
        return;
    }
    let _ = make;
    for (i, (piece, slots)) in values.chunks_mut(len).zip(slots.chunks_mut(per)).enumerate() {
        work(i, piece, slots, scratch);
    }
}

/// Calls `work` with the number of each piece of `len` values, and the piece.
pub(crate) fn each(values: &mut [f64], len: usize, work: impl Fn(usize, &mut [f64]) + Sync + Send) {
    #[cfg(feature = "rayon")]
    if values.len() >= MANY {
        use rayon::prelude::*;

        values.par_chunks_mut(len).enumerate().for_each(|(i, piece)| work(i, piece));
        return;
    }
    values.chunks_mut(len).enumerate().for_each(|(i, piece)| work(i, piece));
}

/// Calls `work` with the number of each piece of `per` slots, and the piece, which all look at the
/// same `values` values.
pub(crate) fn slots<T: Send, S>(
    values: usize,
    (slots, per): (&mut [T], usize),
    (scratch, make): (&mut S, impl Fn() -> S + Sync + Send),
    work: impl Fn(usize, &mut [T], &mut S) + Sync + Send,
) {
    #[cfg(feature = "rayon")]
    if values >= MANY {
        use rayon::prelude::*;

        let pieces = slots.par_chunks_mut(per).enumerate();
        pieces.for_each_init(make, |scratch, (i, slots)| work(i, slots, scratch));
        return;
    }
    let _ = (values, make);
    slots.chunks_mut(per).enumerate().for_each(|(i, slots)| work(i, slots, scratch));
}

/// Does both, at the same time where `many` values are at stake.
pub(crate) fn both(many: usize, first: impl FnOnce() + Send, second: impl FnOnce() + Send) {
    #[cfg(feature = "rayon")]
    if many >= MANY / 8 {
        rayon::join(first, second);
        return;
    }
    let _ = many;
    first();
    second();
}
