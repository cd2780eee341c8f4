//! Entries that do not fit into a slot: records elsewhere in the pool.
//!
//! A record is written once, before a slot names it, and never changed. When the slot is deleted or
//! replaced, the record is retired: its space is used again when every reader that might have seen
//! it has let go of its [`RecordPin`], and never before that is safe in a crash as well.

use gabion_media::pmem::{PAtomicU64, POff};
use std::sync::atomic::Ordering;

use super::TurboHash;
use super::layout::RECORD_HEADER_BYTES;
use crate::{Error, Item, Result};

/// Keeps records that a reader sees from being reclaimed.
pub(super) type RecordPin<'a> = gabion_media::pmem::Guard<'a>;

/// The parts of a record.
#[derive(Clone, Copy, Debug)]
struct Parts {
    key_at: u64,
    key_len: u64,
    value_at: u64,
    value_len: u64,
}

/// Bytes of a record with these lengths.
fn record_bytes(key_len: u64, value_len: u64) -> u64 {
    (RECORD_HEADER_BYTES + key_len + value_len).next_multiple_of(8)
}

impl<K: Item + ?Sized, V: Item + ?Sized> TurboHash<K, V> {
    /// Whether entries have records.
    pub(super) const HAS_RECORDS: bool = !K::IS_WORD || !V::IS_WORD;

    #[inline]
    pub(super) fn pin(&self) -> RecordPin<'_> {
        self.pool.enter()
    }

    /// Whether the entry whose slot holds `value`, and the right word for the key, has this key.
    #[inline]
    pub(super) fn is_record_of(&self, value: u64, key: &K) -> Result<bool> {
        if K::IS_WORD {
            return Ok(true);
        }
        let parts = self.parts_of(value)?;
        let key = key.bytes();
        Ok(parts.key_len == key.len() as u64 && self.medium.equals(parts.key_at, key))
    }

    /// The value of the entry whose slot holds `value`.
    #[inline]
    pub(super) fn value_of(&self, value: u64) -> Result<V::Owned> {
        if !Self::HAS_RECORDS {
            return Ok(V::rebuild(value, &[]));
        }
        let parts = self.parts_of(value)?;
        if V::IS_WORD {
            let mut word = [0; 8];
            if parts.value_len != word.len() as u64 {
                return Err(self.damaged_record(value));
            }
            self.medium.read(parts.value_at, &mut word);
            return Ok(V::rebuild(u64::from_le_bytes(word), &[]));
        }
        Ok(V::rebuild(
            0,
            &self.bytes_at(parts.value_at, parts.value_len),
        ))
    }

    /// The key of the entry whose slot holds `word` and `value`.
    pub(super) fn key_of(&self, word: u64, value: u64) -> Result<K::Owned> {
        if K::IS_WORD {
            return Ok(K::rebuild(word, &[]));
        }
        let parts = self.parts_of(value)?;
        Ok(K::rebuild(0, &self.bytes_at(parts.key_at, parts.key_len)))
    }

    fn bytes_at(&self, offset: u64, len: u64) -> Vec<u8> {
        // The length was checked against the size of the pool, which is mapped.
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        self.medium.read(offset, &mut bytes);
        bytes
    }

    /// Where the parts of a record are, none of them outside of the pool.
    #[inline]
    fn parts_of(&self, offset: u64) -> Result<Parts> {
        let header: Option<&PAtomicU64> = self.medium.try_at(POff::new(offset));
        let header = header.ok_or_else(|| self.damaged_record(offset))?;
        // ORDER: Relaxed: a record was written before the slot that named it, whose value was
        // loaded with acquire.
        let lengths = header.load(&self.medium, Ordering::Relaxed);
        let (key_len, value_len) = (lengths & 0xffff_ffff, lengths >> 32);
        if record_bytes(key_len, value_len) > self.medium.len() - offset {
            return Err(self.damaged_record(offset));
        }
        let key_at = offset + RECORD_HEADER_BYTES;
        Ok(Parts {
            key_at,
            key_len,
            value_at: key_at + key_len,
            value_len,
        })
    }

    #[cold]
    fn damaged_record(&self, offset: u64) -> Error {
        Error::damaged("a record of a hash table", offset)
    }

    /// Bytes of the record for an entry.
    pub(super) fn bytes_of_record(key: &K, value: &V) -> Result<u64> {
        let value_len = if V::IS_WORD { 8 } else { value.bytes().len() };
        for len in [key.bytes().len(), value_len] {
            if u32::try_from(len).is_err() {
                return Err(Error::TooLong { bytes: len as u64 });
            }
        }
        Ok(record_bytes(key.bytes().len() as u64, value_len as u64))
    }

    /// Writes and flushes the record of an entry, without a fence.
    pub(super) fn write_record(&self, offset: u64, key: &K, value: &V) {
        let word = value.word().to_le_bytes();
        let value = if V::IS_WORD { &word } else { value.bytes() };
        let key = key.bytes();
        let lengths = key.len() as u64 | (value.len() as u64) << 32;
        let header: &PAtomicU64 = self.medium.at(POff::new(offset));
        // ORDER: Relaxed: published by the release of the slot's value.
        header.store(&self.medium, lengths, Ordering::Relaxed);
        let key_at = offset + RECORD_HEADER_BYTES;
        self.medium.write(key_at, key);
        self.medium.write(key_at + key.len() as u64, value);
        let bytes = RECORD_HEADER_BYTES + key.len() as u64 + value.len() as u64;
        self.medium.flush_range(offset, bytes);
    }
}
