//! Keys and values: what an index can be asked for, and how it stands in a slot of 8 bytes.
//!
//! A key is a word (`u64`) or a string of bytes (`[u8]`) of any length, the empty one included; so
//! is a value. An index that stores both as words has all of an entry in its slots. Every other one
//! keeps a record elsewhere and a word that stands for the key in the slot: the key itself if it is
//! a word, else its hash.

use crate::Seed;
use std::fmt::Debug;
use std::hash::Hash;

mod sealed {
    pub trait Sealed {}
    impl Sealed for u64 {}
    impl Sealed for [u8] {}
}

/// A kind of keys or values: `u64` or `[u8]`.
pub trait Item: sealed::Sealed + Debug + Ord + Hash + Send + Sync + 'static {
    /// Whether all of it is one word.
    const IS_WORD: bool;

    /// An item to keep: `u64`, or `Vec<u8>`.
    type Owned: Clone + Debug + Ord + Hash + Send + Sync + std::borrow::Borrow<Self> + 'static;

    /// The word, or 0 for a string.
    fn word(&self) -> u64;

    /// The string, or none for a word.
    fn bytes(&self) -> &[u8];

    /// The item that has this word or this string, whichever counts for its kind.
    fn rebuild(word: u64, bytes: &[u8]) -> Self::Owned;

    /// The least item above this one; none above the greatest word.
    fn successor(&self) -> Option<Self::Owned>;

    /// The seeded hash.
    fn seeded_hash(&self, seed: &Seed) -> u64;

    /// The word that stands for a key in a slot: the key, or its hash.
    #[inline]
    fn slot_word(&self, hash: u64) -> u64 {
        if Self::IS_WORD { self.word() } else { hash }
    }

    /// The hash of a key by what stands in its slot.
    #[inline]
    fn hash_of_slot(slot_word: u64, seed: &Seed) -> u64 {
        if Self::IS_WORD {
            seed.hash_u64(slot_word)
        } else {
            slot_word
        }
    }
}

impl Item for u64 {
    const IS_WORD: bool = true;
    type Owned = u64;

    #[inline]
    fn word(&self) -> u64 {
        *self
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        &[]
    }

    #[inline]
    fn rebuild(word: u64, _bytes: &[u8]) -> u64 {
        word
    }

    fn successor(&self) -> Option<u64> {
        self.checked_add(1)
    }

    #[inline]
    fn seeded_hash(&self, seed: &Seed) -> u64 {
        seed.hash_u64(*self)
    }
}

impl Item for [u8] {
    const IS_WORD: bool = false;
    type Owned = Vec<u8>;

    #[inline]
    fn word(&self) -> u64 {
        0
    }

    #[inline]
    fn bytes(&self) -> &[u8] {
        self
    }

    #[inline]
    fn rebuild(_word: u64, bytes: &[u8]) -> Vec<u8> {
        bytes.to_vec()
    }

    fn successor(&self) -> Option<Vec<u8>> {
        let mut next = self.to_vec();
        next.push(0);
        Some(next)
    }

    #[inline]
    fn seeded_hash(&self, seed: &Seed) -> u64 {
        seed.hash_bytes(self)
    }
}
