//! Counting what the engine does.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use gabion_media::Purpose;

use super::Wip;
use crate::stats::{BucketStats, CacheStats, GarbageStats, KeyspaceStats, Stats, WrittenBytes};

/// Counters of events. They order nothing, so all accesses are relaxed.
#[derive(Default)]
pub(crate) struct Counters {
    user_bytes: AtomicU64,
    writes: AtomicU64,
    flushes: AtomicU64,
    compactions: AtomicU64,
    splits: AtomicU64,
    /// Bytes of all tables, shared ones counted for each bucket.
    table_bytes: AtomicU64,
}

impl Counters {
    /// A write of so many bytes of keys and values was acknowledged.
    #[inline]
    pub(crate) fn count_write(&self, user_bytes: u64) {
        add(&self.user_bytes, user_bytes);
        add(&self.writes, 1);
    }

    /// A MemTable became a table.
    pub(crate) fn count_flush(&self) {
        add(&self.flushes, 1);
    }

    /// Runs became one run.
    pub(crate) fn count_compaction(&self) {
        add(&self.compactions, 1);
    }

    /// A bucket was split.
    pub(crate) fn count_split(&self) {
        add(&self.splits, 1);
    }

    /// All tables have this many bytes.
    pub(crate) fn set_table_bytes(&self, bytes: u64) {
        // ORDER: Relaxed, see the type.
        self.table_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Bytes of all tables when they were last counted.
    pub(crate) fn table_bytes(&self) -> u64 {
        get(&self.table_bytes)
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

/// A duration in nanoseconds, at most 584 years.
pub(crate) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Adds a duration to a counter of nanoseconds.
pub(crate) fn add_nanos(counter: &AtomicU64, time: Duration) {
    add(counter, nanos(time));
}

impl Wip {
    /// Counts and sizes. O(number of tables).
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
        let (table_bytes, tables) = self.versions.lock().file_bytes_and_count();
        let log_bytes = self.log_bytes();
        let log_file_bytes = self.syncer.file_bytes();
        let cache = self.cache.stats();
        // What a table that does not open holds is not known; who reads it is told.
        let totals = self.space_totals().unwrap_or_default();
        let tables_of = totals.buckets;
        let keyspaces = self.keyspace_stats();
        Stats {
            user_bytes,
            writes: get(&self.counters.writes),
            written,
            syncs: counts.syncs(),
            write_amplification_without_log: ratio(written.without_log(), user_bytes),
            write_amplification_with_log: ratio(written.total(), user_bytes),
            log_bytes,
            log_file_bytes,
            memtable_bytes: self.pool.allocated_bytes(),
            cache: CacheStats {
                hits: cache.hits,
                misses: cache.misses,
                bytes: cache.bytes,
                bytes_max: self.options.cache_bytes,
            },
            index_and_filter_bytes: self.index_and_filter_bytes(),
            table_bytes,
            live_bytes: tables_of.live,
            live_bytes_min: tables_of.live_min,
            space_amplification: totals.amplification(table_bytes),
            space_amplification_with_log: totals.amplification(table_bytes + log_file_bytes),
            garbage: GarbageStats {
                old_version_bytes: (tables_of.bytes - tables_of.live)
                    .saturating_sub(tables_of.deleted),
                deleted_range_bytes: tables_of.deleted,
                shared_bytes: totals.orphaned,
                tombstones: tables_of.tombstones,
            },
            space_bytes: table_bytes + log_file_bytes,
            tables,
            buckets: keyspaces
                .iter()
                .map(|keyspace| keyspace.buckets.len() as u64)
                .sum(),
            buckets_in_order: keyspaces
                .iter()
                .flat_map(|keyspace| &keyspace.buckets)
                .map(|bucket| u64::from(bucket.memtable_in_order))
                .sum(),
            flushes: get(&self.counters.flushes),
            compactions: get(&self.counters.compactions),
            splits: get(&self.counters.splits),
            slowdown_ns: get(&self.throttle.slowdown_ns),
            stall_ns: get(&self.throttle.stall_ns),
            stalls: get(&self.throttle.stalls),
            slowdown_ns_max: get(&self.throttle.wait_ns_max),
            background_wait_ns: nanos(self.pace.waited()),
            visible_seq: self.visible(),
            snapshots: self.snapshots.count() as u64,
            durability: self.options.durability.to_string(),
            read_only: self.failure().map(str::to_owned),
            keyspaces,
        }
    }

    /// Memory of the loaded indexes and filters; a table that buckets share counts once.
    fn index_and_filter_bytes(&self) -> u64 {
        let mut tables = std::collections::BTreeMap::new();
        for (_, bucket) in self.buckets() {
            for file in bucket.state.load().levels.files() {
                tables.insert(file.meta.file, file.memory_bytes());
            }
        }
        tables.values().sum()
    }

    fn keyspace_stats(&self) -> Vec<KeyspaceStats> {
        let bucket_stats = |bucket: &super::Bucket| {
            let state = bucket.state.load();
            let levels = (0..state.levels.depth()).map(|level| {
                let runs = state.levels.level(level).iter();
                runs.map(|run| run.tables.iter().map(|file| file.meta.file_bytes).sum())
                    .collect()
            });
            BucketStats {
                lower: bucket.lower().escape_ascii().to_string(),
                memtable_bytes: state.memtables().map(|table| table.memory_bytes()).sum(),
                memtable_in_order: state.active.is_in_order(),
                levels: levels.collect(),
                reads: bucket.reads.total(),
            }
        };
        let keyspaces = self.keyspaces.load();
        let stats = keyspaces.iter().map(|keyspace| KeyspaceStats {
            name: keyspace.name.clone(),
            buckets: keyspace
                .router
                .load()
                .buckets()
                .iter()
                .map(|b| bucket_stats(b))
                .collect(),
        });
        stats.collect()
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
