//! Which keys a table certainly does not have, for one cache line per question.
//!
//! # Idea
//! A blocked Bloom filter (Putze, Sanders, Singler 2007): the hash of a key selects one line of 64
//! bytes and one bit in each of its eight words. A question costs one cache miss and no branch, so
//! that the misses of several tables' filters overlap when the engine asks them all before it
//! acts on any answer. At 10 bits per key about 1.2 % of the absent keys pass.
//!
//! # Layout
//! The lines one after the other, eight u64 each, little-endian. No header: the number of lines
//! follows from the length of the section. No lines at all: there is no filter and every key may
//! be there.
//!
//! # Which bits of the hash do what
//! The line comes from the upper 32 bits (multiplied by the number of lines), the bits within it
//! from the upper 48 bits of `(hash >> 8) * MIX`. The lowest byte takes no part: it is the tag by
//! which blocks find their entries, and a tag must tell apart the very keys that the filter let
//! pass.
//!
//! # Invariant
//! - I1: every key added is answered "maybe" (no false negatives).
#![cfg_attr(not(test), deny(clippy::indexing_slicing, clippy::unwrap_used))]

use gabion_media::prefetch_line;

/// Bytes of a line.
pub(super) const LINE_BYTES: usize = 64;
const WORDS: usize = 8;
/// Odd, from the digits of the golden ratio: it spreads every bit of its operand upwards.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

/// One line; aligned so that it never straddles two cache lines.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Line([u64; WORDS]);

const _: () = assert!(size_of::<Line>() == LINE_BYTES && align_of::<Line>() == LINE_BYTES);

/// A blocked Bloom filter in memory; one without lines lets everything pass.
#[derive(Clone, Debug, Default)]
pub(super) struct BloomFilter {
    lines: Vec<Line>,
}

impl BloomFilter {
    /// The filter of the keys with these hashes, about `bits_per_key` bits for each; with 0 bits a
    /// filter that lets everything pass.
    pub(super) fn build(hashes: &[u64], bits_per_key: u32) -> BloomFilter {
        let bits = hashes.len() as u64 * u64::from(bits_per_key);
        let count = usize::try_from(bits.div_ceil(LINE_BYTES as u64 * 8)).unwrap_or(0);
        let mut filter = BloomFilter {
            lines: vec![Line([0; WORDS]); count],
        };
        for hash in hashes {
            let at = filter.line_of(*hash);
            if let Some(line) = filter.lines.get_mut(at) {
                for (word, bit) in line.0.iter_mut().zip(bits_of(*hash)) {
                    *word |= 1 << bit;
                }
            }
        }
        filter
    }

    /// Whether the key with this hash may have been added: `false` is certain.
    #[inline]
    pub(super) fn may_contain(&self, hash: u64) -> bool {
        let Some(line) = self.lines.get(self.line_of(hash)) else {
            return self.lines.is_empty();
        };
        let mut found = 1;
        for (word, bit) in line.0.iter().zip(bits_of(hash)) {
            found &= word >> bit;
        }
        found != 0
    }

    /// Asks for the memory that [`BloomFilter::may_contain`] waits for.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        if let Some(line) = self.lines.get(self.line_of(hash)) {
            prefetch_line((&raw const line.0).cast());
        }
    }

    /// Appends the bytes that [`BloomFilter::decode`] takes.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(self.bytes());
        for line in &self.lines {
            for word in line.0 {
                out.extend_from_slice(&word.to_le_bytes());
            }
        }
    }

    /// Decodes a filter; `None` when the length is not a whole number of lines.
    pub(super) fn decode(bytes: &[u8]) -> Option<BloomFilter> {
        let (words, rest) = bytes.as_chunks::<8>();
        let (lines, odd) = words.as_chunks::<WORDS>();
        if !rest.is_empty() || !odd.is_empty() {
            return None;
        }
        let lines = lines
            .iter()
            .map(|line| Line(line.map(u64::from_le_bytes)))
            .collect();
        Some(BloomFilter { lines })
    }

    /// Bytes of the filter in memory and on the medium.
    pub(super) fn bytes(&self) -> usize {
        self.lines.len() * LINE_BYTES
    }

    #[inline]
    fn line_of(&self, hash: u64) -> usize {
        let line = (hash >> 32).wrapping_mul(self.lines.len() as u64) >> 32;
        usize::try_from(line).unwrap_or(usize::MAX)
    }
}

/// The eight bit positions (below 64) of a hash, one for each word of the line.
#[inline]
fn bits_of(hash: u64) -> [u64; WORDS] {
    let mixed = (hash >> 8).wrapping_mul(MIX) >> 16;
    [0, 6, 12, 18, 24, 30, 36, 42].map(|shift| mixed >> shift & 63)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::hash_key;
    use proptest::prelude::*;

    fn hashes(range: std::ops::Range<u64>) -> Vec<u64> {
        range.map(|n| hash_key(&n.to_le_bytes())).collect()
    }

    proptest! {
        #[test]
        fn has_no_false_negatives(hashes: Vec<u64>, bits in 0u32..30) {
            let filter = BloomFilter::build(&hashes, bits);
            let mut bytes = Vec::new();
            filter.encode(&mut bytes);
            prop_assert_eq!(bytes.len(), filter.bytes());
            let decoded = BloomFilter::decode(&bytes).unwrap();
            for hash in &hashes {
                prop_assert!(filter.may_contain(*hash));
                prop_assert!(decoded.may_contain(*hash));
            }
        }
    }

    #[test]
    fn false_positives_stay_within_bounds() {
        let filter = BloomFilter::build(&hashes(0..100_000), 10);
        let passed = hashes(1_000_000..1_200_000)
            .into_iter()
            .filter(|hash| filter.may_contain(*hash))
            .count();
        assert!(
            passed < 3200,
            "{passed} of 200,000 absent keys passed, bound 1.6 %"
        );
    }

    #[test]
    fn the_tag_of_a_key_does_not_follow_from_the_filter() {
        let filter = BloomFilter::build(&hashes(0..100_000), 10);
        for hash in hashes(0..1000) {
            assert!((0..256).all(|tag| filter.may_contain(hash & !255 | tag)));
        }
    }

    #[test]
    fn no_bits_mean_no_filter() {
        let filter = BloomFilter::build(&hashes(0..10), 0);
        assert_eq!(filter.bytes(), 0);
        assert!(filter.may_contain(77));
    }

    #[test]
    fn parts_of_lines_are_refused() {
        for len in [1, 8, 63, 65, 72] {
            assert!(BloomFilter::decode(&vec![0; len]).is_none());
        }
    }
}
