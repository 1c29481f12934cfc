//! Names of communicators that all members find without talking to each other.

/// FNV-1a, 64 bits, over pieces of bytes as if they stood one behind the other.
///
/// ```
/// use deepxtrace_nccl_ring::fnv1a;
///
/// assert_eq!(fnv1a(&[b"a"]), 0xaf63_dc4c_8601_ec8c);
/// assert_eq!(fnv1a(&[b"foo", b"bar"]), fnv1a(&[b"foobar"]));
/// ```
#[must_use]
pub fn fnv1a(pieces: &[&[u8]]) -> u64 {
    let bytes = pieces.iter().flat_map(|piece| piece.iter());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Hash of a split's child: the parent's hash, the ordinal of the split on the parent, the colour.
#[must_use]
pub fn split_hash(parent: u64, ordinal: u64, color: i32) -> u64 {
    fnv1a(&[&parent.to_le_bytes(), b"split", &ordinal.to_le_bytes(), &color.to_le_bytes()])
}

/// Hash of a shrink's child: the parent's hash, the ordinal, the excluded ranks in any order.
#[must_use]
pub fn shrink_hash(parent: u64, ordinal: u64, excluded: &[i32]) -> u64 {
    let mut excluded = excluded.to_vec();
    excluded.sort_unstable();
    let list: Vec<u8> = excluded.iter().flat_map(|rank| rank.to_le_bytes()).collect();
    fnv1a(&[&parent.to_le_bytes(), b"shrink", &ordinal.to_le_bytes(), &list])
}

/// Hash of a grown communicator as its old ranks see it: the parent's hash and the ordinal.
#[must_use]
pub fn grow_hash(parent: u64, ordinal: u64) -> u64 {
    fnv1a(&[&parent.to_le_bytes(), b"grow", &ordinal.to_le_bytes()])
}

#[cfg(test)]
mod tests {
    use super::{fnv1a, grow_hash, shrink_hash, split_hash};

    #[test]
    fn known_values_of_the_published_function() {
        assert_eq!(fnv1a(&[]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(&[b"foobar"]), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn children_differ_by_parent_kind_ordinal_and_colour() {
        let hashes = [
            split_hash(1, 0, 0),
            split_hash(2, 0, 0),
            split_hash(1, 1, 0),
            split_hash(1, 0, 1),
            shrink_hash(1, 0, &[]),
            shrink_hash(1, 0, &[0]),
            grow_hash(1, 0),
            grow_hash(1, 1),
        ];
        for (place, hash) in hashes.iter().enumerate() {
            assert!(!hashes[..place].contains(hash), "{place}");
        }
    }

    #[test]
    fn the_order_of_the_excluded_ranks_does_not_count() {
        assert_eq!(shrink_hash(9, 3, &[5, 2, 7]), shrink_hash(9, 3, &[7, 5, 2]));
    }
}
