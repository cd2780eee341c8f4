//! Trees of strings: what they can be asked for.

use std::collections::BTreeMap;
use std::time::Duration;

use gabion_media::pmem::Pool;

use super::item::{ItemRef, Room};
use super::layout::{ITEM_BYTES, ITEM_HINT, leaf_bytes};
use super::scan::{ScanDirection, ScanLimit, ScanOutput};
use super::writepath::Value;
use super::{Maintenance, Options, PairCheck, SpTree};
use crate::index::{CheckSummary, Index, IndexPlan, OrderedIndex, visit_by_scans};
use crate::lock::Backoff;
use crate::{Error, Result};

/// Time that a put waits for readers who keep the space that is kept back for it: one that has lost
/// its processor comes back within it.
const READERS_PATIENCE: Duration = Duration::from_secs(1);

/// Chunks of the pool that the backup's thread may take meanwhile.
const SPARE_CHUNKS: u64 = 8;

impl<const N: usize> SpTree<[u8], N> {
    /// As [`SpTree::create`], with or without a thread.
    ///
    /// # Errors
    /// As there.
    pub fn create_tended(pool: &Pool, plan: IndexPlan, tending: Maintenance) -> Result<Self> {
        Self::make(pool, plan, Options::default(), tending)
    }

    /// As [`SpTree::open`], for a medium that is not to be trusted: the pool has no block that
    /// nobody needs, or is missing one, which a look at the head of each leaf tells; `holds` is
    /// asked of each pair, and the leaves' own of it is checked, before anybody sees it. So what is
    /// damaged is told, a pair that is missing by the opening and others by those who come to them,
    /// unless it is in values and `holds` does not see it. After a crash in the middle of a split
    /// or a merge all of it is done by the opening.
    ///
    /// # Errors
    /// As [`SpTree::open`]; damage.
    pub fn open_checked(pool: &Pool, tending: Maintenance, holds: PairCheck) -> Result<Self> {
        Self::find(pool, Options::default(), tending, Some(holds))
    }

    /// Bytes of the pool that a pair takes beside its place in a leaf.
    #[must_use]
    pub fn item_bytes(key_len: usize, value_len: usize) -> u64 {
        ITEM_BYTES + (key_len + value_len) as u64
    }

    /// Makes sure that there is space for puts, as long as nobody else writes: `pairs` has the
    /// bytes of key and value of each, and the number of such puts. A leaf is
    /// reckoned for each of them.
    ///
    /// # Errors
    /// No space, or none in one piece.
    pub fn reserve(&self, pairs: &BTreeMap<u64, u64>) -> Result<()> {
        let chunk = self.pool.chunk_bytes();
        let mut blocks: BTreeMap<u64, u64> = BTreeMap::new();
        for (bytes, count) in pairs {
            // The item; at worst a split, whose bound is no longer than the key.
            for bytes in [ITEM_BYTES + bytes, ITEM_BYTES + bytes, leaf_bytes(N)] {
                let size = self.pool.rounded_size(bytes);
                *blocks.entry(size).or_default() += count;
            }
        }
        // A chunk has blocks of one size; one more for each size is for what threads have taken.
        let chunks = blocks.iter().map(|(size, count)| match chunk / size {
            0 | 1 => count * size.div_ceil(chunk),
            parts => count.div_ceil((parts - 1).max(1)) + 1,
        });
        let chunks = SPARE_CHUNKS + chunks.sum::<u64>();
        let _within = self.pool.write_guard();
        // A place for all of it is free again at once, and lasts until somebody writes.
        drop(self.pool.alloc(chunks.saturating_mul(chunk), ITEM_HINT)?);
        Ok(())
    }

    /// Makes items and leaves free that nobody needs any more, now rather than in passing.
    pub fn collect(&self) {
        let _within = self.pool.write_guard();
        self.pool.collect();
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let _pins = self.pin();
        self.look_up(key, |at| Ok(ItemRef::new(&self.medium, at)?.value()))
    }

    /// Appends the value of `key` to `target`, and says whether it is there.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn get_into(&self, key: &[u8], target: &mut Vec<u8>) -> Result<bool> {
        let _pins = self.pin();
        let begin = target.len();
        let found = self.look_up(key, |at| {
            target.truncate(begin);
            ItemRef::new(&self.medium, at)?.append_value(target);
            Ok(())
        })?;
        if found.is_none() {
            target.truncate(begin);
        }
        Ok(found.is_some())
    }

    /// Stores `value` under `key`, durably, and says whether another one was there.
    ///
    /// # Errors
    /// No space in the pool, or for bounds in DRAM; or a string of 4 GiB or more: nothing has
    /// changed then.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let _pins = self.pin();
        Ok(self
            .insert_value(key, Value::Bytes(value, Room::Common))?
            .is_some())
    }

    /// As [`SpTree::put`], in space that the pool keeps back, see [`Pool::alloc_kept`]: a full pool
    /// has it, too, if the last such pair was removed. The key is not there, and below all that
    /// ever are, so that it belongs to the first leaf, which keeps a slot for it.
    ///
    /// # Errors
    /// As [`SpTree::put`], if the space or the slot could not be set aside yet, as the tree was
    /// full before its pool kept anything back.
    pub fn put_copy(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let mut stored = Ok(());
        Backoff::wait_until(READERS_PATIENCE, || {
            // The pins go before anybody waits for those of others.
            let pins = self.pin();
            let inserted = self.insert_value(key, Value::Bytes(value, Room::Kept));
            drop(pins);
            let is_short = inserted.as_ref().is_err_and(Error::is_no_space);
            stored = inserted.map(drop);
            let may_come = is_short && self.pool.stats().retired_bytes > 0;
            if may_come {
                self.collect();
            }
            !may_come
        });
        stored
    }

    /// Stores `value` under `key`, durably, if another one is there, and says whether it was.
    ///
    /// # Errors
    /// As [`SpTree::put`].
    pub fn replace(&self, key: &[u8], value: &[u8]) -> Result<bool> {
        let _pins = self.pin();
        Ok(self
            .update_value(key, Value::Bytes(value, Room::Common))?
            .is_some())
    }

    /// Deletes `key`, durably, and says whether it was there.
    ///
    /// # Errors
    /// Damage on the medium, or no room for a note of the allocator: nothing has changed then.
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        let _pins = self.pin();
        Ok(self.remove_value(key)?.is_some())
    }

    /// Appends pairs from `from` on, in the order of keys, to `found`, up to a limit: a number of
    /// pairs, or also one of bytes. Tells whether it ended for that, so that there may be more.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn pairs_from(
        &self,
        from: &[u8],
        limit: impl Into<ScanLimit>,
        found: &mut Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Result<bool> {
        self.pairs(from, ScanDirection::Up, limit.into(), found)
    }

    /// As [`SpTree::pairs_from`], of pairs whose keys are below `before`, the greatest one first.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn pairs_before(
        &self,
        before: &[u8],
        limit: impl Into<ScanLimit>,
        found: &mut Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Result<bool> {
        self.pairs(before, ScanDirection::Down, limit.into(), found)
    }

    /// Appends up to `limit` keys from `from` on, in their order, to `found`.
    ///
    /// # Errors
    /// Damage on the medium.
    pub fn keys_from(&self, from: &[u8], limit: usize, found: &mut Vec<Vec<u8>>) -> Result<()> {
        let make = |[_, at]: [u64; 2]| Ok((ItemRef::new(&self.medium, at)?.key(), 0));
        self.scan_with(
            from,
            ScanOutput::new(ScanDirection::Up, limit.into(), found, make),
        )?;
        Ok(())
    }

    fn pairs(
        &self,
        key: &[u8],
        way: ScanDirection,
        limit: ScanLimit,
        found: &mut Vec<(Vec<u8>, Vec<u8>)>,
    ) -> Result<bool> {
        let make = |[_, at]: [u64; 2]| {
            let item = ItemRef::new(&self.medium, at)?;
            let (key, value) = (item.key(), item.value());
            let bytes = key.len() + value.len();
            Ok(((key, value), bytes))
        };
        self.scan_with(key, ScanOutput::new(way, limit, found, make))
    }

    /// The value of an item that was found, as a word.
    fn word_at(&self, at: u64) -> Result<u64> {
        ItemRef::new(&self.medium, at)?.word()
    }
}

/// As an index from strings to words, the tree has the eight bytes of a word as the value.
impl<const N: usize> Index<[u8]> for SpTree<[u8], N> {
    fn get(&self, key: &[u8]) -> Result<Option<u64>> {
        let _pins = self.pin();
        self.look_up(key, |at| self.word_at(at))
    }

    fn insert(&self, key: &[u8], value: u64) -> Result<Option<u64>> {
        let _pins = self.pin();
        let before = self.insert_value(key, Value::Bytes(&value.to_le_bytes(), Room::Common))?;
        before.map(|at| self.word_at(at)).transpose()
    }

    fn update(&self, key: &[u8], value: u64) -> Result<Option<u64>> {
        let _pins = self.pin();
        let before = self.update_value(key, Value::Bytes(&value.to_le_bytes(), Room::Common))?;
        before.map(|at| self.word_at(at)).transpose()
    }

    fn remove(&self, key: &[u8]) -> Result<Option<u64>> {
        let _pins = self.pin();
        let before = self.remove_value(key)?;
        before.map(|at| self.word_at(at)).transpose()
    }

    fn len(&self) -> Result<u64> {
        SpTree::len(self)
    }

    fn for_each(&self, visit: &mut dyn FnMut(&[u8], u64)) -> Result<()> {
        visit_by_scans(self, visit)
    }

    fn compact(&self) -> Result<()> {
        SpTree::compact(self)
    }

    fn check(&self) -> Result<CheckSummary> {
        SpTree::check(self)
    }

    fn pool(&self) -> &Pool {
        SpTree::pool(self)
    }

    fn ordered(&self) -> Option<&dyn OrderedIndex<[u8]>> {
        Some(self)
    }
}

impl<const N: usize> OrderedIndex<[u8]> for SpTree<[u8], N> {
    fn scan(&self, from: &[u8], limit: usize, found: &mut Vec<(Vec<u8>, u64)>) -> Result<()> {
        let make = |[_, at]: [u64; 2]| {
            let item = ItemRef::new(&self.medium, at)?;
            Ok(((item.key(), item.word()?), 0))
        };
        self.scan_with(
            from,
            ScanOutput::new(ScanDirection::Up, limit.into(), found, make),
        )?;
        Ok(())
    }
}
