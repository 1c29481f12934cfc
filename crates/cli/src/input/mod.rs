//! Reading what users hand in. Every error says in one line which file, which place in it, what
//! was found and what would be right.

pub mod artifacts;
pub mod skipped;
pub mod snapshots;
pub mod waits;
