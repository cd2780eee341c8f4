//! Counts and sizes of a store.

use super::generation::GenerationPart;
use super::{Flex, FlexKeyspace};
use crate::stats::{BucketStats, CacheStats, GarbageStats, KeyspaceStats, Stats, ratio};

impl Flex {
    /// Counts and sizes. What the spaces' own logs take is counted with the log.
    pub(crate) fn stats(&self) -> Stats {
        let shell = self.shell_stats();
        let keyspaces = self.keyspaces.load();
        let view = self.view.load();
        let past: u64 = view.past.iter().map(|past| past.bytes()).sum();
        let images: u64 = view
            .waiting
            .iter()
            .chain(&view.past)
            .map(|generation| generation.image_bytes())
            .sum();
        let log_file_bytes = shell.log_file_bytes;
        let (mut table_bytes, mut live_bytes, mut expired_bytes) = (0, 0, 0);
        let now = self.moments.now();
        for keyspace in keyspaces.iter() {
            let space = keyspace.partition.space().stats();
            table_bytes += u64::from(space.segments - space.segments_free) * space.segment_bytes;
            table_bytes += space.tree_file_bytes + space.log_bytes;
            live_bytes += space.live_bytes;
            expired_bytes += keyspace.expiring.lock().expired_by(now);
        }
        let keyspace_stats: Vec<KeyspaceStats> = keyspaces
            .iter()
            .map(|keyspace| KeyspaceStats {
                name: keyspace.name.clone(),
                options: keyspace.own.get().to_string(),
                buckets: vec![self.partition_stats(keyspace)],
            })
            .collect();
        let in_order = keyspace_stats
            .iter()
            .flat_map(|keyspace| &keyspace.buckets)
            .filter(|bucket| bucket.memtable_is_ordered);
        let ordered_buckets = in_order.count() as u64;
        let (hits, misses) = self.cache.hits_and_misses();
        let memtable_bytes = self.waiting_bytes() + past + images;
        let memory = self.memory_stats(images);
        Stats {
            log_bytes: self.syncer.live_bytes(),
            memtable_bytes,
            cache: CacheStats {
                hits,
                misses,
                bytes: self.cache.bytes(),
                bytes_max: self.options.memory_sizes().cache,
            },
            index_and_filter_bytes: memory.tables,
            memory,
            table_bytes,
            live_bytes,
            live_bytes_min: live_bytes,
            space_amplification: ratio(table_bytes, live_bytes).max(1.0),
            space_amplification_with_log: ratio(table_bytes + log_file_bytes, live_bytes).max(1.0),
            garbage: GarbageStats {
                old_version_bytes: table_bytes.saturating_sub(live_bytes),
                expired_bytes,
                ..GarbageStats::default()
            },
            space_bytes: table_bytes + log_file_bytes,
            buckets: keyspaces.len() as u64,
            ordered_buckets,
            keyspaces: keyspace_stats,
            ..shell
        }
    }

    fn partition_stats(&self, keyspace: &FlexKeyspace) -> BucketStats {
        let view = self.view.load();
        let memtables = view.waiting.iter().chain(&view.past);
        let memory = |layer: &GenerationPart| layer.table.memory_bytes();
        BucketStats {
            lower: String::new(),
            memtable_bytes: memtables
                .filter_map(|generation| generation.with_layer(keyspace.id, memory))
                .sum(),
            memtable_is_ordered: view
                .active()
                .with_layer(keyspace.id, |layer| layer.table.is_in_order())
                .unwrap_or(false),
            levels: vec![vec![keyspace.partition.space().len()]],
            reads: 0,
        }
    }
}
