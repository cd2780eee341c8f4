//! Counting what the engine does.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gabion_media::Purpose;

use super::Flex;
use crate::stats::{BucketStats, CacheStats, GarbageStats, KeyspaceStats, Stats, WrittenBytes};

/// Counters of events. They order nothing, so all accesses are relaxed.
#[derive(Default)]
pub(super) struct Counters {
    user_bytes: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
    compactions: AtomicU64,
    slowdown_ns: AtomicU64,
    slowdown_ns_max: AtomicU64,
    stall_ns: AtomicU64,
    stalls: AtomicU64,
}

impl Counters {
    /// A write of so many bytes of keys and values was acknowledged.
    #[inline]
    pub(super) fn count_write(&self, user_bytes: u64) {
        add(&self.user_bytes, user_bytes);
        add(&self.writes, 1);
    }

    /// A generation was merged.
    pub(super) fn count_flush(&self) {
        add(&self.flushes, 1);
    }

    /// A range was written anew.
    pub(super) fn count_compaction(&self) {
        add(&self.compactions, 1);
    }

    /// A write was held back.
    pub(super) fn count_slowdown(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        add(&self.slowdown_ns, nanos);
        // ORDER: Relaxed, see the type.
        self.slowdown_ns_max.fetch_max(nanos, Ordering::Relaxed);
    }

    /// A write was stopped.
    pub(super) fn count_stall(&self, time: Duration) {
        self.count_slowdown(time);
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        add(&self.stall_ns, nanos);
        add(&self.stalls, 1);
    }
}

#[inline]
fn add(counter: &AtomicU64, amount: u64) {
    // ORDER: Relaxed, see `Counters`.
    counter.fetch_add(amount, Ordering::Relaxed);
}

fn get(counter: &AtomicU64) -> u64 {
    // ORDER: Relaxed, see `Counters`.
    counter.load(Ordering::Relaxed)
}

impl Flex {
    /// Counts and sizes. What the spaces' own logs take is counted with the log.
    pub(crate) fn stats(&self) -> Stats {
        let counts = self.disk.counts();
        let written = WrittenBytes {
            log: counts.bytes_of(Purpose::Log),
            flush: counts.bytes_of(Purpose::Flush),
            compaction: counts.bytes_of(Purpose::Compaction),
            split: counts.bytes_of(Purpose::Split),
            merge: counts.bytes_of(Purpose::Merge),
            gc: counts.bytes_of(Purpose::Gc),
            checkpoint: counts.bytes_of(Purpose::Checkpoint),
            metadata: counts.bytes_of(Purpose::Metadata),
        };
        let user_bytes = get(&self.counters.user_bytes);
        let keyspaces = self.keyspaces.load();
        let view = self.view.load();
        let past: u64 = view.past.iter().map(|past| past.bytes()).sum();
        let images: u64 = view
            .waiting
            .iter()
            .chain(&view.past)
            .map(|generation| generation.image_bytes())
            .sum();
        let log_bytes = self.syncer.live_bytes();
        let log_file_bytes = self.syncer.file_bytes();
        let (mut table_bytes, mut live_bytes) = (0, 0);
        let mut index_bytes = 0;
        for keyspace in keyspaces.iter() {
            let space = keyspace.partition.space().stats();
            table_bytes += u64::from(space.segments - space.segments_free) * space.segment_bytes;
            table_bytes += space.tree_file_bytes + space.log_bytes;
            live_bytes += space.live_bytes;
            index_bytes += space.tree_memory_bytes + keyspace.partition.index_size().1;
        }
        let keyspace_stats: Vec<KeyspaceStats> = keyspaces
            .iter()
            .map(|keyspace| KeyspaceStats {
                name: keyspace.name.clone(),
                buckets: vec![self.partition_stats(keyspace)],
            })
            .collect();
        let in_order = keyspace_stats
            .iter()
            .flat_map(|keyspace| &keyspace.buckets)
            .filter(|bucket| bucket.memtable_in_order);
        let buckets_in_order = in_order.count() as u64;
        let (hits, misses) = self.cache.hits_and_misses();
        Stats {
            user_bytes,
            writes: get(&self.counters.writes),
            written,
            syncs: counts.syncs(),
            write_amplification_without_log: ratio(written.without_log(), user_bytes),
            write_amplification_with_log: ratio(written.total(), user_bytes),
            log_bytes,
            log_file_bytes,
            memtable_bytes: self.waiting_bytes() + past + images,
            cache: CacheStats {
                hits,
                misses,
                bytes: self.cache.bytes(),
                bytes_max: self.options.cache_bytes,
            },
            index_and_filter_bytes: index_bytes,
            table_bytes,
            live_bytes,
            live_bytes_min: live_bytes,
            space_amplification: ratio(table_bytes, live_bytes).max(1.0),
            space_amplification_with_log: ratio(table_bytes + log_file_bytes, live_bytes).max(1.0),
            garbage: GarbageStats {
                old_version_bytes: table_bytes.saturating_sub(live_bytes),
                ..GarbageStats::default()
            },
            space_bytes: table_bytes + log_file_bytes,
            tables: 0,
            buckets: keyspaces.len() as u64,
            buckets_in_order,
            flushes: get(&self.counters.flushes),
            compactions: get(&self.counters.compactions),
            splits: 0,
            background_wait_ns: 0,
            slowdown_ns: get(&self.counters.slowdown_ns),
            stall_ns: get(&self.counters.stall_ns),
            stalls: get(&self.counters.stalls),
            slowdown_ns_max: get(&self.counters.slowdown_ns_max),
            visible_seq: self.visible(),
            snapshots: self.snapshots.count() as u64,
            durability: self.options.durability.to_string(),
            read_only: self.failure().map(str::to_owned),
            keyspaces: keyspace_stats,
        }
    }

    fn partition_stats(&self, keyspace: &super::Keyspace) -> BucketStats {
        let view = self.view.load();
        let memtables = view.waiting.iter().chain(&view.past);
        let memory = |layer: &super::generation::Layer| layer.table.memory_bytes();
        BucketStats {
            lower: String::new(),
            memtable_bytes: memtables
                .filter_map(|generation| generation.with_layer(keyspace.id, memory))
                .sum(),
            memtable_in_order: view
                .active()
                .with_layer(keyspace.id, |layer| layer.table.is_in_order())
                .unwrap_or(false),
            levels: vec![vec![keyspace.partition.space().len()]],
            reads: 0,
        }
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "a ratio of byte counts for people"
)]
fn ratio(written: u64, user: u64) -> f64 {
    if user == 0 {
        0.0
    } else {
        written as f64 / user as f64
    }
}
