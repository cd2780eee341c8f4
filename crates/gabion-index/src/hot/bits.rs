//! Keys as strings of bits, and the few bits of them that a node looks at.
//!
//! A key that is a word is its 64 bits, the highest first. A string is its bytes, then zeros
//! without end, then its length, which lies behind the longest string that there can be. So no key
//! is the beginning of another one, and the order of keys is that of their bits: of two strings
//! that are equal but for zeros at an end, the shorter one is the lesser.

use crate::Item;
use crate::stored_key::word_of;

/// The number of a bit of a key, from 0 on.
pub(super) type Position = u64;

/// Where the length of a string stands, in bytes.
const LENGTH: u64 = u32::MAX as u64;

/// Bytes of a key, at most. A window over bytes ends before the length.
pub(super) const KEY_BYTES_MAX: u64 = LENGTH - 8;

/// Bits of a window.
const WINDOW_BITS: u64 = 64;

/// The offset in bytes of a window that begins with the byte of a bit.
pub(super) fn window_of(position: Position) -> u64 {
    (position / 8).min(LENGTH)
}

/// The first bit behind the window at an offset.
pub(super) fn end_of_window(offset: u64) -> Position {
    8 * offset + WINDOW_BITS
}

/// The bit of a window for a position in it.
pub(super) fn bit_in_window(offset: u64, position: Position) -> u64 {
    1 << (WINDOW_BITS - 1 - (position - 8 * offset))
}

/// The position of the first bit of a mask that lies over the window at an offset; the last one of
/// all, if there is no such window.
#[inline]
pub(super) fn first_position(offset: u64, mask: u64) -> Position {
    let offset = offset.min(LENGTH);
    let last = WINDOW_BITS - 1;
    8 * offset + u64::from(mask.leading_zeros()).min(last)
}

/// The 64 bits of a key from the byte at an offset on, the first one highest.
#[inline]
pub(super) fn window<K: Item + ?Sized>(key: &K, offset: u64) -> u64 {
    if K::IS_WORD {
        return key.word() << (8 * (offset & 7));
    }
    let bytes = key.bytes();
    if offset == LENGTH {
        return bytes.len() as u64;
    }
    let behind = usize::try_from(offset).ok().and_then(|at| bytes.get(at..));
    let behind = behind.unwrap_or_default();
    match behind.first_chunk::<8>() {
        Some(first) => u64::from_le_bytes(*first).swap_bytes(),
        None => word_of(behind),
    }
}

/// The first bit at which two keys differ; none if they are equal.
pub(super) fn differ<K: Item + ?Sized>(one: &K, two: &K) -> Option<Position> {
    if K::IS_WORD {
        let bits = one.word() ^ two.word();
        return (bits != 0).then(|| u64::from(bits.leading_zeros()));
    }
    let (one, two) = (one.bytes(), two.bytes());
    let longest = one.len().max(two.len());
    let byte = |bytes: &[u8], at: usize| bytes.get(at).copied().unwrap_or(0);
    let common = one.iter().zip(two).take_while(|(one, two)| one == two);
    let different = (common.count()..longest).find_map(|at| {
        let bits = byte(one, at) ^ byte(two, at);
        (bits != 0).then(|| 8 * at as u64 + u64::from(bits.leading_zeros()))
    });
    different.or_else(|| {
        let bits = one.len() as u64 ^ two.len() as u64;
        (bits != 0).then(|| first_position(LENGTH, bits))
    })
}

/// The bits of a word that a mask selects, next to each other, the last one lowest, and their
/// number. What the instruction PEXT does, in steps as many as the mask has runs: neighbours among
/// keys part at neighbours among bits, so these are few.
#[inline]
pub(super) fn extract(word: u64, mut mask: u64) -> (u64, u32) {
    let (mut bits, mut count) = (0, 0);
    while mask != 0 {
        let low = mask.trailing_zeros();
        let run = (mask >> low).trailing_ones();
        bits |= (word >> low & (u64::MAX >> (u64::BITS - run))) << count;
        count += run;
        // The sum carries through the lowest run and leaves no bit of it.
        mask &= mask.wrapping_add(1 << low);
    }
    (bits, count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The naive twin: bit by bit.
    fn naive(word: u64, mask: u64) -> (u64, u32) {
        let selected = (0..64).filter(|at| mask >> at & 1 == 1);
        let bits = selected
            .enumerate()
            .fold(0, |bits, (to, at)| bits | (word >> at & 1) << to);
        (bits, mask.count_ones())
    }

    /// A bit of a key, by the window at its byte.
    fn bit<K: Item + ?Sized>(key: &K, position: Position) -> bool {
        let offset = window_of(position);
        window(key, offset) & bit_in_window(offset, position) != 0
    }

    /// That keys part at a bit, and in their order.
    fn check<K: Item + ?Sized>(one: &K, two: &K) {
        let position = differ(one, two);
        assert_eq!(position.is_none(), one == two);
        assert_eq!(position, differ(two, one));
        if let Some(position) = position {
            assert_ne!(bit(one, position), bit(two, position));
            assert_eq!(bit(one, position), one > two, "{one:?} {two:?}");
            for before in (0..position.min(600)).chain(position.max(9) - 9..position) {
                assert_eq!(
                    bit(one, before),
                    bit(two, before),
                    "{one:?} {two:?} {before}"
                );
            }
        }
    }

    #[test]
    fn strings_that_begin_alike_part() {
        let mut keys: Vec<Vec<u8>> = (0..20).map(|length| vec![0; length]).collect();
        keys.extend((0..20).map(|length| vec![7; length]));
        keys.extend((0..20).map(|length| [vec![7; length], vec![0, 0, 1]].concat()));
        for one in &keys {
            for two in &keys {
                check(&one[..], &two[..]);
            }
        }
    }

    #[test]
    fn extremes_of_masks() {
        for mask in [0, 1, u64::MAX, 1 << 63, 0x8000_0000_0000_0001, u64::MAX - 1] {
            for word in [0, u64::MAX, 0x0123_4567_89ab_cdef] {
                assert_eq!(extract(word, mask), naive(word, mask), "{mask:x}");
            }
        }
    }

    proptest! {
        #[test]
        fn bits_are_extracted_as_one_by_one(word: u64, mask: u64, other: u64) {
            prop_assert_eq!(extract(word, mask), naive(word, mask));
            let sparse = mask & other & other.rotate_left(17);
            prop_assert_eq!(extract(word, sparse), naive(word, sparse));
        }

        #[test]
        fn words_part_at_a_bit(one: u64, two: u64, shift in 0..64_u32) {
            check(&one, &two);
            check(&one, &(one ^ 1 << shift));
        }

        #[test]
        fn strings_part_at_a_bit(
            one in prop::collection::vec(0..3_u8, 0..20),
            two in prop::collection::vec(0..3_u8, 0..20),
        ) {
            check(&one[..], &two[..]);
        }
    }
}
