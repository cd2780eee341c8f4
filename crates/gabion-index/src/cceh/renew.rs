//! Many entries at once, out of place: the segment that they belong to is copied to DRAM and gets
//! them there, and a new segment takes its place. `extendible/renew.rs` says what a crash leaves.
//!
//! What finds no room splits the segment, with what it gets: both halves are new then. If that does
//! not make room either, it is split as it is, and the halves get what is theirs.
//!
//! A new segment is written as a whole, so a few entries are better stored in place: each costs a
//! line of the medium and a persist there. Out of place it is two persists for all of them.

use super::Cceh;
use super::image::SegmentImage;
use crate::Result;
use crate::extendible::Segment;
use crate::index::insert_by_parts;
use crate::line::LINE_BYTES;

/// Bytes that the medium writes for an entry in place.
const IN_PLACE_BYTES: u64 = 256;

impl<const COPIES: bool, const SCOPE: u64, const TWICE: bool> Cceh<COPIES, SCOPE, TWICE> {
    /// Stores values, in the order of the hashes of their keys, whether these are there or not. All
    /// are durable when this returns. Until then readers may see some that are not: whoever calls
    /// has them elsewhere, and sees to it that nobody relies on what is found of these keys.
    ///
    /// # Errors
    /// No space in the pool: some are stored then, and some not.
    pub(crate) fn insert_all(&self, entries: &[(u64, u64)]) -> Result<()> {
        insert_by_parts(self, entries, |rest| self.renew_segment(rest))
    }

    /// Stores those of `entries` that belong to the segment of the first one, and returns how many
    /// they are; 0 if nothing was done, because it is better done in place.
    fn renew_segment(&self, entries: &[(u64, u64)]) -> Result<usize> {
        let Some((first, _)) = entries.first() else {
            return Ok(0);
        };
        let _within = self.pool.write_guard();
        let hash = self.hash(*first);
        loop {
            let (segment, held) = self.lock(hash);
            let is_here = |entry: &(u64, u64)| segment.owns(hash, self.hash(entry.0));
            let count = entries.partition_point(is_here);
            if (count as u64) * IN_PLACE_BYTES < LINE_BYTES << self.segment_bits {
                return Ok(0);
            }
            if let Some(new) = self.replace_with(segment, hash, &entries[..count])? {
                (0..new).for_each(|_| held.count_insert());
                return Ok(count);
            }
            self.split(segment, hash)?;
        }
    }

    /// Replaces a segment, whose lock is held, by one that has some entries more, or by two.
    /// Returns how many keys are new; none if there is no room for one of them.
    fn replace_with(
        &self,
        segment: Segment,
        hash: u64,
        entries: &[(u64, u64)],
    ) -> Result<Option<usize>> {
        let image = self.image(segment, hash);
        let mut halves = self.halve(&image, segment);
        let mut whole = [image];
        if let Some(new) = self.put_all(entries, &mut whole, |_| 0) {
            let bytes = whole[0].bytes(self.filler(hash));
            self.segments.renew(segment, hash, &bytes)?;
            return Ok(Some(new));
        }
        let half_of = |hash| usize::from(segment.is_second(hash));
        let Some(new) = self.put_all(entries, &mut halves, half_of) else {
            return Ok(None);
        };
        let images = || Ok(self.halves_of(&halves, hash, true));
        self.segments.split(segment, hash, images, || Ok(()))?;
        Ok(Some(new))
    }

    /// Stores entries in images, each in the one of its hash. Returns how many keys are new; none
    /// if there is no room for one of them.
    fn put_all(
        &self,
        entries: &[(u64, u64)],
        images: &mut [SegmentImage],
        image_of: impl Fn(u64) -> usize,
    ) -> Option<usize> {
        let mut new = 0;
        for (key, value) in entries {
            let hash = self.hash(*key);
            let image = &mut images[image_of(hash)];
            new += usize::from(image.put::<SCOPE, TWICE>(hash, *key, *value)?);
        }
        Some(new)
    }
}
