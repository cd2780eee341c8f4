//! Growth: every entry is inserted into a table of twice the size.

use std::sync::atomic::{AtomicU64, Ordering};

use gabion_media::pmem::POff;

use super::{Scheme, TwoHash, bytes_of_table};
use crate::bucket::Bucket;
use crate::line::{LINE_BYTES, Line, LineArray};
use crate::{Error, Result};

/// Percent of the slots that a table is planned to fill: it holds some more.
const PLANNED_LOAD: u64 = 75;

/// Bits of a table that is planned for so many entries.
pub(super) fn planned_bits<S: Scheme>(capacity: u64) -> u32 {
    let holds = |bits: &u32| {
        let slots = u128::from(S::slots(*bits)) * u128::from(PLANNED_LOAD) / 100;
        slots >= u128::from(capacity)
    };
    let mut bits = S::BITS_MIN..=LineArray::BITS_MAX;
    bits.find(holds).unwrap_or(LineArray::BITS_MAX)
}

/// A key with what a line keeps under it.
pub(super) type EntryOf<S> = (u64, <<S as Scheme>::Bucket as Bucket>::Value);

impl<S: Scheme> TwoHash<S> {
    /// Makes room, unless another thread has done so since `full` was the table.
    #[cold]
    pub(super) fn grow(&self, full: LineArray) -> Result<()> {
        let _growth = self.growth.lock();
        if self.table() != full {
            return Ok(());
        }
        let held = self.stripes.lock_all();
        // A table of twice the size has room, unless many keys have the same hashes.
        for bits in full.bits() + 1..=LineArray::BITS_MAX {
            if self.build(Some(full), bits)? {
                drop(held);
                return Ok(());
            }
        }
        Err(Error::ShardLimit)
    }

    /// Puts a table in the place of `old`, with its entries. All locks are held. False if they have
    /// no room in it.
    pub(super) fn build(&self, old: Option<LineArray>, bits: u32) -> Result<bool> {
        let word = &self.state().table;
        let hint = self.medium.offset_of(word).raw();
        let bytes = bytes_of_table::<S>(bits);
        let space = self.pool.alloc_aligned(bytes, LINE_BYTES, hint)?;
        let table = LineArray::new(space.offset::<Line>().raw(), bits);
        self.medium.zero(table.offset(), bytes);
        let stash_used = AtomicU64::new(0);
        if !old.is_none_or(|old| self.copy(old, table, &stash_used)) {
            return Ok(false);
        }
        let retiring = match old {
            Some(old) => Some(self.pool.retire::<Line>(POff::new(old.offset()), hint)?),
            None => None,
        };
        // DURABLE: the table, before it is named; and what the allocator noted.
        self.medium.fence();
        // DURABLE: the growth, by this.
        // ORDER: Relaxed: read by recovery only.
        word.store_persist(&self.medium, table.0, Ordering::Relaxed);
        self.adopt(table, stash_used.into_inner());
        space.commit::<Line>();
        if let Some(retiring) = retiring {
            retiring.commit(&self.pool.enter());
        }
        Ok(true)
    }

    /// Uses a table, and so many lines of its stash.
    pub(super) fn adopt(&self, table: LineArray, stash_used: u64) {
        // ORDER: Release pairs with the acquire in `table`.
        self.table.store(table.0, Ordering::Release);
        // ORDER: Release pairs with the acquire in `stash_in_use`; after the table.
        self.stash_used.store(stash_used, Ordering::Release);
    }

    /// Inserts all entries of a table into another one; false if there is no room.
    fn copy(&self, old: LineArray, table: LineArray, stash_used: &AtomicU64) -> bool {
        let lines = S::lines(old.bits()) + S::stash_lines(old.bits());
        (0..lines).all(|number| {
            let line = self.line(old, number);
            self.medium.touch(line);
            let mut entries = line.entries();
            entries.all(|entry| self.insert_alone(table, stash_used, entry))
        })
    }

    /// Inserts an entry into a table that nobody else has; false if there is no room.
    fn insert_alone(&self, table: LineArray, stash_used: &AtomicU64, entry: EntryOf<S>) -> bool {
        let (key, value) = entry;
        let hashes = self.hashes(key);
        let put = || self.put_into_spot(table, hashes, key, value);
        put()
            || self.make_room_alone(table, hashes) && put()
            || self.fill_stash(table, stash_used, entry)
    }
}
