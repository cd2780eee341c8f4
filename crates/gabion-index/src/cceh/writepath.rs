//! Writes: under the lock of the segment's stripe, each published by one store to a bucket.

use super::Cceh;
use super::layout::{Bucket, PAIRS, bucket_of, path};
use crate::Result;
use crate::extendible::Segment;
use crate::lock::StripeGuard;

impl<const COPIES: bool, const SCOPE: u64, const TWICE: bool> Cceh<COPIES, SCOPE, TWICE> {
    /// Stores `value` under `key` and returns the value before.
    #[inline]
    pub(super) fn put(&self, key: u64, value: u64) -> Result<Option<u64>> {
        let _within = self.pool.write_guard();
        let hash = self.seed.hash_u64(key);
        loop {
            let (segment, held) = self.lock(hash);
            if let Some((bucket, slot)) = self.find(segment, hash, key) {
                return Ok(Some(bucket.replace(&self.medium, slot, value)));
            }
            if let Some((bucket, slot)) = self.find_room(segment, hash) {
                bucket.put(&self.medium, slot, key, value);
                held.count_insert();
                return Ok(None);
            }
            self.split(segment, hash)?;
        }
    }

    /// Stores `value` under `key` if it is there, and returns the value before.
    #[inline]
    pub(super) fn replace(&self, key: u64, value: u64) -> Option<u64> {
        let _within = self.pool.write_guard();
        let hash = self.seed.hash_u64(key);
        let (segment, _held) = self.lock(hash);
        let (bucket, slot) = self.find(segment, hash, key)?;
        Some(bucket.replace(&self.medium, slot, value))
    }

    /// Deletes `key` and returns its value.
    #[inline]
    pub(super) fn delete(&self, key: u64) -> Option<u64> {
        let _within = self.pool.write_guard();
        let hash = self.seed.hash_u64(key);
        let (segment, held) = self.lock(hash);
        let (bucket, slot) = self.find(segment, hash, key)?;
        held.count_remove();
        Some(bucket.remove(&self.medium, slot, self.filler(hash)))
    }

    /// A key that is no entry in the segment to which `hash` leads.
    #[inline]
    pub(super) fn filler(&self, hash: u64) -> u64 {
        let [zero, one] = self.fillers;
        if hash >> 63 == 0 { one } else { zero }
    }

    /// Takes the lock of the segment to which `hash` leads, which stays as it is while it is held.
    #[inline]
    pub(super) fn lock(&self, hash: u64) -> (Segment, StripeGuard<'_>) {
        let last = (1 << self.segment_bits) - 1;
        let prefetch = |segment| {
            for number in path(hash, last, SCOPE, TWICE) {
                self.medium.prefetch(bucket_of(segment, number).raw());
            }
        };
        self.segments.lock(hash, prefetch)
    }

    /// Where a key is.
    #[inline]
    fn find(&self, segment: Segment, hash: u64, key: u64) -> Option<(&Bucket, usize)> {
        self.path(segment, hash)
            .find_map(|bucket| Some((bucket, bucket.find(key)?)))
    }

    /// The first slot on the path of a hash that holds no entry.
    #[inline]
    fn find_room(&self, segment: Segment, hash: u64) -> Option<(&Bucket, usize)> {
        self.path(segment, hash).find_map(|bucket| {
            let is_free = |slot: &usize| {
                let other = self.seed.hash_u64(bucket.key(*slot));
                !segment.owns(hash, other)
            };
            Some((bucket, (0..PAIRS).find(is_free)?))
        })
    }
}
