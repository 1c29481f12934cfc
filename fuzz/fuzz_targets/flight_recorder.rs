//! Whatever bytes stand for the dumps of two ranks: reading them and judging them ends, within the
//! limits on memory, and what was read can be judged.

#![no_main]

use deepxtrace_nccl_h2::fr::{DumpSet, Limits, Options};
use libfuzzer_sys::fuzz_target;

const LIMITS: Limits = Limits { bytes: 1 << 20, values: 1 << 16, depth: 64 };

fuzz_target!(|bytes: &[u8]| {
    let (first, second) = bytes.split_at(bytes.len() / 2);
    for dumps in [&[(0, bytes)][..], &[(0, bytes), (1, bytes)], &[(0, first), (1, second)]] {
        if let Ok(set) = DumpSet::from_memory(dumps, &LIMITS) {
            let report = set.analyze(&Options::default());
            for found in &report.findings {
                assert!(found.to_json().starts_with('{'));
            }
            for note in &report.notes {
                assert!(!note.to_string().is_empty());
            }
        }
    }
});
