//! A group of processes that reach the root over TCP.

mod doors;
mod leaf;
mod peer;
mod root;
mod rounds;
mod settings;
mod wire;

pub use settings::TcpGroup;
