//! The hash table: buckets of one word, and chains.
//!
//! # Invariants
//! - T1. A bucket that has not moved leads to all entries of its keys; each key has at most one.
//! - T2. Every change of a bucket's content is one store of a word: of the bucket, or of a word of
//!   its chain. A chain is never written otherwise once its bucket refers to it.
//! - T3. What a word refers to is durable before the word: a chain all of it, a record at least its
//!   head.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{Medium, PAtomicU64, POff};

use super::Volume;
use super::layout::{Entry, LINE_BYTES, LINE_WORDS, TablePlace};
use super::record::Record;
use crate::{Error, Result};

/// What a writer found of a key, under its stripe.
#[derive(Debug)]
pub(super) struct KeyLookup<'a> {
    pub(super) bucket: &'a PAtomicU64,
    pub(super) entry: Entry,
    /// The words of the chain behind its head; none without a chain.
    pub(super) words: &'a [PAtomicU64],
    pub(super) found: Option<FoundEntry<'a>>,
}

/// An entry and the word that it stands in.
#[derive(Debug)]
pub(super) struct FoundEntry<'a> {
    pub(super) word: &'a PAtomicU64,
    pub(super) entry: Entry,
    pub(super) record: Record,
}

/// The words of a chain behind its head.
pub(super) fn words_of_chain(medium: &Medium, entry: Entry) -> Result<&[PAtomicU64]> {
    let words = usize::try_from(entry.lines() * LINE_WORDS).unwrap_or(usize::MAX);
    let words = medium.try_slice(POff::<PAtomicU64>::new(entry.address()), words);
    let words = words.and_then(|words| words.get(1..));
    words.ok_or_else(|| Error::damaged("a chain of the hash table", entry.address()))
}

/// The entry, unless it is damaged.
#[inline]
fn sound(entry: Entry) -> Result<Entry> {
    match entry.is_sound() {
        true => Ok(entry),
        false => Err(Error::damaged(
            "an entry of the hash table",
            entry.address(),
        )),
    }
}

#[cold]
fn damaged_bucket(table: TablePlace, hash: u64) -> Error {
    Error::damaged("a bucket of the hash table", table.bucket_of(hash))
}

/// The entries of a bucket, read one by one. Not for a bucket that has moved.
pub(super) fn entries<'a>(
    medium: &'a Medium,
    bucket: &'a PAtomicU64,
    entry: Entry,
) -> Result<impl Iterator<Item = (&'a PAtomicU64, Entry)>> {
    sound(entry)?;
    let (single, words): (_, &[PAtomicU64]) = if entry.is_chain() {
        (None, words_of_chain(medium, entry)?)
    } else {
        (Some((bucket, entry)), &[])
    };
    for word in words {
        // ORDER: Relaxed: looked at as such.
        sound(Entry(word.load(medium, Ordering::Relaxed)))?;
    }
    // ORDER: Acquire pairs with the Release of a publish: the record is there.
    let chained = words
        .iter()
        .map(|word| (word, Entry(word.load(medium, Ordering::Acquire))));
    let all = single.into_iter().chain(chained);
    Ok(all.filter(|(_, entry)| !entry.is_empty()))
}

impl Volume {
    fn word(&self, offset: u64) -> &PAtomicU64 {
        self.medium.at(POff::new(offset))
    }

    pub(super) fn table(&self) -> TablePlace {
        // ORDER: Acquire pairs with the Release of `finish_enlarging`.
        TablePlace(self.table.load(Ordering::Acquire))
    }

    /// The table that buckets move to, if they do.
    pub(super) fn next_table(&self) -> TablePlace {
        // ORDER: Acquire pairs with the Release of `begin_enlarging`: the table is all zero there.
        TablePlace(self.next.load(Ordering::Acquire))
    }

    /// The bucket of a hash in the table in which it is now, and what is in it. Readers hold a
    /// guard, writers the stripe.
    #[inline]
    #[track_caller]
    pub(super) fn bucket(&self, hash: u64) -> Result<(&PAtomicU64, Entry)> {
        let (_, bucket, entry) = self.bucket_and_table(hash)?;
        Ok((bucket, entry))
    }

    /// As [`Volume::bucket`], with the table that the bucket is in. A bucket that says that it has
    /// moved, where nothing has taken the place of its table and nothing is about to, is damaged.
    #[inline]
    #[track_caller]
    pub(super) fn bucket_and_table(&self, hash: u64) -> Result<(TablePlace, &PAtomicU64, Entry)> {
        loop {
            let table = self.table();
            let bucket = self.word(table.bucket_of(hash));
            // ORDER: Acquire pairs with the Release of a publish: record or chain are there.
            let entry = Entry(bucket.load(&self.medium, Ordering::Acquire));
            if !entry.is_moved() {
                return Ok((table, bucket, entry));
            }
            let next = self.next_table();
            // The next table is that of this one only if this one is still in use.
            if self.table() != table {
                continue;
            }
            if next.is_none() {
                return Err(damaged_bucket(table, hash));
            }
            let bucket = self.word(next.bucket_of(hash));
            // ORDER: as above.
            let entry = Entry(bucket.load(&self.medium, Ordering::Acquire));
            if !entry.is_moved() {
                return Ok((next, bucket, entry));
            }
            // Buckets of the next table move only when it has become the table. Who sees that one
            // has moved sees that, too.
            if self.table() == table {
                return Err(damaged_bucket(next, hash));
            }
        }
    }

    /// The record of `key` in a bucket.
    #[inline]
    #[track_caller]
    pub(super) fn search(&self, entry: Entry, hash: u64, key: &[u8]) -> Result<Option<Record>> {
        if !sound(entry)?.is_chain() {
            return if entry.has_tag_of(hash) {
                self.record_of(entry, hash, key)
            } else {
                Ok(None)
            };
        }
        for word in words_of_chain(&self.medium, entry)? {
            // ORDER: Acquire pairs with the Release of a publish: the record is there.
            let entry = sound(Entry(word.load(&self.medium, Ordering::Acquire)))?;
            if entry.has_tag_of(hash)
                && let Some(record) = self.record_of(entry, hash, key)?
            {
                return Ok(Some(record));
            }
        }
        Ok(None)
    }

    /// The record that an entry refers to, if it is that of `key`.
    #[inline]
    #[track_caller]
    fn record_of(&self, entry: Entry, hash: u64, key: &[u8]) -> Result<Option<Record>> {
        let record = self.record_at(entry.address())?;
        let is_it = record.hash == hash && record.is_of(&self.medium, key);
        Ok(is_it.then_some(record))
    }

    #[inline]
    #[track_caller]
    pub(super) fn record_at(&self, address: u64) -> Result<Record> {
        Record::read(&self.medium, address)
            .ok_or_else(|| Error::damaged("a bucket's entry", address))
    }

    /// Finds `key` for a writer, who holds its stripe.
    #[inline]
    pub(super) fn spot_of_key(&self, hash: u64, key: &[u8]) -> Result<KeyLookup<'_>> {
        self.spot(hash, |entry| {
            if entry.has_tag_of(hash) {
                self.record_of(entry, hash, key)
            } else {
                Ok(None)
            }
        })
    }

    /// Finds the entry that refers to a record, for a writer who holds its stripe.
    pub(super) fn spot_of_record(&self, record: &Record) -> Result<KeyLookup<'_>> {
        let is_it = |entry: Entry| (entry.address() == record.address).then_some(*record);
        self.spot(record.hash, |entry| Ok(is_it(entry)))
    }

    #[inline]
    fn spot<'a>(
        &'a self,
        hash: u64,
        matches: impl Fn(Entry) -> Result<Option<Record>>,
    ) -> Result<KeyLookup<'a>> {
        let (bucket, entry) = self.bucket(hash)?;
        let words = if sound(entry)?.is_chain() {
            words_of_chain(&self.medium, entry)?
        } else {
            &[]
        };
        let mut spot = KeyLookup {
            bucket,
            entry,
            words,
            found: None,
        };
        let one = if words.is_empty() {
            std::slice::from_ref(bucket)
        } else {
            words
        };
        for word in one {
            // ORDER: Relaxed: whoever changes the bucket held the stripe before.
            let entry = sound(Entry(word.load(&self.medium, Ordering::Relaxed)))?;
            if entry.is_empty() {
                continue;
            }
            if let Some(record) = matches(entry)? {
                spot.found = Some(FoundEntry {
                    word,
                    entry,
                    record,
                });
                break;
            }
        }
        Ok(spot)
    }

    /// Whether a bucket refers to this record, as seen without a lock.
    pub(super) fn refers_to(&self, record: &Record) -> Result<bool> {
        let (bucket, entry) = self.bucket(record.hash)?;
        let mut all = entries(&self.medium, bucket, entry)?;
        Ok(all.any(|(_, entry)| entry.address() == record.address))
    }

    /// Makes durable what a reader may have seen in a bucket while a writer was at work.
    #[cold]
    pub(super) fn settle(&self, bucket: &PAtomicU64, entry: Entry) {
        let _within = self.pool.write_guard();
        self.medium.flush(bucket);
        if entry.is_chain() {
            let bytes = entry.lines() * LINE_BYTES;
            self.medium.flush_range(entry.address(), bytes);
        }
        // DURABLE: the bucket and its chain, before the reader answers.
        self.medium.fence();
    }
}
