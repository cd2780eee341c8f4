//! Items: a key and its value, written once and never changed.
//!
//! An item is durable before a slot names it. When its entry is deleted or gets another value it is
//! retired: its space is used again when every reader that might have seen it is gone.

use std::borrow::Borrow;
use std::sync::atomic::Ordering;

use gabion_media::pmem::{POff, Reserved};

use super::Clevel;
use super::layout::{ITEM_BYTES, ItemHead};
use super::recovery::item_hint;
use crate::{Error, Item, Result};

impl<K: Item + ?Sized, const USED: usize> Clevel<K, USED> {
    /// Reserves space for an item and writes it, without a fence.
    #[inline]
    pub(super) fn reserve(&self, key: &K, hash: u64, value: u64) -> Result<Reserved<'_>> {
        let bytes = key.bytes();
        let len = bytes.len() as u64;
        let item = self.pool.alloc(ITEM_BYTES + len, item_hint(hash))?;
        let at = item.offset::<ItemHead>();
        let head = self.medium.at(at);
        let word = if K::IS_WORD { key.word() } else { len };
        // ORDER: Relaxed: published by the release of the slot's word.
        head.key.store(&self.medium, word, Ordering::Relaxed);
        head.value.store(&self.medium, value, Ordering::Relaxed);
        self.medium.write(at.raw() + ITEM_BYTES, bytes);
        self.medium.flush_range(at.raw(), ITEM_BYTES + len);
        Ok(item)
    }

    /// The beginning of an item that a slot named.
    #[inline]
    fn head(&self, at: u64) -> Result<&ItemHead> {
        let head = self.medium.try_at(POff::new(at));
        let head = head.ok_or_else(|| damaged(at))?;
        self.medium.touch(head);
        Ok(head)
    }

    /// Whether an item has this key.
    #[inline]
    pub(super) fn is_key(&self, at: u64, key: &K) -> Result<bool> {
        let head = self.head(at)?;
        // ORDER: Relaxed: an item was written before the slot named it, whose word was loaded with
        // acquire.
        let word = head.key.peek(Ordering::Relaxed);
        if K::IS_WORD {
            return Ok(word == key.word());
        }
        let bytes = key.bytes();
        let is_within = word <= self.medium.len() - at - ITEM_BYTES;
        if !is_within {
            return Err(damaged(at));
        }
        Ok(word == bytes.len() as u64 && self.medium.equals(at + ITEM_BYTES, bytes))
    }

    /// The value of an item.
    #[inline]
    pub(super) fn value(&self, at: u64) -> Result<u64> {
        // ORDER: Relaxed: as in `is_key`.
        Ok(self.head(at)?.value.peek(Ordering::Relaxed))
    }

    /// The key of an item.
    pub(super) fn key_of(&self, at: u64) -> Result<K::Owned> {
        // ORDER: Relaxed: as in `is_key`.
        let word = self.head(at)?.key.peek(Ordering::Relaxed);
        if K::IS_WORD {
            return Ok(K::rebuild(word, &[]));
        }
        let is_within = word <= self.medium.len() - at - ITEM_BYTES;
        let len = usize::try_from(word).ok().filter(|_| is_within);
        let mut bytes = vec![0; len.ok_or_else(|| damaged(at))?];
        self.medium.read(at + ITEM_BYTES, &mut bytes);
        Ok(K::rebuild(0, &bytes))
    }

    /// The hash of the key of an item.
    pub(super) fn hash_of(&self, at: u64) -> Result<u64> {
        Ok(self.key_of(at)?.borrow().seeded_hash(&self.seed))
    }
}

#[cold]
fn damaged(offset: u64) -> Error {
    Error::damaged("an item of a hash table", offset)
}
