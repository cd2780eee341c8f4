//! Resizing: a new top level, into which the entries of the bottom are copied.
//!
//! The levels are a list, from the top down, that grows at its head and is cut at its end, each by
//! one store. In between it has three levels, the last of which has nothing of its own; recovery
//! cuts it as a resize does.

use std::sync::atomic::Ordering;

use gabion_media::pmem::{POff, Retiring};

use super::LevelTable;
use super::form::Form;
use super::places::LEVEL_ALIGN;
use super::writepath::ValueOf;
use crate::bucket::Bucket;
use crate::line::{Line, LineArray};
use crate::{Error, Result};

/// Buckets of the old bottom whose entries are written at once.
const BATCH: u64 = 64;

impl<F: Form> LevelTable<F> {
    /// Makes room, unless another thread has done so since `full` was the top.
    #[cold]
    pub(super) fn grow(&self, full: LineArray) -> Result<()> {
        let _growth = self.growth.lock();
        if self.top() != full {
            return Ok(());
        }
        let held = self.stripes.lock_all();
        let bottom = self.levels(full).bottom;
        self.push(full, full.bits() + 1, Some(bottom))?;
        drop(held);
        Ok(())
    }

    /// Adds the levels that a new table lacks: none after a creation that came to its end.
    pub(super) fn found(&self, mut top: LineArray, mut count: usize) -> Result<()> {
        let bits = self.planned_bits();
        while count < 2 {
            let next = if count == 0 { bits - 1 } else { top.bits() + 1 };
            self.push(top, next, None)?;
            top = self.top();
            count += 1;
        }
        Ok(())
    }

    /// Puts a level on top of `top`, which may be none. If there is a third level below then,
    /// `bottom`, its entries are copied into the new one, and it goes. All locks are held.
    fn push(&self, top: LineArray, bits: u32, bottom: Option<LineArray>) -> Result<()> {
        if bits > LineArray::BITS_MAX {
            return Err(Error::ShardLimit);
        }
        // The reference to the top moves.
        self.pool.settle();
        let state = self.state();
        let hint = self.medium.offset_of(&state.top).raw();
        let bytes = Self::bytes_of_level(1 << bits);
        let space = self.pool.alloc_aligned(bytes, LEVEL_ALIGN, hint)?;
        let level = LineArray::new(space.offset::<Line>().raw(), bits);
        let retiring = match bottom {
            Some(bottom) => {
                match F::STREAMS {
                    true => self.copy(bottom, level),
                    false => self.insert_all(bottom, level),
                }
                Some(self.announce(top, bottom)?)
            }
            None => {
                self.medium.zero(level.offset(), bytes);
                None
            }
        };
        let word = self.below(level);
        // DURABLE: the level, before it is named; and what the allocator noted.
        // ORDER: Release pairs with the acquire in `levels`.
        word.store_persist(&self.medium, top.0, Ordering::Release);
        // DURABLE: the resize, by this.
        // ORDER: Relaxed: read by recovery only.
        state
            .top
            .store_persist(&self.medium, level.0, Ordering::Relaxed);
        self.adopt(level);
        space.commit::<Line>();
        if let Some(retiring) = retiring {
            self.cut(top, retiring);
        }
        Ok(())
    }

    /// Uses the levels from `top` on.
    pub(super) fn adopt(&self, top: LineArray) {
        // ORDER: Release pairs with the acquire of `top`. Before the level below is cut: a reader
        // that finds it gone finds this, too.
        self.top.store(top.0, Ordering::Release);
    }

    /// Announces that the level below `above` goes.
    pub(super) fn announce(&self, above: LineArray, level: LineArray) -> Result<Retiring<'_>> {
        let hint = self.medium.offset_of(self.below(above)).raw();
        Ok(self.pool.retire::<Line>(POff::new(level.offset()), hint)?)
    }

    /// Cuts the list of levels behind `last`.
    pub(super) fn cut(&self, last: LineArray, retiring: Retiring<'_>) {
        let word = self.below(last);
        // DURABLE: that nothing refers to the level below, before its space is free.
        // ORDER: Release: after the store of `adopt`.
        word.store_persist(&self.medium, 0, Ordering::Release);
        retiring.commit(&self.pool.enter());
    }

    /// Copies the entries of a level into one of four times its size, past the cache. The four
    /// buckets of the new one that come from a bucket by the hash which led there are its own, so
    /// the entries fit.
    fn copy(&self, from: LineArray, to: LineArray) {
        let quarter = to.bits() - from.bits();
        let mut bytes = Vec::new();
        let mut buckets: [Vec<_>; 4] = std::array::from_fn(|_| Vec::new());
        let mut first = 0;
        while first < from.len() {
            bytes.clear();
            let end = (first + BATCH).min(from.len());
            for number in first..end {
                buckets.iter_mut().for_each(Vec::clear);
                for (hash, key, value) in self.entries_of(from, number) {
                    buckets[(to.home(hash) % 4) as usize].push((key, value));
                }
                for entries in &buckets {
                    F::Bucket::append_image(entries, &mut bytes);
                    bytes.extend((0..F::PADDING).map(|_| 0));
                }
            }
            let at = Self::bucket(to, first << quarter);
            self.medium.write_past_cache(at.raw(), &bytes);
            first = end;
        }
        // What follows the buckets: the word below is stored later.
        let end = Self::bucket(to, to.len()).raw();
        self.medium.zero(end, size_of::<Line>() as u64);
    }

    /// As [`LevelTable::copy`], entry by entry, each of which is durable before the next one.
    fn insert_all(&self, from: LineArray, to: LineArray) {
        self.medium
            .zero(to.offset(), Self::bytes_of_level(to.len()));
        for number in 0..from.len() {
            for (hash, key, value) in self.entries_of(from, number) {
                let bucket: &F::Bucket = self.medium.at(Self::bucket(to, to.home(hash)));
                bucket.touch(&self.medium, None);
                if let Some(slot) = bucket.free_slot() {
                    let flush = self.pair_flush(bucket, slot);
                    bucket.put_as(flush, &self.medium, slot, key, value);
                }
            }
        }
    }

    /// The entries of a bucket, each behind the hash that led there, the first one if both did.
    fn entries_of(
        &self,
        level: LineArray,
        number: u64,
    ) -> impl Iterator<Item = (u64, u64, ValueOf<F>)> {
        let bucket: &F::Bucket = self.medium.at(Self::bucket(level, number));
        self.medium.touch(bucket);
        bucket.entries().filter_map(move |(key, value)| {
            let mut hashes = self.hashes(key).0.into_iter();
            let hash = hashes.find(|hash| level.home(*hash) == number)?;
            Some((hash, key, value))
        })
    }
}
