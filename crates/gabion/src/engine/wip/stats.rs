//! Counts and sizes of a store.

use super::Wip;
use super::background::expired_bytes;
use super::bucket::Bucket;
use super::policy::run_limits::bound;
use crate::stats::{BucketStats, CacheStats, GarbageStats, KeyspaceStats, Stats};

impl Wip {
    /// The bound on amplification (`wip`), while all levels take as many runs as they need.
    fn amplification_bound(&self) -> Option<f64> {
        let is_wide_enough = |bucket: &Bucket| bucket.sizing.width(&self.options).is_enough();
        let all = self.buckets();
        all.iter()
            .all(|(_, bucket)| is_wide_enough(bucket))
            .then(|| bound(self.options.tuning.split_ways))
    }

    /// Counts and sizes. O(number of tables).
    pub(crate) fn stats(&self) -> Stats {
        let (table_bytes, tables) = self.versions.lock().file_bytes_and_count();
        let shell = self.shell_stats();
        let log_file_bytes = shell.log_file_bytes;
        let cache = self.cache.stats();
        // What a table that does not open holds is not known; who reads it is told.
        let totals = self.space_totals().unwrap_or_default();
        let tables_of = totals.buckets;
        let keyspaces = self.keyspace_stats();
        Stats {
            write_amplification_bound: self.amplification_bound(),
            log_bytes: self.log_bytes(),
            memtable_bytes: self.pool.allocated_bytes(),
            cache: CacheStats {
                hits: cache.hits,
                misses: cache.misses,
                bytes: cache.bytes,
                bytes_max: self.cache.capacity_bytes(),
            },
            index_and_filter_bytes: self.index_and_filter_bytes(),
            memory: self.memory_stats(),
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
                expired_bytes: self.expired_bytes(),
            },
            space_bytes: table_bytes + log_file_bytes,
            tables,
            buckets: keyspaces
                .iter()
                .map(|keyspace| keyspace.buckets.len() as u64)
                .sum(),
            ordered_buckets: keyspaces
                .iter()
                .flat_map(|keyspace| &keyspace.buckets)
                .map(|bucket| u64::from(bucket.memtable_is_ordered))
                .sum(),
            follower: self.follower_stats(),
            keyspaces,
            ..shell
        }
    }

    /// About how much of the tables has expired.
    fn expired_bytes(&self) -> u64 {
        let now = self.moments.now();
        // What a table that does not open holds is not known, as above.
        let bytes =
            |bucket: &Bucket| expired_bytes(bucket, &bucket.state.load().levels, now).unwrap_or(0);
        let all = self.buckets();
        all.iter().map(|(_, bucket)| bytes(bucket)).sum()
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
                memtable_is_ordered: state.active.is_in_order(),
                levels: levels.collect(),
                reads: bucket.reads.total(),
            }
        };
        let keyspaces = self.keyspaces.load();
        let stats = keyspaces.iter().map(|keyspace| KeyspaceStats {
            name: keyspace.name.clone(),
            options: keyspace.own.get().to_string(),
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
