//! One low-latency matrix: the mean-ratio rule, and both rules.

use std::error::Error;
use std::hint::black_box;

use deepxtrace_counters::Topology;
use deepxtrace_ll::{LlDiagnoser, MeanRatioPolicy, MeanRatioRule};
use deepxtrace_normal::Policy;
use ndarray::Array2;

use crate::timing::{one_pass, show, side_by_side};

/// Prints the table, up to `largest` ranks.
pub fn table(largest: usize) -> Result<(), Box<dyn Error>> {
    println!("Low-latency matrix, one core");
    println!("floor: one pass over the matrix, a sum of integers\n");
    println!("| N | mean rule | floor | x floor | both rules | x floor |");
    println!("|---|---|---|---|---|---|");
    for ranks in [16, 64, 256, 1024, 4096].into_iter().filter(|&ranks| ranks <= largest) {
        let matrix = matrix(ranks);
        let policy = MeanRatioPolicy::default();
        let pass = |_| {
            black_box(one_pass(black_box(&matrix).as_slice().unwrap_or_default()));
        };
        let mut mean = MeanRatioRule::new(policy)?;
        let rule = side_by_side(
            |_| {
                black_box(mean.diagnose(black_box(matrix.view())));
            },
            pass,
        );
        let topology = Topology::new(ranks, 8)?;
        let mut both = LlDiagnoser::new(topology, policy, Policy::default())?;
        let mut failed = None;
        let rules = side_by_side(
            |_| {
                if let Err(error) = both.diagnose(black_box(matrix.view())).map(black_box) {
                    failed = Some(error);
                }
            },
            pass,
        );
        if let Some(error) = failed {
            return Err(error.into());
        }
        println!(
            "| {ranks} | {} | {} | {:.2} | {} | {:.1} |",
            show(rule.work),
            show(rule.floor),
            rule.ratio(),
            show(rules.work),
            rules.ratio(),
        );
    }
    println!();
    Ok(())
}

/// Healthy waits: intra-node ones are 20 times shorter, each with its own noise.
fn matrix(ranks: usize) -> Array2<i64> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    Array2::from_shape_fn((ranks, ranks), |(waiter, awaited)| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let level = if waiter / 8 == awaited / 8 { 50_000 } else { 1_000_000 };
        let noise = (state % (level / 10)).cast_signed();
        if waiter == awaited { 0 } else { level.cast_signed() + noise }
    })
}

/// One matrix of `ranks` ranks, diagnosed `repeats` times by the mean rule: for instruction counts.
pub fn repeat_mean(ranks: usize, repeats: usize) -> Result<(), Box<dyn Error>> {
    let matrix = matrix(ranks);
    let mut rule = MeanRatioRule::new(MeanRatioPolicy::default())?;
    for _ in 0..repeats {
        black_box(rule.diagnose(black_box(matrix.view())));
    }
    Ok(())
}

/// One matrix of `ranks` ranks, diagnosed `repeats` times by both rules: for instruction counts.
pub fn repeat(ranks: usize, repeats: usize) -> Result<(), Box<dyn Error>> {
    let matrix = matrix(ranks);
    let topology = Topology::new(ranks, 8)?;
    let mut both = LlDiagnoser::new(topology, MeanRatioPolicy::default(), Policy::default())?;
    for _ in 0..repeats {
        black_box(both.diagnose(black_box(matrix.view()))?);
    }
    Ok(())
}
