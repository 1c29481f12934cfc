//! Diagnoses for people.

pub mod dumps;
pub mod ll;
pub mod nccl;
pub mod normal;
pub mod ras;

/// The first of many, and how many more there are.
fn shown<T>(all: &[T], most: usize) -> (&[T], usize) {
    let shown = all.get(..most).unwrap_or(all);
    (shown, all.len() - shown.len())
}
