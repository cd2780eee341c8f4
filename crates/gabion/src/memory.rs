//! One ceiling for the memory of a store.
//!
//! # The rule
//! Three parts share [`Options::memory_bytes_max`], in this order:
//!
//! 1. *Open tables*: their indexes, filters and range deletes, and where in the cache their blocks
//!    are. No read of a table can do without them, and they stay as long as the table is one of the
//!    store's or of a reader's.
//! 2. *MemTables*: records, directories, what sorts them, and chunks that wait to be used again.
//!    Their budget is [`Tuning::memtable_budget_bytes`], or what the tables leave of the ceiling,
//!    but never less than a quarter of that option: with less, flushes would write tiny tables.
//! 3. *The block cache* has what is left, up to [`Tuning::cache_bytes`], and gives blocks up when
//!    the others grow.
//!
//! So the sum is at most the ceiling as long as open tables leave that quarter. Beyond it the
//! ceiling cannot be kept, and `stats` says by how much it is passed. MemTables pass their budget
//! by a twentieth before writers stop, and by what those writes add that were let pass before; the
//! cache leaves them that, too.
//!
//! In FlexDB, the indexes of its spaces, their trees and buffers, and what it keeps for snapshots,
//! stand for the tables; its MemTables have half of the budget more, at which writers stop. Its
//! cache leaves a part of the ceiling for what nobody counts: what merges and readers have in their
//! hands, free places between cached intervals, threads, and what the allocator keeps.
//!
//! What follows for the sizes that were not set is told in `sizes`.
//!
//! Not counted: what users hold (values, and the blocks under a cursor after the cache gave them
//! up), the system's pages of mapped tables and of the log, and the fixed parts of buckets and of
//! the cache, which are below two hundredths of what is counted.
//!
//! # Invariants
//! - M1: `tables` is the sum of all [`TableMemory`] that live.
//!
//! [`Options::memory_bytes_max`]: crate::Options::memory_bytes_max
//! [`Tuning::memtable_budget_bytes`]: crate::Tuning::memtable_budget_bytes
//! [`Tuning::cache_bytes`]: crate::Tuning::cache_bytes

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::memtable::ChunkPool;
use crate::stats::MemoryStats;

/// MemTables keep at least one part in so many of their budget.
const MEMTABLES_LEAST_ONE_IN: u64 = 4;

/// What counts the memory of a store.
pub(crate) struct Memory {
    bytes_max: u64,
    /// What the cache leaves of the ceiling for what nobody counts.
    uncounted: u64,
    memtable_budget: u64,
    tables: AtomicU64,
    pool: Arc<ChunkPool>,
}

impl Memory {
    /// A ceiling, the MemTables' budget by the options, and the memory that MemTables are made of.
    pub(crate) fn new(bytes_max: u64, memtable_budget: u64, pool: &Arc<ChunkPool>) -> Arc<Memory> {
        Memory::leaving(0, bytes_max, memtable_budget, pool)
    }

    /// The same, with a cache that leaves so many bytes for what nobody counts.
    pub(crate) fn leaving(
        uncounted: u64,
        bytes_max: u64,
        memtable_budget: u64,
        pool: &Arc<ChunkPool>,
    ) -> Arc<Memory> {
        Arc::new(Memory {
            bytes_max,
            uncounted,
            memtable_budget,
            tables: AtomicU64::new(0),
            pool: Arc::clone(pool),
        })
    }

    /// What MemTables take their memory from.
    pub(crate) fn pool(&self) -> &Arc<ChunkPool> {
        &self.pool
    }

    /// The ceiling in bytes.
    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Who has how much of the memory, with a cache of so many bytes.
    pub(crate) fn stats(&self, cache: u64) -> MemoryStats {
        let (tables, held) = (self.tables(), self.memtables());
        let memtables = self.pool.allocated_bytes();
        MemoryStats {
            bytes: tables + held + cache,
            bytes_max: self.bytes_max,
            tables,
            memtables,
            memtables_max: self.memtable_budget(),
            recycled: held.saturating_sub(memtables),
            cache,
        }
    }

    /// Counts an open table of so many bytes until the result is dropped.
    pub(crate) fn charge_table(self: &Arc<Memory>, bytes: u64) -> TableMemory {
        // ORDER: Relaxed (all of this file); sums that order nothing.
        self.tables.fetch_add(bytes, Ordering::Relaxed);
        TableMemory {
            memory: Arc::clone(self),
            bytes: AtomicU64::new(bytes),
        }
    }

    /// Bytes of open tables.
    pub(crate) fn tables(&self) -> u64 {
        // ORDER: Relaxed, as above.
        self.tables.load(Ordering::Relaxed)
    }

    /// Bytes of MemTables, and of chunks that wait for the next ones.
    pub(crate) fn memtables(&self) -> u64 {
        self.pool.held_bytes()
    }

    /// What MemTables may use now.
    pub(crate) fn memtable_budget(&self) -> u64 {
        let left = self.bytes_max.saturating_sub(self.tables());
        let least = self.memtable_budget / MEMTABLES_LEAST_ONE_IN;
        self.memtable_budget.min(left.max(least))
    }

    /// What the others leave for blocks, whose cache does not grow into what MemTables may use.
    pub(crate) fn cache_room(&self) -> u64 {
        let memtables = self.memtables().max(self.memtable_budget());
        let left = self.bytes_max.saturating_sub(self.uncounted);
        left.saturating_sub(self.tables()).saturating_sub(memtables)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("bytes_max", &self.bytes_max)
            .field("tables", &self.tables())
            .field("memtables", &self.memtables())
            .finish_non_exhaustive()
    }
}

/// The memory of an open table, or of something else that reads need, counted as long as this
/// lives.
#[derive(Debug)]
pub(crate) struct TableMemory {
    memory: Arc<Memory>,
    bytes: AtomicU64,
}

impl TableMemory {
    /// Bytes that are counted.
    pub(crate) fn bytes(&self) -> u64 {
        // ORDER: Relaxed, as above.
        self.bytes.load(Ordering::Relaxed)
    }

    /// Counts so many bytes from now on.
    pub(crate) fn set(&self, bytes: u64) {
        // ORDER: Relaxed (both), as above.
        let old = self.bytes.swap(bytes, Ordering::Relaxed);
        let tables = &self.memory.tables;
        tables.fetch_add(bytes.wrapping_sub(old), Ordering::Relaxed);
    }

    /// Counts so many bytes more.
    pub(crate) fn add(&self, bytes: u64) {
        // ORDER: Relaxed (both), as above.
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.memory.tables.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for TableMemory {
    fn drop(&mut self) {
        // ORDER: Relaxed, as above.
        self.memory
            .tables
            .fetch_sub(*self.bytes.get_mut(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_come_first_then_memtables_and_the_cache_yields() {
        let pool = ChunkPool::new(400);
        let memory = Memory::new(1000, 400, &pool);
        assert_eq!((memory.memtable_budget(), memory.cache_room()), (400, 600));
        let first = memory.charge_table(500);
        assert_eq!((memory.memtable_budget(), memory.cache_room()), (400, 100));
        let second = memory.charge_table(300);
        assert_eq!((memory.memtable_budget(), memory.cache_room()), (200, 0));
        let third = memory.charge_table(900);
        assert_eq!((memory.memtable_budget(), memory.cache_room()), (100, 0));
        assert_eq!(memory.tables(), 1700);
        third.set(100);
        third.add(50);
        assert_eq!((memory.tables(), third.bytes()), (950, 150));
        drop((first, third));
        assert_eq!((memory.memtable_budget(), memory.cache_room()), (400, 300));
        drop(second);
        assert_eq!(memory.tables(), 0);
        // MemTables that pass their budget take from the cache.
        pool.count_for_tests(450);
        assert_eq!(memory.cache_room(), 550);
    }
}
