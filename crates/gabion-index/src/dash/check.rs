//! Operations on all entries: counts, visits, and the check of the invariants.

use std::collections::HashSet;

use super::Dash;
use super::layout::{bits, tag_of};
use crate::extendible::{Segment, segment_end};
use crate::index::CheckSummary;
use crate::{Error, Item, Result};

impl<K: Item + ?Sized, const USABLE: u32> Dash<K, USABLE> {
    /// Visits the words of key and value of all entries of a segment.
    fn for_each_entry(
        &self,
        segment: Segment,
        mut visit: impl FnMut(u64, u64) -> Result<()>,
    ) -> Result<()> {
        for number in 0..self.shape.buckets() {
            let bucket = self.bucket_at(segment, number);
            for slot in bits(bucket.meta().live()) {
                visit(bucket.key(&self.medium, slot), bucket.value(slot))?;
            }
        }
        Ok(())
    }

    /// Counts all entries, while nobody writes.
    pub(super) fn count(&self) -> Result<u64> {
        let mut count = 0;
        self.segments.for_each_segment(|segment, from| {
            self.mend(segment, from)?;
            for number in 0..self.shape.buckets() {
                let meta = self.bucket_at(segment, number).meta();
                count += u64::from(meta.live().count_ones());
            }
            Ok(())
        })?;
        Ok(count)
    }

    /// Appends the entries of the segment to which the hash `from` leads, without those whose hash
    /// is less, and returns the first hash of the next segment.
    pub(super) fn collect(
        &self,
        from: u64,
        entries: &mut Vec<(K::Owned, u64)>,
    ) -> Result<Option<u64>> {
        let _within = self.pool.write_guard();
        let (segment, _held) = self.lock(from)?;
        self.for_each_entry(segment, |word, value| {
            if self.hash_of(word)? >= from {
                entries.push((self.key_of(word)?, value));
            }
            Ok(())
        })?;
        Ok(segment_end(segment, from))
    }

    /// Checks the invariants, while nobody writes.
    pub(super) fn check_all(&self) -> Result<CheckSummary> {
        let _within = self.pool.write_guard();
        let mut checked = self.segments.check(|segment, from| {
            self.mend(segment, from)?;
            self.check_segment(segment, from)
        })?;
        if !K::IS_WORD {
            checked.blocks += checked.entries;
        }
        Ok(checked)
    }

    fn check_segment(&self, segment: Segment, from: u64) -> Result<u64> {
        let mut keys = HashSet::new();
        let homes = 0..self.shape.homes;
        let mut notes: Vec<_> = homes
            .map(|number| self.bucket_at(segment, number).overflow())
            .collect();
        for number in 0..self.shape.buckets() {
            let bucket = self.bucket_at(segment, number);
            let meta = bucket.meta();
            if !meta.is_sound(USABLE) {
                return Err(Error::damaged("the metadata of a bucket", segment.offset()));
            }
            for slot in bits(meta.live()) {
                let word = bucket.key(&self.medium, slot);
                let hash = self.hash_of(word)?;
                let home = self.shape.home(hash);
                let is_away = meta.away() >> slot & 1 != 0;
                let is_sound = match number.checked_sub(self.shape.homes) {
                    None if is_away => number == self.shape.after(home),
                    None => number == home,
                    Some(stash) => {
                        let note = usize::try_from(home).ok().and_then(|at| notes.get_mut(at));
                        note.is_some_and(|note| {
                            let rest = note.without(tag_of(hash), stash);
                            *note = rest.unwrap_or_default();
                            rest.is_some()
                        })
                    }
                };
                if !is_sound || !segment.owns(from, hash) || bucket.tag(slot) != tag_of(hash) {
                    return Err(Error::damaged("the place of an entry", segment.offset()));
                }
                if !keys.insert(self.key_of(word)?) {
                    return Err(Error::damaged("a duplicate key", segment.offset()));
                }
            }
        }
        Ok(keys.len() as u64)
    }
}
