//! Writes: under the lock of the key, each published by one store to the bucket.

use std::sync::atomic::Ordering;

use super::ClhtTable;
use super::form::Form;
use super::table::{Table, damaged_chain};
use crate::Result;
use crate::bucket::{Bucket, PairFlush};
use crate::line::{Line, LineImage};

/// Where a key is, or would go.
enum Located<'a> {
    /// In this slot.
    Present(&'a Line, usize),
    /// Nowhere; this slot is free.
    Vacant(&'a Line, usize),
    /// Nowhere, and the chain is full; this is its last line.
    Full(&'a Line),
    /// Nowhere, but the chain is damaged, and leads in a ring.
    Ring,
}

impl<F: Form> ClhtTable<F> {
    /// How the pair of a new entry becomes durable.
    const PAIR_FLUSH: PairFlush = match F::IS_COALESCED {
        true => PairFlush::WithToken,
        false => PairFlush::Before,
    };

    /// Stores `value` under `key` and returns the value before.
    #[inline]
    pub(super) fn put(&self, key: u64, value: u64) -> Result<Option<u64>> {
        let _within = self.pool.write_guard();
        let hash = self.seed.hash_u64(key);
        let _guard = self.enter();
        loop {
            let (table, held) = self.lock(hash);
            match self.locate(table, hash, key) {
                Located::Present(line, slot) => {
                    return Ok(Some(line.replace(&self.medium, slot, value)));
                }
                Located::Vacant(line, slot) => {
                    line.put_as(Self::PAIR_FLUSH, &self.medium, slot, key, value);
                    held.count_insert();
                    return Ok(None);
                }
                Located::Full(last) => {
                    if self.chain(table, last, key, value) {
                        held.count_insert();
                        return Ok(None);
                    }
                }
                Located::Ring => {
                    return Err(damaged_chain(table.bucket(table.home(hash)).raw()));
                }
            }
            drop(held);
            self.grow(table)?;
        }
    }

    /// Stores `value` under `key` if it is there, and returns the value before.
    #[inline]
    pub(super) fn replace(&self, key: u64, value: u64) -> Option<u64> {
        let _within = self.pool.write_guard();
        let hash = self.seed.hash_u64(key);
        let _guard = self.enter();
        let (table, _held) = self.lock(hash);
        match self.locate(table, hash, key) {
            Located::Present(line, slot) => Some(line.replace(&self.medium, slot, value)),
            _ => None,
        }
    }

    /// Deletes `key` and returns its value.
    #[inline]
    pub(super) fn delete(&self, key: u64) -> Option<u64> {
        let _within = self.pool.write_guard();
        let hash = self.seed.hash_u64(key);
        let _guard = self.enter();
        let (table, held) = self.lock(hash);
        match self.locate(table, hash, key) {
            Located::Present(line, slot) => {
                held.count_remove();
                Some(line.remove(&self.medium, slot))
            }
            _ => None,
        }
    }

    /// Looks for a key, and for the place where it would go.
    #[inline]
    fn locate(&self, table: Table<F>, hash: u64, key: u64) -> Located<'_> {
        let (mut line, mut passed) = (self.bucket(table, table.home(hash)), 0);
        let mut vacant = None;
        loop {
            if let Some(slot) = line.find(key) {
                return Located::Present(line, slot);
            }
            if vacant.is_none() {
                vacant = line.free_slot().map(|slot| (line, slot));
            }
            match self.next(table, line) {
                Some(next) => line = next,
                None => break,
            }
            passed += 1;
            if table.is_ring(passed) {
                return Located::Ring;
            }
        }
        match vacant {
            Some((line, slot)) => Located::Vacant(line, slot),
            None => Located::Full(line),
        }
    }

    /// Chains a spare with an entry to the last line of a chain; false if there is none left.
    #[cold]
    fn chain(&self, table: Table<F>, last: &Line, key: u64, value: u64) -> bool {
        let Some(spare) = self.spares.take(&self.medium, table) else {
            return false;
        };
        let at = table.spare(spare.number).raw();
        let mut image = LineImage::default();
        image.add(key, value);
        let mut bytes = Vec::with_capacity(Self::LINES * size_of::<Line>());
        image.append_to(&mut bytes);
        // The other lines of a wide bucket are empty.
        (1..F::LINES).for_each(|_| LineImage::default().append_to(&mut bytes));
        self.medium.write(at, &bytes);
        // DURABLE: the spare, and that it was given out, before the chain refers to it.
        self.medium.persist_range(at, bytes.len() as u64);
        spare.confirm();
        // DURABLE: the entry, by this.
        // ORDER: Release pairs with the acquire of `next`.
        last.link.store_persist(&self.medium, at, Ordering::Release);
        true
    }
}
