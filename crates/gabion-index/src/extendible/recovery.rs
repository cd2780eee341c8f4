//! Recovery: reads the directory, and ends a split or the replacement of a segment that had begun.

use std::sync::atomic::Ordering;

use super::{DEPTH_MAX, Directory, Extendible, FirstHalf, Segment, Split};
use crate::line::{LINE_BYTES, Line, LineArray};
use crate::{Error, Result};

impl Extendible {
    /// Finds the directory, or makes one; makes the segments that a new table lacks, of the bytes
    /// that `empty` gives for hashes that begin with the bit that it is told; ends a split. `clear`
    /// takes what moved out of the segment that was split, if that is the table's way.
    pub(crate) fn recover(
        &self,
        empty: impl Fn(u64) -> Vec<u8>,
        clear: impl Fn(&Split) -> Result<()>,
    ) -> Result<()> {
        let _within = self.pool.write_guard();
        let word = self.medium.at(self.word);
        // ORDER: Relaxed: nobody else has the table yet.
        let directory = Directory(LineArray(word.load(&self.medium, Ordering::Relaxed)));
        let directory = match directory.0.0 {
            0 => self.found_directory()?,
            _ => directory,
        };
        let is_sound = (1..=DEPTH_MAX).contains(&directory.bits())
            && directory.offset().is_multiple_of(LINE_BYTES)
            && directory.offset() <= self.medium.len()
            && Directory::bytes(directory.bits()) <= self.medium.len() - directory.offset();
        if !is_sound {
            return Err(self.damaged(self.word.raw()));
        }
        self.adopt(directory);
        let mut number = 0;
        while number < directory.len() {
            number += self.recover_segment(directory, number, &empty, &clear)?;
        }
        Ok(())
    }

    /// Makes the directory of a new table, with two empty entries.
    fn found_directory(&self) -> Result<Directory> {
        let word = self.medium.at(self.word);
        let bytes = Directory::bytes(1);
        let space = self
            .pool
            .alloc_aligned(bytes, LINE_BYTES, self.word.raw())?;
        let directory = Directory::new(space.offset::<Line>().raw(), 1);
        self.medium.zero(directory.offset(), bytes);
        // DURABLE: the directory, before the root names it.
        self.medium.fence();
        // DURABLE: the directory is in use, by this.
        // ORDER: Relaxed: nobody else has the table yet.
        word.store_persist(&self.medium, directory.0.0, Ordering::Relaxed);
        space.commit::<Line>();
        Ok(directory)
    }

    /// Makes the first segment at an entry that has none.
    fn found_segment(
        &self,
        directory: Directory,
        number: u64,
        empty: impl Fn(u64) -> Vec<u8>,
    ) -> Result<Segment> {
        let at = directory.entry(number);
        let space = self.reserve_segment(at.raw())?;
        let segment = Segment::new(space.offset::<Line>().raw(), 1);
        self.medium
            .write_past_cache(segment.offset(), &empty(number));
        // DURABLE: the segment, before the directory names it.
        self.medium.fence();
        let entry = self.medium.at(at);
        // DURABLE: the segment is in use, by this.
        // ORDER: Relaxed: nobody else has the table yet.
        entry.store_persist(&self.medium, segment.0.0, Ordering::Relaxed);
        space.commit::<Line>();
        Ok(segment)
    }

    /// Checks the entries of the segment whose first entry has this number, and returns how many
    /// they are. Ends the split of the segment if its last entry shows that it had begun.
    fn recover_segment(
        &self,
        directory: Directory,
        number: u64,
        empty: impl Fn(u64) -> Vec<u8>,
        clear: impl Fn(&Split) -> Result<()>,
    ) -> Result<u64> {
        let mut first = self.entry(directory, number);
        if first.0.0 == 0 && directory.bits() == 1 {
            first = self.found_segment(directory, number, empty)?;
        }
        let damaged = || Err(self.damaged(directory.entry(number).raw()));
        if !self.is_segment_of(directory, first) {
            return damaged();
        }
        let count = 1 << (directory.bits() - first.depth());
        if !number.is_multiple_of(count) {
            return damaged();
        }
        let last = self.entry(directory, number + count - 1);
        let entries = number..number + count;
        if last.0.bits() != first.0.bits() {
            let middle = number + count / 2;
            let half = Segment::new(first.offset(), first.depth() + 1);
            let is_stage = |number: u64| {
                let entry = self.entry(directory, number);
                let is_copy =
                    self.first_half == FirstHalf::MayBeCopied && entry.depth() == half.depth();
                entry == first
                    || if number < middle {
                        entry == half || is_copy
                    } else {
                        entry == last
                    }
            };
            let is_split = last.0.bits() == half.0.bits() && self.is_segment(last);
            if !is_split || !entries.clone().all(is_stage) {
                return damaged();
            }
            let split = Split {
                directory,
                entries,
                first: half,
                second: last,
            };
            self.spread(&split);
            clear(&split)?;
            self.end(&split);
            return Ok(count);
        }
        if self.follow_first(directory, &entries, first) {
            Ok(count)
        } else {
            damaged()
        }
    }

    /// Whether an entry of a directory may name this.
    pub(super) fn is_segment_of(&self, directory: Directory, segment: Segment) -> bool {
        let depths = 1..=directory.bits();
        depths.contains(&segment.0.bits()) && self.is_segment(segment)
    }

    pub(super) fn is_segment(&self, segment: Segment) -> bool {
        let (offset, bytes) = (segment.offset(), self.segment_bytes);
        offset != 0
            && offset.is_multiple_of(LINE_BYTES)
            && offset <= self.medium.len()
            && bytes <= self.medium.len() - offset
    }

    pub(super) fn damaged(&self, offset: u64) -> Error {
        Error::damaged("the directory of a hash table", offset)
    }
}
