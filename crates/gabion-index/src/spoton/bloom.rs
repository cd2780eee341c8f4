//! A Bloom filter of one cache line, for the keys of a leaf.
//!
//! A key has a word of the eight and four bits in it, so that a question is one load. With 45 keys
//! in a leaf, as a tree of random keys has on average, one of 110 absent keys seems to be there;
//! with 64, one of 30.

use std::sync::atomic::{AtomicU64, Ordering};

/// A filter.
#[derive(Debug, Default)]
pub(crate) struct Bloom([AtomicU64; 8]);

/// What a filter is to hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words([u64; 8]);

impl Words {
    /// Of keys, by their hashes.
    pub(crate) fn of(hashes: impl Iterator<Item = u64>) -> Words {
        let mut words = [0; 8];
        for hash in hashes {
            let (word, bits) = place(hash);
            words[word] |= bits;
        }
        Words(words)
    }
}

/// The word of a hash, and its bits in that word.
#[inline]
fn place(hash: u64) -> (usize, u64) {
    let bit = |at: u32| 1_u64 << (hash >> at & 63);
    ((hash & 7) as usize, bit(3) | bit(9) | bit(15) | bit(21))
}

/// The tag of a hash: bits that the filter does not use.
#[inline]
pub(crate) fn tag_of(hash: u64) -> u8 {
    (hash >> 56 & 0xff) as u8
}

// ORDER: Acquire and Release throughout: whoever writes holds the lock of the node, whose word the
// reader looks at before and after.
impl Bloom {
    /// Whether a key with this hash may be there.
    #[inline]
    pub(crate) fn may_hold(&self, hash: u64) -> bool {
        let (word, bits) = place(hash);
        self.0[word].load(Ordering::Acquire) & bits == bits
    }

    /// Adds a key by its hash.
    #[inline]
    pub(crate) fn add(&self, hash: u64) {
        let (word, bits) = place(hash);
        let word = &self.0[word];
        // ORDER: as above.
        word.store(word.load(Ordering::Acquire) | bits, Ordering::Release);
    }

    /// Takes all keys out and adds others.
    pub(crate) fn refill(&self, hashes: impl Iterator<Item = u64>) {
        self.set(Words::of(hashes));
    }

    /// Takes all keys out and adds those of other words.
    pub(crate) fn set(&self, words: Words) {
        for (cell, word) in self.0.iter().zip(words.0) {
            // ORDER: as above.
            cell.store(word, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seed;

    #[test]
    fn no_key_is_missed_and_few_seem_to_be_there() {
        let seed = Seed::new(3);
        let (mut wrong, mut asked) = (0, 0);
        for round in 0..200_u64 {
            let bloom = Bloom::default();
            let hash = |key: u64| seed.hash_u64(round << 32 | key);
            (0..20).for_each(|key| bloom.add(hash(key)));
            bloom.refill((0..44).map(hash));
            bloom.add(hash(44));
            assert!((0..45).all(|key| bloom.may_hold(hash(key))));
            wrong += (1000..2000)
                .filter(|key| bloom.may_hold(hash(*key)))
                .count();
            asked += 1000;
        }
        // The paper measures 5 %.
        assert!(wrong * 50 < asked, "{wrong} of {asked}");
    }
}
