//! Keys as they stand in nodes: a word, which decides most comparisons, and the bytes behind it.
//!
//! The word of a key that is a word is the key; that of a string is its first eight bytes, the
//! first one highest, with zeros behind a shorter one. So words are in the order of their keys,
//! and of keys with one word the shorter is the lesser, or the bytes behind the word decide.

use std::cmp::Ordering;

use gabion_media::pmem::Medium;

use crate::Item;

/// Bytes of a word.
pub(crate) const WORD_BYTES: usize = 8;

/// Bytes that are compared at once.
const PIECE: usize = 64;

/// A key in its parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyParts<'a> {
    /// The word.
    pub(crate) word: u64,
    /// Number of bytes, 0 for a key that is a word.
    pub(crate) len: u64,
    /// The bytes behind the word.
    pub(crate) rest: &'a [u8],
}

/// The first eight bytes, the first one highest.
#[inline]
pub(crate) fn word_of(bytes: &[u8]) -> u64 {
    let mut word = [0; WORD_BYTES];
    let count = bytes.len().min(WORD_BYTES);
    word[..count].copy_from_slice(&bytes[..count]);
    u64::from_le_bytes(word).swap_bytes()
}

/// The bytes of a word, the highest first.
#[inline]
pub(crate) fn bytes_of(word: u64) -> [u8; WORD_BYTES] {
    word.swap_bytes().to_le_bytes()
}

impl<'a> KeyParts<'a> {
    /// The parts of a key.
    #[inline]
    pub(crate) fn of<K: Item + ?Sized>(key: &'a K) -> KeyParts<'a> {
        let bytes = key.bytes();
        if K::IS_WORD {
            let word = key.word();
            return KeyParts {
                word,
                len: 0,
                rest: bytes,
            };
        }
        KeyParts {
            word: word_of(bytes),
            len: bytes.len() as u64,
            rest: bytes.get(WORD_BYTES..).unwrap_or_default(),
        }
    }
}

/// A key that lies on a medium.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredKey {
    /// The word.
    pub(crate) word: u64,
    /// Number of bytes, 0 for a key that is a word.
    pub(crate) len: u64,
    /// Where the bytes behind the word are.
    pub(crate) rest: u64,
}

/// Bytes that a string of so many has behind its word.
#[inline]
pub(crate) fn rest_len(len: u64) -> u64 {
    len.saturating_sub(WORD_BYTES as u64)
}

impl StoredKey {
    /// Where this key stands to another one.
    #[inline]
    pub(crate) fn compare(&self, medium: &Medium, key: &KeyParts<'_>) -> Ordering {
        if self.word != key.word {
            return self.word.cmp(&key.word);
        }
        if self.len.min(key.len) <= WORD_BYTES as u64 {
            return self.len.cmp(&key.len);
        }
        self.compare_rest(medium, key)
    }

    /// Where this key stands to another one on the medium.
    #[inline]
    pub(crate) fn order(&self, medium: &Medium, other: &StoredKey) -> Ordering {
        if self.word != other.word {
            return self.word.cmp(&other.word);
        }
        if self.len.min(other.len) <= WORD_BYTES as u64 {
            return self.len.cmp(&other.len);
        }
        let rest = other.rest_bytes(medium);
        let other = KeyParts {
            word: other.word,
            len: other.len,
            rest: &rest,
        };
        self.compare_rest(medium, &other)
    }

    /// The bytes behind the word, which lie within the medium.
    pub(crate) fn rest_bytes(&self, medium: &Medium) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(rest_len(self.len)).unwrap_or(0)];
        medium.read(self.rest, &mut bytes);
        bytes
    }

    fn compare_rest(&self, medium: &Medium, key: &KeyParts<'_>) -> Ordering {
        let common = usize::try_from(rest_len(self.len)).unwrap_or(usize::MAX);
        let mut piece = [0; PIECE];
        let mut at = self.rest;
        for wanted in key.rest[..common.min(key.rest.len())].chunks(PIECE) {
            let stored = &mut piece[..wanted.len()];
            medium.read(at, stored);
            match (*stored).cmp(wanted) {
                Ordering::Equal => at += PIECE as u64,
                other => return other,
            }
        }
        self.len.cmp(&key.len)
    }

    /// The key; none if its bytes do not lie within the medium, which is damaged then.
    pub(crate) fn key<K: Item + ?Sized>(&self, medium: &Medium) -> Option<K::Owned> {
        if K::IS_WORD {
            return Some(K::rebuild(self.word, &[]));
        }
        let rest = rest_len(self.len);
        let is_within = self
            .rest
            .checked_add(rest)
            .is_some_and(|end| end <= medium.len());
        let len = usize::try_from(self.len).ok().filter(|_| is_within)?;
        let mut bytes = vec![0; len];
        let count = len.min(WORD_BYTES);
        bytes[..count].copy_from_slice(&bytes_of(self.word)[..count]);
        medium.read(self.rest, &mut bytes[count..]);
        Some(K::rebuild(0, &bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_media::pmem::{Pool, PoolOptions};

    #[test]
    fn a_word_is_the_first_bytes() {
        assert_eq!(word_of(b""), 0);
        assert_eq!(word_of(b"a"), 0x61 << 56);
        assert_eq!(word_of(b"abcdefghijk"), 0x6162_6364_6566_6768);
        assert_eq!(bytes_of(word_of(b"abcdefgh")), *b"abcdefgh");
    }

    /// All pairs of strings, with zeros at their ends and differences behind a piece.
    #[test]
    fn stored_keys_are_in_the_order_of_keys() {
        let pool = Pool::anonymous(PoolOptions {
            size: 1 << 20,
            ..PoolOptions::default()
        })
        .expect("memory");
        let mut keys: Vec<Vec<u8>> = (0..12).map(|len| vec![0; len]).collect();
        keys.extend((0..12).map(|len| vec![7; len]));
        keys.extend([60, 71, 72, 73, 136, 137].map(|len| vec![7; len]));
        keys.extend([71, 72, 100].map(|len| {
            let mut key = vec![7; len];
            key[len - 1] = 8;
            key
        }));
        let store = |key: &Vec<u8>| {
            let parts = KeyParts::of(&key[..]);
            let space = pool.alloc(256, 0).expect("space").commit::<u8>();
            pool.write(space.raw(), parts.rest);
            StoredKey {
                word: parts.word,
                len: parts.len,
                rest: space.raw(),
            }
        };
        let all: Vec<StoredKey> = keys.iter().map(store).collect();
        for (one, stored) in keys.iter().zip(&all) {
            assert_eq!(stored.key::<[u8]>(&pool).as_ref(), Some(one));
            for (two, other) in keys.iter().zip(&all) {
                let order = stored.compare(&pool, &KeyParts::of(&two[..]));
                assert_eq!(order, one.cmp(two), "{one:?} {two:?}");
                assert_eq!(stored.order(&pool, other), order, "{one:?} {two:?}");
            }
        }
        let damaged = StoredKey {
            word: 0,
            len: u64::MAX,
            rest: 64,
        };
        assert_eq!(damaged.key::<[u8]>(&pool), None);
    }
}
