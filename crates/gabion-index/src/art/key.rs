//! Keys as strings of bytes: those of a word from the highest to the lowest, so that their order is
//! that of the words.

use crate::Item;

/// Where a key goes on from a node.
pub(super) type Branch = Option<u8>;

/// Number of bytes.
#[inline]
pub(super) fn len<K: Item + ?Sized>(key: &K) -> usize {
    if K::IS_WORD { 8 } else { key.bytes().len() }
}

/// The byte at a place that the key has.
#[inline]
pub(super) fn byte<K: Item + ?Sized>(key: &K, at: usize) -> u8 {
    if K::IS_WORD {
        (key.word() >> (56 - 8 * at) & 0xff) as u8
    } else {
        key.bytes()[at]
    }
}

/// The byte that decides at a level; none if the key ends there.
#[inline]
pub(super) fn branch<K: Item + ?Sized>(key: &K, level: usize) -> Branch {
    (level < len(key)).then(|| byte(key, level))
}

/// The eight bytes before a level that the key reaches, or as many as there are.
#[inline]
pub(super) fn before<K: Item + ?Sized>(key: &K, level: usize) -> u64 {
    if K::IS_WORD {
        return if level == 0 {
            0
        } else {
            key.word() >> (64 - 8 * level)
        };
    }
    let bytes = &key.bytes()[level.saturating_sub(8)..level];
    bytes
        .iter()
        .fold(0, |word, &byte| word << 8 | u64::from(byte))
}

/// The bits of the last `count` bytes of a word, of at most eight.
#[inline]
pub(super) fn mask(count: usize) -> u64 {
    if count == 0 {
        return 0;
    }
    u64::MAX >> (64 - 8 * count.min(8))
}

/// How many bytes two keys begin with in common.
pub(super) fn common<K: Item + ?Sized>(one: &K, two: &K) -> usize {
    if K::IS_WORD {
        return (one.word() ^ two.word()).leading_zeros() as usize / 8;
    }
    let pairs = one.bytes().iter().zip(two.bytes());
    pairs.take_while(|(one, two)| one == two).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_bytes_from_the_highest_on() {
        let word = 0x0102_0304_0506_0708_u64;
        let bytes = &[1, 2, 3, 4, 5, 6, 7, 8][..];
        assert_eq!((len(&word), len(bytes)), (8, 8));
        for level in 0..=8 {
            assert_eq!(before(&word, level), before(bytes, level));
            assert_eq!(branch(&word, level), branch(bytes, level));
        }
        assert_eq!(before(&word, 3), 0x01_0203);
        assert_eq!(branch(&word, 8), None);
        assert_eq!(common(&word, &0x0102_0300_0506_0708), 3);
        assert_eq!(common(&word, &word), 8);
        assert_eq!(common(bytes, &[1, 2][..]), 2);
        assert_eq!([0, 1, 8, 9].map(mask), [0, 0xff, u64::MAX, u64::MAX]);
    }
}
