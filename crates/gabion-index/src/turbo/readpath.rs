//! Lookups: without locks, by sequence numbers.

use super::layout::{Bucket, BucketMeta, ShardPlace};
use super::probe::{ProbePath, bits, bucket_at, home_at, prefetch_lines, tag_of};
use super::record::RecordPin;
use super::{TurboHash, shard::Shard};
use crate::{Item, Result};

/// A lookup on its way through the home bucket of its key.
#[derive(Clone, Copy)]
pub(super) struct Lookup<'a> {
    shard: &'a Shard,
    place: ShardPlace,
    pub(super) home: &'a Bucket,
    tag: u8,
    meta: BucketMeta,
    /// Live slots whose tags match, as bits.
    candidates: u16,
}

impl Lookup<'_> {
    /// Reads which slots may hold the key.
    #[inline]
    pub(super) fn look(&mut self) {
        self.meta = self.home.meta();
        self.candidates = self.home.matches(self.tag) & self.meta.live();
    }

    /// Asks for the line that is read next.
    #[inline]
    pub(super) fn prefetch_next(&self) {
        if self.candidates != 0 {
            prefetch(self.home.slot(self.candidates.trailing_zeros()));
        } else if !self.meta.is_path_end() {
            // The next bucket of the path, except behind the last one, where a hint may miss.
            prefetch(std::ptr::from_ref(self.home).wrapping_add(1));
        }
    }

    /// Whether all that was read since [`Lookup::look`] was there at one moment, and is durable.
    #[inline]
    fn is_unchanged(&self) -> bool {
        self.home.meta() == self.meta && self.shard.is_at_rest(self.place)
    }
}

/// Asks for the cache line in which `value` begins.
#[inline]
pub(super) fn prefetch<T>(value: *const T) {
    gabion_media::prefetch_line(value.cast());
}

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
    fn get_hashed(
        &self,
        key: &K,
        hash: u64,
        pin: Option<&RecordPin<'_>>,
    ) -> Result<Option<V::Owned>> {
        match self.find(key, hash, pin)? {
            None => Ok(None),
            Some(value) => self.value_of(value).map(Some),
        }
    }

    /// The second word of the entry's slot.
    #[inline]
    fn find(&self, key: &K, hash: u64, pin: Option<&RecordPin<'_>>) -> Result<Option<u64>> {
        let mut lookup = self.approach(hash);
        if let Some(lookup) = &mut lookup {
            prefetch_lines(lookup.home, hash);
            lookup.look();
        }
        self.settle_at_home(key, hash, lookup.as_ref(), pin)
    }

    /// Finds the home bucket of a hash, unless the shard is empty.
    #[inline]
    pub(super) fn approach(&self, hash: u64) -> Option<Lookup<'_>> {
        let shard = self.shard_of(hash);
        let place = shard.place();
        home_at(&self.medium, place, hash).map(|home| Lookup {
            shard,
            place,
            home,
            tag: tag_of(hash),
            meta: BucketMeta(0),
            candidates: 0,
        })
    }

    /// The end of [`TurboHash::find`] in the home bucket, where nearly all lookups end.
    #[inline]
    pub(super) fn settle_at_home(
        &self,
        key: &K,
        hash: u64,
        lookup: Option<&Lookup<'_>>,
        pin: Option<&RecordPin<'_>>,
    ) -> Result<Option<u64>> {
        let Some(lookup) = lookup else {
            return self.find_on_path(key, hash, pin);
        };
        let word = key.slot_word(hash);
        for slot in bits(lookup.candidates) {
            let slot = lookup.home.read_slot(&self.medium, slot);
            if slot.key() == word {
                let value = slot.value();
                if self.is_record_of(value, key)? {
                    if lookup.is_unchanged() {
                        return Ok(Some(value));
                    }
                    return self.find_on_path(key, hash, pin);
                }
            }
        }
        if lookup.meta.is_path_end() && lookup.is_unchanged() {
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
        _pin: Option<&RecordPin<'_>>,
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
    fn search(&self, place: ShardPlace, key: &K, hash: u64) -> Result<Option<u64>> {
        for index in ProbePath::new(place, hash) {
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
            let slot = bucket.read_slot(&self.medium, slot);
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
    fn settle(&self, place: ShardPlace, hash: u64) {
        let _within = self.pool.write_guard();
        for index in ProbePath::new(place, hash) {
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
