//! A group of processes that reach the root over TCP.

mod doors;
#[cfg(test)]
mod large;
mod leaf;
mod peer;
mod root;
mod rounds;
mod secret;
mod settings;

pub use settings::TcpGroup;
