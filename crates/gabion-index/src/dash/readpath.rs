//! Lookups: without locks, by a second look at the stripe's word and at the directory.

use super::Dash;
use super::layout::{Bucket, HEAD_BYTES, bits, bucket_of, tag_of};
use crate::extendible::Segment;
use crate::{Item, Result};

/// Where a key is.
pub(super) struct KeyLocation<'a> {
    /// The number of the bucket in its segment.
    pub(super) number: u64,
    pub(super) bucket: &'a Bucket,
    pub(super) slot: u32,
    pub(super) value: u64,
}

impl<K: Item + ?Sized, const USABLE: u32> Dash<K, USABLE> {
    /// A bucket of a segment, of which all before the slots is read; none if the segment is no
    /// more.
    #[inline]
    pub(super) fn bucket(&self, segment: Segment, number: u64) -> Option<&Bucket> {
        let at = bucket_of(segment, number);
        let bucket = self.medium.try_at(at)?;
        self.medium.touch_range(at.raw(), HEAD_BYTES);
        Some(bucket)
    }

    /// The value of `key`.
    #[inline]
    pub(super) fn lookup(&self, key: &K) -> Result<Option<u64>> {
        // Keeps the records that are read from being used again.
        let _pin = (!K::IS_WORD).then(|| self.pool.enter());
        let hash = key.seeded_hash(&self.seed);
        let search = |segment| -> Result<Option<u64>> {
            let found = self.search(segment, hash, key)?;
            Ok(found.map(|found| found.value))
        };
        let settle = |segment| self.settle(segment, hash);
        self.segments.read(hash, search, settle)
    }

    /// Looks for a key in a segment that may be no more: then what this returns means nothing.
    #[inline]
    pub(super) fn search(
        &self,
        segment: Segment,
        hash: u64,
        key: &K,
    ) -> Result<Option<KeyLocation<'_>>> {
        let tag = tag_of(hash);
        let home = self.shape.home(hash);
        let Some(first) = self.bucket(segment, home) else {
            return Ok(None);
        };
        if let Some(found) = self.search_bucket(first, home, tag, key)? {
            return Ok(Some(found));
        }
        let after = self.shape.after(home);
        if let Some(found) = self.search_at(segment, after, tag, key)? {
            return Ok(Some(found));
        }
        // What is in the stash was noted here before it was there.
        let overflow = first.overflow();
        for stash in 0..self.shape.stashes {
            if overflow.may_hold(tag, stash) {
                let number = self.shape.homes + stash;
                if let Some(found) = self.search_at(segment, number, tag, key)? {
                    return Ok(Some(found));
                }
            }
        }
        Ok(None)
    }

    #[inline]
    fn search_at(
        &self,
        segment: Segment,
        number: u64,
        tag: u8,
        key: &K,
    ) -> Result<Option<KeyLocation<'_>>> {
        match self.bucket(segment, number) {
            Some(bucket) => self.search_bucket(bucket, number, tag, key),
            None => Ok(None),
        }
    }

    /// Looks for a key in a bucket, as it is at one moment: a slot whose entry was moved away may
    /// hold the next one, which is none until the metadata says so.
    #[inline]
    fn search_bucket<'a>(
        &self,
        bucket: &'a Bucket,
        number: u64,
        tag: u8,
        key: &K,
    ) -> Result<Option<KeyLocation<'a>>> {
        loop {
            let meta = bucket.meta();
            let mut found = Ok(None);
            for slot in bits(bucket.matches(tag) & meta.live()) {
                let is_key = self.is_key(bucket.key(&self.medium, slot), key);
                if !matches!(is_key, Ok(false)) {
                    found = is_key.map(|_| {
                        Some(KeyLocation {
                            number,
                            bucket,
                            slot,
                            value: bucket.value(slot),
                        })
                    });
                    break;
                }
            }
            if bucket.meta() == meta {
                return found;
            }
        }
    }

    /// Makes durable what a reader may have seen while a writer was at work.
    #[cold]
    fn settle(&self, segment: Segment, hash: u64) {
        let _within = self.pool.write_guard();
        for number in self.shape.path(hash) {
            if let Some(bucket) = self.bucket(segment, number) {
                self.medium.flush(bucket);
            }
        }
        self.medium.fence();
    }
}
