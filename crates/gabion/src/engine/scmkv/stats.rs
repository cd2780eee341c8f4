//! Counts and sizes of a store.

use gabion_index::scmkv::{PageStats as PoolPage, PageUse, ScmkvStats};
use gabion_media::pmem::PoolStats;

use super::{Opened, ScmStore};
use crate::engine::keyspaces::Named;
use crate::options::Durability;
use crate::stats::{
    CacheStats, GarbageStats, KeyspaceStats, MappedStats, MemoryStats, PageStats, Stats,
    WrittenBytes, ratio,
};

/// Bytes of a word of the hash table, of which each record and each delete writes one.
const WORD_BYTES: u64 = 8;

/// What is known of an open store.
struct Known {
    pool: PoolStats,
    store: ScmkvStats,
    mapped: MappedStats,
}

impl Known {
    fn of(opened: &Opened) -> Known {
        let (pool, store) = (opened.pool.stats(), opened.store.stats());
        let mapped = MappedStats {
            file: opened.pool.path().display().to_string(),
            class: pool.class.name(),
            file_bytes_max: pool.size_bytes,
            free_bytes: pool.free_bytes,
            hash_buckets: store.buckets,
            is_enlarging: store.is_enlarging,
            longest_chain_lines: store.longest_chain_lines,
            page_bytes: store.page_bytes,
            pages_max: store.pages_max,
            cleaned_pages: store.cleaned_pages,
            moved_bytes: store.moved_bytes,
            rolled_back: store.rolled_back,
            checkpoint_bytes: pool.checkpoint_bytes,
            pages: opened.store.pages().iter().map(page).collect(),
        };
        Known {
            pool,
            store,
            mapped,
        }
    }

    /// What was stored in the pool and in its checkpoints. There is no log in front of the pool:
    /// its logs are what holds the data.
    fn written(&self) -> WrittenBytes {
        let store = &self.store;
        WrittenBytes {
            flush: store.record_bytes,
            gc: store.moved_bytes,
            checkpoint: self.pool.checkpoint_written_bytes,
            metadata: WORD_BYTES * (store.records + store.deletes) + store.chain_bytes,
            ..WrittenBytes::default()
        }
    }
}

fn page(page: &PoolPage) -> PageStats {
    PageStats {
        number: page.number,
        usage: match page.usage {
            PageUse::Log => "log",
            PageUse::Chains => "chains",
            PageUse::Reserve => "reserve",
        },
        is_full: page.is_full,
        live_bytes: page.is_counted.then_some(page.live_bytes),
        age: page.age,
    }
}

impl ScmStore {
    /// Counts and sizes. Of a closed store only what it did.
    pub(crate) fn stats(&self) -> Stats {
        let known = self.opened.load().as_deref().map(Known::of);
        let written = known.as_ref().map(Known::written).unwrap_or_default();
        let (pages, live, garbage) = known.as_ref().map_or((0, 0, 0), |known| {
            let store = &known.store;
            let pages = store.pages * store.page_bytes;
            (pages, store.live_bytes, store.garbage_bytes)
        });
        let space = known.as_ref().map_or(0, |known| {
            known.pool.used_bytes + known.pool.retired_bytes + known.pool.checkpoint_bytes
        });
        let user_bytes = self.counters.user_bytes.get();
        let keyspaces = self.keyspaces.load();
        let keyspaces = keyspaces.iter().map(|keyspace| KeyspaceStats {
            name: keyspace.name().to_owned(),
            buckets: Vec::new(),
        });
        Stats {
            user_bytes,
            writes: self.counters.writes.get(),
            written,
            syncs: known
                .as_ref()
                .map_or(0, |known| known.pool.checkpoint_syncs),
            write_amplification_without_log: ratio(written.without_log(), user_bytes),
            write_amplification_with_log: ratio(written.total(), user_bytes),
            log_bytes: 0,
            log_file_bytes: 0,
            memtable_bytes: 0,
            cache: CacheStats::default(),
            // All of it is in the mapped file.
            index_and_filter_bytes: 0,
            memory: MemoryStats::default(),
            table_bytes: pages,
            live_bytes: live,
            live_bytes_min: live,
            space_amplification: ratio(pages, live).max(1.0),
            space_amplification_with_log: ratio(pages, live).max(1.0),
            garbage: GarbageStats {
                old_version_bytes: garbage,
                ..GarbageStats::default()
            },
            space_bytes: space,
            tables: 0,
            buckets: 0,
            buckets_in_order: 0,
            flushes: 0,
            compactions: known.as_ref().map_or(0, |known| known.store.cleaned_pages),
            splits: 0,
            joins: 0,
            gathered: 0,
            slowdown_ns: 0,
            stall_ns: 0,
            stalls: 0,
            slowdown_ns_max: 0,
            background_wait_ns: 0,
            visible_seq: 0,
            snapshots: 0,
            durability: self.durability().to_string(),
            read_only: self.health.failure().map(str::to_owned),
            keyspaces: keyspaces.collect(),
            mapped: known.map(|known| known.mapped),
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
