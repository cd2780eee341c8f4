//! Records: keys and values as they lie in logs, and their checks.
//!
//! The head is durable before anything refers to the record, so recovery finds the next record, and
//! the one that this one replaced, even where key and value were lost. Its check is bound to the
//! address and to the generation of the page: what an earlier use of the page left over is no
//! record. The value's check is bound to the address and to the key's hash; the key is checked by
//! that hash.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{Medium, POff};
use xxhash_rust::xxh3::xxh3_64;

use super::layout::{PAGE_HEAD_BYTES, RECORD_HEAD_BYTES, RecordHead, record_bytes};
use crate::Seed;
use crate::hash::fold;

/// An odd word that spreads addresses over all bits.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// What a record's head says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) address: u64,
    /// The record that it replaces, or 0.
    pub(super) old: u64,
    pub(super) hash: u64,
    pub(super) key_bytes: u64,
    pub(super) value_bytes: u64,
    value_check: u32,
    head_check: u32,
}

/// A record that has no place yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewRecord<'a> {
    pub(super) hash: u64,
    key: &'a [u8],
    value: &'a [u8],
    digest: u64,
}

impl<'a> NewRecord<'a> {
    #[inline]
    pub(super) fn new(hash: u64, key: &'a [u8], value: &'a [u8]) -> NewRecord<'a> {
        NewRecord {
            hash,
            key,
            value,
            digest: xxh3_64(value),
        }
    }

    /// Bytes of the record.
    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        record_bytes(self.key.len() as u64, self.value.len() as u64)
    }

    /// Puts the record together as bytes for its place: an address in a page of a generation.
    #[inline]
    pub(super) fn encode(&self, address: u64, generation: u64, old: u64, into: &mut Vec<u8>) {
        let record = Record {
            address,
            old,
            hash: self.hash,
            key_bytes: self.key.len() as u64,
            value_bytes: self.value.len() as u64,
            value_check: check_of_value(self.digest, self.hash, address),
            head_check: 0,
        };
        let checks =
            u64::from(record.value_check) | u64::from(record.check_of_head(generation)) << 32;
        let mut head = [0; size_of::<RecordHead>()];
        let words = [record.old, record.hash, record.lengths(), checks];
        for (bytes, word) in head.as_chunks_mut().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        into.clear();
        into.extend_from_slice(&head);
        into.extend_from_slice(self.key);
        into.extend_from_slice(self.value);
        into.resize(into.len().next_multiple_of(head.len()), 0);
    }
}

/// The check of a value of this hash in a record.
#[inline]
fn check_of_value(digest: u64, hash: u64, address: u64) -> u32 {
    high(fold(digest ^ hash, SPREAD ^ address))
}

fn high(word: u64) -> u32 {
    (word >> 32) as u32
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
fn low(word: u64) -> u32 {
    word as u32
}

impl Record {
    /// What stands at an address, whatever it is; `None` if that is outside of the medium.
    #[inline]
    #[track_caller]
    pub(super) fn read(medium: &Medium, address: u64) -> Option<Record> {
        let head: &RecordHead = medium.try_at(POff::new(address))?;
        medium.touch(head);
        // ORDER: Relaxed: whoever knows the address read it from a word that was published after
        // the record was written, and acquired it.
        let lengths = head.lengths.peek(Ordering::Relaxed);
        let checks = head.checks.peek(Ordering::Relaxed);
        Some(Record {
            address,
            // ORDER: Relaxed: as above.
            old: head.old.peek(Ordering::Relaxed),
            hash: head.hash.peek(Ordering::Relaxed),
            key_bytes: u64::from(low(lengths)),
            value_bytes: u64::from(high(lengths)),
            value_check: low(checks),
            head_check: high(checks),
        })
    }

    /// The record at an address of a page, if its head is sound and it lies within `end`.
    #[track_caller]
    pub(super) fn read_in_page(
        medium: &Medium,
        address: u64,
        end: u64,
        generation: u64,
    ) -> Option<Record> {
        let fits = address.checked_add(RECORD_HEAD_BYTES)? <= end;
        let record = Record::read(medium, address).filter(|_| fits)?;
        let is_sound = record.has_head_of(generation) && address + record.bytes() <= end;
        is_sound.then_some(record)
    }

    /// Whether the head is as it was written in a page of this generation.
    pub(super) fn has_head_of(&self, generation: u64) -> bool {
        self.head_check == self.check_of_head(generation)
    }

    #[inline]
    fn check_of_head(&self, generation: u64) -> u32 {
        let words = [
            self.address,
            generation,
            self.old,
            self.hash,
            self.lengths(),
            u64::from(self.value_check),
        ];
        let mut bytes = [0; 48];
        for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
            *bytes = word.to_le_bytes();
        }
        high(xxh3_64(&bytes))
    }

    /// Its size in the log, in bytes.
    #[inline]
    pub(super) fn bytes(&self) -> u64 {
        record_bytes(self.key_bytes, self.value_bytes)
    }

    /// The word of the lengths.
    #[inline]
    fn lengths(&self) -> u64 {
        self.key_bytes | self.value_bytes << 32
    }

    /// Whether it is the record of `key`.
    #[inline]
    #[track_caller]
    pub(super) fn is_of(&self, medium: &Medium, key: &[u8]) -> bool {
        self.key_bytes == key.len() as u64
            && self.fits(medium)
            && medium.equals(self.address + RECORD_HEAD_BYTES, key)
    }

    /// Whether all of it lies within the medium.
    #[inline]
    fn fits(&self, medium: &Medium) -> bool {
        self.address
            .checked_add(self.bytes())
            .is_some_and(|end| end <= medium.len())
    }

    /// Reads the value behind what `into` holds. `None` if it leaves the medium.
    #[inline]
    #[track_caller]
    pub(super) fn read_value(&self, medium: &Medium, into: &mut Vec<u8>) -> Option<()> {
        let at = self.address + RECORD_HEAD_BYTES + self.key_bytes;
        read_behind(medium, at, self.value_bytes, self.fits(medium), into)
    }

    /// Reads the key behind what `into` holds. `None` if it leaves the medium.
    #[track_caller]
    pub(super) fn read_key(&self, medium: &Medium, into: &mut Vec<u8>) -> Option<()> {
        let at = self.address + RECORD_HEAD_BYTES;
        read_behind(medium, at, self.key_bytes, self.fits(medium), into)
    }

    /// Whether `value` is the value that was written.
    #[inline]
    pub(super) fn has_value(&self, value: &[u8]) -> bool {
        check_of_value(xxh3_64(value), self.hash, self.address) == self.value_check
    }

    /// Key and value, if both are as they were written.
    #[track_caller]
    pub(super) fn content(&self, medium: &Medium, seed: &Seed) -> Option<(Vec<u8>, Vec<u8>)> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        self.read_key(medium, &mut key)?;
        self.read_value(medium, &mut value)?;
        let is_sound = seed.hash_bytes(&key) == self.hash && self.has_value(&value);
        is_sound.then_some((key, value))
    }
}

#[inline]
#[track_caller]
fn read_behind(medium: &Medium, at: u64, bytes: u64, fits: bool, into: &mut Vec<u8>) -> Option<()> {
    if !fits {
        return None;
    }
    let before = into.len();
    into.resize(before + usize::try_from(bytes).ok()?, 0);
    medium.read(at, &mut into[before..]);
    Some(())
}

/// The records of a page of this generation, from its start up to `end` or the first that is none.
pub(super) fn records(
    medium: &Medium,
    start: u64,
    end: u64,
    generation: u64,
) -> impl Iterator<Item = Record> {
    let mut at = start + PAGE_HEAD_BYTES;
    std::iter::from_fn(move || {
        let record = Record::read_in_page(medium, at, end, generation)?;
        at += record.bytes();
        Some(record)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_media::pmem::{Pool, PoolOptions};

    #[test]
    fn a_record_is_one_only_in_its_place_and_unharmed() {
        let pool = Pool::anonymous(PoolOptions {
            size: 1 << 20,
            ..PoolOptions::default()
        })
        .expect("memory");
        let seed = Seed::new(1);
        let (key, value) = (&b"basket"[..], &b"some stones"[..]);
        let at = 64 << 10;
        let record = NewRecord::new(seed.hash_bytes(key), key, value);
        let mut bytes = Vec::new();
        record.encode(at, 7, 4096, &mut bytes);
        assert_eq!(bytes.len() as u64, record.bytes());
        let content = |at, generation| {
            let end = at + record.bytes();
            Record::read_in_page(&pool, at, end, generation)?.content(&pool, &seed)
        };
        pool.write(at, &bytes);
        assert_eq!(content(at, 7), Some((key.to_vec(), value.to_vec())));
        assert_eq!(content(at, 8), None);
        assert_eq!(
            Record::read_in_page(&pool, at, at + record.bytes() - 1, 7),
            None
        );
        pool.write(at + 64, &bytes);
        assert_eq!(content(at + 64, 7), None);
        // Space that was never written holds no records.
        assert_eq!(Record::read_in_page(&pool, 128 << 10, 256 << 10, 0), None);
        for bit in 0..8 * (32 + key.len() + value.len()) {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            pool.write(at, &bad);
            assert_eq!(content(at, 7), None, "bit {bit}");
        }
    }
}
