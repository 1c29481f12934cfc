//! Random damage: an error or an artifact, never a panic. The fuzz target `artifact` goes further.

use proptest::prelude::*;

use crate::sample::{low_latency, normal, read_bytes, window};

fn seeds() -> [Vec<u8>; 3] {
    [
        normal(window(1, 1, 1, None)).to_bytes().unwrap(),
        normal(window(3, 2, 2, Some(1))).to_bytes().unwrap(),
        low_latency(3, 1).to_bytes().unwrap(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn changed_cut_and_repeated_bytes_never_panic(
        seed in 0_usize..3,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..12),
        cut in prop::option::of(any::<prop::sample::Index>()),
        repeat in prop::option::of((any::<prop::sample::Index>(), any::<prop::sample::Index>())),
    ) {
        let mut bytes = seeds()[seed].clone();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some((from, to)) = repeat {
            let (from, to) = (from.index(bytes.len()), to.index(bytes.len()));
            let piece = bytes[from.min(to)..from.max(to)].to_vec();
            let at = from.max(to);
            bytes.splice(at..at, piece);
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(artifact) = read_bytes(&bytes) {
            // What was accepted can be written again.
            prop_assert!(artifact.to_bytes().is_ok());
        }
    }

    #[test]
    fn bytes_that_are_no_archive_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        prop_assert!(read_bytes(&bytes).is_err());
    }
}
