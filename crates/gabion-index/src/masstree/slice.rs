//! Slices of keys: the words of layers.
//!
//! A key that is a word is its only slice. A string is cut into pieces of seven bytes, which stand
//! in the upper seven bytes of a word, the first one highest, zeros behind the last; in the lowest
//! byte stands their number, or 8 if the string goes on behind them. So slices are in the order of
//! the strings.

use crate::Item;
use crate::stored_key::{bytes_of, word_of};

/// Bytes of a string in a slice.
pub(super) const PIECE: usize = 7;
/// In the lowest byte of a slice: the string goes on.
const MORE: u64 = 8;

/// The slice of a string.
#[inline]
pub(super) fn of_bytes(bytes: &[u8]) -> u64 {
    let piece = &bytes[..bytes.len().min(PIECE)];
    let mark = if bytes.len() > PIECE {
        MORE
    } else {
        piece.len() as u64
    };
    word_of(piece) | mark
}

/// The slice of a key for the layer of a depth. It has one there.
#[inline]
pub(super) fn of<K: Item + ?Sized>(key: &K, depth: usize) -> u64 {
    if K::IS_WORD {
        return key.word();
    }
    of_bytes(&key.bytes()[PIECE * depth..])
}

/// Whether a slice ends its key.
#[inline]
pub(super) fn is_last<K: Item + ?Sized>(slice: u64) -> bool {
    K::IS_WORD || slice & 0xff < MORE
}

/// What is behind the slice of a depth of a key, if anything is.
#[inline]
pub(super) fn rest<K: Item + ?Sized>(key: &K, depth: usize) -> &[u8] {
    key.bytes().get(PIECE * (depth + 1)..).unwrap_or_default()
}

/// How many slices two different strings have in common.
pub(super) fn common(one: &[u8], two: &[u8]) -> usize {
    let equal = std::iter::zip(one, two).take_while(|(one, two)| one == two);
    // A slice tells whether more follows.
    let shorter = one.len().min(two.len()).saturating_sub(1);
    equal.count().min(shorter) / PIECE
}

/// The key of a slice, those before it, and what is behind it.
pub(super) fn key<K: Item + ?Sized>(before: &[u64], slice: u64, rest: &[u8]) -> K::Owned {
    if K::IS_WORD {
        return K::rebuild(slice, &[]);
    }
    let mut bytes = Vec::with_capacity(PIECE * (before.len() + 1) + rest.len());
    for slice in before.iter().chain([&slice]) {
        let count = usize::from(bytes_of(*slice)[PIECE]).min(PIECE);
        bytes.extend_from_slice(&bytes_of(*slice)[..count]);
    }
    bytes.extend_from_slice(rest);
    K::rebuild(0, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published code compares strings wrongly whose length is no multiple of eight.
    #[test]
    fn slices_are_in_the_order_of_strings() {
        let mut strings: Vec<Vec<u8>> = (0..20).map(|len| vec![0; len]).collect();
        strings.extend((0..20).map(|len| vec![255; len]));
        strings.extend((1..20).map(|len| [vec![0; len - 1], vec![1]].concat()));
        let slices = |string: &[u8]| -> Vec<u64> {
            let mut slices = vec![of(string, 0)];
            while !is_last::<[u8]>(*slices.last().expect("one")) {
                slices.push(of(string, slices.len()));
            }
            slices
        };
        for one in &strings {
            let [before @ .., last] = &slices(one)[..] else {
                unreachable!("there is a slice");
            };
            assert_eq!(&key::<[u8]>(before, *last, &[]), one);
            for two in &strings {
                assert_eq!(
                    slices(one).cmp(&slices(two)),
                    one.cmp(two),
                    "{one:?} {two:?}"
                );
            }
        }
        for one in &strings {
            for two in strings.iter().filter(|two| *two != one) {
                let equal = std::iter::zip(slices(one), slices(two)).take_while(|(a, b)| a == b);
                assert_eq!(common(one, two), equal.count(), "{one:?} {two:?}");
            }
        }
        assert_eq!(rest(&b"granite stone"[..], 0), b" stone");
        assert_eq!(rest(&b"gabbro"[..], 0), b"");
        assert!(is_last::<u64>(8) && key::<u64>(&[], 8, &[]) == 8);
    }
}
