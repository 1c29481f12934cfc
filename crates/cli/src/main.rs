//! The command `deepxtrace`.

#![forbid(unsafe_code)]

fn main() {}
