//! Lookups: without locks, by a second look at the stripe's word and at the directory.

use super::Cceh;
use super::layout::{Bucket, PROBES, bucket_of};
use crate::extendible::Segment;

impl<const COPIES: bool> Cceh<COPIES> {
    /// The buckets in which a key with this hash may lie, in order. Ends early if the segment is no
    /// more.
    #[inline]
    pub(super) fn path(&self, segment: Segment, hash: u64) -> impl Iterator<Item = &Bucket> {
        let last = (1 << self.segment_bits) - 1;
        (0..PROBES).map_while(move |step| {
            let place = bucket_of(segment, hash.wrapping_add(step) & last);
            let bucket = self.medium.try_at(place)?;
            self.medium.touch(bucket);
            Some(bucket)
        })
    }

    /// The value of `key`.
    #[inline]
    pub(super) fn lookup(&self, key: u64) -> Option<u64> {
        let hash = self.seed.hash_u64(key);
        // A key that leads here is an entry if it is here.
        let search = |segment| {
            self.path(segment, hash)
                .find_map(|bucket| Some(bucket.value(bucket.find(key)?)))
        };
        let settle = |segment| self.settle(segment, hash);
        self.segments.read(hash, search, settle)
    }

    /// Makes durable what a reader may have seen while a writer was at work.
    #[cold]
    fn settle(&self, segment: Segment, hash: u64) {
        let _within = self.pool.write_guard();
        for bucket in self.path(segment, hash) {
            self.medium.flush(bucket);
        }
        self.medium.fence();
    }
}
