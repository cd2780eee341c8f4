//! The words that every room of the crate shares: sequence numbers, kinds of entries, the hash of
//! a key and the number that orders keys by their first bytes.

/// Position of a write in the store's total order of writes. The first write has number 1; 0 marks
/// "before all writes". Only 56 bits are used, so that a number and a kind fit in one word.
pub(crate) type Seq = u64;

/// The largest sequence number. At ten million writes per second it lasts for 228 years.
pub(crate) const SEQ_MAX: Seq = (1 << 56) - 1;

/// Levels of a bucket of WipDB (the paper's Lmax).
pub(crate) const INITIAL_LEVELS: usize = 3;

/// What an entry says about its key. The numbers are on media: never reuse one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// A tombstone: the key has no value from this sequence number on.
    Delete = 0,
    /// The key has the entry's value from this sequence number on.
    Put = 1,
    /// The key, and all keys above it and below the entry's value, have no value from this sequence
    /// number on. An empty value stands for the end of all keys.
    DeleteRange = 2,
    /// The key has a value from this sequence number on, and none from a moment on; what is stored
    /// is that moment and the value (`expiry`).
    PutExpiring = 3,
    /// Operands are merged into what the key has below this sequence number; what is stored is what
    /// they are, and what of the key they cover (`operands`).
    Merge = 4,
    /// An operand as it is handed in, in a write that is not committed yet. The commit makes one of
    /// the other kinds of it, so no medium ever has it.
    Operand = 5,
}

impl Kind {
    /// Whether entries of the kind are there to hide others.
    #[inline]
    pub(crate) fn is_tombstone(self) -> bool {
        matches!(self, Kind::Delete | Kind::DeleteRange)
    }

    /// Decodes a kind read from a medium; `None` for a number that this version does not know.
    pub(crate) fn from_u8(number: u8) -> Option<Kind> {
        match number {
            0 => Some(Kind::Delete),
            1 => Some(Kind::Put),
            2 => Some(Kind::DeleteRange),
            3 => Some(Kind::PutExpiring),
            4 => Some(Kind::Merge),
            5 => Some(Kind::Operand),
            _ => None,
        }
    }
}

/// The 64-bit hash of a key that MemTables, filters and distinct-count sketches share. It is on
/// media (filters, sketches), so it is part of the format: XXH3-64 with seed 0.
#[inline]
pub(crate) fn hash_key(key: &[u8]) -> u64 {
    xxhash_rust::xxh3::xxh3_64(key)
}

/// The first eight bytes of `key` as a number that orders as the bytes do; missing bytes are zero.
///
/// `prefix_of(a) < prefix_of(b)` implies `a < b`; equal prefixes say nothing.
#[inline]
pub(crate) fn prefix_of(key: &[u8]) -> u64 {
    prefix_after(key, 0)
}

/// As [`prefix_of`], of what follows the first `skip` bytes of `key`.
///
/// # Panics
/// When the key has fewer than `skip` bytes.
#[inline]
pub(crate) fn prefix_after(key: &[u8], skip: usize) -> u64 {
    let rest = &key[skip..];
    if let Some(bytes) = rest.first_chunk::<8>() {
        return u64::from_le_bytes(*bytes).swap_bytes();
    }
    // The key's last eight bytes, with those before `rest` shifted out: one load where copying a
    // length that is not known would be a call.
    match key.last_chunk::<8>() {
        _ if rest.is_empty() => 0,
        Some(bytes) => u64::from_le_bytes(*bytes).swap_bytes() << (64 - 8 * rest.len()),
        None => rest
            .iter()
            .rev()
            .fold(0, |prefix, byte| u64::from(*byte) << 56 | prefix >> 8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn prefix_orders_as_the_bytes_do(a: Vec<u8>, b: Vec<u8>) {
            if prefix_of(&a) < prefix_of(&b) {
                prop_assert!(a < b);
            }
        }
    }

    proptest! {
        #[test]
        fn prefix_after_is_the_prefix_of_the_rest(key: Vec<u8>, skip in 0usize..12) {
            let skip = skip.min(key.len());
            let mut padded = [0; 8];
            for (to, from) in padded.iter_mut().zip(&key[skip..]) {
                *to = *from;
            }
            let expected = u64::from_le_bytes(padded).swap_bytes();
            prop_assert_eq!(prefix_after(&key, skip), expected);
        }
    }

    #[test]
    fn kinds_survive_a_round_trip() {
        for number in 0..6 {
            let kind = Kind::from_u8(number).unwrap();
            assert_eq!(kind as u8, number);
        }
        assert_eq!(Kind::from_u8(6), None);
    }
}
