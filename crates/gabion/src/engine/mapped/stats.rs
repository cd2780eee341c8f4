//! Counts and sizes of a store.

use super::{Mapped, PoolStore};
use crate::engine::keyspaces::KeyspaceId;
use crate::options::Durability;
use crate::stats::{
    CacheStats, GarbageStats, KeyspaceStats, MappedStats, MemoryStats, Stats, WrittenBytes, ratio,
};

/// What the structure in a pool says of itself. Bytes unless a name says else.
#[derive(Default)]
pub(crate) struct PoolStoreStats {
    /// What was stored in the pool, by purpose.
    pub(crate) written: WrittenBytes,
    /// Number of what it has in place of tables, and what that takes.
    pub(crate) tables: u64,
    pub(crate) table_bytes: u64,
    /// Of that what is live, and what is known to be garbage.
    pub(crate) live_bytes: u64,
    pub(crate) garbage_bytes: u64,
    /// Memory beside the pool.
    pub(crate) memory_bytes: u64,
    /// Number of times that something was written anew to give space back, and of splits.
    pub(crate) compactions: u64,
    pub(crate) splits: u64,
    /// What is the structure's own of the file's figures.
    pub(crate) mapped: MappedStats,
}

impl<S: PoolStore> Mapped<S> {
    /// Counts and sizes. Of a closed store only what it did.
    pub(crate) fn stats(&self) -> Stats {
        let opened = self.opened.load();
        let pool = opened.as_ref().map(|opened| opened.pool.stats());
        let known = opened.as_ref().map(|opened| opened.store.measure());
        let known = known.unwrap_or_default();
        let mut written = known.written;
        written.checkpoint = pool.map_or(0, |pool| pool.checkpoint_written_bytes);
        let space = pool.map_or(0, |pool| {
            pool.used_bytes + pool.retired_bytes + pool.checkpoint_bytes
        });
        let mapped = opened.as_ref().zip(pool).map(|(opened, pool)| MappedStats {
            file: opened.pool.path().display().to_string(),
            class: pool.class.name(),
            file_bytes_max: pool.size_bytes,
            free_bytes: pool.free_bytes,
            checkpoint_bytes: pool.checkpoint_bytes,
            ..known.mapped
        });
        let (tables, live) = (known.table_bytes, known.live_bytes);
        let space_amplification = ratio(tables, live).max(1.0);
        let user_bytes = self.counters.user_bytes.get();
        let keyspaces = self.keyspaces.load();
        let keyspaces = keyspaces.iter().map(|keyspace| KeyspaceStats {
            name: keyspace.name().to_owned(),
            options: String::new(),
            buckets: Vec::new(),
        });
        Stats {
            user_bytes,
            writes: self.counters.writes.get(),
            written,
            syncs: pool.map_or(0, |pool| pool.checkpoint_syncs),
            write_amplification_without_log: ratio(written.without_log(), user_bytes),
            write_amplification_bound: None,
            write_amplification_with_log: ratio(written.total(), user_bytes),
            log_bytes: 0,
            log_file_bytes: 0,
            log_bytes_kept_for_consumers: 0,
            memtable_bytes: 0,
            cache: CacheStats::default(),
            index_and_filter_bytes: known.memory_bytes,
            memory: MemoryStats::default(),
            table_bytes: tables,
            live_bytes: live,
            live_bytes_min: live,
            space_amplification,
            space_amplification_with_log: space_amplification,
            garbage: GarbageStats {
                old_version_bytes: known.garbage_bytes,
                ..GarbageStats::default()
            },
            space_bytes: space,
            tables: 0,
            buckets: 0,
            ordered_buckets: 0,
            flushes: 0,
            compactions: known.compactions,
            splits: known.splits,
            joins: 0,
            coalesced_tables: 0,
            expired_tables_dropped: 0,
            slowdown_ns: 0,
            stall_ns: 0,
            stalls: 0,
            slowdown_ns_max: 0,
            background_wait_ns: 0,
            visible_seq: 0,
            snapshots: 0,
            transactions: 0,
            transaction_age_ns_max: 0,
            durability: self.durability().to_string(),
            read_only: match self.options.read_only {
                true => Some("the store was opened read-only".to_owned()),
                false => self.health.failure().map(str::to_owned),
            },
            follower: None,
            keyspaces: keyspaces.collect(),
            mapped,
        }
    }

    /// The durability at which the store runs: without a checkpoint there is only one.
    fn durability(&self) -> Durability {
        match self.with(|opened| Ok(opened.can_sync())) {
            Ok(false) => Durability::Buffered,
            _ => self.options.durability,
        }
    }
}
