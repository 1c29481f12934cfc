//! Reproducible random numbers.
//!
//! Every stream is named by the seed, a purpose, a window and a rank, so that what one rank draws
//! does not depend on how much another one drew.

use rand_distr::{Distribution, StandardNormal};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

/// What a stream is for.
#[derive(Debug, Clone, Copy)]
pub enum Purpose {
    Bias,
    Experts,
    Tokens,
    Costs,
    Arrivals,
}

/// A stream of random numbers.
pub struct Stream(Xoshiro256PlusPlus);

impl Stream {
    pub fn new(seed: u64, purpose: Purpose, window: u64, rank: usize) -> Self {
        let parts = [purpose as u64, window, rank as u64];
        let key = parts.into_iter().fold(mix(seed), |key, part| mix(key ^ part));
        Self(Xoshiro256PlusPlus::seed_from_u64(key))
    }

    /// A standard normal number.
    pub fn normal(&mut self) -> f64 {
        StandardNormal.sample(&mut self.0)
    }
}

/// The finaliser of SplitMix64: neighbouring keys give unrelated values.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
