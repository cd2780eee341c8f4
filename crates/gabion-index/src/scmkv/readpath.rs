//! Lookups: without locks.
//!
//! A reader holds a guard, so that no page that it may look into is used anew meanwhile. Records
//! never change once they are published, and the words that lead to them change one by one, so what
//! a reader finds was there at one moment of its lookup, even in a chain that was replaced.

use gabion_media::pmem::PAtomicU64;

use super::layout::Entry as Word;
use super::record::Record;
use super::table::entries;
use super::{Scmkv, Volume};
use crate::{Error, Result};

/// A key and its value.
pub type Entry = (Vec<u8>, Vec<u8>);

impl Volume {
    /// Puts the value of `key` behind what is in `value`; false if there is none.
    #[inline]
    pub(super) fn get(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let hash = self.seed.hash_bytes(key);
        let _guard = self.pool.enter();
        let (bucket, entry) = self.bucket(hash)?;
        let found = self.search(entry, hash, key)?;
        self.settle_if_locked(hash, bucket, entry);
        let Some(record) = found else {
            return Ok(false);
        };
        let before = value.len();
        let read = record.read_value(&self.medium, value);
        let is_sound = !self.checks_reads || record.has_value(&value[before..]);
        match read.filter(|()| is_sound) {
            Some(()) => Ok(true),
            None => {
                value.truncate(before);
                Err(Error::damaged("a value", record.address))
            }
        }
    }

    pub(super) fn contains(&self, key: &[u8]) -> Result<bool> {
        let hash = self.seed.hash_bytes(key);
        let _guard = self.pool.enter();
        let (bucket, entry) = self.bucket(hash)?;
        let found = self.search(entry, hash, key)?;
        self.settle_if_locked(hash, bucket, entry);
        Ok(found.is_some())
    }

    /// In a strict store no answer is lost in a crash.
    #[inline]
    fn settle_if_locked(&self, hash: u64, bucket: &PAtomicU64, entry: Word) {
        if self.is_strict && self.stripes.is_locked(hash) {
            self.settle(bucket, entry);
        }
    }

    /// The records of all keys whose hashes begin as `from` does, in the bucket that is there now,
    /// and where the next bucket begins; `None` behind the last one.
    fn records_of_bucket(&self, from: u64) -> Result<(Vec<Record>, Option<u64>)> {
        let (table, bucket, entry) = self.bucket_and_table(from)?;
        let mut records = Vec::new();
        for (_, entry) in entries(&self.medium, bucket, entry)? {
            records.push(self.record_at(entry.address())?);
        }
        self.settle_if_locked(from, bucket, entry);
        let size = 1 << (64 - table.log2());
        Ok((records, (from & !(size - 1)).checked_add(size)))
    }

    /// The entries of the bucket as above, each one checked.
    fn entries_of_bucket(&self, from: u64) -> Result<(Vec<Entry>, Option<u64>)> {
        let _guard = self.pool.enter();
        let (records, next) = self.records_of_bucket(from)?;
        let read = |record: Record| {
            let content = record.content(&self.medium, &self.seed);
            content.ok_or_else(|| Error::damaged("a record", record.address))
        };
        let entries: Result<Vec<_>> = records.into_iter().map(read).collect();
        Ok((entries?, next))
    }

    /// The number of entries.
    pub(super) fn len(&self) -> Result<u64> {
        let mut count = 0;
        let mut from = Some(0);
        while let Some(at) = from {
            let _guard = self.pool.enter();
            let (records, next) = self.records_of_bucket(at)?;
            count += records.len() as u64;
            from = next;
        }
        Ok(count)
    }
}

/// All entries of a store. See [`Scmkv::iter`].
#[derive(Debug)]
pub struct Iter<'a> {
    volume: &'a Volume,
    /// Where the next bucket begins.
    from: Option<u64>,
    entries: Vec<Entry>,
}

impl Iter<'_> {
    fn fill(&mut self, from: u64) -> Result<()> {
        (self.entries, self.from) = self.volume.entries_of_bucket(from)?;
        Ok(())
    }
}

impl Iterator for Iter<'_> {
    type Item = Result<Entry>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.entries.pop() {
                return Some(Ok(entry));
            }
            let from = self.from?;
            if let Err(error) = self.fill(from) {
                self.from = None;
                self.entries.clear();
                return Some(Err(error));
            }
        }
    }
}

impl Scmkv {
    /// The value of `key`.
    ///
    /// # Errors
    /// Damage on the medium.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        Ok(self.volume.get(key, &mut value)?.then_some(value))
    }

    /// As [`Scmkv::get`], puts the value behind what is in `value`; false if there is none.
    ///
    /// # Errors
    /// Damage on the medium.
    #[inline]
    pub fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.volume.get(key, value)
    }

    /// Whether there is `key`.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        self.volume.contains(key)
    }

    /// All entries, in no order that means anything, each one checked. What is in the store from
    /// begin to end comes exactly once; what is changed meanwhile comes with one of its values or
    /// not. Holds the entries of one bucket in memory.
    pub fn iter(&self) -> Iter<'_> {
        Iter {
            volume: &self.volume,
            from: Some(0),
            entries: Vec::new(),
        }
    }

    /// A few entries, each one checked, and where the next ones begin; `None` behind the last. The
    /// first ones begin at 0. So one goes through a store without borrowing it in between; what is
    /// seen is what [`Scmkv::iter`] sees.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn entries_from(&self, from: u64) -> Result<(Vec<Entry>, Option<u64>)> {
        self.volume.entries_of_bucket(from)
    }

    /// The number of entries, counted: costs a walk over the hash table. Exact if nobody writes.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn len(&self) -> Result<u64> {
        self.volume.len()
    }

    /// Whether there is no entry.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn is_empty(&self) -> Result<bool> {
        match self.iter().next() {
            Some(entry) => entry.map(|_| false),
            None => Ok(true),
        }
    }
}
