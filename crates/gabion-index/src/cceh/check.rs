//! Operations on all entries: counts, visits, and the check of the invariants.

use std::collections::HashSet;

use super::Cceh;
use super::layout::{PAIRS, bucket_of, path};
use crate::extendible::{Segment, segment_end};
use crate::index::{CheckSummary, visit_by_hash};
use crate::{Error, Result};

impl<const COPIES: bool, const SCOPE: u64, const TWICE: bool> Cceh<COPIES, SCOPE, TWICE> {
    /// Visits all pairs of a segment in their order, entries or not.
    pub(super) fn for_each_pair(&self, segment: Segment, mut visit: impl FnMut(u64, u64)) {
        for number in 0..1 << self.segment_bits {
            let bucket = self.medium.at(bucket_of(segment, number));
            self.medium.touch(bucket);
            for slot in 0..PAIRS {
                visit(bucket.key(slot), bucket.value(slot));
            }
        }
    }

    /// Counts all entries, while nobody writes.
    pub(super) fn count(&self) -> Result<u64> {
        let mut count = 0;
        self.segments.for_each_segment(|segment, from| {
            self.for_each_pair(segment, |key, _| {
                count += u64::from(segment.owns(from, self.seed.hash_u64(key)));
            });
            Ok(())
        })?;
        Ok(count)
    }

    /// The number of entries, exact if nobody writes.
    pub(super) fn entries(&self) -> Result<u64> {
        self.segments.entries(|| self.count())
    }

    /// Appends the entries of the segment to which the hash `from` leads, without those whose hash
    /// is less, and returns the first hash of the next segment.
    pub(crate) fn collect(&self, from: u64, entries: &mut Vec<(u64, u64)>) -> Option<u64> {
        let (segment, _held) = self.lock(from);
        self.for_each_pair(segment, |key, value| {
            let hash = self.seed.hash_u64(key);
            if segment.owns(from, hash) && hash >= from {
                entries.push((key, value));
            }
        });
        segment_end(segment, from)
    }

    /// Visits all entries.
    pub(super) fn visit(&self, visit: &mut dyn FnMut(&u64, u64)) -> Result<()> {
        visit_by_hash(|from, entries| Ok(self.collect(from, entries)), visit)
    }

    /// Checks the invariants, while nobody writes.
    pub(super) fn check_all(&self) -> Result<CheckSummary> {
        self.segments
            .check(|segment, from| self.check_segment(segment, from))
    }

    fn check_segment(&self, segment: Segment, from: u64) -> Result<u64> {
        let (mut keys, mut place, mut broken) = (HashSet::new(), 0, None);
        self.for_each_pair(segment, |key, _| {
            let hash = self.seed.hash_u64(key);
            let bucket = place / PAIRS as u64;
            place += 1;
            if segment.owns(from, hash) {
                let last = (1 << self.segment_bits) - 1;
                if !path(hash, last, SCOPE, TWICE).any(|number| number == bucket) {
                    broken = Some("the place of an entry");
                }
                if !keys.insert(key) {
                    broken = Some("a duplicate key");
                }
            }
        });
        match broken {
            None => Ok(keys.len() as u64),
            Some(what) => Err(Error::damaged(what, segment.offset())),
        }
    }
}
