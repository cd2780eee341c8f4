//! Lookups: without locks, by a second look at the stripe's word and at the directory.

use std::sync::atomic::Ordering;

use gabion_media::pmem::POff;

use super::Cceh;
use super::layout::{Bucket, Directory, PROBES, Segment};
use crate::line::Array;
use crate::lock::{Since, Stripe, Stripes};

impl<const COPIES: bool> Cceh<COPIES> {
    /// The directory in use.
    #[inline]
    pub(super) fn directory(&self) -> Directory {
        // ORDER: Acquire pairs with the release of `adopt`: it is read as it was written.
        Directory(Array(self.directory.load(Ordering::Acquire)))
    }

    /// The segment to which a hash leads. If the directory is given up meanwhile, and its space
    /// used, this may be anything.
    #[inline]
    pub(super) fn segment(&self, hash: u64) -> Segment {
        let directory = self.directory();
        let entry = self.medium.at(directory.entry(directory.home(hash)));
        // ORDER: Acquire pairs with the release of the splitting store: the segment is there.
        Segment(Array(entry.load(&self.medium, Ordering::Acquire)))
    }

    /// The stripe that guards a segment to which `hash` leads.
    #[inline]
    pub(super) fn stripe(&self, hash: u64, segment: Segment) -> &Stripe {
        self.stripes.at(Stripes::index(hash, segment.depth()))
    }

    /// The buckets in which a key with this hash may lie, in order. Ends early if the segment is no
    /// more.
    #[inline]
    pub(super) fn path(&self, segment: Segment, hash: u64) -> impl Iterator<Item = &Bucket> {
        let last = (1 << self.segment_bits) - 1;
        (0..PROBES).map_while(move |step| {
            let place: POff<Bucket> = segment.bucket(hash.wrapping_add(step) & last);
            let bucket = self.medium.try_at(place)?;
            self.medium.touch(bucket);
            Some(bucket)
        })
    }

    /// The value of `key`.
    #[inline]
    pub(super) fn lookup(&self, key: u64) -> Option<u64> {
        let hash = self.seed.hash_u64(key);
        loop {
            let segment = self.segment(hash);
            let stripe = self.stripe(hash, segment);
            let seen = stripe.look();
            // A key that leads here is an entry if it is here.
            let found = self
                .path(segment, hash)
                .find_map(|bucket| Some(bucket.value(bucket.find(key)?)));
            // Entries of the directory change under the lock; so this was the segment if it still
            // is, and the stripe was not taken and released.
            match stripe.since(seen) {
                Since::Quiet if self.segment(hash) == segment => return found,
                Since::Busy if self.segment(hash) == segment => {
                    self.settle(segment, hash);
                    return found;
                }
                _ => {}
            }
        }
    }

    /// Makes durable what a reader may have seen while a writer was at work.
    #[cold]
    fn settle(&self, segment: Segment, hash: u64) {
        for bucket in self.path(segment, hash) {
            self.medium.flush(bucket);
        }
        self.medium.fence();
    }
}
