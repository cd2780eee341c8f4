//! Splits of segments, and doublings of the directory.
//!
//! A split of segment S with depth L, of which the directory has n = 2^(G-L) entries, changes them
//! in three stages, each durable before the next. N is the new segment for the second half; the
//! first half stays in S, or goes to S' if splits copy both halves.
//!
//! | stage | the first entry | others of the first half | of the second half | the last entry |
//! |---|---|---|---|---|
//! | before | S, L | S, L | S, L | S, L |
//! | 1 | S, L | S, L | S, L | N, L+1 |
//! | 2 (if n > 2) | S, L | S', L+1 | N, L+1 | N, L+1 |
//! | 3 | S', L+1 | S', L+1 | N, L+1 | N, L+1 |
//!
//! The allocator is told that the last entry refers to N, and the first one to S and S'. After a
//! crash in stage 1 or 2, recovery goes on with S in the place of S'. If the table takes what moved
//! out of S, it does so in stage 2. Otherwise entries that lie in one line, up to eight, need one
//! flush for all stages on x86-64, where the stores to a line reach the medium in their order.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{POff, Reserved};
use parking_lot::MutexGuard;

use super::{
    DEPTH_MAX, Directory, Extendible, FirstHalf, SEGMENT_ALIGN, Segment, Split, SplitHalves,
};
use crate::line::{LINE_BYTES, Line};
use crate::lock::Stripes;
use crate::{Error, Result};

impl Extendible {
    /// Splits the segment to which `hash` leads, whose lock is held. `images` gives the bytes of
    /// the halves; `clear` takes what moved out of the segment, if that is the table's way.
    #[cold]
    pub(crate) fn split(
        &self,
        segment: Segment,
        hash: u64,
        images: impl FnOnce() -> Result<SplitHalves>,
        clear: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let depth = segment.depth();
        if depth >= DEPTH_MAX {
            return Err(Error::ShardLimit);
        }
        // The second half has a stripe of its own if there are so many: one behind the first's.
        let second = hash | 1 << (63 - depth);
        let stripe = Stripes::index(second, depth + 1);
        let is_other = stripe != Stripes::index(hash, depth);
        let _held = is_other.then(|| self.stripes.at(stripe).lock());
        let images = images()?;
        let growth = self.growth.lock();
        // References to segments move, in the directory and with it.
        self.pool.settle();
        if self.directory().bits() == depth {
            self.double(&growth)?;
        }
        let directory = self.directory();
        let entries = directory.entries_for(hash, depth);
        let hint = |number| directory.entry(number).raw();
        let (first_hint, last_hint) = (hint(entries.start), hint(entries.end - 1));
        let new = self.reserve_segment(last_hint)?;
        let copy = match images.first {
            Some(image) => Some((
                self.reserve_segment(first_hint)?,
                self.pool
                    .retire::<Line>(POff::new(segment.offset()), first_hint)?,
                image,
            )),
            None => None,
        };
        let place = new.offset::<Line>().raw();
        self.medium.write_past_cache(place, &images.second);
        let first = match &copy {
            Some((copy, _, image)) => {
                let place = copy.offset::<Line>().raw();
                self.medium.write_past_cache(place, image);
                place
            }
            None => segment.offset(),
        };
        let split = Split {
            directory,
            entries,
            first: Segment::new(first, depth + 1),
            second: Segment::new(place, depth + 1),
        };
        // DURABLE: the new segments, and what the allocator noted, before an entry names them.
        self.medium.fence();
        self.begin(&split);
        self.spread(&split);
        let cleared = clear();
        self.end(&split);
        new.commit::<Line>();
        if let Some((copy, retiring, _)) = copy {
            copy.commit::<Line>();
            retiring.commit(&self.pool.enter());
        }
        cleared
    }

    /// The first stage of a split.
    fn begin(&self, split: &Split) {
        let number = split.entries.end - 1;
        self.name(split.directory, number, split.second);
        let last = self.medium.at(split.directory.entry(number));
        if !split.directory.is_one_line(&split.entries) {
            // DURABLE: the split, by this: recovery ends what is left of it.
            self.medium.persist(last);
        }
    }

    /// The second stage of a split.
    pub(super) fn spread(&self, split: &Split) {
        let Split {
            directory, entries, ..
        } = split;
        let middle = entries.start + (entries.end - entries.start) / 2;
        for number in entries.start + 1..entries.end {
            let half = if number < middle {
                split.first
            } else {
                split.second
            };
            self.name(*directory, number, half);
        }
        if self.first_half == FirstHalf::IsCleared || !directory.is_one_line(entries) {
            let others = directory.entry(entries.start + 1).raw();
            let bytes = directory.entry(entries.end).raw() - others;
            // DURABLE: all entries but the first, before that one tells that the split is over, and
            // before anything is taken out of its segment.
            self.medium.persist_range(others, bytes);
        }
    }

    /// Lets an entry name a segment, of which all is durable.
    pub(super) fn name(&self, directory: Directory, number: u64, segment: Segment) {
        let entry = self.medium.at(directory.entry(number));
        // ORDER: Release pairs with the acquire in `entry`.
        entry.store(&self.medium, segment.0.0, Ordering::Release);
        if let Some(mirror) = &self.mirror {
            mirror.set(directory, number, segment);
        }
    }

    /// The last stage of a split.
    pub(super) fn end(&self, split: &Split) {
        self.name(split.directory, split.entries.start, split.first);
        let entry = self.medium.at(split.directory.entry(split.entries.start));
        let is_one_line = split.directory.is_one_line(&split.entries);
        // The others of one line are durable if the segment was cleared. Then recovery may end the
        // split once more, and what changes the line later makes the end durable with itself.
        if self.first_half != FirstHalf::IsCleared || !is_one_line {
            // DURABLE: the end of the split, and in one line with the others all of it.
            self.medium.persist(entry);
        }
    }

    /// Reserves a segment to which the word at `hint` will refer.
    pub(super) fn reserve_segment(&self, hint: u64) -> Result<Reserved<'_>> {
        let bytes = self.segment_bytes;
        Ok(self.pool.alloc_aligned(bytes, SEGMENT_ALIGN, hint)?)
    }

    /// Doubles the directory, while nobody changes its entries.
    pub(super) fn double(&self, _growth: &MutexGuard<'_, ()>) -> Result<()> {
        let old = self.directory();
        let depth = old.bits() + 1;
        let word = self.medium.at(self.word);
        let hint = self.word.raw();
        let space = self
            .pool
            .alloc_aligned(Directory::bytes(depth), LINE_BYTES, hint)?;
        let retiring = self.pool.retire::<Line>(POff::new(old.offset()), hint)?;
        let new = Directory::new(space.offset::<Line>().raw(), depth);
        // Entries change under `growth`.
        let entries = || (0..old.len()).flat_map(|number| [self.entry(old, number); 2]);
        let bytes: Vec<u8> = entries()
            .flat_map(|entry| entry.0.0.to_le_bytes())
            .collect();
        self.medium.write_past_cache(new.offset(), &bytes);
        // DURABLE: the directory, and what the allocator noted, before the root names it.
        self.medium.fence();
        // DURABLE: the doubling, by this.
        // ORDER: Relaxed: read by recovery only.
        word.store_persist(&self.medium, new.0.0, Ordering::Relaxed);
        if let Some(mirror) = &self.mirror {
            mirror.add(new, entries());
        }
        self.adopt(new);
        space.commit::<Line>();
        retiring.commit(&self.pool.enter());
        Ok(())
    }

    /// Splits all segments of an empty table, for which there is room, by `split`, until they have
    /// so many bits.
    pub(crate) fn presplit(
        &self,
        wanted: u32,
        split: impl Fn(Segment, u64) -> Result<()>,
    ) -> Result<()> {
        let _within = self.pool.write_guard();
        for depth in 1..wanted {
            for number in 0..1_u64 << depth {
                let hash = number << (64 - depth);
                let (segment, _held) = self.lock(hash, |_| ());
                if segment.depth() == depth {
                    split(segment, hash)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use gabion_media::pmem::{Pool, PoolOptions};

    use super::*;
    use crate::{Dash, Index, IndexPlan};

    /// What the published code of Dash does: it looks whether the directory must be doubled,
    /// another thread doubles it, and then the entries of the old one are changed. Here the
    /// directory is read under the lock that doublings take. Without it, keys are lost.
    #[test]
    fn a_split_in_a_directory_that_was_doubled_meanwhile_loses_keys() {
        for is_overtaken in [false, true] {
            let pool = Pool::anonymous(PoolOptions {
                size: 4 << 20,
                ..Dash::<u64>::pool_options()
            });
            let plan = IndexPlan {
                capacity: 8,
                seed: Some(7),
            };
            let table: Dash<u64> = Dash::create(&pool.expect("memory"), plan).expect("a table");
            for key in 0..40 {
                table.insert(&key, key).expect("space");
            }
            let segments = table.segments();
            let double = || segments.double(&segments.growth.lock()).expect("space");
            double();
            let (segment, _held) = segments.lock(0, |_| ());
            let directory = segments.directory();
            if is_overtaken {
                double();
            }
            let moved = table.what_moves(segment, segment.depth()).expect("sound");
            let entries = directory.entries_for(0, segment.depth());
            let last = directory.entry(entries.end - 1).raw();
            let new = segments.reserve_segment(last).expect("space");
            let place = new.offset::<Line>();
            table.pool().write(place.raw(), &moved.image);
            let split = Split {
                directory,
                entries,
                first: Segment::new(segment.offset(), segment.depth() + 1),
                second: Segment::new(place.raw(), segment.depth() + 1),
            };
            segments.begin(&split);
            segments.spread(&split);
            table.clear(segment, &moved.slots).expect("sound");
            segments.end(&split);
            new.commit::<Line>();
            let there = |key: &u64| table.get(key).expect("sound") == Some(*key);
            assert_eq!((0..40).all(|key| there(&key)), !is_overtaken);
        }
    }
}
