//! Lookups: without locks, by sequence numbers.

use super::layout::{Bucket, Meta, Place};
use super::probe::{Path, bits, bucket_at, home_at, prefetch_lines, tag_of};
use super::record::Pin;
use super::{TurboHash, shard::Shard};
use crate::{Item, Result};

impl<K: Item + ?Sized, V: Item + ?Sized> TurboHash<K, V> {
    /// The value of `key`. Durable when it returns, as far as the pool's class goes.
    ///
    /// # Errors
    /// A damaged record.
    #[inline]
    pub fn get(&self, key: &K) -> Result<Option<V::Owned>> {
        let pin = Self::HAS_RECORDS.then(|| self.pin());
        self.get_hashed(key, key.seeded_hash(&self.seed), pin.as_ref())
    }

    /// Whether the table has `key`.
    ///
    /// # Errors
    /// A damaged record.
    #[inline]
    pub fn contains(&self, key: &K) -> Result<bool> {
        let pin = Self::HAS_RECORDS.then(|| self.pin());
        let found = self.find(key, key.seeded_hash(&self.seed), pin.as_ref())?;
        Ok(found.is_some())
    }

    #[inline]
    fn get_hashed(&self, key: &K, hash: u64, pin: Option<&Pin<'_>>) -> Result<Option<V::Owned>> {
        match self.find(key, hash, pin)? {
            None => Ok(None),
            Some(value) => self.value_of(value).map(Some),
        }
    }

    /// The second word of the entry's slot.
    #[inline]
    fn find(&self, key: &K, hash: u64, pin: Option<&Pin<'_>>) -> Result<Option<u64>> {
        let place = self.shard_of(hash).place();
        if let Some(home) = home_at(&self.medium, place, hash) {
            prefetch_lines(home, hash);
            let meta = home.meta();
            let candidates = home.matches(tag_of(hash)) & meta.live();
            return self.find_at_home(place, home, meta, candidates, key, hash, pin);
        }
        self.find_on_path(key, hash, pin)
    }

    /// The end of [`TurboHash::find`] in the home bucket, where nearly all lookups end. Before,
    /// `meta` was read, and the live slots `candidates` found to have the right tag.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "a step of one function")]
    pub(super) fn find_at_home(
        &self,
        place: Place,
        home: &Bucket,
        meta: Meta,
        candidates: u16,
        key: &K,
        hash: u64,
        pin: Option<&Pin<'_>>,
    ) -> Result<Option<u64>> {
        let shard = self.shard_of(hash);
        let is_unchanged = || home.meta() == meta && shard.is_at_rest(place);
        let word = key.slot_word(hash);
        for slot in bits(candidates) {
            let slot = home.slot(slot);
            if slot.key() == word {
                let value = slot.value();
                if self.is_record_of(value, key)? {
                    if is_unchanged() {
                        return Ok(Some(value));
                    }
                    return self.find_on_path(key, hash, pin);
                }
            }
        }
        if meta.is_path_end() && is_unchanged() {
            return Ok(None);
        }
        self.find_on_path(key, hash, pin)
    }

    /// As [`TurboHash::find`], for all cases.
    #[cold]
    #[inline(never)]
    pub(super) fn find_on_path(
        &self,
        key: &K,
        hash: u64,
        _pin: Option<&Pin<'_>>,
    ) -> Result<Option<u64>> {
        let shard = self.shard_of(hash);
        loop {
            let place = shard.place();
            let found = self.search(place, key, hash)?;
            if shard.is_at(place) {
                if shard.is_locked() {
                    self.settle(place, hash);
                }
                return Ok(found);
            }
        }
    }

    /// Looks for a key at `place`, which may be given up meanwhile: then what this returns means
    /// nothing.
    fn search(&self, place: Place, key: &K, hash: u64) -> Result<Option<u64>> {
        for index in Path::new(place, hash) {
            let bucket = bucket_at(&self.medium, place, index);
            loop {
                let meta = bucket.meta();
                let found = self.search_bucket(bucket, meta.live(), key, hash)?;
                if bucket.meta() != meta {
                    continue;
                }
                if found.is_some() || meta.is_path_end() {
                    return Ok(found);
                }
                break;
            }
        }
        Ok(None)
    }

    /// Looks for a key among the slots `live` of a bucket.
    fn search_bucket(&self, bucket: &Bucket, live: u16, key: &K, hash: u64) -> Result<Option<u64>> {
        let word = key.slot_word(hash);
        for slot in bits(bucket.matches(tag_of(hash)) & live) {
            let slot = bucket.slot(slot);
            if slot.key() == word {
                let value = slot.value();
                if self.is_record_of(value, key)? {
                    return Ok(Some(value));
                }
            }
        }
        Ok(None)
    }

    /// Makes durable what a reader may have seen on the path of `hash` while a writer was at work:
    /// the metadata, for all that it names is durable already.
    #[cold]
    fn settle(&self, place: Place, hash: u64) {
        for index in Path::new(place, hash) {
            let bucket = bucket_at(&self.medium, place, index);
            self.medium.flush(&bucket.meta);
            if bucket.meta().is_path_end() {
                break;
            }
        }
        self.medium.fence();
    }

    #[inline]
    pub(super) fn shard_of(&self, hash: u64) -> &Shard {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "less than the number of shards"
        )]
        let index = self.shard_index(hash) as usize;
        &self.shards[index]
    }
}
