//! Operations on all entries: counts, visits, and the check of the invariants.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::sync::atomic::Ordering;

use super::Clevel;
use super::layout::{Bucket, SlotWord};
use super::places::homes;
use crate::index::CheckSummary;
use crate::{Error, Item, Result};

/// Buckets whose entries are visited under one guard of the pool.
const VISITED_AT_ONCE: u64 = 128;

impl<K: Item + ?Sized, const USED: usize> Clevel<K, USED> {
    /// The words of all entries of a bucket.
    fn entries<'a>(&self, bucket: &'a Bucket) -> impl Iterator<Item = SlotWord> + use<'a, K, USED> {
        // ORDER: Acquire: the item is read as it was written.
        let word =
            |slot: &'a gabion_media::pmem::PAtomicU64| SlotWord(slot.peek(Ordering::Acquire));
        let words = self.slots(bucket).iter().map(word);
        words.filter(|word| word.is_entry())
    }

    /// Counts all entries: reads every bucket.
    pub(super) fn count(&self) -> u64 {
        // An entry that is moved would be counted twice, or not at all.
        let _moving = self.moving.lock();
        let mut count = 0;
        for bits in self.context().upwards() {
            for number in 0..1 << bits {
                count += self.entries(self.bucket(bits, number)).count() as u64;
            }
        }
        count
    }

    /// Visits all entries, while none is moved.
    pub(super) fn visit(&self, visit: &mut dyn FnMut(&K, u64)) -> Result<()> {
        // `visit` may write, and others that are within may wait for `moving`.
        let _within = self.pool.write_guard();
        let _moving = self.moving.lock();
        let mut found = Vec::new();
        for bits in self.context().upwards() {
            let buckets = 1_u64 << bits;
            let mut from = 0;
            while from < buckets {
                let end = (from + VISITED_AT_ONCE).min(buckets);
                self.collect(bits, from..end, &mut found)?;
                for (key, value) in found.drain(..) {
                    visit(key.borrow(), value);
                }
                from = end;
            }
        }
        Ok(())
    }

    /// Appends the entries of some buckets of a level, which are durable then, as it is that others
    /// are not there.
    fn collect(
        &self,
        bits: u32,
        numbers: std::ops::Range<u64>,
        found: &mut Vec<(K::Owned, u64)>,
    ) -> Result<()> {
        let _guard = self.pool.enter();
        for number in numbers.clone() {
            let bucket = self.bucket(bits, number);
            for word in self.entries(bucket) {
                let key = self.key_of(word.item())?;
                found.push((key, self.value(word.item())?));
            }
        }
        if self.pending.is_any_marked() {
            for number in numbers {
                self.medium.flush(self.bucket(bits, number));
            }
            // DURABLE: what is visited, and that what is not visited is gone.
            self.medium.fence();
        }
        Ok(())
    }

    /// Checks the invariants, while nobody writes.
    pub(super) fn check_all(&self) -> Result<CheckSummary> {
        let context = self.context();
        let mut keys = HashSet::new();
        for bits in context.upwards() {
            let is_moved = context.is_resizing() && bits == context.last();
            for number in 0..1 << bits {
                let bucket = self.bucket(bits, number);
                let is_closed = is_moved && number <= self.moved(bits);
                for (place, slot) in bucket.slots.iter().enumerate() {
                    let wrong = |what| Error::damaged(what, self.medium.offset_of(slot).raw());
                    // ORDER: Relaxed: nobody writes.
                    let word = SlotWord(slot.peek(Ordering::Relaxed));
                    let is_entry = word.is_entry() && !word.is_leaving() && place < USED;
                    if word == SlotWord::FREE || word == SlotWord::CLOSED && is_closed {
                        continue;
                    }
                    if !is_entry {
                        return Err(wrong("a slot"));
                    }
                    let key = self.key_of(word.item())?;
                    let hash = key.borrow().seeded_hash(&self.seed);
                    if !homes(bits, hash).contains(&number) || !word.has_tag(SlotWord::tag_of(hash))
                    {
                        return Err(wrong("the place of an entry"));
                    }
                    if !keys.insert(key) {
                        return Err(wrong("a duplicate key"));
                    }
                }
            }
        }
        let entries = keys.len() as u64;
        // The root, the levels, and the items.
        let blocks = 1 + context.upwards().count() as u64 + entries;
        Ok(CheckSummary { entries, blocks })
    }
}
