//! Keys as they stand in slots: words themselves, strings as records elsewhere in the pool.
//!
//! A record is written once, before a slot names it, and never changed. When its entry is deleted
//! it is retired: its space is used again when every reader that might have seen it is gone.

use std::borrow::Borrow;
use std::sync::atomic::Ordering;

use gabion_media::pmem::{PAtomicU64, POff, Reserved};

use super::Dash;
use crate::{Error, Item, Result};

/// Bytes of a record before its key.
const HEADER_BYTES: u64 = 8;

impl<K: Item + ?Sized, const USABLE: u32> Dash<K, USABLE> {
    /// Whether the entry whose slot has this word has this key.
    #[inline]
    pub(super) fn is_key(&self, word: u64, key: &K) -> Result<bool> {
        if K::IS_WORD {
            return Ok(word == key.word());
        }
        let (at, len) = self.record(word)?;
        let key = key.bytes();
        Ok(len == key.len() as u64 && self.medium.equals(at, key))
    }

    /// The key of the entry whose slot has this word.
    pub(super) fn key_of(&self, word: u64) -> Result<K::Owned> {
        if K::IS_WORD {
            return Ok(K::rebuild(word, &[]));
        }
        let (at, len) = self.record(word)?;
        // The length was checked against the size of the pool, which is mapped.
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        self.medium.read(at, &mut bytes);
        Ok(K::rebuild(0, &bytes))
    }

    /// The hash of the entry whose slot has this word.
    #[inline]
    pub(super) fn hash_of(&self, word: u64) -> Result<u64> {
        if K::IS_WORD {
            return Ok(self.seed.hash_u64(word));
        }
        Ok(self.key_of(word)?.borrow().seeded_hash(&self.seed))
    }

    /// Where the key of a record is, and its length; both within the pool.
    #[inline]
    fn record(&self, offset: u64) -> Result<(u64, u64)> {
        let damaged = || Error::damaged("a record of a hash table", offset);
        let header: Option<&PAtomicU64> = self.medium.try_at(POff::new(offset));
        let header = header.ok_or_else(damaged)?;
        // ORDER: Relaxed: a record was written before the slot that named it, whose key was loaded
        // with acquire.
        let len = header.load(&self.medium, Ordering::Relaxed);
        let at = offset + HEADER_BYTES;
        if len > self.medium.len() - at {
            return Err(damaged());
        }
        Ok((at, len))
    }

    /// Reserves space for the record of a key and writes it, without a fence. None if keys are
    /// words.
    #[inline]
    pub(super) fn reserve_record(&self, key: &K, hash: u64) -> Result<Option<Reserved<'_>>> {
        if K::IS_WORD {
            return Ok(None);
        }
        let key = key.bytes();
        let len = key.len() as u64;
        let bytes = (HEADER_BYTES + len).next_multiple_of(8);
        let record = self.pool.alloc(bytes, super::recovery::record_hint(hash))?;
        let offset = record.offset::<PAtomicU64>();
        let header = self.medium.at(offset);
        // ORDER: Relaxed: published by the release of the slot's key.
        header.store(&self.medium, len, Ordering::Relaxed);
        self.medium.write(offset.raw() + HEADER_BYTES, key);
        self.medium.flush_range(offset.raw(), HEADER_BYTES + len);
        Ok(Some(record))
    }
}
