//! A group of MPI ranks.

mod farewell;
mod group;
mod leaf;
mod message;
mod raw;
mod root;

pub use group::MpiGroup;
