//! Leaves of tries: all of a key, and its value.
//!
//! | offset | bytes | meaning |
//! |---|---|---|
//! | 0 | 8 | value |
//! | 8 | 8 | the key, or the number of its bytes, which follow |
//!
//! A leaf is a block of its own. Its key never changes; its value changes in place, under the lock
//! of whatever the trie lets refer to it.

use std::mem::offset_of;
use std::sync::atomic::Ordering;

use gabion_media::media_struct;
use gabion_media::pmem::{Medium, PAtomicU64, POff, Pool, Reserved};

use crate::{Item, Result};

/// Bytes of a leaf before the bytes of its key.
pub(crate) const LEAF_BYTES: u64 = 16;

media_struct! {
    /// A leaf, without the bytes of its key.
    pub(crate) struct Leaf {
        pub(crate) value: PAtomicU64,
        pub(crate) key: PAtomicU64,
    }
}

const _: () = assert!(size_of::<Leaf>() as u64 == LEAF_BYTES && offset_of!(Leaf, key) == 8);

/// Reserves and writes a leaf, without a fence.
pub(crate) fn write<'a, K: Item + ?Sized>(
    pool: &'a Pool,
    key: &K,
    value: u64,
    hint: u64,
) -> Result<Reserved<'a>> {
    let bytes = key.bytes();
    let size = LEAF_BYTES + bytes.len() as u64;
    let leaf = pool.alloc(size, hint)?;
    let at = leaf.offset::<u8>().raw();
    let word = if K::IS_WORD {
        key.word()
    } else {
        bytes.len() as u64
    };
    let mut head = [0; 16];
    head[..8].copy_from_slice(&value.to_le_bytes());
    head[8..].copy_from_slice(&word.to_le_bytes());
    pool.write(at, &head);
    if !bytes.is_empty() {
        pool.write(at + LEAF_BYTES, bytes);
    }
    pool.flush_range(at, size);
    Ok(leaf)
}

/// A leaf, as it lies in the pool.
#[derive(Clone, Copy)]
pub(crate) struct LeafRef<'a> {
    pub(crate) leaf: &'a Leaf,
    at: u64,
    medium: &'a Medium,
}

// ORDER: Acquire throughout: pairs with the release that made the leaf reachable, and for values
// with that of an update.
impl<'a> LeafRef<'a> {
    /// The leaf at an offset, if there can be one.
    #[inline]
    pub(crate) fn new(medium: &'a Medium, at: u64) -> Option<LeafRef<'a>> {
        let leaf: &Leaf = medium.try_at(POff::new(at))?;
        medium.touch(leaf);
        Some(LeafRef { leaf, at, medium })
    }

    /// The value.
    #[inline]
    pub(crate) fn value(&self) -> u64 {
        self.leaf.value.peek(Ordering::Acquire)
    }

    /// The key, or the length of a string.
    #[inline]
    pub(crate) fn word(&self) -> u64 {
        self.leaf.key.peek(Ordering::Acquire)
    }

    /// Whether it is the leaf of `key`.
    #[inline]
    pub(crate) fn has<K: Item + ?Sized>(&self, key: &K) -> bool {
        let word = self.word();
        if K::IS_WORD {
            return word == key.word();
        }
        let bytes = key.bytes();
        let at = self.at + LEAF_BYTES;
        let is_within = at + (bytes.len() as u64) <= self.medium.len();
        word == bytes.len() as u64 && is_within && self.medium.equals(at, bytes)
    }

    /// The key, unless its length is damaged.
    pub(crate) fn key<K: Item + ?Sized>(&self) -> Option<K::Owned> {
        let word = self.word();
        if K::IS_WORD {
            return Some(K::rebuild(word, &[]));
        }
        let at = self.at + LEAF_BYTES;
        let is_within = at
            .checked_add(word)
            .is_some_and(|end| end <= self.medium.len());
        let length = usize::try_from(word).ok().filter(|_| is_within)?;
        let mut bytes = vec![0; length];
        self.medium.read(at, &mut bytes);
        Some(K::rebuild(0, &bytes))
    }
}
