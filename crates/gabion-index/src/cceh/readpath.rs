//! Lookups: without locks, by a second look at the stripe's word and at the directory.

use super::Cceh;
use super::layout::{Bucket, bucket_of, path};
use crate::extendible::Segment;

impl<const COPIES: bool, const SCOPE: u64, const TWICE: bool> Cceh<COPIES, SCOPE, TWICE> {
    /// The buckets in which a key with this hash may lie, in order. Ends early if the segment is no
    /// more.
    #[inline]
    pub(super) fn path(&self, segment: Segment, hash: u64) -> impl Iterator<Item = &Bucket> {
        let last = (1 << self.segment_bits) - 1;
        path(hash, last, SCOPE, TWICE).map_while(move |number| {
            let place = bucket_of(segment, number);
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
