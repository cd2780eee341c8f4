//! What concerns all entries: iteration, counting, clearing.

use super::TurboHash;
use super::layout::ShardPlace;
use super::probe::{bits, bucket_at};
use super::recovery::Plan;
use super::shard::{Counts, LockedShard, Shard};
use super::writepath::SlotRef;
use crate::{Item, Result};

/// Times that a shard is read without its lock before it is read with it.
const TRIES: u32 = 4;

impl<K: Item + ?Sized, V: Item + ?Sized> TurboHash<K, V> {
    /// Number of entries. Exact if nobody writes. The first call after an open may read the
    /// metadata of all buckets, later ones a word for each shard.
    pub fn len(&self) -> u64 {
        let live = |shard: &Shard| {
            let counts = shard.counts().unwrap_or_else(|| {
                let mut locked = shard.lock();
                self.count(&mut locked);
                locked.counts().unwrap_or_default()
            });
            counts.live
        };
        self.shards.iter().map(live).sum()
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All entries, in no order that means anything. What is in the table from begin to end comes
    /// exactly once; what is inserted, changed or deleted meanwhile comes with one of its values or
    /// not. Holds the entries of one shard in memory.
    pub fn iter(&self) -> Iter<'_, K, V> {
        Iter {
            table: self,
            shard: 0,
            entries: Vec::new(),
        }
    }

    /// Deletes all entries and gives their space back. After a crash in between, some are deleted
    /// and others are not. What others insert meanwhile may stay.
    ///
    /// # Errors
    /// A damaged record.
    pub fn clear(&self) -> Result<()> {
        let _within = self.pool.write_guard();
        for (index, shard) in (0..).zip(&self.shards) {
            let mut locked = shard.lock();
            if locked.place().count() == 0 {
                continue;
            }
            if Self::HAS_RECORDS {
                self.erase_all(&mut locked)?;
            }
            self.switch(&mut locked, self.hash_in(index), None)?;
        }
        Ok(())
    }

    /// Deletes the entries of a locked shard one by one, so that no record is lost in a crash.
    fn erase_all(&self, locked: &mut LockedShard<'_>) -> Result<()> {
        if locked.counts().is_none() {
            self.count(locked);
        }
        let place = locked.place();
        for number in 0..place.count() {
            let bucket = bucket_at(&self.medium, place, number);
            for slot in bits(bucket.meta().live()) {
                let meta = bucket.meta();
                let at = bucket.read_slot(&self.medium, slot);
                let (word, value) = (at.key(), at.value());
                let hash = K::hash_of_slot(word, &self.seed);
                let spot = SlotRef { bucket, meta, slot };
                self.erase(locked, hash, spot, value)?;
            }
        }
        Ok(())
    }

    /// Builds every shard anew, with the size that suits its entries: without deleted slots, and
    /// smaller if it has become too large.
    ///
    /// # Errors
    /// No space in the pool; the shards from there on stay as they were.
    pub fn compact(&self) -> Result<()> {
        let _within = self.pool.write_guard();
        for (index, shard) in (0..).zip(&self.shards) {
            let mut locked = shard.lock();
            if locked.counts().is_none() {
                self.count(&mut locked);
            }
            let Counts { live, deleted } = locked.counts().unwrap_or_default();
            let count = super::build::suitable_count(live);
            if deleted != 0 || count < locked.place().count() {
                self.build(&mut locked, self.hash_in(index), count, None)?;
            }
        }
        Ok(())
    }

    /// Any hash whose shard is `index`.
    fn hash_in(&self, index: u64) -> u64 {
        Plan::shard_hint(index, self.shard_shift)
    }

    /// Both words of all live slots at `place`.
    fn slots_at(&self, place: ShardPlace) -> Vec<(u64, u64)> {
        let mut entries = Vec::new();
        for index in 0..place.count() {
            let bucket = bucket_at(&self.medium, place, index);
            loop {
                let meta = bucket.meta();
                let before = entries.len();
                for slot in bits(meta.live()) {
                    let slot = bucket.read_slot(&self.medium, slot);
                    entries.push((slot.key(), slot.value()));
                }
                if bucket.meta() == meta {
                    break;
                }
                entries.truncate(before);
            }
        }
        entries
    }

    /// The entries of a shard, as they were at some time while each of its buckets was read.
    fn entries_of(&self, shard: &Shard) -> Result<Vec<(K::Owned, V::Owned)>> {
        let _pin = Self::HAS_RECORDS.then(|| self.pin());
        for _ in 0..TRIES {
            let place = shard.place();
            let slots = self.slots_at(place);
            if shard.is_at(place) && !shard.is_locked() {
                return self.entries_in(slots);
            }
        }
        // Under the lock nothing moves, and all is durable.
        let locked = shard.lock();
        let slots = self.slots_at(locked.place());
        self.entries_in(slots)
    }

    fn entries_in(&self, slots: Vec<(u64, u64)>) -> Result<Vec<(K::Owned, V::Owned)>> {
        let entry = |(word, value)| Ok((self.key_of(word, value)?, self.value_of(value)?));
        slots.into_iter().map(entry).collect()
    }
}

/// The entries of a table, by [`TurboHash::iter`].
pub struct Iter<'a, K: Item + ?Sized, V: Item + ?Sized> {
    table: &'a TurboHash<K, V>,
    shard: usize,
    entries: Vec<(K::Owned, V::Owned)>,
}

impl<K: Item + ?Sized, V: Item + ?Sized> Iterator for Iter<'_, K, V> {
    type Item = Result<(K::Owned, V::Owned)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some(entry) = self.entries.pop() {
                return Some(Ok(entry));
            }
            let shard = self.table.shards.get(self.shard)?;
            self.shard += 1;
            match self.table.entries_of(shard) {
                Ok(entries) => self.entries = entries,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}
