//! Seeded hashing.
//!
//! Every table draws a seed of its own when it is created and keeps it on its medium, so that keys
//! which collide in one table do not in another, and nobody who cannot read the seed can choose
//! keys that all fall into one bucket. The functions are part of the format of every table: they
//! must never change for a table that exists. Golden values in the tests hold them.
//!
//! Strings are hashed by XXH3, whose specification is frozen. Words are hashed by a function of our
//! own, because a lookup waits for the hash before it can ask for any line, and the result is there
//! in half the time of XXH3 for eight bytes: it folds two 128-bit products, each the product of two
//! 64-bit words whose halves are added without carry. Two of the four secrets enter each product.
//! Neither is a cryptographic function.

use xxhash_rust::xxh3::xxh3_64_with_seed;

/// The first 64 bits of the fraction of pi, four times: what the secrets are made from.
const PI: [u64; 4] = [
    0x243f_6a88_85a3_08d3,
    0x1319_8a2e_0370_7344,
    0xa409_3822_299f_31d0,
    0x082e_fa98_ec4e_6c89,
];

/// The secrets that a table's seed expands to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed {
    seed: u64,
    secrets: [u64; 4],
}

impl Seed {
    /// The secrets of `seed`. The same seed gives the same hashes for ever.
    #[must_use]
    pub fn new(seed: u64) -> Seed {
        let mut state = seed;
        let secrets = PI.map(|digits| {
            state = fold(state ^ digits, PI[1] | 1) ^ seed.rotate_left(32);
            // An odd factor keeps products from losing low bits.
            state | 1
        });
        Seed { seed, secrets }
    }

    /// A seed that nobody else knows, from the system's randomness.
    #[must_use]
    pub fn random() -> u64 {
        use std::hash::{BuildHasher, RandomState};
        RandomState::new().hash_one(0_u64)
    }

    /// The hash of a word.
    #[inline]
    #[must_use]
    pub fn hash_u64(&self, key: u64) -> u64 {
        let [a, b, c, d] = self.secrets;
        fold(fold(key ^ a, b) ^ c, d)
    }

    /// The hash of a string of bytes.
    #[inline]
    #[must_use]
    pub fn hash_bytes(&self, key: &[u8]) -> u64 {
        xxh3_64_with_seed(key, self.seed)
    }
}

/// The halves of the 128-bit product, added without carry.
#[inline]
pub(crate) fn fold(one: u64, two: u64) -> u64 {
    let product = u128::from(one) * u128::from(two);
    #[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
    let low = product as u64;
    low ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// A table on a medium is lost when any of these changes.
    #[test]
    fn the_function_is_part_of_the_format() {
        let seed = Seed::new(7);
        assert_eq!(seed.hash_u64(0), GOLDEN_ZERO);
        assert_eq!(seed.hash_u64(u64::MAX), GOLDEN_MAX);
        let texts = [&b""[..], b"gabion, a basket of stones"];
        let hashes = texts.map(|text| seed.hash_bytes(text));
        assert_eq!(hashes, [GOLDEN_EMPTY, GOLDEN_TEXT], "{hashes:#x?}");
    }

    const GOLDEN_ZERO: u64 = 0x242e_791a_6ca3_995e;
    const GOLDEN_MAX: u64 = 0xfdb8_ca04_71f4_7785;
    const GOLDEN_EMPTY: u64 = 0x913a_e087_3e9b_7eb8;
    const GOLDEN_TEXT: u64 = 0x7b1d_ec59_b9aa_476c;

    /// Counts how evenly `hashes` fall by 8 of their bits, as chi squared over its mean of 255.
    fn unevenness(hashes: &[u64], shift: u32) -> f64 {
        let mut counts = [0_u32; 256];
        for hash in hashes {
            counts[(hash >> shift & 0xff) as usize] += 1;
        }
        let mean = hashes.len() as f64 / 256.0;
        let chi: f64 = counts
            .iter()
            .map(|&count| (f64::from(count) - mean).powi(2) / mean)
            .sum();
        chi / 255.0
    }

    type Pattern = fn(u64) -> u64;

    /// Chi squared over 255 degrees of freedom has a deviation of 0.089 of its mean; six of them
    /// are allowed, and a function that loses a bit misses by far more.
    #[test]
    fn patterns_of_keys_spread_over_all_bits() {
        let patterns: [(&str, Pattern); 5] = [
            ("counted", |i| i),
            ("in steps of a page", |i| i << 12),
            ("in the high half", |i| i << 32),
            ("in the top bits", |i| i.reverse_bits()),
            ("two digits", |i| (i & 0xff) | (i >> 8) << 56),
        ];
        for seed in [0, 1, 0x5eed] {
            let seed = Seed::new(seed);
            for (name, pattern) in patterns {
                let words: Vec<u64> = (0..1 << 16).map(|i| seed.hash_u64(pattern(i))).collect();
                let bytes: Vec<u64> = (0..1 << 16)
                    .map(|i| seed.hash_bytes(&pattern(i).to_le_bytes()))
                    .collect();
                for shift in (0..=56).step_by(8) {
                    for (kind, hashes) in [("words", &words), ("bytes", &bytes)] {
                        let chi = unevenness(hashes, shift);
                        assert!(chi < 1.54, "{kind} {name}, bits {shift}..: {chi}");
                    }
                }
            }
        }
    }

    #[test]
    fn strings_of_all_lengths_differ() {
        let seed = Seed::new(3);
        let zeros = [0; 100];
        let hashes: HashSet<u64> = (0..=100).map(|n| seed.hash_bytes(&zeros[..n])).collect();
        assert_eq!(hashes.len(), 101);
    }

    #[test]
    fn another_seed_gives_another_order() {
        let (one, two) = (Seed::new(1), Seed::new(2));
        let same = (0..1000_u64)
            .filter(|&i| one.hash_u64(i) & 0xff == two.hash_u64(i) & 0xff)
            .count();
        assert!(same < 20, "{same} of 1000 keys share 8 bits");
        assert_ne!(Seed::random(), Seed::random());
    }
}
