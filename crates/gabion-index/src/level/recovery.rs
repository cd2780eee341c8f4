//! Recovery: completes an interrupted operation, at a cost that does not depend on the table's
//! size.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{PAtomicU64, POff};

use super::LevelTable;
use super::form::Form;
use super::places::Levels;
use super::writepath::NOTE_OFFSET_BITS;
use crate::bucket::Bucket;
use crate::line::LineArray;
use crate::{Error, Result};

impl<F: Form> LevelTable<F> {
    /// Finds the levels, adds those that a new table lacks, and ends a resize and a movement.
    pub(super) fn recover(&self) -> Result<()> {
        let list = self.list_levels()?;
        if let Some(top) = list.first() {
            self.adopt(*top);
        }
        if list.len() < 2 {
            let top = list.first().copied().unwrap_or(LineArray(0));
            self.found(top, list.len())?;
            return Ok(());
        }
        self.log.recover(|at| self.bucket_at(at))?;
        if let [_, last, level] = list[..] {
            let retiring = self.announce(last, level)?;
            // DURABLE: what the allocator noted.
            self.medium.fence();
            self.cut(last, retiring);
        }
        self.end_movement();
        Ok(())
    }

    /// The levels from the top down, checked.
    fn list_levels(&self) -> Result<Vec<LineArray>> {
        let mut list: Vec<LineArray> = Vec::new();
        let mut word = &self.state().top;
        loop {
            // ORDER: Relaxed: nobody else has the table yet.
            let level = LineArray(word.load(&self.medium, Ordering::Relaxed));
            if level.0 == 0 {
                // The first level of a new table has a size that is planned.
                let planned = self.planned_bits() - 1;
                let is_planned = |only: &LineArray| only.bits() == planned;
                return match &list[..] {
                    [only] if !is_planned(only) => Err(self.damaged(word)),
                    _ => Ok(list),
                };
            }
            let has_its_size = list
                .last()
                .is_none_or(|above| above.bits() == level.bits() + 1);
            if !has_its_size
                || list.len() == 3
                || !level.is_within(&self.medium, 1, Self::bytes_of_level)
            {
                return Err(self.damaged(word));
            }
            list.push(level);
            word = self.below(level);
        }
    }

    fn damaged(&self, word: &PAtomicU64) -> Error {
        Error::damaged(
            "the levels of a hash table",
            self.medium.offset_of(word).raw(),
        )
    }

    /// Ends the entry that was being moved if its equal is there.
    fn end_movement(&self) {
        // ORDER: Relaxed: as above.
        let note = self.state().note.load(&self.medium, Ordering::Relaxed);
        let at = note & ((1 << NOTE_OFFSET_BITS) - 1);
        let slot = (note >> NOTE_OFFSET_BITS) as usize;
        // The note stays when a movement is over; its level may have gone since.
        let bucket = self.bucket_at(at).filter(|_| slot < F::Bucket::SLOTS);
        if let Some(bucket) = bucket {
            self.end_one_of_two(&self.levels(self.top()), bucket, slot);
        }
    }

    /// The bucket of the top or the bottom at an offset, if there is one.
    fn bucket_at(&self, at: u64) -> Option<&F::Bucket> {
        let levels = self.levels(self.top());
        let is_in = |level: LineArray| {
            let end = Self::bucket(level, level.len()).raw();
            let is_within = (level.offset()..end).contains(&at);
            is_within && (at - level.offset()).is_multiple_of(Self::STRIDE)
        };
        let is_bucket = is_in(levels.top) || is_in(levels.bottom);
        is_bucket.then(|| self.medium.at(POff::new(at)))
    }

    fn end_one_of_two(&self, levels: &Levels, line: &F::Bucket, slot: usize) {
        let Some((key, _)) = line.entry(slot) else {
            return;
        };
        let places = self.places(levels, self.hashes(key));
        let has_equal = places
            .into_iter()
            .any(|place| !std::ptr::eq(place, line) && place.find(key).is_some());
        if has_equal {
            line.remove(&self.medium, slot);
        }
    }
}
