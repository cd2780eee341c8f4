//! Items: strings, which stand in pairs and bounds as offsets.
//!
//! A pair of strings is an item, which is written once and never changed: another value is another
//! item. A pair in a leaf has the first bytes of the key besides, which decide most comparisons. A
//! bound, the lkey of a leaf, is an item without a value; nodes in DRAM have theirs in the
//! router's pool. A word is its own bound, and its pairs have no items: what is said here of both
//! kinds costs nothing for words.
//!
//! An item is durable before a leaf refers to it, and retired when none does any more: its space is
//! used again when everybody is gone who might have seen it ([`Pins`]).

use std::cmp;
use std::sync::atomic::Ordering;

use gabion_media::pmem::{Guard, Medium, POff, Pool, Reserved};

use super::layout::{ITEM_BYTES, ITEM_HINT, ItemHead};
use crate::stored_key::{KeyParts, StoredKey, WORD_BYTES, word_of};
use crate::{Error, Item, Result};

/// Keeps items and bounds that are found from here on from being reused. Trees of words have none.
pub(super) struct Pins<'a>(#[expect(dead_code, reason = "held")] Option<[Guard<'a>; 2]>);

impl<'a> Pins<'a> {
    /// Of both pools, if keys are strings.
    #[inline]
    pub(super) fn new<K: Item + ?Sized>(items: &'a Pool, bounds: &'a Pool) -> Pins<'a> {
        Pins((!K::IS_WORD).then(|| [items.enter(), bounds.enter()]))
    }
}

/// An item, as it lies in a pool.
#[derive(Clone, Copy)]
pub(super) struct ItemRef<'a> {
    medium: &'a Medium,
    key_at: u64,
    key_len: u64,
    value_len: u64,
}

#[cold]
fn damaged(offset: u64) -> Error {
    Error::damaged("an item of an SPTree", offset)
}

impl<'a> ItemRef<'a> {
    /// The item at an offset, if all of it lies within the medium.
    #[inline]
    fn try_new(medium: &'a Medium, at: u64) -> Option<ItemRef<'a>> {
        let head: &ItemHead = medium.try_at(POff::new(at))?;
        medium.touch(head);
        // ORDER: Relaxed: written before the pair or the bound that names the item, which was
        // loaded with acquire.
        let lengths = head.lengths.peek(Ordering::Relaxed);
        let (key_len, value_len) = (lengths & 0xffff_ffff, lengths >> 32);
        let is_within = key_len + value_len <= medium.len() - at - ITEM_BYTES;
        is_within.then_some(ItemRef {
            medium,
            key_at: at + ITEM_BYTES,
            key_len,
            value_len,
        })
    }

    /// The item at an offset.
    #[inline]
    pub(super) fn new(medium: &'a Medium, at: u64) -> Result<ItemRef<'a>> {
        ItemRef::try_new(medium, at).ok_or_else(|| damaged(at))
    }

    /// Whether it has this key.
    #[inline]
    pub(super) fn is_key(&self, key: &[u8]) -> bool {
        self.key_len == key.len() as u64 && self.medium.equals(self.key_at, key)
    }

    fn read(&self, at: u64, len: u64) -> Vec<u8> {
        // The length was checked against the size of the medium, which is mapped.
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        self.medium.read(at, &mut bytes);
        bytes
    }

    /// The key.
    pub(super) fn key(&self) -> Vec<u8> {
        self.read(self.key_at, self.key_len)
    }

    /// The value.
    pub(super) fn value(&self) -> Vec<u8> {
        self.read(self.key_at + self.key_len, self.value_len)
    }

    /// Appends the value.
    pub(super) fn append_value(&self, target: &mut Vec<u8>) {
        let begin = target.len();
        let len = usize::try_from(self.value_len).unwrap_or(0);
        target.resize(begin + len, 0);
        let at = self.key_at + self.key_len;
        self.medium.read(at, &mut target[begin..]);
    }

    /// The value, if it is of eight bytes.
    pub(super) fn word(&self) -> Result<u64> {
        let bytes = self.value().try_into();
        let what = "a value of an SPTree that is to be a word";
        bytes
            .map(u64::from_le_bytes)
            .map_err(|_| Error::damaged(what, self.key_at - ITEM_BYTES))
    }

    /// The key in its parts.
    fn stored(&self) -> StoredKey {
        let mut first = [0; WORD_BYTES];
        let count = usize::try_from(self.key_len).map_or(WORD_BYTES, |len| len.min(WORD_BYTES));
        self.medium.read(self.key_at, &mut first[..count]);
        StoredKey {
            word: word_of(&first),
            len: self.key_len,
            rest: self.key_at + count as u64,
        }
    }
}

/// Where an item finds space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    /// Where all others do.
    Common,
    /// In what the pool keeps back for one item at a time.
    Kept,
}

/// Reserves space for an item and writes it, without a fence.
pub(super) fn reserve<'p>(
    pool: &'p Pool,
    key: &[u8],
    value: &[u8],
    room: Room,
) -> Result<Reserved<'p>> {
    let lens = [key.len() as u64, value.len() as u64];
    if let Some(&bytes) = lens.iter().find(|len| u32::try_from(**len).is_err()) {
        return Err(Error::TooLong { bytes });
    }
    let size = ITEM_BYTES + lens[0] + lens[1];
    let item = match room {
        Room::Common => pool.alloc(size, ITEM_HINT)?,
        Room::Kept => pool.alloc_kept(size, ITEM_HINT)?,
    };
    let at = item.offset::<ItemHead>();
    let head = pool.at(at);
    let lengths = lens[0] | lens[1] << 32;
    // ORDER: Relaxed: published by the release of the word that names the item.
    head.lengths.store(pool, lengths, Ordering::Relaxed);
    for (offset, bytes) in [(0, key), (lens[0], value)] {
        if !bytes.is_empty() {
            pool.write(at.raw() + ITEM_BYTES + offset, bytes);
        }
    }
    pool.flush_range(at.raw(), size);
    Ok(item)
}

/// Whether a pair, its two words, has this key.
#[inline]
pub(super) fn is_key<K: Item + ?Sized>(medium: &Medium, pair: [u64; 2], key: &K) -> Result<bool> {
    if K::IS_WORD {
        return Ok(pair[0] == key.word());
    }
    let bytes = key.bytes();
    Ok(pair[0] == word_of(bytes) && ItemRef::new(medium, pair[1])?.is_key(bytes))
}

/// The key of a pair.
#[inline]
pub(super) fn key_of<K: Item + ?Sized>(medium: &Medium, pair: [u64; 2]) -> Result<K::Owned> {
    if K::IS_WORD {
        return Ok(K::rebuild(pair[0], &[]));
    }
    Ok(K::rebuild(0, &ItemRef::new(medium, pair[1])?.key()))
}

/// Where the key of a pair stands to another one.
#[inline]
pub(super) fn compare<K: Item + ?Sized>(
    medium: &Medium,
    pair: [u64; 2],
    key: &KeyParts<'_>,
) -> Result<cmp::Ordering> {
    if K::IS_WORD || pair[0] != key.word {
        return Ok(pair[0].cmp(&key.word));
    }
    let stored = ItemRef::new(medium, pair[1])?.stored();
    Ok(stored.compare(medium, key))
}

/// The bound that all keys are at or above.
pub(super) const LEAST: u64 = 0;

/// A bound that is not in use yet.
pub(super) struct Bound<'p> {
    /// What stands for it in leaves and nodes.
    pub(super) word: u64,
    space: Option<Reserved<'p>>,
}

impl<'p> Bound<'p> {
    /// A bound in a pool, flushed but not fenced.
    pub(super) fn new<K: Item + ?Sized>(pool: &'p Pool, key: &K) -> Result<Bound<'p>> {
        if K::IS_WORD {
            let word = key.word();
            return Ok(Bound { word, space: None });
        }
        let space = reserve(pool, key.bytes(), &[], Room::Common)?;
        Ok(Bound {
            word: space.offset::<u8>().raw(),
            space: Some(space),
        })
    }

    /// Says that it is in use, and that this is durable.
    pub(super) fn commit(self) {
        if let Some(space) = self.space {
            space.commit::<u8>();
        }
    }
}

/// Where a bound stands to a key.
#[inline]
pub(super) fn compare_bound<K: Item + ?Sized>(
    medium: &Medium,
    bound: u64,
    key: &KeyParts<'_>,
) -> Result<cmp::Ordering> {
    if K::IS_WORD {
        return Ok(bound.cmp(&key.word));
    }
    if bound == LEAST {
        return Ok(0.cmp(&key.len));
    }
    let stored = ItemRef::new(medium, bound)?.stored();
    Ok(stored.compare(medium, key))
}

/// The key that is a bound.
pub(super) fn bound_key<K: Item + ?Sized>(medium: &Medium, bound: u64) -> Result<K::Owned> {
    if K::IS_WORD {
        return Ok(K::rebuild(bound, &[]));
    }
    if bound == LEAST {
        return Ok(K::rebuild(0, &[]));
    }
    Ok(K::rebuild(0, &ItemRef::new(medium, bound)?.key()))
}

/// The shortest bound that is above one key and not above another, greater one.
pub(super) fn bound_between<K: Item + ?Sized>(below: &K, first: &K) -> K::Owned {
    let (below, bytes) = (below.bytes(), first.bytes());
    let common = below.iter().zip(bytes).take_while(|(one, two)| one == two);
    let end = (common.count() + 1).min(bytes.len());
    K::rebuild(first.word(), &bytes[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_media::pmem::PoolOptions;

    fn pool() -> Pool {
        Pool::anonymous(PoolOptions {
            size: 1 << 20,
            ..PoolOptions::default()
        })
        .expect("memory")
    }

    fn strings() -> Vec<Vec<u8>> {
        let mut all: Vec<Vec<u8>> = (0..20).map(|len| vec![7; len]).collect();
        all.extend((0..20).map(|len| [&vec![7; len][..], &[0]].concat()));
        all.extend((0..20).map(|len| [&vec![7; len][..], &[9, 1]].concat()));
        all.sort();
        all.dedup();
        all
    }

    #[test]
    fn pairs_and_bounds_are_in_the_order_of_keys() {
        let pool = pool();
        for one in &strings() {
            let item = reserve(&pool, one, b"value", Room::Common).expect("space");
            let item = item.commit::<u8>();
            let pair = [word_of(one), item.raw()];
            assert_eq!(key_of::<[u8]>(&pool, pair).expect("sound"), *one);
            let found = ItemRef::new(&pool, item.raw()).expect("sound");
            assert_eq!(found.value(), b"value");
            let mut value = b"the ".to_vec();
            found.append_value(&mut value);
            assert_eq!(value, b"the value");
            assert!(found.word().is_err());
            let bound = if one.is_empty() {
                LEAST
            } else {
                let bound = Bound::new(&pool, &one[..]).expect("space");
                let word = bound.word;
                bound.commit();
                word
            };
            assert_eq!(bound_key::<[u8]>(&pool, bound).expect("sound"), *one);
            for two in &strings() {
                let parts = KeyParts::of(&two[..]);
                let order = compare::<[u8]>(&pool, pair, &parts).expect("sound");
                assert_eq!(order, one.cmp(two), "{one:?} {two:?}");
                let order = compare_bound::<[u8]>(&pool, bound, &parts).expect("sound");
                assert_eq!(order, one.cmp(two), "{one:?} {two:?}");
                let is_key = is_key(&pool, pair, &two[..]).expect("sound");
                assert_eq!(is_key, one == two);
                if one < two {
                    let mid = bound_between(&one[..], &two[..]);
                    assert!(*one < mid && mid <= *two && two.starts_with(&mid));
                    let shorter = &mid[..mid.len() - 1];
                    assert!(shorter <= &one[..], "{mid:?} could be shorter");
                }
            }
        }
        assert_eq!(bound_between(&3_u64, &7), 7);
    }

    #[test]
    fn an_item_beyond_the_medium_is_damage() {
        let pool = pool();
        let item = reserve(&pool, b"key", b"value", Room::Common).expect("space");
        let at = item.commit::<u8>().raw();
        for lengths in [u64::from(u32::MAX), u64::MAX, 1 << 63, (1 << 20) - at] {
            pool.write(at, &lengths.to_le_bytes());
            assert!(ItemRef::new(&pool, at).is_err(), "{lengths:x}");
        }
        for at in [3, (1 << 20) - 4, 1 << 20, u64::MAX - 7] {
            assert!(ItemRef::new(&pool, at).is_err());
        }
    }
}
